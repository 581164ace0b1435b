#!/usr/bin/env python3
"""Renders conversations with transformers: writes tests/data/chat/gold.json, or compares a program with it.

usage: chat_cases.py                        writes gold.json (needs transformers and jinja2)
       chat_cases.py --against SPILLWAY     also renders by `spillway tokenize`; exit code 1 if a text differs
       chat_cases.py --against SPILLWAY --random N [--seed S] [--random-only]      also N random templates, or no others

A case is a template and a row. If transformers refuses, the text is null. A program may refuse cases that transformers
renders (these are counted, and shown with --verbose); it may not render anything else.
"""
import argparse
import collections
import json
import pathlib
import subprocess
import sys
import tempfile

from chat_macros import MACRO_CASES, PRINT_CASES, SORT_CASES
from chat_rows import ROWS, SPECIAL
from chat_templates import CASES
from random_chat_template import random_template
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

place = pathlib.Path(__file__).resolve().parents[2] / "tests" / "data" / "chat"


def tokenizer_of_bytes():
    """A tokenizer with one token for each byte, so that ids are text."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in visible]
    names = {byte: chr(byte) for byte in visible} | {byte: chr(256 + n) for n, byte in enumerate(hidden)}
    made = Tokenizer(models.BPE({names[byte]: byte for byte in range(256)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    return made


bytes_tokenizer = tokenizer_of_bytes()
reference = PreTrainedTokenizerFast(tokenizer_object=bytes_tokenizer, **SPECIAL)


def text_of_reference(template, row):
    try:
        tools = row.get("tools")
        text = reference.apply_chat_template(row["messages"], tools=tools, chat_template=template, tokenize=False)
        text.encode()  # half a surrogate pair is no text
        return text
    except Exception:  # any exception of a template is a refusal
        return None


class Program:
    def __init__(self, command, folder):
        self.command, self.folder = command, pathlib.Path(folder)
        bytes_tokenizer.save(str(self.folder / "tokenizer.json"))

    def text_of(self, template, row):
        """The text, or None and the reason."""
        (self.folder / "tokenizer_config.json").write_text(json.dumps({**SPECIAL, "chat_template": template}))
        (self.folder / "row.jsonl").write_text(json.dumps(row) + "\n")
        command = [self.command, "tokenize", "--format", "ids", "--threads", "1", "--tokenizer", str(self.folder)]
        command += ["--out", str(self.folder / "ids.json"), str(self.folder / "row.jsonl")]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode == 2:
            return None, done.stderr.strip().splitlines()[0]
        if done.returncode != 0:
            return f"exit code {done.returncode}", ""
        ids = json.loads((self.folder / "ids.json").read_text().splitlines()[0])
        return bytes(ids).decode(), ""


def compare(program, cases, verbose):
    found = collections.Counter()
    for template, row in cases:
        expected = text_of_reference(template, row)
        text, why = program.text_of(template, row)
        if text == expected:
            kind = "equal" if text is not None else "both refuse"
        elif text is None:
            kind = "refused, transformers renders"
        else:
            kind = "rendered, transformers refuses" if expected is None else "DIFFERENT"
        found[kind] += 1
        if kind in ("DIFFERENT", "rendered, transformers refuses") or (verbose and kind.startswith("refused")):
            print(f"{kind}: {template!r}\n  transformers {expected!r}\n  spillway     {text!r} {why}")
    print(", ".join(f"{kind} {count}" for kind, count in sorted(found.items())))
    return found["DIFFERENT"] > 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--against")
    parser.add_argument("--random", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--random-only", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    files = {path.name: path.read_text() for path in sorted(place.glob("*.jinja"))}
    cases = [(text, row) for text in files.values() for row in ROWS]
    fixed = CASES + MACRO_CASES + PRINT_CASES + SORT_CASES
    cases += [(template, ROWS[row]) for template, row in fixed]
    if options.against:
        cases = [] if options.random_only else cases
        cases += [random_template(options.seed + n) for n in range(options.random)]
        with tempfile.TemporaryDirectory() as folder:
            sys.exit(compare(Program(options.against, folder), cases, options.verbose))
    texts = {name: [text_of_reference(text, row) for row in ROWS] for name, text in files.items()}
    small = [{"template": template, "row": row, "text": text_of_reference(template, ROWS[row])}
             for template, row in fixed]
    rows = [json.dumps(row, ensure_ascii=False) for row in ROWS]  # as text: some numbers exceed what readers keep
    gold = {"rows": rows, "special": SPECIAL, "texts": texts, "cases": small}
    (place / "gold.json").write_text(json.dumps(gold, ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    main()
