"""Refusals of bad input: an exit code and one error line that names what was found; nothing raw, and nothing
half-written left behind.
"""
import json
import os
import shutil
import struct
import subprocess
import unittest

from harness import PATIENCE, PROGRAM, Run, arguments, begin, finish, read_safetensors, run
from refusals import RefusalTest, listing
from small_disks import Mounted


class Refusals(RefusalTest):
    # --- the command line ---

    def test_flags(self):
        table = [
            ({"device_memory": "12 parsecs"}, "--device-memory"),
            ({"device_memory": "-1"}, "--device-memory"),
            ({"device_memory": "1e30GiB"}, "--device-memory"),
            ({"device_memory": "99999999999TiB"}, "--device-memory"),
            ({"device_memory": ""}, "--device-memory"),
            ({"device_memory": "nan"}, "--device-memory"),
            ({"nvme": f"{self.nvme}=lots"}, "--nvme"),
            ({"nvme": [self.nvme, "--nvme", self.nvme]}, "twice"),
            ({"lr": "fast"}, "--lr"),
            ({"lr": "nan"}, "--lr"),
            ({"lr": "-1"}, "--lr"),
            ({"lr": "inf"}, "--lr"),
            ({"adam_beta1": "1"}, "--adam-beta1"),
            ({"adam_beta2": "-0.5"}, "--adam-beta2"),
            ({"adam_eps": "-1"}, "--adam-eps"),
            ({"clip_grad": "-1"}, "--clip-grad"),
            ({"train_iters": "0"}, "--train-iters"),
            ({"train_iters": "-3"}, "--train-iters"),
            ({"train_iters": "99999999999999999999"}, "--train-iters"),
            ({"seq_length": "0"}, "--seq-length"),
            ({"seq_length": "129"}, "--seq-length"),
            ({"micro_batch_size": "2"}, "--global-batch-size"),
            ({"micro_batch_size": "0"}, "--micro-batch-size"),
            ({"global_batch_size": "-3"}, "--global-batch-size"),
            ({"order": "diagonal"}, "--order"),
            ({"update": "never"}, "--update"),
            ({"dtype": "int8"}, "--dtype"),
            ({"dtype": "fp16"}, "--dtype"),
            ({"state": "compact"}, "--state"),
            ({"device": "cuda"}, "--device"),
            ({"device": "tpu"}, "--device"),
            ({"activation_tier": "cloud"}, "--activation-tier"),
            ({"nvme": None, "optimizer_tier": "nvme"}, "--nvme"),
            ({"ranks": "4", "global_batch_size": "9"}, "--global-batch-size"),
            ({"ranks": "2", "zero_group_size": "4"}, "--zero-group-size"),
            ({"keep_last": "-1"}, "--keep-last"),
            ({"learning_rate": "1"}, "--learning-rate"),
            ({"model": None}, "--model"),
            ({"data": None}, "--data"),
            ({"model": "no-such-model-9000"}, "no-such-model-9000"),
            ({"data": "no/such/file.jsonl"}, "no/such/file.jsonl"),
            ({"profile": "no/such/profile.json"}, "no/such/profile.json"),
            ({"plan": "no/such/plan.json"}, "no/such/plan.json"),
            ({"load": "no/such/run"}, "no/such/run"),
            ({"config": "no/such/options.json"}, "no/such/options.json"),
        ]
        for changes, fragment in table:
            with self.subTest(**{name: str(value) for name, value in changes.items()}):
                outcome = run("train", *arguments(self.flags(save=self.fresh(), **changes)), timeout=60)
                self.check_refusal(outcome, 2, fragment)
        for words, fragment in (((), "command"), (("tarin",), "tarin"), (("train", "--data"), "--data"),
                                (("train", "extra"), "extra")):
            with self.subTest(words=words):
                self.check_refusal(run(*words), 2, fragment)

    # --- model directories ---

    # --- data ---

    def test_data(self):
        def rows(*records):
            return "".join((record if isinstance(record, str) else json.dumps(record)) + "\n" for record in records)

        good = {"input_ids": list(range(33))}
        table = [
            ("empty.jsonl", "", "empty.jsonl"),
            ("blank.jsonl", "\n\n", "blank.jsonl"),
            ("vocabulary.jsonl", rows({"input_ids": [1, 2, 256] + [0] * 30}), "256"),
            ("negative.jsonl", rows({"input_ids": [1, -2] + [0] * 31}), "-2"),
            ("huge.jsonl", rows({"input_ids": [1, 1 << 70] + [0] * 31}), "huge.jsonl"),
            ("fraction.jsonl", rows({"input_ids": [1, 2.5] + [0] * 31}), "fraction.jsonl"),
            ("long.jsonl", rows({"input_ids": [1] * 40}), "40"),
            ("one.jsonl", rows({"input_ids": [1]}), "one.jsonl"),
            ("none.jsonl", rows({"input_ids": []}), "none.jsonl"),
            ("other.jsonl", rows({"ids": [1, 2]}), "other.jsonl"),
            ("broken.jsonl", rows(good, '{"input_ids": [1, 2'), "broken.jsonl"),
            ("array.jsonl", rows([1, 2, 3]), "array.jsonl"),
            ("labels.jsonl", rows({**good, "labels": [1, 2]}), "labels"),
            ("label.jsonl", rows({**good, "labels": [300] * 33}), "300"),
            ("lossless.jsonl", rows({**good, "labels": [-100] * 33}), "loss"),
            ("nested.jsonl", "[" * 100000 + "\n", "nested.jsonl"),
            ("file.txt", "", "file.txt"),
            ("short.txt", "ab", "short.txt"),
            ("file.parquet", "PAR1", "file.parquet"),
            ("odd.bin", "abc", "odd.bin"),
            ("zero.bin", "\0" * 2048, "zero.bin"),
        ]
        place = self.fresh_directory("data")
        for name, text, fragment in table:
            with self.subTest(name):
                (place / name).write_text(text)
                self.expect_any(self.flags(save=self.fresh(), data=place / name,
                                           tokenizer="bytes" if name.endswith("txt") else None), (2, 4), fragment)
        self.expect_any(self.flags(save=self.fresh(), data=self.fresh_directory("empty")), (2,), "empty")

    def test_text_without_a_tokenizer(self):
        text = self.directory / "text.txt"
        text.write_text("words " * 100)
        self.refuse(2, "tokenizer", data=text)

    # --- budgets ---

    def test_what_it_says_would_fit_fits(self):
        for changes in ({}, {"nvme": None}, {"order": "horizontal", "update": "after", "activation_tier": "device"}):
            with self.subTest(**{name: str(value) for name, value in changes.items()}):
                flags = self.flags(**changes)
                least = self.smallest_budget(flags)
                for budget in (1, least - 4096):
                    outcome = self.refuse(3, "device", device_memory=budget, **changes)
                    plan, _ = self.plan({**flags, "device_memory": budget})
                    (offered,) = plan["would_fit"][0]
                    self.assertIn(offered, outcome.err)
                    self.assertTrue(offered.startswith("--device-memory "))
                    self.train({**flags, "device_memory": offered.split()[1]})
                    self.assertFalse(plan["fits"])
                    self.assertEqual(plan["short_tier"], "device")
                    self.assertGreater(plan["lacking_bytes"], 0)
                    self.assertTrue(plan["would_fit"])

    def test_nvme_budget(self):
        outcome = self.refuse(3, "nvme", nvme=f"{self.nvme}=64KiB", parameter_tier="nvme", optimizer_tier="nvme")
        self.assertIn("--nvme", outcome.err)

    def test_combinations_that_cannot_be_exact(self):
        for changes in ({"nvme": None}, {"durability": "checkpoint"}, {"optimizer_tier": "device"}):
            with self.subTest(**changes):
                self.refuse(2, "in-backward", update="in-backward", **changes)

    # --- directories ---

    def test_directories(self):
        missing, file = self.directory / "missing", self.directory / "file"
        file.write_text("x")
        self.refuse(2, "missing", nvme=missing)
        self.refuse_any((2, 4), "file", nvme=file)
        self.refuse_any((2, 4), "file", save=file)
        self.refuse_any((2, 4), "file", save=file / "below")
        self.assertEqual(file.read_text(), "x")

    def test_read_only_directories(self):
        place = self.fresh_directory("readonly")
        with Mounted(self, place, "size=1m,ro"):
            self.refuse_any((2, 4), place.name, save=place / "run")
            self.refuse_any((2, 4), place.name, nvme=place, parameter_tier="nvme", optimizer_tier="nvme")

    def test_full_disk(self):
        on_nvme = {"parameter_tier": "nvme", "optimizer_tier": "nvme"}
        place = self.fresh_directory("full")
        with Mounted(self, place, "size=64k"):
            (place / "ballast").write_bytes(bytes(60 << 10))
            self.refuse_any((3,), f"--nvme {place}: there is no room", nvme=place, **on_nvme)
            # A file that only shows the run is not worth ending it.
            for words in ({"csv": place / "run.csv"}, {"tensorboard": place / "curves"}):
                shown = self.train(self.flags(train_iters=100, **words))
                self.assertEqual(shown.steps(), [100])
                self.assertEqual(shown.outcome.out.count(f"note: {place}"), 1)
                self.assertIn("the run goes on", shown.outcome.out)
                other = place / ("others beside " + next(iter(words)))
                # There is no room even to begin.
                for again in ({"csv": other.with_suffix(".csv")}, {"tensorboard": other}):
                    outcome = run("train", *arguments(self.flags(save=self.fresh(), **again)))
                    self.check_refusal(outcome, 4, str(place))
                    self.assertIn("Free space", outcome.err)
                (place / "run.csv").unlink(missing_ok=True)
        with Mounted(self, place, "size=512k"):
            # Planning finds that the store's size is too much.
            self.refuse_any((3, 4), "nvme", nvme=place, **on_nvme)
            self.assertEqual(listing(place), [])
            # Found before the first step.
            outcome = run("train", *arguments(self.flags(save=place / "run")))
            self.check_refusal(outcome, 3, str(place))
            self.assertEqual(listing(place), [])
        with Mounted(self, place, "size=4m"):
            # Room for one checkpoint but not for later ones: reported before the first step. If only one is kept, they
            # fit.
            flags = self.flags(save=place / "run", train_iters=6, save_interval=2)
            room = self.train(self.flags(save=place / "sized")).state_file().stat().st_size
            shutil.rmtree(place / "sized")
            (place / "ballast").write_bytes(bytes((4 << 20) - room - room // 2))
            self.check_refusal(run("train", *arguments(flags)), 3, str(place))
            os.remove(place / "ballast")
            on = self.train({**flags, "keep_last": 1})
            self.assertEqual(on.steps(), [6])
            whole = self.train(self.flags(train_iters=6))
            self.assertEqual(on.result(), whole.result())

    def test_an_output_that_cannot_be_written(self):
        """Half a plan is no plan; a reader that has read enough gets no complaint."""
        words = ["plan", *arguments(self.flags(format="json"))]
        with open("/dev/full", "wb") as full:
            for what in (words, words[:-2], ["plan", "--help"]):
                self.check_refusal(run(*what, stdout=full), 4, "standard output")
            silent = subprocess.run([PROGRAM, "plan", "--no-such-flag"], stderr=full, timeout=60 * PATIENCE)
            self.assertEqual(silent.returncode, 2)
        reading, writing = os.pipe()
        os.close(reading)
        try:
            outcome = run(*words, stdout=writing)
        finally:
            os.close(writing)
        self.assertEqual((outcome.code, outcome.err), (0, ""))

    def test_closed_standard_streams(self):
        """No file of the run takes the number of the closed terminal, and with it the printed text."""
        save = self.fresh()
        flags = self.flags(save=save, parameter_tier="nvme", optimizer_tier="nvme")
        closed = subprocess.run(["bash", "-c", '"$0" "$@" <&- >&- 2>&-', PROGRAM, "train", *arguments(flags)],
                                timeout=60 * PATIENCE)
        self.assertEqual(closed.returncode, 0)
        self.assertEqual(Run(save).result(), self.train({**flags, "save": self.fresh()}).result())

    def test_a_directory_in_use(self):
        save, nvme = self.fresh(), self.fresh_directory("nvme")
        flags = self.flags(save=save, nvme=nvme, train_iters=1000000, parameter_tier="nvme", optimizer_tier="nvme")
        first = begin("train", *arguments(flags))
        try:
            while not (save / "log.jsonl").exists() and first.poll() is None:
                pass
            self.refuse_any((2, 4), save.name, save=save)
            self.refuse_any((2, 4), nvme.name, nvme=nvme, parameter_tier="nvme", optimizer_tier="nvme")
        finally:
            first.send_signal(2)
        self.assertEqual(finish(first).code, 130)
        self.assertEqual(listing(nvme), [])
        self.refuse_any((2,), "already holds a run", save=save)

    # --- runs that go wrong ---

    def test_numbers_that_leave_the_range(self):
        for name, changes in {"in core": {}, "nvme": {"parameter_tier": "nvme", "optimizer_tier": "nvme"}}.items():
            for update in ("after", "in-backward", "in-next-forward"):
                if name == "in core" and update == "in-backward":
                    continue
                with self.subTest(name, update=update):
                    flags = self.flags(save=self.fresh(), train_iters=20, lr=3e37, update=update, **changes)
                    outcome = run("train", *arguments(flags))
                    self.check_refusal(outcome, 6, "step ")
                    self.assertIn("training stopped", outcome.err)
                    stopped = Run(flags["save"])
                    good = len(stopped.log)
                    self.assertIn(f"step {good + 1}:", outcome.err)
                    self.assertEqual(stopped.steps(), [good])
                    self.check_finite(stopped.state_file())
                    self.assertEqual(listing(self.nvme), [])
                    # The saved state is that of a run that ended there.
                    short = self.train({**flags, "save": self.fresh(), "train_iters": good})
                    self.assertEqual(short.result(), stopped.result())

    def check_finite(self, path):
        for name, (dtype, _, raw) in read_safetensors(path).items():
            if dtype == "F32":
                self.assertTrue(all(value - value == 0 for value in struct.unpack(f"<{len(raw) // 4}f", raw)), name)

    # --- checkpoints ---


if __name__ == "__main__":
    unittest.main()
