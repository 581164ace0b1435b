"""State that remains on NVMe after its run was killed: its owner, who may take it, and the effects of damage to it."""
import os
import random
import shutil
import signal
import unittest

from durable_runs import PLANS, STEPS, DurableTest
from harness import Golden, Run, arguments, begin, finish, run, send_signal, wait_for_steps


class KeptStores(DurableTest):
    # --- without an explicit --durability -----------------------------------------------------------------------------

    def test_steps_are_durable_where_there_is_room(self):
        flags, directories = self.killed_with_state(PLANS[0], durability=None, durability_interval=1)
        outcome = self.go_on(flags)
        self.assertEqual(outcome.code, 0, str(outcome))
        self.assertIn("goes on with the state on nvme", outcome.out)
        self.check_ended(flags["save"], self.whole(lr_decay_iters=STEPS), directories)

    def test_checkpoints_only_where_there_is_no_room(self):
        """Room for one slot, for two without records, and for both with them: never refused."""
        directories = self.nvme()
        found = set()
        for size in ("2000KiB", "2400KiB", "2600KiB", "8MiB"):
            done = self.train({**self.flags(durability=None, **PLANS[0]), "nvme": f"{directories[0]}={size}"})
            self.assertEqual(done.state(), self.whole().state())
            found.add(done.plan["durability"]["mode"])
        self.assertEqual(found, {"step", "checkpoint"})

    def test_another_run_makes_a_checkpoint_of_what_was_kept_unasked(self):
        """Nothing is lost, and the next run is not refused: the store yields."""
        flags, directories = self.killed_with_state(PLANS[0], durability=None, durability_interval=1)
        logged = len((flags["save"] / "log.jsonl").read_bytes().splitlines())
        other = self.with_directories(self.flags(save=self.fresh(), **PLANS[1]), directories[:1])
        outcome = run("train", *arguments(other))
        self.assertEqual(outcome.code, 0, str(outcome))
        self.assertIn("becomes a checkpoint of it first", outcome.out)
        self.check_ended(other["save"], self.whole(), directories)
        (step,) = Run(flags["save"]).steps()
        self.assertGreaterEqual(step, logged - 1)
        on = self.go_on(flags)
        self.assertEqual(on.code, 0, str(on))
        self.assertIn(f"loaded {flags['save']}/checkpoints/{step}", on.out)
        self.check_ended(flags["save"], self.whole(lr_decay_iters=STEPS), directories)

    def test_a_damaged_state_is_not_thrown_away(self):
        flags, directories = self.killed_with_state(PLANS[0], durability=None, durability_interval=1, count=1)
        for number in range(200):
            self.flip(directories[0], 0.001 + number / 210)
        other = self.with_directories(self.flags(save=self.fresh(), **PLANS[0]), directories)
        refused = run("train", *arguments(other))
        self.check_refusal(refused, 4, "damaged")
        self.assertIn(f"remove {flags['save']}", refused.err)

    # --- the owner of a store -----------------------------------------------------------------------------------------

    def test_a_run_directory_under_another_name(self):
        """Others find it beside its old place, and it is known by its new name once it has gone on."""
        flags, directories = self.killed_with_state(PLANS[0])
        moved = self.fresh()
        os.rename(flags["save"], moved)
        other = self.with_directories(self.flags(save=self.fresh(), **PLANS[0]), directories)
        self.check_refusal(run("train", *arguments(other)), 2, f"holds the state of the run in {moved}")
        self.kill_after({"load": moved, "save": moved, "train_iters": 100000, "lr_decay_iters": STEPS}, 16)
        self.check_refusal(run("train", *arguments(other)), 2, f"holds the state of the run in {moved}")
        on = self.go_on({"save": moved}, lr_decay_iters=STEPS, train_iters=60)
        self.assertEqual(on.code, 0, str(on))
        self.check_ended(moved, self.whole(train_iters=60, lr_decay_iters=STEPS), directories)

    def test_a_copy_of_a_run_does_not_take_its_store(self):
        flags, directories = self.killed_with_state(PLANS[0])
        copied = self.fresh()
        shutil.copytree(flags["save"], copied)
        for other in ({"load": copied, "save": copied},
                      {"load": copied, "save": copied, "nvme": self.fresh_directory("elsewhere")}):
            refused = run("train", *arguments(other))
            self.check_refusal(refused, 2, f"in the store of the run in {flags['save']}, which can go on, too")
            self.assertIn(f"remove {flags['save']}/store.json", refused.err)
        # A new run may take its state, and the run itself goes on as if nothing had happened.
        own = self.fresh()
        outcome = run("train", *arguments({"load": copied, "save": own, "nvme": self.fresh_directory("own"),
                                           "train_iters": STEPS}))
        self.assertEqual(outcome.code, 0, str(outcome))
        on = self.go_on(flags)
        self.assertEqual(on.code, 0, str(on))
        self.check_ended(flags["save"], self.whole(lr_decay_iters=STEPS), directories)
        # Once the original is out of the way, the copy counts as the run.
        flags, directories = self.killed_with_state(PLANS[0])
        copied = self.fresh()
        shutil.copytree(flags["save"], copied)
        (flags["save"] / "store.json").unlink()
        on = self.go_on({"save": copied})
        self.assertEqual(on.code, 0, str(on))
        self.check_ended(copied, self.whole(lr_decay_iters=STEPS), directories)

    def test_another_run_does_not_take_the_directory(self):
        flags, directories = self.killed_with_state(PLANS[0])
        other = self.with_directories(self.flags(save=self.fresh(), **PLANS[0]), directories)
        self.check_refusal(run("train", *arguments(other)), 2, f"holds the state of the run in {flags['save']}")
        self.assertFalse(other["save"].exists())
        # Its store also stays when its run directory is gone, which may have been moved. A run that was told to keep
        # its state keeps it until somebody removes it.
        shutil.rmtree(flags["save"])
        refused = run("train", *arguments(other))
        self.check_refusal(refused, 2, f"the run in {flags['save']}, which is not there now")
        self.assertIn(f"remove {directories[0] / 'spillway-store.bin'}", refused.err)
        for directory in directories:
            (directory / "spillway-store.bin").unlink()
        outcome = run("train", *arguments(other))
        self.assertEqual(outcome.code, 0, str(outcome))
        self.check_ended(other["save"], self.whole(), directories)

    def test_a_run_that_is_gone_has_no_claim_on_what_it_kept_unasked(self):
        flags, directories = self.killed_with_state(PLANS[0], durability=None, durability_interval=1)
        shutil.rmtree(flags["save"])
        outcome = run("train", *arguments(self.with_directories(self.flags(save=self.fresh(), **PLANS[0]),
                                                                directories)))
        self.assertEqual(outcome.code, 0, str(outcome))
        self.assertIn("removed", outcome.out)

    def test_directories_that_were_moved(self):
        """The run's directory, its store's directories, and both are moved: they are verified and go on in place; if
        they must be named, a message says so.
        """
        for moves in (("run",), ("nvme",), ("run", "nvme")):
            with self.subTest(moves=moves):
                flags, directories = self.killed_with_state(PLANS[0])
                place = self.fresh_directory("elsewhere")
                path, now = flags["save"], directories
                if "run" in moves:
                    path = place / "deeper" / "run"
                    path.parent.mkdir()
                    os.rename(flags["save"], path)
                if "nvme" in moves:
                    now = [place / f"disk{number}" for number in range(len(directories))]
                    for old, new in zip(directories, now):
                        os.rename(old, new)
                    for refused in (run("train", *arguments({"load": path, "save": path})),
                                    run("verify", "--store", path)):
                        self.check_refusal(refused, 4, str(directories[0]))
                        self.assertIn("Were directories moved, name them", refused.err)
                        self.assertIn("store.json", refused.err)
                    scrubbed = run("verify", *[word for directory in now for word in ("--store", directory)])
                else:
                    scrubbed = run("verify", "--store", path)
                self.assertEqual(scrubbed.code, 0, str(scrubbed))
                # After another kill, it is found without being named.
                self.kill_after({**self.with_directories({"load": path, "save": path}, now), "train_iters": 100000,
                                 "lr_decay_iters": STEPS}, 16)
                scrubbed = run("verify", "--store", path)
                self.assertEqual(scrubbed.code, 0, str(scrubbed))
                on = self.go_on({"save": path}, lr_decay_iters=STEPS, train_iters=60)
                self.assertEqual(on.code, 0, str(on))
                self.assertIn("goes on with the state on nvme", on.out)
                self.check_ended(path, self.whole(train_iters=60, lr_decay_iters=STEPS), now)

    def test_a_store_does_not_grow(self):
        directories = self.nvme()
        sizes = set()
        flags = self.with_directories(self.flags(save=self.fresh(), **PLANS[0]), directories)
        for start in range(4):
            words = flags if start == 0 else {"load": flags["save"], "save": flags["save"]}
            self.kill_after({**words, "save": flags["save"], "train_iters": 100000, "lr_decay_iters": STEPS},
                            3 * start + 3)
            files = {name: (directories[0] / name).stat().st_size for name in os.listdir(directories[0])}
            sizes.add(tuple(sorted((name, size) for name, size in files.items() if name != "spillway-store.lock")))
        self.assertEqual(len(sizes), 1, sizes)

    def test_in_use(self):
        directories = self.nvme()
        flags = self.with_directories(self.flags(save=self.fresh(), train_iters=100000, **PLANS[0]), directories)
        process = begin("train", *arguments(flags))
        wait_for_steps(flags["save"], 2, process)
        self.check_refusal(run("verify", "--store", directories[0]), 4, f"in use by process {process.pid} on host")
        send_signal(process, signal.SIGKILL)
        finish(process)

    # --- damage -------------------------------------------------------------------------------------------------------

    def test_a_bit_flipped_anywhere(self):
        """Refused, or in bytes that nothing reads; with the bit restored nothing is lost."""
        flags, directories = self.killed_with_state(PLANS[0])
        whole, chance, refused = self.whole(lr_decay_iters=STEPS), random.Random(11), 0
        kept = {path: self.fresh("kept") for path in (flags["save"], *directories)}
        for path, copy in kept.items():
            shutil.copytree(path, copy)
        for number in range(24):
            path = directories[number % 2] / "spillway-store.bin"
            size = path.stat().st_size
            offset, bit = size - 1 - chance.randrange(16384 if number % 6 == 0 else size), chance.randrange(8)
            self.flip_at(path, offset, bit)
            with self.subTest(offset=offset, bit=bit):
                outcome = self.go_on(flags)
                if outcome.code != 0:
                    refused += 1
                    self.check_refusal(outcome, 4, path.name)
                    self.flip_at(path, offset, bit)
                    outcome = self.go_on(flags)
                self.assertEqual(outcome.code, 0, str(outcome))
                self.check_ended(flags["save"], whole, directories)
            for path, copy in kept.items():
                shutil.rmtree(path)
                shutil.copytree(copy, path)
        self.assertGreater(refused, 2)

    def test_scrub_and_damage(self):
        flags, directories = self.killed_with_state(PLANS[0])
        for words in ([flags["save"]], directories):
            scrubbed = run("verify", *[word for directory in words for word in ("--store", directory)])
            self.assertEqual(scrubbed.code, 0, str(scrubbed))
            self.assertIn("all as written", scrubbed.out)
        # At many places in the slots that hold the state.
        for number in range(400):
            self.flip(directories[number % 2], 0.001 + number / 410)
        damaged = run("verify", "--store", flags["save"])
        self.check_refusal(damaged, 4, "are damaged; the first is")
        self.assertRegex(damaged.err, r"/(weight|low|m|v): damaged: bytes \d+ to \d+, at offset \d+ of "
                                      r".*spillway-store.bin")
        self.assertGreater(len(damaged.out.splitlines()), 2)
        refused = self.go_on(flags)
        self.check_refusal(refused, 4, "damaged")
        self.assertRegex(refused.err, r"at offset \d+ of .*spillway-store.bin|has no record|last page")

    def test_refused_stores(self):
        flags, directories = self.killed_with_state(PLANS[0])
        first, second = (directory / "spillway-store.bin" for directory in directories)
        aside = self.fresh("aside")
        # Swapped, missing, cut, of another store, of another model.
        os.rename(first, aside), os.rename(second, first), os.rename(aside, second)
        self.check_refusal(self.go_on(flags), 4, "file of directory 2, not of directory 1")
        os.rename(first, aside), os.rename(second, first), os.rename(aside, second)
        os.rename(second, aside)
        refused = self.go_on(flags)
        self.check_refusal(refused, 4, "no state of a run is there")
        self.assertIn("store.json", refused.err)
        first_copy = self.fresh("aside")
        shutil.copy(first, first_copy)
        other, others = self.killed_with_state(PLANS[0])
        shutil.copy(others[1] / "spillway-store.bin", second)
        self.check_refusal(self.go_on(flags), 4, "two stores")
        shutil.copy(others[0] / "spillway-store.bin", first)
        self.check_refusal(self.go_on(flags), 4, "another run")
        shutil.copy(aside, second)
        shutil.copy(first_copy, first)
        with open(second, "r+b") as file:
            file.truncate(second.stat().st_size - 4096)
        self.check_refusal(self.go_on(flags), 4, "")
        self.check_refusal(self.go_on(other, model=Golden("llama_gqa", self.directory).model,
                                      data=Golden("llama_gqa", self.directory).data), 2, "another model")
        (other["save"] / "store.json").write_text("{}")
        self.check_refusal(self.go_on(other), 4, "store.json")

    def test_removing_the_link_goes_back_to_the_checkpoint(self):
        flags, directories = self.killed_with_state(PLANS[0], steps=12, save_interval=5)
        (flags["save"] / "store.json").unlink()
        outcome = self.go_on(flags, save_interval=0)
        self.assertEqual(outcome.code, 0, str(outcome))
        self.assertIn("loaded", outcome.out)
        self.check_ended(flags["save"], self.whole(lr_decay_iters=STEPS), directories)


if __name__ == "__main__":
    unittest.main()
