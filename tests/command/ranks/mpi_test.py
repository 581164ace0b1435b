"""Ranks that mpirun starts and whose bytes go by MPI: the bits of threads; one that is killed ends all, and the run
goes on."""
import os
import pathlib
import shutil
import signal
import subprocess
import time
import unittest

from harness import (
    PATIENCE,
    PROGRAM,
    SANITIZED,
    Run,
    arguments,
    begin,
    finish,
    has_ended,
    read_safetensors,
    run,
    wait_for_steps,
)
from ranks.launched_ranks import KilledTest, LaunchedTest
from ranks.small_ranks import free_port, variables

MODULE = pathlib.Path(PROGRAM).parent / "spillway_mpi.so"
MPIRUN = shutil.which("mpirun")
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def why_not():
    if SANITIZED:
        return "MPI's own memory is not sanitized"
    if MPIRUN is None:
        return "there is no mpirun"
    return None if MODULE.exists() else "built without MPI's headers"


class ByMpirun:
    """Ranks that mpirun has begun, which ends with the last of them."""

    def __init__(self, flags, ranks, within=()):
        prefix = (MPIRUN, "-n", str(ranks), "--oversubscribe", "--bind-to", "none", *within)
        self.first = begin("train", *arguments({"collectives": "mpi", **flags}), prefix=prefix, environment=AS_ROOT)
        self.ranks, self.seen = ranks, set()

    def processes(self):
        """{rank: its process id}, of those that there are now."""
        found = {}
        try:
            mpirun = self.first.pid
            children = pathlib.Path(f"/proc/{mpirun}/task/{mpirun}/children").read_text(encoding="ascii")
        except OSError:
            return found
        for child in map(int, children.split()):
            try:
                words = pathlib.Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
            except OSError:
                continue
            for rank in range(self.ranks):
                if f"OMPI_COMM_WORLD_RANK={rank}".encode() in words:
                    found[rank] = child
        self.seen.update(found.values())
        return found

    def kill(self, rank):
        """Waits for the rank to exist; that of an mpirun that has ended cannot be killed."""
        while not has_ended(self.first):
            if process := self.processes().get(rank):
                try:
                    os.kill(process, signal.SIGKILL)
                except ProcessLookupError:
                    pass
                return

    def finish(self):
        outcome = finish(self.first)
        # mpirun ends as soon as it has told them to.
        late = time.monotonic() + 10 * PATIENCE
        while (left := self.still_there()) and time.monotonic() < late:
            time.sleep(0.01)
        outcome.left = left
        return outcome

    def still_there(self):
        return [process for process in self.seen if pathlib.Path(f"/proc/{process}").exists()]


class MpiTest(LaunchedTest):
    """MPI carries the bytes, and mpirun starts the ranks."""

    def by_mpirun(self, ranks, **changes):
        flags = {"save": self.fresh(), **self.flags(**changes)}
        outcome = ByMpirun(flags, ranks).finish()
        self.assertEqual(outcome.code, 0, str(outcome))
        return Run(flags["save"], outcome)


@unittest.skipIf(why_not(), why_not())
class Mpi(MpiTest):
    def test_the_bits_and_the_bytes_of_threads(self):
        for ranks, stage, group, tier in ((2, 0, None, "device"), (2, 3, None, "nvme"), (4, 2, 2, "device"),
                                          (4, 3, 2, "nvme")):
            with self.subTest(ranks=ranks, stage=stage, group=group, tier=tier):
                flags = {"zero_stage": stage, "zero_group_size": group, "parameter_tier": tier, "optimizer_tier": tier,
                         "nvme": self.nvme}
                threads, ours = self.train(self.flags(ranks=ranks, **flags)), self.by_mpirun(ranks, **flags)
                self.assertEqual(ours.curve(), threads.curve())
                self.assertEqual(read_safetensors(ours.state_file()), read_safetensors(threads.state_file()))
                self.assertEqual([record["network_bytes"] for record in ours.log],
                                 [record["network_bytes"] for record in threads.log])
                self.assertIn("as the closed form has it", ours.outcome.out)
                self.assertEqual(os.listdir(self.nvme), [])

    def test_a_rank_that_is_killed(self):
        """mpirun ends the others; what was durable goes on."""
        flags = {"save": self.fresh(), **self.flags(train_iters=100000, zero_stage=3, nvme=self.nvme,
                                                    parameter_tier="nvme", optimizer_tier="nvme", durability="step")}
        started = ByMpirun(flags, 2)
        wait_for_steps(flags["save"], 3, started.first)
        began = time.monotonic()
        started.kill(1)
        outcome = started.finish()
        self.assertLess(time.monotonic() - began, 10 * PATIENCE)
        self.assertNotEqual(outcome.code, 0, str(outcome))
        self.assertEqual(outcome.left, [])
        steps = Run(flags["save"]).log[-1]["step"] + 2
        again = ByMpirun({"load": flags["save"], "save": flags["save"], "train_iters": steps}, 2).finish()
        self.assertEqual(again.code, 0, str(again))
        whole = self.train(self.flags(ranks=2, train_iters=steps, lr_decay_iters=100000))
        self.assertEqual(Run(flags["save"]).curve(), whole.curve())
        self.assertEqual(os.listdir(self.nvme), [])

    def test_a_rank_that_does_not_come(self):
        """The start of MPI would wait for it as long as it takes."""
        sleeps = ("sh", "-c", '[ "$OMPI_COMM_WORLD_RANK" = 0 ] || sleep 60; exec "$@"', "sh")
        began = time.monotonic()
        outcome = ByMpirun(self.flags(rendezvous_timeout=2), 2, within=sleeps).finish()
        self.assertLess(time.monotonic() - began, 15 * PATIENCE)
        self.assertEqual(outcome.code, 2, str(outcome))
        errors = [line for line in outcome.err.splitlines() if line.startswith("error: ")]
        self.assertEqual(errors, ["error: MPI did not start within 2 s on rank 0: some of the 2 ranks that Open MPI "
                                  "started did not come"])

    def test_another_mpi_than_the_launchers(self):
        """As MPICH's mpirun would start a program that has Open MPI."""
        environment = {**AS_ROOT, **variables(0, 2, free_port(), "MPICH")}
        outcome = run("train", *arguments(self.flags(collectives="mpi")), environment=environment)
        self.check_refusal(outcome, 2, "MPICH says that this is rank 0 of 2, and Open MPI")


@unittest.skipIf(why_not(), why_not())
class MpiDurably(KilledTest):
    START = ByMpirun

    def test_a_random_rank_is_killed(self):
        self.kill_ranks(kills=5, ranks_of=lambda run: 2 + run)

    def test_slow_killed_two_hundred_times(self):
        self.kill_ranks(kills=200, ranks_of=lambda run: (2, 4)[run % 2])


class MpiAbsent(LaunchedTest):
    def test_no_module(self):
        alone = self.fresh_directory("alone") / "spillway"
        shutil.copy2(PROGRAM, alone)
        command = [str(alone), "train", *arguments(self.flags(collectives="mpi"))]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   env={**os.environ, **variables(0, 2, free_port())})
        self.check_refusal(finish(process), 2, "this build has no MPI")

    def test_no_launcher(self):
        outcome = run("train", *arguments(self.flags(ranks=2, collectives="mpi")))
        self.check_refusal(outcome, 2, "--collectives: found mpi")


if __name__ == "__main__":
    unittest.main()
