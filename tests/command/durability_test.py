"""`--durability step`: a run killed at any instant goes on at its last durable step, with the bits of one that never
stopped.
"""
import json
import os
import shutil
import signal
import unittest

from durable_runs import PLANS, STEPS, DurableTest
from harness import SANITIZED, Run, arguments, begin, file_system_of, finish, run, send_signal, wait_for_steps


class Durability(DurableTest):
    # --- kills --------------------------------------------------------------------------------------------------------

    def test_killed_at_random_instants(self):
        """20 kills over the plans; each run is killed until it has finished, at instants from its very start to its
        very end.
        """
        self.kill_at_random(PLANS, 20)

    def test_nothing_is_lost_but_the_steps_under_way(self):
        flags, directories = self.killed_with_state(PLANS[0])
        logged = len((flags["save"] / "log.jsonl").read_bytes().splitlines())
        outcome = self.go_on(flags, train_iters=logged + 3, lr_decay_iters=STEPS)
        self.assertEqual(outcome.code, 0, str(outcome))
        (step,) = [int(line.split("(step ")[1].split(")")[0]) for line in outcome.out.splitlines()
                   if "goes on with the state on nvme" in line]
        self.assertGreaterEqual(step, logged - 1)
        self.check_ended(flags["save"], self.whole(train_iters=logged + 3, lr_decay_iters=STEPS), directories)

    def test_killed_between_its_last_step_and_its_checkpoint(self):
        """A run with nothing left to do still saves the state that only its store has."""
        flags, directories = self.killed_with_state(PLANS[0])
        scrubbed = run("verify", "--store", flags["save"])
        step = int(scrubbed.out.split("step ")[1].split(":")[0])
        outcome = self.go_on(flags, train_iters=step, lr_decay_iters=STEPS)
        self.assertEqual(outcome.code, 0, str(outcome))
        self.check_ended(flags["save"], self.whole(train_iters=step, lr_decay_iters=STEPS), directories)

    def test_a_table_goes_on_where_the_store_does(self):
        table = self.fresh()
        flags, directories = self.killed_with_state(PLANS[0], csv=table)
        outcome = self.go_on(flags)
        self.assertEqual(outcome.code, 0, str(outcome))
        steps = [line.split(",")[0] for line in table.read_text().splitlines()[1:]]
        self.assertEqual(steps, [str(step) for step in range(1, STEPS + 1)])

    def test_gone_on_with_under_another_plan(self):
        """Other tiers, order, time of update or directories: the durable step becomes a checkpoint first."""
        for change in ({"optimizer_tier": "device"}, {"parameter_tier": "device", "update": "after"},
                       {"durability": "checkpoint"},
                       {"nvme": self.fresh_directory("other")}):
            with self.subTest(change=str(change)):
                flags, directories = self.killed_with_state(PLANS[0])
                outcome = self.go_on(flags, **change)
                self.assertEqual(outcome.code, 0, str(outcome))
                self.assertIn("becomes a checkpoint first", outcome.out)
                self.check_ended(flags["save"], self.whole(lr_decay_iters=STEPS), directories)

    def test_gone_on_with_in_another_form(self):
        flags, directories = self.killed_with_state(PLANS[0])
        outcome = self.go_on(flags, dtype="fp32")
        self.assertEqual(outcome.code, 0, str(outcome))
        self.assertIn("note: --dtype fp32 instead of bf16: the state is taken over to the bit", outcome.out)
        self.assertLess(abs(Run(flags["save"]).log[-1]["loss"] - self.whole(lr_decay_iters=STEPS).log[-1]["loss"]), 0.1)
        self.assertEqual([os.listdir(directory) for directory in directories], [[], []])

    def test_into_another_run_directory(self):
        flags, directories = self.killed_with_state(PLANS[0])
        fork = self.fresh()
        refused = run("train", *arguments({"load": flags["save"], "save": fork, "train_iters": STEPS}))
        self.check_refusal(refused, 2, "holds the state of the run in")
        shutil.rmtree(fork)
        other = self.fresh_directory("other")
        outcome = run("train", *arguments({"load": flags["save"], "save": fork, "train_iters": STEPS, "nvme": other}))
        self.assertEqual(outcome.code, 0, str(outcome))
        self.assertEqual(Run(fork).state(), self.whole(lr_decay_iters=STEPS).state())
        # The first run is unchanged.
        self.assertEqual(self.go_on(flags).code, 0)
        self.check_ended(flags["save"], self.whole(lr_decay_iters=STEPS), directories)

    def test_interrupted_once_and_twice(self):
        """The first signal saves a checkpoint and removes the store; a second SIGINT ends the run at once, and the
        store has the last step.
        """
        for signals in ([signal.SIGTERM], [signal.SIGINT, signal.SIGINT]):
            with self.subTest(signals=str(signals)):
                directories = self.nvme(2)
                flags = self.with_directories(self.flags(save=self.fresh(), train_iters=100000, lr_decay_iters=STEPS,
                                                         **PLANS[0]), directories)
                process = begin("train", *arguments(flags))
                wait_for_steps(flags["save"], 6, process)
                for number in signals:
                    send_signal(process, number)
                outcome = finish(process)
                self.assertEqual(outcome.code, 130, str(outcome))
                if len(signals) == 1:
                    self.assertFalse((flags["save"] / "store.json").exists())
                    self.assertEqual([os.listdir(directory) for directory in directories], [[], []])
                # However far it was when the signals came: a few steps more.
                steps = len((flags["save"] / "log.jsonl").read_bytes().splitlines()) + 5
                on = self.go_on(flags, train_iters=steps)
                self.assertEqual(on.code, 0, str(on))
                self.check_ended(flags["save"], self.whole(train_iters=steps, lr_decay_iters=STEPS), directories)

    def test_checkpoints_beside_training(self):
        """Checkpoints copied out of the store while steps go on: each is the state of a run that ends there, and so is
        the state that a kill goes back to.
        """
        for plan in (PLANS[0], PLANS[3], PLANS[4]):
            with self.subTest(plan=str(plan)):
                directories = self.nvme(2)
                done = self.train(self.with_directories(self.flags(**plan, save_interval=6, keep_last=3), directories))
                self.assertEqual(done.steps(), [30, 36, 40])
                self.assertEqual(done.state(30), self.whole(train_iters=30, lr_decay_iters=STEPS).state())
                self.assertEqual(done.state(36), self.whole(train_iters=36, lr_decay_iters=STEPS).state())
                self.check_ended(done.path, self.whole(), directories)
        for steps in (7, 13, 20):
            flags, directories = self.killed_with_state(PLANS[0], steps=steps, save_interval=3, keep_last=2)
            outcome = self.go_on(flags, train_iters=200)
            self.assertEqual(outcome.code, 0, str(outcome))
            self.check_ended(flags["save"], self.whole(train_iters=200, lr_decay_iters=STEPS), directories)

    def test_a_directory_that_disappears(self):
        """A running run has its files open and survives it; a run that should go on without them says what to do."""
        directories = self.nvme(2)
        flags = self.with_directories(self.flags(save=self.fresh(), train_iters=400, lr_decay_iters=STEPS, **PLANS[0]),
                                      directories)
        process = begin("train", *arguments(flags))
        wait_for_steps(flags["save"], 6, process)
        shutil.rmtree(directories[1])
        outcome = finish(process)
        self.assertEqual(outcome.code, 0, str(outcome))
        self.assertEqual(Run(flags["save"]).state(), self.whole(train_iters=400, lr_decay_iters=STEPS).state())
        killed, others = self.killed_with_state(PLANS[0], save_interval=4)
        shutil.rmtree(others[0])
        refused = self.go_on(killed)
        self.check_refusal(refused, 4, str(others[0]))
        self.assertIn("store.json", refused.err)

    # --- words --------------------------------------------------------------------------------------------------------

    def test_what_it_says(self):
        directories = self.nvme()
        step = run("train", *arguments(self.with_directories(self.flags(save=self.fresh(), **PLANS[0]), directories)))
        self.assertIn("durability: each step; a kill loses up to 1 step", step.out)
        copies = run("train", *arguments(self.with_directories(self.flags(save=self.fresh(), **PLANS[3]), directories)))
        self.assertIn("durability: every 3 steps; a kill loses up to 3 steps", copies.out)
        self.assertRegex(copies.out, r"and copies [0-9.]+ KiB of state from memory, [0-9.]+ [mu]?s of writing: [0-9.]+ "
                                     r"% of the time")
        checkpoint = run("train",
                         *arguments(self.with_directories(self.flags(save=self.fresh(),
                                                                     **{**PLANS[0], "durability": "checkpoint",
                                                                        "save_interval": 10}), directories)))
        self.assertIn("durability: checkpoints only; a kill loses up to 10 steps", checkpoint.out)
        unsaved = run("train", *arguments(self.with_directories(self.flags(**{**PLANS[0], "train_iters": 3}),
                                                                directories)))
        self.assertIn("durability: nothing is kept without --save", unsaved.out, str(unsaved))
        self.check_refusal(run("train", *arguments(self.flags(save=self.fresh()))), 2,
                           "--durability: found step without --nvme")

    def test_what_the_plan_says(self):
        """The loss of a kill in either mode, in the table, in JSON and on the page."""
        flags = self.with_directories(self.flags(**PLANS[0], save=self.fresh(), save_interval=10), self.nvme())
        table = run("plan", *arguments(flags))
        self.assertRegex(" ".join(table.out.split()), r"each step; a kill loses up to 1 step \([0-9.]+ [mu]?s\); with "
                                                      r"--durability checkpoint a kill loses up to 10 steps")
        plan = json.loads(run("plan", *arguments({**flags, "format": "json"})).out)
        kept = plan["durability"]
        self.assertEqual((kept["mode"], kept["interval"], kept["copied_bytes"]), ("step", 1, 0))
        self.assertEqual((kept["step"]["kill_loses_steps"], kept["checkpoint"]["kill_loses_steps"]), (1, 10))
        self.assertGreater(kept["step"]["kill_loses_s"], 0)
        self.assertGreater(kept["store_bytes"], plan["tiers"]["nvme"]["peak_bytes"])
        self.assertEqual(kept["written_bytes_per_step"], kept["record_bytes"])
        self.assertIn("a kill loses up to 1 step", run("plan", *arguments({**flags, "format": "html"})).out)
        one_slot = json.loads(run("plan", *arguments({**flags, "durability": "checkpoint", "format": "json",
                                                      "save_interval": 0})).out)["durability"]
        self.assertEqual(one_slot, {"mode": "checkpoint",
                                    "checkpoint": {"kill_loses_steps": None, "kill_loses_s": None}})

    def test_bytes_written(self):
        """The log and the plan agree; records and copies come on top of the steps' bytes, and are small here."""
        directories = self.nvme()
        done = self.train(self.with_directories(self.flags(**PLANS[0]), directories))
        planned = done.plan["nvme_per_step"]["written_bytes"]
        self.assertEqual({record["nvme_written_bytes"] for record in done.log[1:]}, {planned})

    @unittest.skipIf(SANITIZED, "a sanitizer's own files are counted, too")
    def test_bytes_written_as_the_kernel_counts_them(self):
        """Operations, records and copies together are within 1 % of the plan."""
        kind = file_system_of(self.directory)
        if kind in ("tmpfs", "ramfs", "overlay"):
            self.skipTest(f"{self.directory} is on {kind}: its writes are not counted")
        few, many = 3, 63  # differ by a whole number of intervals
        for plan in (PLANS[0], PLANS[1], {**PLANS[2], "durability_interval": 2}, PLANS[3],
                     {**PLANS[4], "durability_interval": 1}):
            with self.subTest(plan=str(plan)):
                short, long = (self.train(self.with_directories(self.flags(**plan, train_iters=steps,
                                                                           lr_decay_iters=many, log_interval=100,
                                                                           clip_grad=0), self.nvme()))
                               for steps in (few, many))
                kept = long.plan["durability"]
                planned = long.plan["nvme_per_step"]["written_bytes"] + kept["written_bytes_per_step"]
                counted = (long.outcome.written_bytes - short.outcome.written_bytes) / (many - few)
                print(f"a step, planned: {planned:.0f} bytes written; counted by the kernel: {counted:.0f}")
                self.assertAlmostEqual(counted / planned, 1, delta=0.01)


if __name__ == "__main__":
    unittest.main()
