"""Shared by the tests of durable steps: plans, a run that is killed with its state on NVMe, and a run that never
stopped. Not here: the expectations (the tests that use it).
"""
import os
import random
import signal
import time

from harness import CommandTest, Golden, Run, arguments, begin, finish, run, send_signal, wait_for_steps

STEPS = 40
# Three tiers, two of them in memory.
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


class DurableTest(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.golden = Golden("gpt2", cls.directory)
        cls.wholes = {}

    def flags(self, **changes):
        return self.golden.flags(**{"dtype": "bf16", "micro_batch_size": 1, "global_batch_size": 3,
                                    "train_iters": STEPS, "lr_decay_style": "cosine",
                                    "lr_warmup_iters": 3, "data_order": "shuffled", "durability": "step", **changes})

    def whole(self, **changes):
        """The run in core that never stopped."""
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
        flags = self.with_directories(self.flags(save=self.fresh(), train_iters=100000, lr_decay_iters=STEPS, **plan,
                                                 **changes), directories)
        self.kill_after(flags, steps)
        self.assertTrue((flags["save"] / "store.json").exists())
        return flags, directories

    def go_on(self, flags, **changes):
        return run("train", *arguments({"load": flags["save"], "save": flags["save"], "train_iters": STEPS, **changes}))

    def flip(self, directory, share):
        """Flips a bit of the store's file in this directory, at this share of its length."""
        path = directory / "spillway-store.bin"
        self.flip_at(path, int(path.stat().st_size * share), 4)

    @staticmethod
    def flip_at(path, offset, bit):
        with open(path, "r+b") as file:
            file.seek(offset)
            byte = file.read(1)[0]
            file.seek(offset)
            file.write(bytes([byte ^ 1 << bit]))

    def kill_at_random(self, plans, kills, **changes):
        """So many kills over the plans; each run is killed until it has finished, at instants from its very start to
        its very end.
        """
        chance, done = random.Random(7), 0
        while done < kills:
            for plan in plans:
                directories = self.nvme(1 + done % 2)
                flags = self.with_directories(self.flags(save=self.fresh(), **plan, **changes), directories)
                starts = 0
                while True:
                    words = flags if starts == 0 or not (flags["save"]
                                                         / "run.json").exists() else {"load": flags["save"],
                                                                                      "save": flags["save"]}
                    process = begin("train", *arguments(words))
                    starts += 1
                    late = chance.random() < 0.3 or starts > 6
                    if not late:
                        wait_for_steps(flags["save"], chance.randrange(1, STEPS), process)
                        time.sleep(chance.random() * 0.05)
                        send_signal(process, signal.SIGKILL)
                    outcome = finish(process)
                    done += outcome.code == -signal.SIGKILL
                    if outcome.code == 0:
                        break
                    self.assertEqual(outcome.code, -signal.SIGKILL, str(outcome))
                self.check_ended(flags["save"], self.whole(**changes), directories)
