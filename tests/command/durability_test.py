"""`--durability step`: killed at any instant, a run goes on at its last durable step, with the bits of one that never stopped."""
import json
import os
import random
import shutil
import signal
import struct
import time
import unittest

from harness import SANITIZED, CommandTest, Golden, Run, arguments, begin, file_system_of, finish, run, send_signal, wait_for_steps

STEPS = 40
# Three tiers, of which two are in memory.
APART = {"device": "cpu-apart", "device_memory": "64MiB", "host_memory": "128MiB"}
PLANS = [
    {"parameter_tier": "nvme", "optimizer_tier": "nvme", "update": "in-next-forward", "activation_tier": "nvme"},
    {"parameter_tier": "nvme", "optimizer_tier": "nvme", "update": "in-backward"},
    {"parameter_tier": "nvme", "optimizer_tier": "device", "update": "after"},
    {"parameter_tier": "device", "optimizer_tier": "nvme", "update": "in-next-forward", "durability_interval": 3},
    {"parameter_tier": "device", "optimizer_tier": "device", "update": "after"},
    {**APART, "parameter_tier": "device", "optimizer_tier": "host", "update": "in-next-forward", "update_on": "host"},
    {**APART, "parameter_tier": "host", "optimizer_tier": "nvme", "update": "after", "update_on": "device"},
]


class Durability(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.golden = Golden("gpt2", cls.directory)
        cls.wholes = {}

    def flags(self, **changes):
        return self.golden.flags(**{"dtype": "bf16", "micro_batch_size": 1, "global_batch_size": 3, "train_iters": STEPS, "lr_decay_style": "cosine",
                                    "lr_warmup_iters": 3, "data_order": "shuffled", "durability": "step", **changes})

    def whole(self, **changes):
        """In core, never stopped."""
        key = tuple(sorted(changes.items()))
        if key not in self.wholes:
            self.wholes[key] = self.train(self.flags(durability="checkpoint", **changes))
        return self.wholes[key]

    def nvme(self, count=1):
        return [self.fresh_directory("nvme") for _ in range(count)]

    @staticmethod
    def with_directories(flags, directories):
        value = [directories[0]]
        for directory in directories[1:]:
            value += ["--nvme", directory]
        return {**flags, "nvme": value}

    def check_ended(self, path, whole, directories):
        on = Run(path)
        self.assertEqual(on.state(), whole.state())
        self.assertEqual(on.curve(), whole.curve())
        for directory in directories:
            self.assertEqual(os.listdir(directory), [])
        self.assertFalse((on.path / "store.json").exists())

    def kill_after(self, flags, steps):
        process = begin("train", *arguments(flags))
        wait_for_steps(flags["save"], steps, process)
        send_signal(process, signal.SIGKILL)
        outcome = finish(process)
        self.assertEqual(outcome.code, -signal.SIGKILL, str(outcome))

    def killed_with_state(self, plan, steps=8, count=2, **changes):
        directories = self.nvme(count)
        flags = self.with_directories(self.flags(save=self.fresh(), train_iters=100000, lr_decay_iters=STEPS, **plan, **changes), directories)
        self.kill_after(flags, steps)
        self.assertTrue((flags["save"] / "store.json").exists())
        return flags, directories

    def go_on(self, flags, **changes):
        return run("train", *arguments({"load": flags["save"], "save": flags["save"], "train_iters": STEPS, **changes}))

    # --- kills --------------------------------------------------------------------------------------------------------------

    def test_killed_at_random_instants(self):
        """20 kills over the plans; each run is killed until it is through, its instants from the very start to the very end."""
        chance, kills = random.Random(7), 0
        while kills < 20:
            for plan in PLANS:
                directories = self.nvme(1 + kills % 2)
                flags = self.with_directories(self.flags(save=self.fresh(), **plan), directories)
                starts = 0
                while True:
                    words = flags if starts == 0 or not (flags["save"] / "run.json").exists() else {"load": flags["save"], "save": flags["save"]}
                    process = begin("train", *arguments(words))
                    starts += 1
                    late = chance.random() < 0.3 or starts > 6
                    if not late:
                        wait_for_steps(flags["save"], chance.randrange(1, STEPS), process)
                        time.sleep(chance.random() * 0.05)
                        send_signal(process, signal.SIGKILL)
                    outcome = finish(process)
                    kills += outcome.code == -signal.SIGKILL
                    if outcome.code == 0:
                        break
                    self.assertEqual(outcome.code, -signal.SIGKILL, str(outcome))
                self.check_ended(flags["save"], self.whole(), directories)

    def test_nothing_is_lost_but_the_steps_under_way(self):
        flags, directories = self.killed_with_state(PLANS[0])
        logged = len((flags["save"] / "log.jsonl").read_bytes().splitlines())
        outcome = self.go_on(flags, train_iters=logged + 3, lr_decay_iters=STEPS)
        self.assertEqual(outcome.code, 0, str(outcome))
        (step,) = [int(line.split("(step ")[1].split(")")[0]) for line in outcome.out.splitlines() if "goes on with the state on nvme" in line]
        self.assertGreaterEqual(step, logged - 1)
        self.check_ended(flags["save"], self.whole(train_iters=logged + 3, lr_decay_iters=STEPS), directories)

    def test_killed_between_its_last_step_and_its_checkpoint(self):
        """A run with nothing left to do still saves what its store alone has."""
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
        for change in ({"optimizer_tier": "device"}, {"parameter_tier": "device", "update": "after"}, {"durability": "checkpoint"},
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
        # The first run is as it was.
        self.assertEqual(self.go_on(flags).code, 0)
        self.check_ended(flags["save"], self.whole(lr_decay_iters=STEPS), directories)

    def test_interrupted_once_and_twice(self):
        """The first signal saves a checkpoint, and the store goes; a second SIGINT ends at once, and the store has the last step."""
        for signals in ([signal.SIGTERM], [signal.SIGINT, signal.SIGINT]):
            with self.subTest(signals=str(signals)):
                directories = self.nvme(2)
                flags = self.with_directories(self.flags(save=self.fresh(), train_iters=100000, lr_decay_iters=STEPS, **PLANS[0]), directories)
                process = begin("train", *arguments(flags))
                wait_for_steps(flags["save"], 6, process)
                for number in signals:
                    send_signal(process, number)
                outcome = finish(process)
                self.assertEqual(outcome.code, 130, str(outcome))
                if len(signals) == 1:
                    self.assertFalse((flags["save"] / "store.json").exists())
                    self.assertEqual([os.listdir(directory) for directory in directories], [[], []])
                # Wherever it was when the signals came: as many steps again.
                steps = len((flags["save"] / "log.jsonl").read_bytes().splitlines()) + 5
                on = self.go_on(flags, train_iters=steps)
                self.assertEqual(on.code, 0, str(on))
                self.check_ended(flags["save"], self.whole(train_iters=steps, lr_decay_iters=STEPS), directories)

    def test_checkpoints_beside_training(self):
        """Copied out of the store while steps go on: each is the state of a run that ends there, and so is what a kill goes back to."""
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
        """Under a run its files are still open; a run that is to go on without them is told what to do."""
        directories = self.nvme(2)
        flags = self.with_directories(self.flags(save=self.fresh(), train_iters=400, lr_decay_iters=STEPS, **PLANS[0]), directories)
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

    # --- where nobody said what a kill may cost -----------------------------------------------------------------------------

    def test_steps_are_durable_where_there_is_room(self):
        flags, directories = self.killed_with_state(PLANS[0], durability=None, durability_interval=1)
        outcome = self.go_on(flags)
        self.assertEqual(outcome.code, 0, str(outcome))
        self.assertIn("goes on with the state on nvme", outcome.out)
        self.check_ended(flags["save"], self.whole(lr_decay_iters=STEPS), directories)

    def test_checkpoints_only_where_there_is_no_room(self):
        """Of one slot, of two without records, and of both with them: never refused."""
        directories = self.nvme()
        found = set()
        for size in ("2000KiB", "2400KiB", "2600KiB", "8MiB"):
            done = self.train({**self.flags(durability=None, **PLANS[0]), "nvme": f"{directories[0]}={size}"})
            self.assertEqual(done.state(), self.whole().state())
            found.add(done.plan["durability"]["mode"])
        self.assertEqual(found, {"step", "checkpoint"})

    def test_another_run_makes_a_checkpoint_of_what_was_kept_unasked(self):
        """Nothing is lost, and the next run is not refused: its directory yields."""
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

    # --- whose store it is --------------------------------------------------------------------------------------------------

    def test_a_run_directory_under_another_name(self):
        """Found beside its old place by others, and known by its new one once it has gone on."""
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
        for other in ({"load": copied, "save": copied}, {"load": copied, "save": copied, "nvme": self.fresh_directory("elsewhere")}):
            refused = run("train", *arguments(other))
            self.check_refusal(refused, 2, f"in the store of the run in {flags['save']}, which can go on, too")
            self.assertIn(f"remove {flags['save']}/store.json", refused.err)
        # Its state may become that of a run of its own; and the run itself goes on as if nothing had been.
        own = self.fresh()
        outcome = run("train", *arguments({"load": copied, "save": own, "nvme": self.fresh_directory("own"), "train_iters": STEPS}))
        self.assertEqual(outcome.code, 0, str(outcome))
        on = self.go_on(flags)
        self.assertEqual(on.code, 0, str(on))
        self.check_ended(flags["save"], self.whole(lr_decay_iters=STEPS), directories)
        # Once that one is out of the way, the copy is known as the run.
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
        # Nor once its run directory is gone: it may have been moved. Told to keep the state, a run keeps it until somebody removes it.
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
        outcome = run("train", *arguments(self.with_directories(self.flags(save=self.fresh(), **PLANS[0]), directories)))
        self.assertEqual(outcome.code, 0, str(outcome))
        self.assertIn("removed", outcome.out)

    def test_directories_that_were_moved(self):
        """The run's, those of its store, and both: verified and gone on with in place; where they must be named, it is said."""
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
                    for refused in (run("train", *arguments({"load": path, "save": path})), run("verify", "--store", path)):
                        self.check_refusal(refused, 4, str(directories[0]))
                        self.assertIn("Were directories moved, name them", refused.err)
                        self.assertIn("store.json", refused.err)
                    scrubbed = run("verify", *[word for directory in now for word in ("--store", directory)])
                else:
                    scrubbed = run("verify", "--store", path)
                self.assertEqual(scrubbed.code, 0, str(scrubbed))
                # Killed again, it is found without a word.
                self.kill_after({**self.with_directories({"load": path, "save": path}, now), "train_iters": 100000, "lr_decay_iters": STEPS}, 16)
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
            self.kill_after({**words, "save": flags["save"], "train_iters": 100000, "lr_decay_iters": STEPS}, 3 * start + 3)
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

    # --- damage -------------------------------------------------------------------------------------------------------------

    def flip(self, directory, share):
        """Flips a bit of the store's file there, so far into it."""
        path = directory / "spillway-store.bin"
        self.flip_at(path, int(path.stat().st_size * share), 4)

    @staticmethod
    def flip_at(path, offset, bit):
        with open(path, "r+b") as file:
            file.seek(offset)
            byte = file.read(1)[0]
            file.seek(offset)
            file.write(bytes([byte ^ 1 << bit]))

    def test_a_bit_flipped_anywhere(self):
        """Refused, or in bytes that nothing reads; with the bit back nothing is lost."""
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
        # Somewhere in the slots that hold the state.
        for number in range(400):
            self.flip(directories[number % 2], 0.001 + number / 410)
        damaged = run("verify", "--store", flags["save"])
        self.check_refusal(damaged, 4, "are damaged; the first is")
        self.assertRegex(damaged.err, r"/(weight|low|m|v): damaged: bytes \d+ to \d+, at offset \d+ of .*spillway-store.bin")
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
        self.check_refusal(self.go_on(other, model=Golden("llama_gqa", self.directory).model, data=Golden("llama_gqa", self.directory).data), 2, "another model")
        (other["save"] / "store.json").write_text("{}")
        self.check_refusal(self.go_on(other), 4, "store.json")

    def test_removing_the_link_goes_back_to_the_checkpoint(self):
        flags, directories = self.killed_with_state(PLANS[0], steps=12, save_interval=5)
        (flags["save"] / "store.json").unlink()
        outcome = self.go_on(flags, save_interval=0)
        self.assertEqual(outcome.code, 0, str(outcome))
        self.assertIn("loaded", outcome.out)
        self.check_ended(flags["save"], self.whole(lr_decay_iters=STEPS), directories)

    # --- what it says -------------------------------------------------------------------------------------------------------

    def test_what_it_says(self):
        directories = self.nvme()
        step = run("train", *arguments(self.with_directories(self.flags(save=self.fresh(), **PLANS[0]), directories)))
        self.assertIn("durability: each step; a kill loses up to 1 step", step.out)
        copies = run("train", *arguments(self.with_directories(self.flags(save=self.fresh(), **PLANS[3]), directories)))
        self.assertIn("durability: every 3 steps; a kill loses up to 3 steps", copies.out)
        self.assertRegex(copies.out, r"and copies [0-9.]+ KiB of state from memory, [0-9.]+ [mu]?s of writing: [0-9.]+ % of the time")
        checkpoint = run("train", *arguments(self.with_directories(self.flags(save=self.fresh(), **{**PLANS[0], "durability": "checkpoint", "save_interval": 10}), directories)))
        self.assertIn("durability: checkpoints only; a kill loses up to 10 steps", checkpoint.out)
        unsaved = run("train", *arguments(self.with_directories(self.flags(**{**PLANS[0], "train_iters": 3}), directories)))
        self.assertIn("durability: nothing is kept without --save", unsaved.out, str(unsaved))
        self.check_refusal(run("train", *arguments(self.flags(save=self.fresh()))), 2, "--durability: found step without --nvme")

    def test_what_the_plan_says(self):
        """What a kill costs in either mode, in the table, in JSON and on the page."""
        flags = self.with_directories(self.flags(**PLANS[0], save=self.fresh(), save_interval=10), self.nvme())
        table = run("plan", *arguments(flags))
        self.assertRegex(" ".join(table.out.split()), r"each step; a kill loses up to 1 step \([0-9.]+ [mu]?s\); with --durability checkpoint a kill loses up to 10 steps")
        plan = json.loads(run("plan", *arguments({**flags, "format": "json"})).out)
        kept = plan["durability"]
        self.assertEqual((kept["mode"], kept["interval"], kept["copied_bytes"]), ("step", 1, 0))
        self.assertEqual((kept["step"]["kill_loses_steps"], kept["checkpoint"]["kill_loses_steps"]), (1, 10))
        self.assertGreater(kept["step"]["kill_loses_s"], 0)
        self.assertGreater(kept["store_bytes"], plan["tiers"]["nvme"]["peak_bytes"])
        self.assertEqual(kept["written_bytes_per_step"], kept["record_bytes"])
        self.assertIn("a kill loses up to 1 step", run("plan", *arguments({**flags, "format": "html"})).out)
        one_slot = json.loads(run("plan", *arguments({**flags, "durability": "checkpoint", "format": "json", "save_interval": 0})).out)["durability"]
        self.assertEqual(one_slot, {"mode": "checkpoint", "checkpoint": {"kill_loses_steps": None, "kill_loses_s": None}})

    def test_bytes_written(self):
        """What the log says and what the plan says; records and copies come on top of steps, and are small here."""
        directories = self.nvme()
        done = self.train(self.with_directories(self.flags(**PLANS[0]), directories))
        planned = done.plan["nvme_per_step"]["written_bytes"]
        self.assertEqual({record["nvme_written_bytes"] for record in done.log[1:]}, {planned})

    @unittest.skipIf(SANITIZED, "a sanitizer's own files are counted, too")
    def test_bytes_written_as_the_kernel_counts_them(self):
        """Operations, records and copies together: within 1 % of the plan."""
        kind = file_system_of(self.directory)
        if kind in ("tmpfs", "ramfs", "overlay"):
            self.skipTest(f"{self.directory} is on {kind}: its writes are not counted")
        few, many = 3, 63  # differ by a whole number of intervals
        for plan in (PLANS[0], PLANS[1], {**PLANS[2], "durability_interval": 2}, PLANS[3], {**PLANS[4], "durability_interval": 1}):
            with self.subTest(plan=str(plan)):
                short, long = (self.train(self.with_directories(self.flags(**plan, train_iters=steps, lr_decay_iters=many, log_interval=100, clip_grad=0), self.nvme()))
                               for steps in (few, many))
                kept = long.plan["durability"]
                planned = long.plan["nvme_per_step"]["written_bytes"] + kept["written_bytes_per_step"]
                counted = (long.outcome.written_bytes - short.outcome.written_bytes) / (many - few)
                print(f"a step, planned: {planned:.0f} bytes written; counted by the kernel: {counted:.0f}")
                self.assertAlmostEqual(counted / planned, 1, delta=0.01)


if __name__ == "__main__":
    unittest.main()
