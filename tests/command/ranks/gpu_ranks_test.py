"""Several ranks with a GPU each, the whole command, on emulated GPUs (tests/simt/): golden curves, the same bits
whatever is sharded and wherever it rests, checkpoints that go on with other numbers of ranks, and what is refused."""
import itertools
import os
import signal
import unittest

import harness
from equivalence_test import BF16
from harness import (
    DATA,
    Run,
    arguments,
    begin,
    finish,
    read_safetensors,
    run,
    send_signal,
    wait_for_steps,
)
from ranks.small_ranks import SmallRanks, free_port, variables

harness.PROGRAM = os.environ.get("SPILLWAY_SIMT", harness.PROGRAM)
GPUS = {"device": "cuda", "profile": DATA / "gpu_machine.json", "device_memory": "64MiB", "host_memory": "512MiB"}
FEW = 3


class RanksOfGpus(SmallRanks):
    COMMON = {**GPUS, "ranks": 2, "train_iters": FEW}

    def on(self, devices, flags, seed=0):
        return self.train(flags, environment={"SPILLWAY_SIMT_DEVICES": str(devices), "SPILLWAY_SIMT_SEED": str(seed)})

    def refused(self, devices, flags):
        outcome = run("train", *arguments(flags), environment={"SPILLWAY_SIMT_DEVICES": str(devices)})
        self.assertEqual(outcome.code, 2, outcome.err)
        return outcome.err

    def test_bits(self):
        """Stages, tiers, where updates run and when: under other seeds of the devices' lateness, with the bits of
        stage 0 in core, and the bytes of the closed form."""
        for ranks in (2, 4):
            reference = self.on(ranks, self.flags(ranks=ranks, zero_stage=0, update="after"))
            cases = list(itertools.product((0, 2, 3), ("device", "host", "nvme"), ("device", "host"),
                                           ("after", "in-next-forward")))
            for index, (stage, tier, update_on, update) in enumerate(cases[ranks % 5::9]):
                with self.subTest(ranks=ranks, stage=stage, tier=tier, update_on=update_on, update=update):
                    ours = self.on(ranks, self.flags(
                        ranks=ranks, zero_stage=stage, parameter_tier=tier, optimizer_tier=tier, update_on=update_on,
                        update=update, nvme=self.fresh_directory("nvme"),
                        zero_group_size=2 if ranks == 4 and index % 2 else None), seed=index)
                    self.assertEqual(ours.curve(), reference.curve())
                    self.assertEqual(read_safetensors(ours.state_file()), read_safetensors(reference.state_file()))
                    self.assertIn("as the closed form has it", ours.outcome.out)

    def test_golden_curve(self):
        run_ = self.on(2, self.golden.flags(**{**GPUS, "dtype": "bf16", "micro_batch_size": 1, "ranks": 2}))
        for record, loss in zip(run_.log, self.golden.json["losses"]):
            self.assertLessEqual(abs(record["loss"] - loss) / loss, BF16[1])

    def test_ranks_that_share_a_gpu(self):
        """With the same bits as on two; each has half of its memory."""
        two = self.on(2, self.flags())
        one = self.on(1, self.flags(device="cuda:0,0"))
        self.assertEqual(one.curve(), two.curve())
        self.assertEqual(read_safetensors(one.state_file()), read_safetensors(two.state_file()))

    def test_a_run_goes_on_with_another_number(self):
        flags = self.flags(ranks=2, zero_stage=3)
        whole = self.on(2, self.flags(ranks=2, zero_stage=3, train_iters=2 * FEW))
        half = self.on(2, flags)
        again = self.on(3, {"load": half.path, "save": self.fresh_directory("again"), "train_iters": 2 * FEW,
                            "profile": GPUS["profile"], "device": "cuda:2,1", "zero_stage": 2})
        self.assertEqual(again.curve(), whole.curve()[FEW:])
        one = self.on(1, {"load": half.path, "save": self.fresh_directory("one"), "train_iters": FEW + 1, "ranks": 1,
                          "profile": GPUS["profile"]})
        self.assertEqual(len(one.log), 1)

    def test_verify(self):
        flags = {**self.flags(zero_stage=3, optimizer_tier="host"), "save": None}
        outcome = run("verify", *arguments(flags), "--steps", "2",
                      environment={"SPILLWAY_SIMT_DEVICES": "2"})
        self.assertEqual(outcome.code, 0, outcome.err + outcome.out)

    def test_what_is_refused(self):
        self.assertIn("2 on this host, which has 1 GPU that can be used", self.refused(1, self.flags()))
        self.assertIn("found 1 GPU with 2 ranks on this host", self.refused(2, self.flags(device="cuda:0")))
        self.assertIn("found 3 GPUs with 2 ranks", self.refused(4, self.flags(device="cuda:0,1,2")))
        self.assertIn("--device cuda:5: this machine has 2 GPUs", self.refused(2, self.flags(device="cuda:0,5")))
        for wrong in ("cuda:", "cuda:0,", "cuda:,1", "cuda:0;1", "cuda:0,1024"):
            self.assertIn("--device: found", self.refused(2, self.flags(device=wrong)))


class LaunchedGpus(SmallRanks):
    """Processes with a GPU each, over NCCL's twin."""

    COMMON = {**GPUS, "train_iters": FEW}

    def begin(self, ranks, flags, seed=0):
        port = free_port()
        return [begin("train", *arguments(flags),
                      environment={**variables(rank, ranks, port), "SPILLWAY_SIMT_DEVICES": str(ranks),
                                   "SPILLWAY_SIMT_SEED": str(seed)}) for rank in range(ranks)]

    def test_bits_of_threads(self):
        """Stages, groups and tiers, each under another seed of the devices' lateness; and the same bytes."""
        for seed, (ranks, changes) in enumerate((
                (2, {"zero_stage": 0}), (2, {"zero_stage": 3, "parameter_tier": "host", "optimizer_tier": "nvme"}),
                (3, {"zero_stage": 2, "global_batch_size": 6, "update_on": "host", "optimizer_tier": "host"}),
                (4, {"zero_stage": 3, "zero_group_size": 2}), (2, {"collectives": "parameter-server"}),
                (2, {"zero_stage": 3, "dtype": "fp16", "initial_loss_scale": 2.0 ** 24, "hysteresis": 1,
                     "train_iters": 10}))):  # most of its steps overflow
            with self.subTest(ranks=ranks, **changes):
                flags = self.flags(nvme=self.fresh_directory("nvme"), **changes)
                threads = self.train({**flags, "ranks": ranks},
                                     environment={"SPILLWAY_SIMT_DEVICES": str(ranks)})
                flags["save"] = self.fresh()
                outcomes = [finish(process, 300) for process in self.begin(ranks, flags, seed)]
                for outcome in outcomes:
                    self.assertEqual(outcome.code, 0, str(outcome))
                for outcome in outcomes[1:]:
                    self.assertEqual((outcome.out, outcome.err), ("", ""), "only rank 0 prints")
                ours = Run(flags["save"], outcomes[0])
                self.assertEqual(ours.curve(), threads.curve())
                self.assertEqual(read_safetensors(ours.state_file()), read_safetensors(threads.state_file()))
                if "collectives" not in changes:  # plans count the bytes of ranks that send to each other
                    self.assertIn("as the closed form has it", outcomes[0].out)
                self.assertEqual([record["network_bytes"] for record in ours.log],
                                 [record["network_bytes"] for record in threads.log])

    def test_a_rank_that_is_killed_ends_all(self):
        flags = self.flags(train_iters=10000, save=self.fresh())
        processes = self.begin(2, flags)
        wait_for_steps(flags["save"], 2, processes[0])
        send_signal(processes[1], signal.SIGKILL)
        finish(processes[1])
        outcome = finish(processes[0], 60)
        self.assertEqual(outcome.code, 4, str(outcome))
        self.assertIn("rank 1", outcome.err)

    def test_what_is_refused(self):
        def refused(flags, fragment):
            for process in self.begin(2, flags):
                outcome = finish(process, 60)
                self.assertEqual(outcome.code, 2, str(outcome))
                self.assertIn(fragment, outcome.err)
        refused(self.flags(collectives="tcp"),
                "--collectives: found tcp, and torchrun started 2 processes with a GPU each")
        refused(self.flags(collectives="nccl", device="cpu", profile=None, host_memory=None),
                "--collectives: found nccl, and torchrun started 2 processes on CPUs")


if __name__ == "__main__":
    unittest.main()
