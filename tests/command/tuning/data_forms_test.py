"""Data as they lie there: compressed files, JSON arrays, standard input, tables, rows that are held back."""
import gzip
import json
import os
import shlex
import shutil
import subprocess
import unittest

from harness import MIB, SANITIZED, CommandTest, Golden, arguments, begin, finish, run

STEPS = 6


class DataForms(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.golden = Golden("gpt2", cls.directory)
        cls.lines = cls.golden.data.read_bytes()
        cls.rows = [json.loads(line) for line in cls.lines.splitlines()]
        cls.whole = None

    def flags(self, **changes):
        return self.golden.flags(**{"micro_batch_size": 1, "global_batch_size": 2, "train_iters": STEPS,
                                    "data_order": "shuffled", **changes})

    def plain(self):
        if DataForms.whole is None:
            DataForms.whole = self.train(self.flags())
        return DataForms.whole

    def file(self, name, content):
        path = self.fresh_directory() / name
        path.write_bytes(content)
        return path

    def piped(self, content, flags, command="train", **how):
        """Runs with that standard input."""
        with open(self.file("input", content), "rb") as stdin:
            return run(command, *arguments(flags), stdin=stdin, **how)

    def test_every_form_trains_alike(self):
        array = json.dumps(self.rows, indent=1).encode()
        forms = {"a.jsonl.gz": gzip.compress(self.lines), "a.ndjson": self.lines, "a.json": array,
                 "a.json.gz": gzip.compress(array)}
        if shutil.which("zstd"):
            made = subprocess.run(["zstd", "-q", "-c"], input=self.lines, capture_output=True, check=True)
            forms["a.jsonl.zst"] = made.stdout
        for name, content in forms.items():
            with self.subTest(name):
                self.assertEqual(self.train(self.flags(data=self.file(name, content))).result(), self.plain().result())

    def test_standard_input_trains_alike_and_goes_on(self):
        for content in (self.lines, gzip.compress(json.dumps(self.rows).encode())):
            save = self.fresh()
            half = self.piped(content, self.flags(data="-", save=save, train_iters=3, lr_decay_iters=STEPS))
            self.assertEqual(half.code, 0, str(half))
            moved = self.fresh("moved")
            shutil.move(save, moved)
            (kept,) = (moved / "standard-input").iterdir()
            self.assertEqual(kept.read_bytes(), content)
            on = self.train({"load": moved, "save": moved, "train_iters": STEPS})
            self.assertEqual(on.result(), self.plain().result())
            self.assertNotIn("data", "".join(line for line in on.outcome.out.splitlines() if line.startswith("note:")))

    def test_other_commands_read_standard_input(self):
        shown = self.piped(b'{"text": "words"}\n', {"model": self.golden.model, "data": "-", "tokenizer": "bytes",
                                                    "seq_length": 4, "init": "random"}, command="eval")
        self.assertEqual(shown.code, 0, str(shown))
        self.assertIn("1 file, 1 sequence", shown.out)
        planned = self.piped(self.lines, self.flags(data="-", epochs=1, train_iters=None), command="plan")
        self.assertEqual(planned.code, 0, str(planned))

    def test_a_run_that_is_not_begun_leaves_no_copy(self):
        save = self.fresh()
        refused = self.piped(self.lines, self.flags(data="-", save=save, device_memory="1MiB"))
        self.assertEqual(refused.code, 3, str(refused))
        self.assertFalse(save.exists())

    def test_bad_input(self):
        whole = gzip.compress(self.lines)
        for name, content, fragment in (("cut.jsonl.gz", whole[:-20], "gzip data end within"),
                                        ("cut.json", json.dumps(self.rows).encode()[:-1], "does not end"),
                                        ("other.jsonl.zst", self.lines, "no Zstandard data"),
                                        ("a.parquet", b"PAR1", "a table"), ("a.csv", b"a,b\n", "a table")):
            with self.subTest(name):
                refused = run("train", *arguments(self.flags(data=self.file(name, content))))
                self.check_refusal(refused, 2, fragment)
                if "table" in fragment:
                    self.assertIn("from datasets import Dataset; Dataset.from_", refused.err)
        self.check_refusal(self.piped(whole[:-20], self.flags(data="-")), 2, "standard input: gzip data end within")
        self.check_refusal(self.piped(b"", self.flags(data="-")), 2, "standard input (-): found nothing")
        columns = self.flags(data_columns="messages=chat")
        self.check_refusal(run("train", *arguments(columns)), 2, 'found no "chat"')
        self.check_refusal(run("train", *arguments(self.flags(eval_split=10**6))), 2, "holds back all of")

    @unittest.skipIf(SANITIZED, "memory is not the program's own")
    def test_bombs_take_bounded_memory(self):
        """A GiB in a MiB: one row without an end, and blank lines."""
        for name, byte, fragment in (("row.jsonl.gz", b"[" * MIB, "longer than"),
                                     ("deep.json.gz", b"[" * MIB, "longer than"),
                                     ("blank.jsonl.gz", b"\n" * MIB, "too few tokens")):
            with self.subTest(name):
                path = self.fresh_directory() / name
                with gzip.open(path, "wb", compresslevel=1) as out:
                    for _ in range(1024):
                        out.write(byte)
                self.assertLess(os.path.getsize(path), 16 * MIB)
                outcome = run("train", *arguments(self.flags(data=path)))
                self.check_refusal(outcome, 2, fragment)
                self.assertLess(outcome.resident_bytes, 600 * MIB)

    # --- --eval-split ---

    def test_what_is_held_back_is_never_trained_on(self):
        """Rows that are held back have tokens that no other row has: training never changes their loss by much, and the
        data of training are exactly the others, in the order that they have without them."""
        flags = self.flags(eval_split=0.25, eval_interval=3, data_order="sequential", train_iters=4)
        split = self.train(flags)
        count = len(self.rows)
        held = round(count * 0.25)
        self.assertIn(f"{held} rows held back", split.outcome.out)
        # The held-back rows are found by evaluating: `eval` of the run takes them.
        shown = json.loads(run("eval", "--load", split.path, "--format", "json", "--device", "cpu").out)
        self.assertEqual(shown["sequences"], held)
        self.assertEqual(shown["loss"], split.log[-1]["eval_loss"])
        for changes in ({"ranks": 2, "global_batch_size": 4}, {"micro_batch_size": 2, "data_order": "shuffled"},
                        {"packing": True}, {"truncate": True}):
            with self.subTest(changes):
                other = self.train({**flags, **changes, "train_iters": 1})
                self.assertAlmostEqual(other.log[0]["eval_loss_before"], split.log[0]["eval_loss_before"], places=5)
                self.assertIn(f"{held} rows held back", other.outcome.out)
        other = self.train({**flags, "seed": 7, "train_iters": 1})
        self.assertNotAlmostEqual(other.log[0]["eval_loss_before"], split.log[0]["eval_loss_before"], places=5)

    def test_a_split_run_goes_on(self):
        flags = self.flags(eval_split=3, eval_interval=2)
        whole = self.train(flags)
        half = self.train({**flags, "train_iters": 3, "lr_decay_iters": STEPS})
        on = self.train({"load": half.path, "save": half.path, "train_iters": STEPS})
        self.assertEqual(on.result(), whole.result())
        for changes, fragment in (({"eval_split": 4}, "--eval-split: found 4, but the run in"),
                                  ({"seed": 8}, "--seed: found 8, but --eval-split")):
            self.check_refusal(run("train", *arguments({"load": half.path, "train_iters": 9, **changes})), 2, fragment)

    def test_epochs_count_what_is_trained_on(self):
        count = len(self.rows)
        planned, _ = self.plan(self.flags(epochs=2, train_iters=None, eval_split=2, global_batch_size=1))
        words = shlex.split(planned["flags"])
        self.assertEqual(words[words.index("--train-iters") + 1], str(2 * (count - 2)))


class StandardInputOfATerminal(CommandTest):
    def test_a_terminal_is_refused(self):
        primary, secondary = os.openpty()
        try:
            words = ["tokenize", "--data", "-", "--tokenizer", self.directory, "--format", "ids"]
            process = begin(*words, stdin=secondary)
            outcome = finish(process)
        finally:
            os.close(primary)
            os.close(secondary)
        self.check_refusal(outcome, 2, "standard input (-): found a terminal")


if __name__ == "__main__":
    unittest.main()
