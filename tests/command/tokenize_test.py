"""spillway tokenize: a real tokenizer's gold, token files, refusals, and nothing half-written left behind.

Rows that train takes: which tokens have loss, epochs, figures of the data, and runs of earlier versions.
"""
import importlib.util
import json
import lzma
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import sys
import time
import unittest

from harness import DATA as TEST_DATA
from harness import PATIENCE, CommandTest, arguments, run

SPILLWAY = os.environ["SPILLWAY"]
DATA = pathlib.Path(__file__).resolve().parents[1] / "data" / "tokenizers"
FUZZ = pathlib.Path(__file__).resolve().parents[2] / "tools" / "reference" / "tokenizer_fuzz.py"


def tokenize(*words, timeout=240):
    return subprocess.run([SPILLWAY, "tokenize", *map(str, words)], capture_output=True, text=True,
                          timeout=timeout * PATIENCE)


class Tokenize(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.real = {}
        for name in ("qwen3", "mistral1"):
            cls.real[name] = cls.fresh_directory(name)
            packed = (DATA / f"{name}.tokenizer.json.xz").read_bytes()
            (cls.real[name] / "tokenizer.json").write_bytes(lzma.decompress(packed))
        cls.qwen = cls.real["qwen3"]

    def file(self, name, content):
        path = self.directory / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def refused(self, fragment, *words):
        out = self.directory / "refused.bin"
        done = tokenize("--out", out, *words)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertTrue(done.stderr.startswith("error: "), done.stderr)
        self.assertIn(fragment, done.stderr)
        self.assertEqual([path.name for path in self.directory.glob("refused*")], [])

    def test_gold_of_texts(self):
        for name, tokenizer in self.real.items():
            gold = json.loads((DATA / f"gold-{name}.json").read_text())["cases"]
            rows = self.file("gold.jsonl", "".join(json.dumps({"text": case["text"]}) + "\n" for case in gold))
            done = tokenize("--tokenizer", tokenizer, "--data", rows, "--format", "ids")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual([json.loads(line) for line in done.stdout.splitlines()], [case["ids"] for case in gold],
                             name)

    def test_gold_of_the_gpl(self):
        text = pathlib.Path("/usr/share/common-licenses/GPL-3")
        if not text.exists():
            self.skipTest("no " + str(text))
        for name, tokenizer in self.real.items():
            gold = json.loads((DATA / f"gold-{name}.json").read_text())["gpl3"]
            ids = json.loads(tokenize("--tokenizer", tokenizer / "tokenizer.json", text, "--format", "ids").stdout)
            self.assertEqual((len(ids), ids[: len(gold["first"])]), (gold["count"], gold["first"]), name)
            value = 0xCBF29CE484222325
            for byte in struct.pack(f"<{len(ids)}I", *ids):
                value = (value ^ byte) * 0x100000001B3 % 2**64
            self.assertEqual(str(value), gold["fnv1a64_le32"], name)

    @unittest.skipIf(importlib.util.find_spec("tokenizers") is None, "tokenizers is not installed")
    def test_random_tokenizers_and_text_against_the_reference(self):
        for files in ((), *([directory / "tokenizer.json"] for directory in self.real.values())):
            done = subprocess.run([sys.executable, FUZZ, SPILLWAY, "--seconds", "15", *files], capture_output=True,
                                  text=True, timeout=300)
            self.assertEqual(done.returncode, 0, done.stdout[-3000:])
            self.assertIn(": 0 tokenizers differ", done.stdout)

    def test_token_files_have_the_end_of_text_between_documents(self):
        place = self.directory / "texts"
        place.mkdir()
        (place / "a.txt").write_text("Hello, world!")
        (place / "b.jsonl").write_text('{"text": ""}\n{"text": "Hello"}\n')
        (place / "c.txt").write_text("")
        (place / "d.md").write_text("not read")
        out = self.directory / "t.bin"
        for tokenizer, words, code, separator in ((self.qwen, (20240801, 7), "I", 151643),
                                                  (DATA / "gpt2.json", (20240520, 1), "H", 0)):
            documents = [json.loads(line) for line in tokenize("--tokenizer", tokenizer, place, "--format",
                                                               "ids").stdout.splitlines()]
            self.assertEqual(len(documents), 4)
            self.assertEqual([documents[1], documents[3]], [[], []])
            done = tokenize("--tokenizer", tokenizer, "--data", place, "--out", out)
            self.assertEqual(done.returncode, 0, done.stderr)
            expected = documents[0] + [separator] + documents[2]
            content = out.read_bytes()
            self.assertEqual(struct.unpack("<3i", content[:12]), (*words, len(expected)))
            self.assertEqual(list(struct.unpack(f"<{len(expected)}{code}", content[1024:])), expected)
        tokenize("--tokenizer", DATA / "gpt2.json", "--data", place, "--out", out, "--end-of-text", "none")
        self.assertEqual(struct.unpack("<i", out.read_bytes()[8:12])[0], len(documents[0] + documents[2]))

    def test_bad_lines(self):
        rows = self.file("bad.jsonl", '{"text": "a"}\n{"text": 3}\n{"text": "b"}\nnot json\n')
        self.refused("bad.jsonl line 2: \"text\" is a number", "--tokenizer", DATA / "gpt2.json", rows)
        done = tokenize("--tokenizer", DATA / "gpt2.json", rows, "--format", "ids", "--skip-bad-lines")
        self.assertEqual((done.returncode, len(done.stdout.splitlines())), (0, 2))
        self.assertIn("2 bad lines left out", done.stderr)

    def test_what_is_refused(self):
        text = self.file("text.txt", "text")
        gpt2 = ("--tokenizer", DATA / "gpt2.json")
        self.refused("found byte 0xff at byte 2", *gpt2, self.file("bad.txt", b"ab\xff"))
        self.refused("--tokenizer: not given", text)
        self.refused("found no file or directory", *gpt2, self.directory / "none.txt")
        self.refused("found no file or directory", "--tokenizer", self.directory / "none.json", text)
        self.refused("--data: not given", *gpt2)
        self.refused("--format: found csv", *gpt2, text, "--format", "csv")
        self.refused("--end-of-text: found <nothing>", *gpt2, text, "--end-of-text", "<nothing>")
        self.refused("a .bin has tokens already", *gpt2, self.file("t2.bin", b""))
        unigram = json.loads((DATA / "gpt2.json").read_text())
        unigram["model"]["type"] = "Unigram"
        self.refused("model.type is \"Unigram\"; BPE is allowed", "--tokenizer",
                     self.file("unigram.json", json.dumps(unigram)), text)
        self.assertIn("--out: not given", tokenize(*gpt2, text).stderr)

    def test_an_interruption_leaves_nothing(self):
        place = self.directory / "interrupted"
        place.mkdir()
        (place / "long.txt").write_text("A line of some words that are long enough to take a while.\n" * 1_500_000)
        process = subprocess.Popen([SPILLWAY, "tokenize", "--tokenizer", str(self.qwen), "--data", str(place), "--out",
                                    str(place / "t.bin")],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        end = time.monotonic() + 60 * PATIENCE
        while not list(place.glob("t.bin.partial.*")) and process.poll() is None and time.monotonic() < end:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=120 * PATIENCE)
        self.assertEqual(process.returncode, 130)
        self.assertEqual([path.name for path in place.iterdir()], ["long.txt"])


SPECIAL = ("<s>", "</s>", "<|im_start|>", "<|im_end|>")
BEGIN = "<|im_start|>user\nq{0}<|im_end|>\n<|im_start|>assistant\n"


def byte_tokenizer():
    """Tokens are bytes and the special ones, which follow; <s> goes before a text."""
    own = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in own]
    vocabulary = {chr(byte): byte for byte in own} | {chr(256 + i): byte for i, byte in enumerate(others)}
    added = [{"id": 256 + i, "content": token, "special": True, "normalized": False} for i, token in enumerate(SPECIAL)]
    begin = {"type": "TemplateProcessing",
             "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
             "special_tokens": {"<s>": {"id": "<s>", "ids": [256], "tokens": ["<s>"]}}}
    return {"added_tokens": added, "post_processor": begin,
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
            "model": {"type": "BPE", "vocab": vocabulary, "merges": []}}


class RowsWithLoss(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = cls.fresh_directory("model")
        config = json.loads((TEST_DATA / "golden" / "qwen3" / "config.json").read_text())
        (cls.model / "config.json").write_text(json.dumps({**config, "vocab_size": 264}))
        (cls.model / "tokenizer.json").write_text(json.dumps(byte_tokenizer()))
        (cls.model / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>", "bos_token": "<s>"}))
        (cls.model / "chat_template.jinja").write_text(
            "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
        cls.chats = cls.rows("chats", [{"messages": [{"role": "user", "content": f"q{i}"},
                                                     {"role": "assistant", "content": "A" * i}]} for i in range(1, 6)])

    @classmethod
    def rows(cls, name, rows):
        path = cls.fresh(name).with_suffix(".jsonl")
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    def flags(self, **changes):
        return {"model": self.model, "data": self.chats, "data_order": "sequential", "seq_length": 64, "train_iters": 5,
                "micro_batch_size": 1, "lr_decay_style": "constant", "init": "random",
                "profile": TEST_DATA / "machine.json", **changes}

    def show(self, *words):
        outcome = run("tokenize", "--model", self.model, *words)
        self.assertEqual(outcome.code, 0, str(outcome))
        return outcome

    def test_prompts_through_the_chat_template(self):
        """Of generate and of samples; and a run keeps the date that templates write."""
        # The template writes the token that begins each text, which is not put before it once more.
        model = self.fresh("model")
        shutil.copytree(self.model, model)
        template = model / "chat_template.jinja"
        template.write_text("{{ bos_token }}" + template.read_text())

        def generated(*words):
            outcome = run("generate", "--model", model, "--init", "random", "--format", "jsonl", "--max-new-tokens", 4,
                          *words)
            self.assertEqual(outcome.code, 0, str(outcome))
            return json.loads(outcome.out)
        rendered = "<|im_start|>user\nq1<|im_end|>\n<|im_start|>assistant\n"
        chat, plain = generated("--chat", "--prompt", "q1"), generated("--prompt", rendered)
        self.assertEqual((chat["tokens"], chat["prompt_tokens"]), (plain["tokens"], plain["prompt_tokens"]))
        self.check_refusal(run("generate", "--model", self.model, "--init", "random", "--tokenizer", "bytes", "--chat",
                               "--prompt", "x"), 2, "--tokenizer: found bytes")
        run_ = self.train(self.flags(train_iters=2, sample_interval=2, sample_chat="q1", sample_tokens=4))
        self.assertTrue(run_.log[-1]["sample"].startswith("q1\n"), run_.log[-1])
        date = json.loads((run_.path / "run.json").read_text())["template-date"]
        self.assertRegex(date, r"^\d{4}-\d\d-\d\d$")
        again = self.train({"load": run_.path, "save": self.fresh(), "train_iters": 3, "template_date": None})
        self.assertEqual(json.loads((again.path / "run.json").read_text())["template-date"], date)
        self.check_refusal(run("train", *arguments(self.flags(template_date="tomorrow"))), 2, "--template-date: found")
        self.check_refusal(run("train", *arguments(self.flags(sample_chat="a"))), 2, "--sample-chat: found without")

    def test_only_what_the_assistant_says_is_counted(self):
        run_ = self.train(self.flags())
        # The answer, its end token and a newline.
        self.assertEqual([record["tokens"] for record in run_.log], [i + 2 for i in range(1, 6)])
        whole = self.train(self.flags(train_on="all", train_iters=1))
        self.assertEqual(whole.log[0]["tokens"], len("user\nq1\nassistant\nA\n") + 4 - 1)
        self.assertNotEqual(whole.log[0]["loss"], run_.log[0]["loss"])
        self.assertIn("5 documents, ", run_.outcome.out)
        self.assertIn(" tokens, 25 with loss; longest row ", run_.outcome.out)
        self.assertIn(" % of positions are padding; 5 steps an epoch", run_.outcome.out)

    def test_show_marks_what_has_loss(self):
        outcome = self.show(self.chats, "--show", 2, "--seq-length", 64, "--global-batch-size", 2)
        self.assertEqual(outcome.out, "".join(f"document {i}: {23 + i} tokens, {i + 2} with loss\n" + BEGIN.format(i) +
                                              "⟦" + "A" * i + "<|im_end|>\n⟧\n\n" for i in (1, 2)))
        self.assertIn("5 documents, 130 tokens, 25 with loss; longest row 28 tokens; ", outcome.err)
        self.assertIn("% of positions are padding; 2.50 steps an epoch", outcome.err)
        text = self.rows("text", [{"text": "ab"}, {"prompt": "ab", "completion": "cd"}])
        self.assertEqual(self.show(text, "--show", 2).out, "document 1: 4 tokens, 3 with loss\n<s>⟦ab</s>⟧\n\n"
                         "document 2: 6 tokens, 3 with loss\n<s>ab⟦cd</s>⟧\n\n")
        self.assertIn("a⟦b⟧", self.show(text, "--show", 1, "--text-ends", "none").out)
        self.check_refusal(run("tokenize", "--model", self.model, text, "--out", self.fresh(), "--train-on", "last"), 2,
                           "--train-on: found without --show")

    def test_rows_that_are_refused_are_named(self):
        bad = {"messages": [{"role": "user", "content": "q"}]}
        data = self.rows("bad", [{"text": "ab"}, bad, {"chosen": "a", "rejected": "b"}])
        self.check_refusal(run("train", *arguments(self.flags(data=data))), 2,
                           f"{data} line 2: found no message of the assistant")
        self.check_refusal(run("train", *arguments(self.flags(data=data, train_on="all"))), 2,
                           f"{data} line 3: found \"chosen\" and \"rejected\", a preference pair")
        outcome = self.train(self.flags(data=data, skip_bad_lines=True, train_iters=1)).outcome
        self.assertIn("2 bad lines left out, the first: ", outcome.out)

    def test_epochs(self):
        run_ = self.train(self.flags(train_iters=None, epochs=1.5, global_batch_size=2, lr_warmup_fraction=0.5))
        self.assertEqual(len(run_.log), 4)  # 7.5 sequences
        settings = json.loads((run_.path / "run.json").read_text())
        self.assertEqual((settings["train-iters"], settings.get("epochs")), (4, None))
        self.assertEqual([record["lr"] for record in run_.log[:2]], [1.5e-4, 3e-4])
        on = self.train({"load": run_.path, "epochs": 2.4})
        self.assertEqual([record["step"] for record in on.log], [5, 6])
        for flags, fragment in (({"epochs": 1, "train_iters": 4}, "--epochs: found together with --train-iters"),
                                ({"epochs": 1, "train_iters": None, "global_batch_size": 6}, "an epoch has no step"),
                                ({"epochs": 0, "train_iters": None}, "--epochs: found \"0\"")):
            self.check_refusal(run("train", *arguments(self.flags(**flags))), 2, fragment)

    def test_a_run_of_an_earlier_version_goes_on_as_it_began(self):
        data = self.rows("mixed", [{"text": "some words"}, json.loads(self.chats.read_text().splitlines()[0])])
        old = {"data": data, "train_on": "all", "text_ends": "none"}
        whole = self.train(self.flags(**old, train_iters=4))
        half = self.train(self.flags(**old, train_iters=2))
        settings = json.loads((half.path / "run.json").read_text())
        del settings["train-on"], settings["text-ends"]
        (half.path / "run.json").write_text(json.dumps(settings))
        on = self.train({"load": half.path, "train_iters": 4})
        self.assertEqual(on.curve(), whole.curve()[2:])
        self.assertNotIn("instead of", on.outcome.out)
        told = self.train({"load": half.path, "train_iters": 4, "text_ends": "both"})
        self.assertIn("--text-ends auto instead of none", told.outcome.out)
        self.assertEqual(told.log[0]["tokens"], whole.log[0]["tokens"] + 2)


if __name__ == "__main__":
    unittest.main()
