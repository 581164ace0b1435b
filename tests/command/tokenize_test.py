"""spillway tokenize: a real tokenizer's gold, token files, refusals, and nothing half-written left behind."""
import importlib.util
import json
import lzma
import os
import pathlib
import signal
import struct
import subprocess
import sys
import time
import unittest

from harness import PATIENCE, CommandTest

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


if __name__ == "__main__":
    unittest.main()
