"""Ranks that are processes, as launchers start them: torchrun's, Open MPI's, MPICH's and Slurm's variables, bytes over
TCP or MPI, on one host or two, the bits of ranks that are threads; one that is killed or otherwise minded ends all."""
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import time
import unittest

from durable_runs import STEPS, DurableTest
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
    send_signal,
    wait_for_steps,
)
from ranks.small_ranks import LAUNCHERS, SmallRanks, free_port, variables


def launch(flags_of, ranks, launcher="torchrun"):
    """Begins the ranks, rank 0 last: who comes early waits. flags_of: flags, or a function of the rank."""
    port = free_port()
    started = {}
    for rank in reversed(range(ranks)):
        flags = flags_of(rank) if callable(flags_of) else flags_of
        started[rank] = begin("train", *arguments(flags), environment=variables(rank, ranks, port, launcher))
    return [started[rank] for rank in range(ranks)]


def finish_all(processes, timeout=120):
    return [finish(process, timeout) for process in processes]


class LaunchedTest(SmallRanks):
    COMMON = {"train_iters": 5}

    def launched(self, ranks, launcher="torchrun", **changes):
        flags = {"save": self.fresh(), **self.flags(**changes)}
        outcomes = finish_all(launch(flags, ranks, launcher))
        for outcome in outcomes:
            self.assertEqual(outcome.code, 0, str(outcome))
        for outcome in outcomes[1:]:
            self.assertEqual((outcome.out, outcome.err), ("", ""), "only rank 0 prints")
        return Run(flags["save"], outcomes[0])

    def check_same(self, ours, theirs):
        self.assertEqual(ours.curve(), theirs.curve())
        self.assertEqual(read_safetensors(ours.state_file()), read_safetensors(theirs.state_file()))


class Launched(LaunchedTest):
    def test_the_bits_of_threads(self):
        for ranks, stage, group, tier in ((2, 0, None, "device"), (2, 3, None, "nvme"), (4, 1, 2, "device"),
                                          (4, 3, 2, "nvme"), (4, 2, None, "nvme")):
            with self.subTest(ranks=ranks, stage=stage, group=group, tier=tier):
                flags = {"zero_stage": stage, "zero_group_size": group, "parameter_tier": tier, "optimizer_tier": tier,
                         "nvme": self.nvme}
                threads = self.train(self.flags(ranks=ranks, **flags))
                ours = self.launched(ranks, **flags)
                self.check_same(ours, threads)
                self.assertEqual([record["network_bytes"] for record in ours.log],
                                 [record["network_bytes"] for record in threads.log])
                self.assertIn("as the closed form has it", ours.outcome.out)
                self.assertEqual(os.listdir(self.nvme), [])

    def test_every_launcher(self):
        threads = self.train(self.flags(ranks=2))
        for launcher in LAUNCHERS:
            with self.subTest(launcher=launcher):
                self.check_same(self.launched(2, launcher), threads)

    def test_sums_of_the_textbooks(self):
        for changes in ({"collectives": "parameter-server"}, {"reduce_algorithm": "ring"}):
            self.check_same(self.launched(4, **changes), self.train(self.flags(ranks=4, **changes)))

    def test_goes_on_with_threads_and_back(self):
        first = self.launched(4, zero_stage=3, train_iters=2)
        self.train({"load": first.path, "save": first.path, "train_iters": 3})
        for outcome in finish_all(launch({"load": first.path, "save": first.path, "train_iters": 5}, 4)):
            self.assertEqual(outcome.code, 0, str(outcome))
        self.check_same(Run(first.path), self.train(self.flags(ranks=4)))

    def test_evaluates_and_samples(self):
        flags = {"eval_data": self.golden.data, "eval_interval": 2, "tokenizer": "bytes", "sample_interval": 2,
                 "sample_prompt": "a", "sample_tokens": 3, "zero_stage": 3}
        ours, threads = self.launched(2, **flags), self.train(self.flags(ranks=2, **flags))
        for key in ("eval_loss", "sample"):
            self.assertEqual([record.get(key) for record in ours.log], [record.get(key) for record in threads.log])

    def test_one_process_needs_no_others(self):
        outcome = run("train", *arguments(self.flags(train_iters=1)), environment=variables(0, 1, free_port()))
        self.assertEqual(outcome.code, 0, str(outcome))


class LaunchedEnds(LaunchedTest):
    """All end within seconds, and rank 0 says which rank and why."""

    def begun(self, ranks=2, **changes):
        flags = {"save": self.fresh(), **self.flags(train_iters=100000, **changes)}
        processes = launch(flags, ranks)
        wait_for_steps(flags["save"], 3, processes[0])
        self.assertFalse(any(map(has_ended, processes)))
        return flags, processes

    def test_a_rank_that_is_killed(self):
        for ranks, killed in ((2, 1), (4, 2)):
            flags, processes = self.begun(ranks, zero_stage=3)
            send_signal(processes[killed], signal.SIGKILL)
            began = time.monotonic()
            outcomes = finish_all(processes)
            self.assertLess(time.monotonic() - began, 10 * PATIENCE)
            self.check_refusal(outcomes[0], 4, f"rank {killed} (127.0.0.1)")
            for rank in range(1, ranks):
                if rank != killed:
                    self.assertEqual((outcomes[rank].code, outcomes[rank].err), (4, ""), str(outcomes[rank]))

    def test_rank_0_is_killed(self):
        _, processes = self.begun()
        send_signal(processes[0], signal.SIGKILL)
        outcomes = finish_all(processes)
        self.check_refusal(outcomes[1], 4, "rank 0 (127.0.0.1)")

    def test_slow_a_rank_that_does_not_answer(self):
        """A process that is stopped keeps its connections: 30 s of silence count as its end."""
        _, processes = self.begun()
        send_signal(processes[1], signal.SIGSTOP)
        outcome = finish(processes[0])
        send_signal(processes[1], signal.SIGCONT)
        self.check_refusal(outcome, 4, "rank 1 (127.0.0.1) has not answered for 30 s")
        self.assertEqual(finish(processes[1]).code, 4)

    def test_ended_by_the_launcher_after_a_death(self):
        """What a launcher does to the others starts no save of a state that is not whole."""
        flags, processes = self.begun(zero_stage=3)
        send_signal(processes[1], signal.SIGKILL)
        send_signal(processes[0], signal.SIGTERM)
        outcomes = finish_all(processes)
        self.check_refusal(outcomes[0], 4, "rank 1 (127.0.0.1)")
        checkpoints = flags["save"] / "checkpoints"
        self.assertEqual(os.listdir(checkpoints) if checkpoints.exists() else [], [])

    def test_interrupted(self):
        """A launcher sends its signals to all: rank 0 decides."""
        flags, processes = self.begun()
        for process in processes:
            send_signal(process, signal.SIGINT)
        for outcome in finish_all(processes):
            self.assertEqual(outcome.code, 130, str(outcome))
        stopped = Run(flags["save"])
        self.assertEqual(stopped.steps()[-1], stopped.log[-1]["step"])


class LaunchedDurably(DurableTest):
    def test_a_random_rank_is_killed(self):
        self.kill_ranks(runs=6, ranks_of=lambda run: 3)

    def test_slow_killed_two_hundred_times(self):
        self.kill_ranks(runs=67, ranks_of=lambda run: (2, 4)[run % 2])

    def kill_ranks(self, runs, ranks_of):
        """Up to three kills of a random rank in each run, which then goes on to its end."""
        chance = random.Random(11)
        for kill in range(runs):
            ranks = ranks_of(kill)
            (nvme,) = self.nvme()
            # A rank that is killed before it has met the others is waited for.
            flags = self.flags(save=self.fresh(), nvme=nvme, zero_stage=(0, 2, 3)[kill % 3], parameter_tier="nvme",
                               optimizer_tier="nvme", rendezvous_timeout=5, global_batch_size=ranks)
            words = flags
            for attempt in range(8):
                processes = launch(words, ranks)
                if attempt < 3:
                    wait_for_steps(flags["save"], chance.randrange(1, STEPS), processes[0])
                    send_signal(processes[chance.randrange(ranks)], signal.SIGKILL)
                outcomes = finish_all(processes)
                if outcomes[0].code == 0:
                    break
                if (flags["save"] / "run.json").exists():
                    words = {"load": flags["save"], "save": flags["save"]}
            self.assertEqual(outcomes[0].code, 0, str(outcomes[0]))
            on, whole = Run(flags["save"]), self.whole(ranks=ranks, global_batch_size=ranks)
            self.assertEqual(on.curve(), whole.curve())
            self.assertEqual(read_safetensors(on.state_file()), read_safetensors(whole.state_file()))
            self.assertEqual(os.listdir(nvme), [])


class LaunchedRefused(LaunchedTest):
    def refused(self, flags_of, ranks, fragment):
        for outcome in finish_all(launch(flags_of, ranks)):
            self.check_refusal(outcome, 2, fragment)

    def test_ranks_that_disagree(self):
        self.refused(lambda rank: self.flags(lr=1e-3 * (1 + rank)), 2, "--lr: rank 1 has 0.002, and rank 0 has 0.001")

    def test_a_rank_that_never_comes(self):
        outcome = run("train", *arguments(self.flags(rendezvous_timeout=1)), environment=variables(0, 2, free_port()))
        self.check_refusal(outcome, 2, "rank 1 did not come within 1 s")
        outcome = run("train", *arguments(self.flags(rendezvous_timeout=1)), environment=variables(1, 2, free_port()))
        self.check_refusal(outcome, 4, "cannot be reached")

    def test_no_launcher(self):
        outcome = run("train", *arguments(self.flags(ranks=2, collectives="tcp")))
        self.check_refusal(outcome, 2, "--collectives: found tcp")

    def test_a_port_in_use(self):
        with socket.socket() as taken:
            taken.bind(("0.0.0.0", 0))
            taken.listen()
            outcome = run("train", *arguments(self.flags()), environment=variables(0, 2, taken.getsockname()[1]))
        self.check_refusal(outcome, 2, "cannot be listened on")

    def test_what_cannot_be(self):
        for environment, fragment in (({"RANK": "2", "WORLD_SIZE": "2"}, "RANK"),
                                      ({"RANK": "x", "WORLD_SIZE": "2"}, "RANK"),
                                      ({"RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1"}, "MASTER_ADDR")):
            self.check_refusal(run("train", *arguments(self.flags()), environment=environment), 2, fragment)
        for changes, fragment in (({"ranks": 3}, "--ranks: found 3"), ({"collectives": "threads"}, "--collectives")):
            outcome = run("train", *arguments(self.flags(**changes)), environment=variables(0, 2, free_port()))
            self.check_refusal(outcome, 2, fragment)


MODULE = pathlib.Path(PROGRAM).parent / "spillway_mpi.so"
MPIRUN = shutil.which("mpirun")
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def why_not():
    if SANITIZED:
        return "MPI's own memory is not sanitized"
    if MPIRUN is None:
        return "there is no mpirun"
    return None if MODULE.exists() else "built without MPI's headers"


class MpiTest(LaunchedTest):
    """MPI carries the bytes, and mpirun starts the ranks."""

    def begun(self, ranks, flags):
        prefix = (MPIRUN, "-n", str(ranks), "--oversubscribe", "--bind-to", "none")
        return begin("train", *arguments({"collectives": "mpi", **flags}), prefix=prefix, environment=AS_ROOT)

    def by_mpirun(self, ranks, **changes):
        flags = {"save": self.fresh(), **self.flags(**changes)}
        outcome = finish(self.begun(ranks, flags))
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
        process = self.begun(2, flags)
        wait_for_steps(flags["save"], 3, process)
        began = time.monotonic()
        os.kill(self.rank_of(process, 1), signal.SIGKILL)
        outcome = finish(process)
        self.assertLess(time.monotonic() - began, 10 * PATIENCE)
        self.assertNotEqual(outcome.code, 0, str(outcome))
        steps = Run(flags["save"]).log[-1]["step"] + 2
        again = finish(self.begun(2, {"load": flags["save"], "save": flags["save"], "train_iters": steps}))
        self.assertEqual(again.code, 0, str(again))
        whole = self.train(self.flags(ranks=2, train_iters=steps, lr_decay_iters=100000))
        self.assertEqual(Run(flags["save"]).curve(), whole.curve())
        self.assertEqual(os.listdir(self.nvme), [])

    @staticmethod
    def rank_of(mpirun, rank):
        """The process id of a rank."""
        children = pathlib.Path(f"/proc/{mpirun.pid}/task/{mpirun.pid}/children").read_text(encoding="ascii").split()
        for child in children:
            environment = pathlib.Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
            if f"OMPI_COMM_WORLD_RANK={rank}".encode() in environment:
                return int(child)
        raise AssertionError(f"no rank {rank} among {children}")

    def test_another_mpi_than_the_launchers(self):
        """As MPICH's mpirun would start a program that has Open MPI."""
        environment = {**AS_ROOT, **variables(0, 2, free_port(), "MPICH")}
        outcome = run("train", *arguments(self.flags(collectives="mpi")), environment=environment)
        self.check_refusal(outcome, 2, "MPICH says that this is rank 0 of 2, and Open MPI")


class MpiAbsent(MpiTest):
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


HOSTS = [f"spillway-{os.getpid()}-{host}" for host in (0, 1)]
ADDRESSES = ("10.213.77.1", "10.213.77.2")


def ip(*words):
    return subprocess.run(["ip", *words], capture_output=True, text=True, check=False)


def make_hosts():
    """Two namespaces and a cable between them. Returns why there are none; None: there are."""
    if shutil.which("ip") is None:
        return "there is no ip (iproute2)"
    cable = [f"spw{os.getpid() % 100000}{end}" for end in "ab"]
    commands = [("netns", "add", host) for host in HOSTS]
    commands.append(("link", "add", cable[0], "netns", HOSTS[0], "type", "veth", "peer", "name", cable[1], "netns",
                     HOSTS[1]))
    for host, end, address in zip(HOSTS, cable, ADDRESSES):
        commands += [("-n", host, "address", "add", f"{address}/24", "dev", end),
                     ("-n", host, "link", "set", end, "up"), ("-n", host, "link", "set", "lo", "up")]
    for command in commands:
        done = ip(*command)
        if done.returncode != 0:
            return f"ip {' '.join(command)}: {done.stderr.strip()}"
    return None


class Hosts(LaunchedTest):
    """Two hosts are two network namespaces: rank 0 is found by its address, and the bits are those of threads."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for host in HOSTS:
            cls.addClassCleanup(ip, "netns", "delete", host)
        why_not = make_hosts()
        if why_not:
            raise unittest.SkipTest(why_not)

    def by_hosts(self, flags):
        started = {}
        for rank, host in reversed(list(enumerate(HOSTS))):
            environment = {**variables(rank, 2, 29501), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1",
                           "MASTER_ADDR": ADDRESSES[0]}
            started[rank] = begin("train", *arguments(flags), prefix=("ip", "netns", "exec", host),
                                  environment=environment)
        return [finish(started[rank]) for rank in (0, 1)]

    def test_the_bits_of_threads(self):
        for stage in (0, 3):
            with self.subTest(stage=stage):
                save = self.fresh()
                for outcome in self.by_hosts(self.flags(save=save, zero_stage=stage)):
                    self.assertEqual(outcome.code, 0, str(outcome))
                ours, threads = Run(save), self.train(self.flags(ranks=2, zero_stage=stage))
                self.assertEqual(ours.curve(), threads.curve())
                self.assertEqual(read_safetensors(ours.state_file()), read_safetensors(threads.state_file()))

    def test_durable_steps_are_refused(self):
        """Rank 0 cannot read the other host's --nvme."""
        for outcome in self.by_hosts(self.flags(durability="step", nvme=self.fresh_directory("nvme"))):
            self.check_refusal(outcome, 2, "--durability: found step with ranks on several hosts")


if __name__ == "__main__":
    unittest.main()
