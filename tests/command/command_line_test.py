"""The command line as a stranger meets it: help, version, flags of other trainers, formats of files.

Not here: values that are refused (bad_input_test.py).
"""
import json
import re
import unittest

from harness import DATA, CommandTest, Golden, arguments, run

COMMANDS = ("plan", "probe", "train", "verify", "eval", "generate", "export", "report", "tokenize")
# The flags that the contract gives plan, train and verify, and this version takes.
RUN_FLAGS = """model truncate skip-bad-lines data tokenizer data-format data-order micro-batch-size global-batch-size
    seq-length train-iters lr min-lr lr-warmup-iters lr-decay-iters lr-decay-style lr-wsd-decay-iters optimizer
    weight-decay adam-beta1 adam-beta2 adam-eps clip-grad dtype state tensorboard csv sample-interval sample-prompt
    sample-tokens drift-threshold nvme-tbw seed save save-interval keep-last load eval-data eval-interval log-interval
    device device-memory host-memory nvme parameter-tier optimizer-tier activation-tier update-on order update
    durability durability-interval expected-clip-rate ranks zero-stage zero-group-size collectives sum-groups drop-last
    train-on plan profile config print-config format""".split()
LISTED = {
    "plan": [*RUN_FLAGS, "out"],
    "train": RUN_FLAGS,
    "verify": [*RUN_FLAGS, "out", "steps", "store"],
    "probe": "nvme thorough format out".split(),
    "eval": """model load step data eval-data tokenizer data-format truncate skip-bad-lines micro-batch-size seq-length
        dtype device device-memory nvme seed format out config""".split(),
    "generate": """model load step tokenizer prompt prompt-file max-new-tokens temperature top-k top-p format seed dtype
        device-memory nvme""".split(),
    "export": "load out step dtype max-shard-size model".split(),
    "report": "load out trace".split(),
    "tokenize": "tokenizer model data out format end-of-text skip-bad-lines threads".split(),
}
# What a command takes no notice of, it does not take.
NOT_TAKEN = {
    "train": ["out"],
    "eval": """lr train-iters save global-batch-size order optimizer-tier clip-grad data-order save-interval tensorboard
        drop-last ranks plan profile""".split(),
    "generate": "lr data save micro-batch-size order".split(),
    "export": ["lr", "nvme"],
    "probe": ["model"],
    "tokenize": ["seq-length"],
}
NO_VALUE = ("truncate", "skip-bad-lines", "drop-last", "print-config", "thorough")


def flags_in(text):
    """The names in the lines that list flags."""
    return re.findall(r"(?m)^  (?:-h, )?--([a-z0-9-]+)", text)


class CommandLine(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.golden = Golden("llama_gqa", cls.directory)

    def flags(self, **changes):
        return self.golden.flags(**{"train_iters": 2, **changes})

    def refused(self, command, words, *fragments):
        outcome = run(command, *words)
        self.check_refusal(outcome, 2, fragments[0])
        for fragment in fragments:
            self.assertIn(fragment, outcome.err)
        return outcome

    def test_no_such_command(self):
        for word in ("trian", "--lr", "x"):
            self.refused(word, (), f"there is no command '{word}'", *COMMANDS)

    # --- help and version ---

    def test_version(self):
        outcome = run("--version")
        self.assertRegex(outcome.out, r"\Aspillway \d+\.\d+\.\d+\n\Z")
        self.assertEqual((outcome.code, outcome.err), (0, ""))
        self.assertIn("--version", run("--help").out)
        for command in COMMANDS:
            self.assertEqual(run(command, "--version").out, outcome.out)

    def test_help(self):
        self.assertEqual(run("--help").out, run("-h").out)
        for words in ((), *((command,) for command in COMMANDS)):
            outcome = run(*words, "--help")
            self.assertEqual((outcome.code, outcome.err), (0, ""))
            for line in outcome.out.splitlines():
                self.assertLessEqual(len(line), 100, line)
                self.assertEqual(line, line.rstrip())

    def test_help_lists_what_the_command_takes(self):
        for command in COMMANDS:
            listed = flags_in(run(command, "--help").out)
            for name in LISTED[command]:
                self.assertIn(name, listed, command)
            for name in NOT_TAKEN.get(command, ()):
                self.assertNotIn(name, listed, command)
                self.refused(command, [f"--{name}", "1"], f"--{name}")
            for name in set(listed) - {"help", "version"}:
                with self.subTest(command, flag=name):
                    # Taken: what is complained of is the flag after it.
                    value = [] if name in NO_VALUE else ["1"]
                    self.refused(command, [f"--{name}", *value, "--no-such-flag"], "--no-such-flag")

    def test_help_says_what_its_words_mean(self):
        for command in ("plan", "train", "verify"):
            text = run(command, "--help").out
            for word in ("unit", "block", "tier", "lane", "order", "update", "kept"):
                self.assertRegex(text, rf"(?m)^  {word} +\w")
        self.assertIn("horizontal: each micro-batch", text.replace("\n", " "))
        lanes = re.search(r"(?s)  lane .*?(?=\n  \w)", text).group()
        for lane in ("compute", "upload", "download", "nvme_read", "nvme_write", "update", "network", "commit"):
            self.assertIn(lane, lanes)

    def test_help_says_values_in_one_way(self):
        """Names of values, and no words of the parser's."""
        for command in COMMANDS:
            for line in run(command, "--help").out.splitlines():
                self.assertNotRegex(line, r"^  --\S+ .*(:INT|:FLOAT|:TEXT|UINT| in \[)")

    # --- flags of others ---

    def test_flags_of_other_trainers(self):
        for command in ("plan", "train", "verify"):
            for words, *fragments in (
                    (["--batch-size", "4"], "--batch-size; here it is --micro-batch-size and --global-batch-size",
                     "micro x accumulation x ranks"),
                    (["--learning-rate=1e-4"], "--learning-rate; here it is --lr"),
                    (["--bf16"], "--bf16; here it is --dtype"),
                    (["--max-steps", "5"], "--max-steps; here it is --train-iters"),
                    (["--gradient-accumulation-steps", "5"], "here it is --global-batch-size"),
                    (["--per-device-train-batch-size", "5"], "here it is --micro-batch-size"),
                    (["-b", "4"], "unknown flag -b; here it is --micro-batch-size"),
                    (["--weight_decay", "0.1"], "here it is written --weight-decay")):
                self.refused(command, words, *fragments)
        config = self.fresh("config")
        config.write_text('{"learning_rate": 0.1}')
        self.refused("train", ["--config", config], "learning_rate", "--lr")
        self.refused("eval", ["--batch-size", "4"], "--micro-batch-size")

    def test_flags_of_a_later_version(self):
        for flag in ("--lora-rank", "--adapter", "--loss-scale", "--deepspeed-config", "--template-date", "--packing",
                     "--reduce-algorithm", "--rendezvous-port"):
            self.refused("train", arguments(self.flags()) + [flag, "1"], f"{flag}: ", "this version")
        for flag, value, fragment in (("--dtype", "fp16", "bf16"), ("--train-on", "assistant", "all"),
                                      ("--update-on", "host", "device"), ("--sum-groups", "2", "1"),
                                      ("--device", "cuda", "cpu")):
            words = arguments(self.flags(dtype=None)) + [flag, value]
            self.refused("train", words, flag, "in this version", fragment)

    # --- formats ---

    def test_the_ending_of_a_file_says_its_format(self):
        plan = arguments(self.flags(data=None))
        checkpoint = ["--model", self.golden.model, "--data", self.golden.data, "--seq-length",
                      self.golden.json["seq_len"], "--dtype", "fp32"]
        ids = ["--tokenizer", DATA / "tokenizers" / "gpt2.json", self.golden.data.parent / "text.txt"]
        (self.golden.data.parent / "text.txt").write_text("some text")
        begins = {"json": "{", "html": "<!DOCTYPE html>", "table": ("model", str(self.golden.model)), "ids": "["}

        def written(command, words, ending, *more):
            out = self.fresh("out").with_suffix(ending)
            outcome = run(command, *words, "--out", out, *more)
            self.assertEqual(outcome.code, 0, str(outcome))
            return out

        verify = [*plan, "--data", self.golden.data, "--steps", "1"]
        for command, words, ending, format_ in (
                ("plan", plan, ".json", "json"), ("plan", plan, ".html", "html"), ("plan", plan, ".txt", "table"),
                ("plan", plan, ".md", "table"), ("plan", plan, ".plan", "table"), ("verify", verify, ".json", "json"),
                ("eval", checkpoint, ".json", "json"), ("eval", checkpoint, ".txt", "table"),
                ("tokenize", ids, ".json", "ids"), ("tokenize", ids, ".jsonl", "ids")):
            with self.subTest(command, ending=ending):
                text = written(command, words, ending).read_text()
                self.assertTrue(text.startswith(begins[format_]), text[:100])
                if format_ == "json":
                    json.loads(text)
        # What is said outright wins.
        self.assertTrue(written("plan", plan, ".json", "--format", "table").read_text().startswith("model"))
        self.assertTrue(written("plan", plan, ".txt", "--format", "json").read_text().startswith("{"))
        self.assertGreater(written("tokenize", ids, ".txt", "--format", "bin").stat().st_size, 1024)
        for command, words, name in (("eval", checkpoint, "x.html"), ("tokenize", ids, "x.txt"),
                                     ("probe", [], "x.html"), ("report", [self.directory], "x.json")):
            self.refused(command, [*words, "--out", self.directory / name], "--out", name)
        self.refused("train", arguments(self.flags(format="json")), "--format", "--print-config")

    def test_a_probe_by_its_ending(self):
        out = self.fresh("profile").with_suffix(".json")
        outcome = run("probe", "--out", out)
        self.assertEqual(outcome.code, 0, str(outcome))
        self.assertIn("gemm_fp32_flops", json.loads(out.read_text()))

    def test_one_of_a_kind(self):
        """No text says "1 units"."""
        flags = self.flags(micro_batch_size=1, global_batch_size=1)
        texts = [run("plan", *arguments(flags)).out, self.train(flags).outcome.out]
        for text in texts:
            self.assertNotRegex(text, r"\b1 "
                                      r"(units|blocks|threads|tokens|sequences|files|positions|steps|micro-batches)\b")
        self.assertIn("in 1 micro-batch\n", texts[0])

    # --- commands that read a run ---

    def test_runs_by_load(self):
        made = self.train(self.flags())
        by_load = run("report", "--load", made.path)
        self.assertEqual(by_load.code, 0, str(by_load))
        self.assertEqual(run("report", made.path).out, by_load.out)
        self.refused("report", [made.path, "--load", made.path], "2 run directories")
        self.refused("report", [], "run directory", "--load DIR")
        evaluated = json.loads(run("eval", "--load", made.path, "--format", "json").out)
        self.assertEqual(evaluated["data"], [str(self.golden.data)])
        self.assertEqual(run("export", "--load", made.path, "--out", self.fresh("hf")).code, 0)

    def test_names_of_the_catalogue_have_no_weights(self):
        small = {"model": "smollm2-135m", "seq_length": 16, "dtype": "bf16", "data": self.golden.data, "truncate": True}
        speak = ["--model", "gpt2", "--tokenizer", "bytes", "--prompt", "a"]
        for command, words in (("eval", arguments(small)), ("generate", speak)):
            self.refused(command, words, "catalogue", "Hugging Face directory")
        self.refused("export", ["--model", "gpt2", "--out", self.fresh("hf")], "--load", "catalogue")

    def test_weights_that_are_drawn_are_said_to_be(self):
        place = self.fresh_directory("model")
        (place / "config.json").write_bytes((self.golden.model / "config.json").read_bytes())
        drawn = self.train(self.flags(model=place))
        self.assertIn("has no weights beside it: they are drawn from --seed 1234", drawn.outcome.out)
        self.assertNotIn("drawn", self.train(self.flags()).outcome.out)
        self.assertNotIn("drawn", self.train({"load": drawn.path, "train_iters": 3, "save": drawn.path}).outcome.out)

    # --- data ---

    def test_dropping_the_last_sequences(self):
        """Six rows in steps of four: with --drop-last the second step is the first of the next epoch."""
        rows = self.fresh("rows").with_suffix(".jsonl")
        rows.write_text("".join(self.golden.data.read_text().splitlines(True)[:6]))
        batch = {"data": rows, "micro_batch_size": 2, "global_batch_size": 4, "train_iters": 3, "lr": 0}
        dropped = self.train(self.flags(**batch, drop_last=True))
        losses = [record["loss"] for record in dropped.log]
        self.assertEqual(losses[0], losses[1])
        self.assertEqual(losses[0], losses[2])
        self.assertIn("2 of each epoch dropped", dropped.outcome.out)
        filled = [record["loss"] for record in self.train(self.flags(**batch)).log]
        self.assertEqual(filled[0], losses[0])
        self.assertNotEqual(filled[1], losses[0])
        too_few = self.flags(**{**batch, "global_batch_size": 8}, drop_last=True)
        self.refused("train", arguments(too_few), "--drop-last", "6 sequences")


if __name__ == "__main__":
    unittest.main()
