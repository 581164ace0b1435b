"""Stopping and going on: a run that was interrupted, saved or moved to another plan ends with the bits of one that
never stopped.
"""
import json
import os
import shutil
import signal
import subprocess
import time
import unittest

from harness import (
    PATIENCE,
    CommandTest,
    Golden,
    Run,
    arguments,
    begin,
    finish,
    interrupt,
    read_safetensors,
    run,
    send_signal,
    wait_for_steps,
)

STEPS = 12
ON_NVME = {"parameter_tier": "nvme", "optimizer_tier": "nvme"}


class Resume(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.golden = Golden("gpt2", cls.directory)
        cls.nvme = cls.fresh_directory("nvme")
        cls.wholes = {}

    def flags(self, **changes):
        return self.golden.flags(**{"dtype": "bf16", "micro_batch_size": 1, "global_batch_size": 3,
                                    "train_iters": STEPS, "lr_decay_style": "cosine",
                                    "lr_warmup_iters": 3, "data_order": "shuffled", **changes})

    def whole(self, **changes):
        key = tuple(sorted(changes.items()))
        if key not in self.wholes:
            self.wholes[key] = self.train(self.flags(**changes))
        return self.wholes[key]

    def check_same(self, run_, whole):
        self.assertEqual(run_.curve(), whole.curve())
        self.assertEqual(run_.state(), whole.state())
        for key in ("lr", "tokens"):
            self.assertEqual([record[key] for record in run_.log], [record[key] for record in whole.log], key)

    def test_under_another_plan(self):
        """Half a run under each plan, the other half under the next one."""
        plans = [{}, {"nvme": self.nvme, "update": "in-next-forward", "order": "vertical", "activation_tier": "nvme",
                      **ON_NVME},
                 {"nvme": self.nvme, "update": "in-backward", "order": "horizontal", "activation_tier": "recompute",
                  **ON_NVME},
                 {"update": "after", "order": "horizontal", "activation_tier": "recompute"}]
        for state in ("exact", "compact"):
            whole = self.whole(state=state)
            for first, then in zip(plans, plans[1:] + plans[:1]):
                with self.subTest(state=state, first=str(first), then=str(then)):
                    half = self.train(self.flags(**first, state=state, lr_decay_iters=STEPS, train_iters=5))
                    # Flags of the first half stay unless others are given.
                    forget = {name: "auto" for name in ("order", "update", "activation_tier", "parameter_tier",
                                                        "optimizer_tier") if name in first}
                    on = self.train({"load": half.path, "save": half.path, "train_iters": STEPS, **forget, **then})
                    self.check_same(on, whole)
                    self.assertNotEqual(on.choices(), half.choices())

    def test_what_changes_the_bits_is_said(self):
        """With another micro-batch, dtype or form of state the run goes on, with nearly the same results, and says what
        is no longer equal.
        """
        whole = self.whole()
        half = self.train(self.flags(train_iters=6, lr_decay_iters=STEPS))
        for change, words in (({"micro_batch_size": 3}, "gradients are summed in other groups"),
                              ({"dtype": "fp32"}, "the state is taken over to the bit"),
                              ({"state": "compact"}, "moments are rounded to bf16"),
                              ({"global_batch_size": 6}, "the data go on where they would be"),
                              ({"device_memory": "64MiB", "order": "vertical", "update": "in-next-forward",
                                "nvme": self.nvme, **ON_NVME}, None)):
            with self.subTest(change=str(change)):
                on = self.train({"load": half.path, "train_iters": STEPS, **change})
                notes = [line for line in on.outcome.out.splitlines() if line.startswith("note: --")]
                if words is None:
                    self.assertEqual(notes, [])
                    self.assertEqual(on.state(), whole.state())
                else:
                    self.assertIn(words, " ".join(notes))
                    self.assertEqual(len(notes), 1)
                    if "global_batch_size" not in change:
                        for ours, theirs in zip(on.log, whole.log[6:]):
                            self.assertAlmostEqual(ours["loss"], theirs["loss"], delta=0.05)

    def test_into_another_directory(self):
        whole, half = self.whole(), self.train(self.flags(train_iters=7, lr_decay_iters=STEPS))
        on = self.train({"load": half.path, "train_iters": STEPS})
        self.assertNotEqual(on.path, half.path)
        self.assertEqual(half.steps(), [7])
        self.assertEqual(on.state(), whole.state())
        self.assertEqual(on.curve(), whole.curve()[7:])

    def test_interrupted(self):
        for number, changes in enumerate(({}, {"nvme": self.nvme, **ON_NVME, "update": "in-next-forward"},
                                          {"nvme": self.nvme, **ON_NVME, "update": "in-backward"})):
            for stop in (signal.SIGINT, signal.SIGTERM):
                with self.subTest(stop=stop.name, **{name: str(value) for name, value in changes.items()}):
                    long = 3000
                    flags = self.flags(**changes, save=self.fresh(), train_iters=long, lr_decay_iters=long)
                    process = begin("train", *arguments(flags))
                    wait_for_steps(flags["save"], 3 + number, process)
                    send_signal(process, stop)
                    outcome = finish(process)
                    self.assertEqual(outcome.code, 130, str(outcome))
                    self.assertNotIn("error:", outcome.err)
                    stopped = Run(flags["save"], outcome)
                    done = stopped.log[-1]["step"]
                    self.assertLess(done, long)
                    self.assertEqual([record["step"] for record in stopped.log], list(range(1, done + 1)))
                    self.assertEqual(stopped.steps(), [done])
                    self.assertIn(f"step {done}", outcome.out)
                    self.assertEqual(os.listdir(self.nvme), [])
                    on = self.train({"load": stopped.path, "save": stopped.path, "train_iters": done + 4})
                    # The same as a run that never stopped, whatever its plan.
                    whole = self.train(self.flags(train_iters=done + 4, lr_decay_iters=long))
                    self.check_same(on, whole)
                    self.assertEqual(on.steps(), [done, done + 4])

    def test_interrupted_twice_ends_at_once(self):
        flags = self.flags(save=self.fresh(), train_iters=100000, save_interval=5)
        process = begin("train", *arguments(flags))
        wait_for_steps(flags["save"], 12, process)
        for _ in range(2):
            interrupt(process)
        began = time.monotonic()
        self.assertEqual(finish(process).code, 130)
        self.assertLess(time.monotonic() - began, 30 * PATIENCE)
        stopped = Run(flags["save"]) if (flags["save"] / "plan.json").exists() else None
        steps = [step for step in os.listdir(flags["save"] / "checkpoints") if step.isdigit()]
        self.assertTrue(steps)
        on = self.train({"load": flags["save"], "save": flags["save"], "train_iters": max(map(int, steps)) + 2,
                         "save_interval": 0})
        self.assertEqual([record["step"] for record in on.log], list(range(1, on.log[-1]["step"] + 1)))
        self.assertIsNotNone(stopped)

    def test_killed(self):
        """Goes on from the last checkpoint; later steps in the log are removed, and so are the files left on NVMe."""
        nvme = self.fresh_directory("nvme")
        flags = self.flags(save=self.fresh(), train_iters=40, lr_decay_iters=40, save_interval=4, nvme=nvme,
                           durability="checkpoint", **ON_NVME)
        process = begin("train", *arguments({**flags, "train_iters": 100000}))
        wait_for_steps(flags["save"], 10, process)
        send_signal(process, signal.SIGKILL)
        self.assertEqual(finish(process).code, -signal.SIGKILL)
        last = max(int(name) for name in os.listdir(flags["save"] / "checkpoints") if name.isdigit())
        on = self.train({"load": flags["save"], "save": flags["save"], "train_iters": last + 3, "save_interval": 0})
        self.assertEqual([record["step"] for record in on.log], list(range(1, last + 4)))
        whole = self.train(self.flags(train_iters=last + 3, lr_decay_iters=40))
        self.check_same(on, whole)
        self.assertEqual(os.listdir(nvme), [])
        self.assertFalse([name for name in os.listdir(flags["save"] / "checkpoints") if "partial" in name])

    def test_killed_while_it_began(self):
        """With the files that it has by then of run.json, plan.json and log.jsonl, which are written in this order."""
        for have in (1, 2, 3):
            with self.subTest(have=have):
                begun = self.train(self.flags())
                shutil.rmtree(begun.path / "checkpoints")
                for name in ("timeline.json", "log.jsonl", "plan.json")[:4 - have]:
                    (begun.path / name).unlink()
                if have == 3:
                    (begun.path / "log.jsonl").write_text("")
                self.check_same(self.train({"load": begun.path, "save": begun.path}), self.whole())

    def test_intervals(self):
        run_ = self.train(self.flags(save_interval=5))
        self.assertEqual(run_.steps(), [5, 10, 12])
        self.check_same(run_, self.whole())
        kept = self.train(self.flags(save_interval=2, keep_last=2, nvme=self.nvme, **ON_NVME))
        self.assertEqual(kept.steps(), [10, 12])
        self.check_same(kept, self.whole())
        # A checkpoint on the way is the state of a run that ends there.
        self.assertEqual(run_.state(5), self.train(self.flags(train_iters=5, lr_decay_iters=STEPS)).state())

    def test_checkpoints_beside_training_in_core(self):
        """Copied out of device memory while the next step computes: only updates wait for the copy."""
        ends = {steps: self.train(self.flags(train_iters=steps, lr_decay_iters=STEPS, clip_grad=0)).state()
                for steps in (4, 7)}
        for update in ("after", "in-backward", "in-next-forward"):
            for dtype in ("bf16", "fp32"):
                with self.subTest(update=update, dtype=dtype):
                    run_ = self.train(self.flags(save_interval=1, update=update, dtype=dtype, clip_grad=0))
                    self.assertEqual(run_.steps(), list(range(1, STEPS + 1)))
                    if dtype == "bf16":
                        self.assertEqual({steps: run_.state(steps) for steps in ends}, ends)

    def test_a_run_that_is_complete(self):
        whole = self.train(self.flags())
        before = whole.result()
        again = self.train({"load": whole.path, "save": whole.path})
        self.assertEqual(again.result(), before)
        self.assertEqual(again.steps(), [STEPS])
        # A run that is already beyond the requested last step stays as it is.
        self.check_refusal(run("train", *arguments({"load": whole.path, "save": whole.path, "train_iters": STEPS - 1})),
                           2, "--train-iters")
        self.assertEqual(Run(whole.path).steps(), [STEPS])
        self.assertEqual(Run(whole.path).result(), before)

    def test_moved(self):
        """A run directory knows its files by absolute paths, and may itself be moved anywhere."""
        half = self.train(self.flags(train_iters=4, lr_decay_iters=STEPS))
        place = self.fresh("verschoben ünïcode ✓ ")
        shutil.move(half.path, place)
        on = self.train({"load": place, "save": place, "train_iters": STEPS}, cwd="/")
        self.check_same(on, self.whole())

    def test_evaluation_changes_nothing(self):
        whole = self.whole()
        for changes in ({}, {"nvme": self.nvme, "update": "in-next-forward", **ON_NVME}):
            run_ = self.train(self.flags(eval_data=self.golden.data, eval_interval=3, **changes))
            self.check_same(run_, whole)
            self.assertEqual([record["step"] for record in run_.log if "eval_loss" in record], [3, 6, 9, 12])
            evaluations = [record["eval_loss"] for record in run_.log if "eval_loss" in record]
            self.assertLess(evaluations[-1], evaluations[0])
            previous = getattr(self, "evaluations", evaluations)
            self.assertEqual(evaluations, previous)
            self.evaluations = evaluations

    def test_a_reader_that_goes_away(self):
        """`spillway train | head -1`: the run goes on, or ends without an error of its own."""
        flags = self.flags(save=self.fresh(), train_iters=50)
        words = subprocess.list2cmdline(["train", *arguments(flags)])
        process = subprocess.run(["bash", "-c", f'"$SPILLWAY" {words} | head -1; exit ${{PIPESTATUS[0]}}'],
                                 capture_output=True, text=True, timeout=60 * PATIENCE)
        self.assertIn(process.returncode, (0, 141), process.stderr)
        self.assertNotIn("unexpected", process.stderr)
        closed = run("train", *arguments(self.flags(save=self.fresh())), stdout=subprocess.DEVNULL)
        self.assertEqual(closed.code, 0, str(closed))

    def test_paths(self):
        place = self.fresh_directory("ein Ort mit Leerzeichen, ünïcode ✓, \"Zeichen\" ")
        model, data = place / "modèle", place / "données.jsonl"
        shutil.copytree(self.golden.model, model)
        shutil.copy(self.golden.data, data)
        nvme = place / "nvme\ttab"
        nvme.mkdir()
        run_ = self.train(self.flags(model=model, data=data, nvme=nvme, save=place / "läuft", **ON_NVME))
        self.check_same(run_, self.whole())
        self.assertEqual(json.loads((run_.path / "run.json").read_text())["model"], str(model))

    def test_relative_paths(self):
        place = self.fresh_directory()
        shutil.copytree(self.golden.model, place / "model")
        shutil.copy(self.golden.data, place / "data.jsonl")
        half = run("train", *arguments(self.flags(model="model", data="data.jsonl", save="run", train_iters=4,
                                                  lr_decay_iters=STEPS)), cwd=place)
        self.assertEqual(half.code, 0, str(half))
        on = self.train({"load": place / "run", "save": place / "run", "train_iters": STEPS}, cwd="/")
        self.check_same(on, self.whole())

    def test_state_file(self):
        """Every parameter occurs once, with its moments, all finite; moments are not zero after a step."""
        state = read_safetensors(self.whole().state_file())
        kinds = {}
        for name, (dtype, shape, _) in state.items():
            kinds.setdefault(name.rsplit("/", 1)[1], []).append((dtype, shape))
        self.assertEqual({kind: {dtype for dtype, _ in arrays} for kind, arrays in kinds.items()},
                         {"weight": {"BF16"}, "low": {"U16"}, "m": {"F32"}, "v": {"F32"}})
        for name, (_, _, raw) in state.items():
            if not name.endswith("/low"):
                self.assertTrue(any(raw), name)


if __name__ == "__main__":
    unittest.main()
