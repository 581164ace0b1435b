"""Ranks that are processes and have less than others of something: memory, room on a disk, cores. Budgets are the least
of all; one that cannot go on ends all, and rank 0 says which and why."""
import os
import resource
import shutil
import time
import unittest

from control_group import ControlGroup
from harness import MIB, PATIENCE, PROCESS_OVERHEAD, SANITIZED, Run, wait_for_steps
from memory_test import LargerModel
from ranks.launched_ranks import LaunchedTest, finish_all, launch
from small_disks import Mounted

FURTHER_RANK = 20 * MIB  # of memory beside the plan, where ranks are threads
ON_NVME = {"parameter_tier": "nvme", "optimizer_tier": "nvme", "zero_stage": 3}


class ShortRanks(LaunchedTest):
    def check_all_end(self, processes, code, *fragments):
        """Within 10 s, with one message and the same exit code; returns rank 0's outcome."""
        began = time.monotonic()
        outcomes = finish_all(processes)
        self.assertLess(time.monotonic() - began, 10 * PATIENCE)
        for fragment in fragments:
            self.check_refusal(outcomes[0], code, fragment)
        for outcome in outcomes[1:]:
            self.assertEqual((outcome.code, outcome.out, outcome.err), (code, "", ""), str(outcome))
        return outcomes[0]

    def group(self, limit):
        group = ControlGroup(limit)
        if group.error:
            self.skipTest(group.error)
        self.addCleanup(group.close)
        return group

    def test_no_room_for_a_store(self):
        nvme = self.fresh_directory("nvme")
        (nvme / "rank-1").mkdir()
        with Mounted(self, nvme / "rank-1", "size=64k"):
            (nvme / "rank-1" / "ballast").write_bytes(bytes(60 << 10))
            flags = self.flags(nvme=nvme, save=self.fresh(), **ON_NVME)
            self.check_all_end(launch(flags, 2), 3, "rank 1 (127.0.0.1): ", str(nvme / "rank-1"))

    def test_writes_that_fail(self):
        """In the middle of a run, from one moment on: the file may not be written any more."""
        save = self.fresh()
        flags = self.flags(nvme=self.fresh_directory("nvme"), save=save, train_iters=100000, durability="step",
                           global_batch_size=3, **ON_NVME)
        processes = launch(flags, 3)
        wait_for_steps(save, 3, processes[0])
        resource.prlimit(processes[2].pid, resource.RLIMIT_FSIZE, (0, 0))
        self.check_all_end(processes, 4, "rank 2 (127.0.0.1): ", "rank-2")
        # What was durable goes on.
        steps = Run(save).log[-1]["step"] + 1
        for outcome in finish_all(launch({"load": save, "save": save, "train_iters": steps}, 3)):
            self.assertEqual(outcome.code, 0, str(outcome))

    def test_the_least_memory_counts(self):
        limit = 600 * MIB
        save, group = self.fresh(), self.group(limit)
        outcomes = finish_all(launch(self.flags(save=save), 2, prefix_of={1: group.prefix()}))
        for outcome in outcomes:
            self.assertEqual(outcome.code, 0, str(outcome))
        self.assertRegex(outcomes[0].out, r"note: rank 1 \(127\.0\.0\.1\) has .* for the device tier, and rank 0 has ")
        self.assertLess(Run(save).plan["tiers"]["device"]["budget_bytes"], limit / 2)

    def test_too_little_memory(self):
        group = self.group(408 * MIB)
        self.check_all_end(launch(self.flags(), 2, prefix_of={1: group.prefix()}), 3,
                           "the device tier of rank 1 (127.0.0.1) needs")

    def test_bound_to_fewer_cores(self):
        if os.cpu_count() < 2 or shutil.which("taskset") is None:
            self.skipTest("needs two cores and taskset")
        flags = self.flags(train_iters=1)
        alone = {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}  # on its host
        bound, free = (finish_all(launch(flags, 2, prefix_of=prefix_of, **alone))[0]
                       for prefix_of in ({1: ("taskset", "-c", "0")}, {}))
        self.assertIn("note: torchrun bound rank 1 (127.0.0.1) to 1 core, and a rank's share of the host is "
                      f"{os.cpu_count()}", bound.out, str(bound))
        self.assertNotIn("note: torchrun bound", free.out)


class MemoryOfProcesses(LaunchedTest, LargerModel):
    flags = LargerModel.flags

    @classmethod
    def setUpClass(cls):
        LargerModel.setUpClass.__func__(cls)

    @unittest.skipIf(SANITIZED, "a sanitizer's own memory is counted, too")
    def test_each_within_its_plan(self):
        """In a control group of its own, which ends a process that takes more."""
        for tier, budget in (("device", 256 * MIB), ("nvme", 144 * MIB)):
            with self.subTest(tier=tier):
                flags = self.flags(ranks=2, zero_stage=3, parameter_tier=tier, optimizer_tier=tier,
                                   device_memory=budget)
                planned = self.plan(flags)[0]["tiers"]["device"]["peak_bytes"]
                groups = [ControlGroup(planned + PROCESS_OVERHEAD) for _ in range(2)]
                for group in groups:
                    self.addCleanup(group.close)
                    if group.error:
                        self.skipTest(group.error)
                flags = {**flags, "ranks": None, "save": self.fresh()}
                prefixes = {rank: group.prefix() for rank, group in enumerate(groups)}
                for rank, outcome in enumerate(finish_all(launch(flags, 2, prefix_of=prefixes))):
                    self.assertEqual(outcome.code, 0, str(outcome))
                    over = outcome.resident_bytes - planned
                    print(f"rank {rank}: planned {planned / MIB:.1f} MiB, resident {over / MIB:.1f} MiB over")
                    self.assertLessEqual(over, PROCESS_OVERHEAD)
                self.assertEqual(Run(flags["save"]).plan["tiers"]["device"]["peak_bytes"], planned)

    @unittest.skipIf(SANITIZED, "a sanitizer's own memory is counted, too")
    def test_threads_within_the_sum_of_their_plans(self):
        flags = self.flags(ranks=2, device_memory=144 * MIB, save=self.fresh(), **ON_NVME)
        planned = 2 * self.plan({**flags, "save": None})[0]["tiers"]["device"]["peak_bytes"]
        group = ControlGroup(planned + PROCESS_OVERHEAD + FURTHER_RANK)
        self.addCleanup(group.close)
        if group.error:
            self.skipTest(group.error)
        self.train(flags, prefix=group.prefix())


if __name__ == "__main__":
    unittest.main()
