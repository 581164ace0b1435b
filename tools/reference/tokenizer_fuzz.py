#!/usr/bin/env python3
"""Compares `spillway tokenize` with the reference implementation (the `tokenizers` package), token for token, on random
tokenizers and random text, until the time is over. Exit code 1 if they differ; the text, cut down, and both answers are
shown.

usage: tokenizer_fuzz.py SPILLWAY [--seconds 60] [--seed 0] [--keep DIR] [--characters] [TOKENIZER.json...]

Without files it trains small tokenizers, with the pre-tokenizers, normalizers and flags of known models, and mixtures
that no model has. Given files are tried as they are.
"""
import argparse
import itertools
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RUST_BACKTRACE"] = "0"
from marked_tokenizers import KINDS, add_tokens, marked
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN = LLAMA3.replace("{1,3}", "")
QWEN3_NEXT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
              r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
TEKKEN = O200K.replace("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", "").replace("{1,3}", "")
DEEPSEEK = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
            r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
BEHAVIORS = ("isolated", "removed", "merged_with_previous", "merged_with_next", "contiguous")

root = pathlib.Path(__file__).resolve().parents[2]


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


def byte_level(prefix=False, regex=True):
    return pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=regex)


def then_bytes(*stages):
    return pre_tokenizers.Sequence([*stages, byte_level(regex=False)])


def known_pre_tokenizers(rng):
    yield "gpt2", byte_level()
    yield "prefix space", byte_level(prefix=True)
    for name, pattern in (("gpt2 split", GPT2), ("llama3", LLAMA3), ("qwen", QWEN), ("qwen3-next", QWEN3_NEXT),
                          ("o200k", O200K), ("tekken", TEKKEN)):
        yield name, then_bytes(split(pattern))
    yield "llama3 removed inverted", then_bytes(split(LLAMA3, "removed", True))
    yield "smollm2", pre_tokenizers.Sequence([pre_tokenizers.Digits(True), byte_level()])
    yield "starcoder", pre_tokenizers.Sequence([pre_tokenizers.Digits(True), byte_level(prefix=False)])
    yield "digit runs", pre_tokenizers.Sequence([pre_tokenizers.Digits(False), byte_level(prefix=True)])
    yield "deepseek", then_bytes(split(r"[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"),
                                 split("[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"),
                                 pre_tokenizers.Digits(True))
    yield "deepseek-v3", then_bytes(split(r"\p{N}{1,3}"), split("[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"),
                                    split(DEEPSEEK))
    yield "olmo", then_bytes(split(r"\p{N}{1,3}", "isolated"), split(GPT2))
    pattern = rng.choice([r"\s+", r"[A-Z]", r"\d*", r"\p{L}+", "e|é", r"\b", r"(?<=a)b", r"^.", r"$", r".", r"[^a]*",
                          r"\w+|\W", GPT2, QWEN])
    behavior, invert = rng.choice(BEHAVIORS), rng.random() < 0.5
    second, other = rng.choice(["e", " ", "\n", "  ", "'s", "é"]), rng.choice(BEHAVIORS)
    yield f"{pattern} {behavior} {invert}, {second!r} {other}", then_bytes(split(pattern, behavior, invert),
                                                                           pre_tokenizers.Split(second, other,
                                                                                                rng.random() < 0.3))


def added_tokens(rng):
    contents = ["<|im_start|>", "<|im_end|>", "<lst>", "<rst>", "<both>", "word", "été", "<|im_start|>x", "  ",
                "\n\n\n", "\t\t", "İ", "Å", "a b", "ing", " x", "x ", "<|", "|>", "한국", "\u1112\u1161\u11ab", "0", "12",
                "'s", "\u0301", "the", "THE", " the"]
    rng.shuffle(contents)
    return [AddedToken(content, single_word=rng.random() < 0.25, lstrip=rng.random() < 0.25, rstrip=rng.random() < 0.25,
                       normalized=rng.random() < 0.5, special=rng.random() < 0.4)
                       for content in contents[:rng.randrange(len(contents))]]


def make_marked(rng, corpus):
    kind, inside = rng.choice(sorted(KINDS)), rng.random() < 0.2
    content = marked(corpus, kind, rng.choice([300, 600, 2000]), falls_back=rng.random() < 0.7,
                     fuses=rng.random() < 0.5, ignores_merges=rng.random() < 0.3, spaces_inside=inside)
    if content["model"]["ignore_merges"]:
        for word in ("\u2581hello", "world", "\u2581\u2581\u2581", "123"):
            content["model"]["vocab"].setdefault(word, len(content["model"]["vocab"]))
    tokenizer = Tokenizer.from_str(json.dumps(content))
    add_tokens(tokenizer, added_tokens(rng))
    return kind + (" inside" if inside else ""), tokenizer.to_str()


def make(rng, corpus):
    if rng.random() < 0.3:
        return make_marked(rng, corpus)
    name, pre = rng.choice(list(known_pre_tokenizers(rng)))
    unknown = "<unk>" if rng.random() < 0.1 else None
    tokenizer = Tokenizer(models.BPE(unk_token=unknown, fuse_unk=rng.random() < 0.5))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre, decoders.ByteLevel()
    normalizer = rng.choice([None, None, normalizers.NFC(), normalizers.Sequence([normalizers.NFC()]),
                             normalizers.Sequence([])])
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    special = ["<|endoftext|>", "<|begin_of_text|>"] + ([unknown] if unknown else [])
    alphabet = [] if unknown else sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=rng.choice([300, 500, 2000]),
                                                              initial_alphabet=alphabet, special_tokens=special,
                                                              show_progress=False))
    content = json.loads(tokenizer.to_str())
    content["model"]["ignore_merges"] = ignores = rng.random() < 0.5
    if ignores:  # words that no merge makes
        vocabulary = content["model"]["vocab"]
        for word in ("Ġhello", "world", "ĊĊĊĊ", "ĠĠĠĠ", "123", "Ã©tÃ©"):
            vocabulary.setdefault(word, len(vocabulary))
    tokenizer = Tokenizer.from_str(json.dumps(content))
    add_tokens(tokenizer, added_tokens(rng))
    if rng.random() < 0.5:
        tokenizer.post_processor = processors.TemplateProcessing(single="<|begin_of_text|> $A",
                                                                 pair="<|begin_of_text|> $A $B",
                                                                 special_tokens=[("<|begin_of_text|>",
                                                                                  tokenizer.token_to_id(
                                                                                      "<|begin_of_text|>"))])
    content = json.loads(tokenizer.to_str())
    if rng.random() < 0.3:  # in older files a merge is a line
        content["model"]["merges"] = [" ".join(merge) for merge in content["model"]["merges"]]
    return name, json.dumps(content, ensure_ascii=rng.random() < 0.5)


WORDS = ("'s 'S 'ſ 'll 'LL 'lL don't I'VE we'RE 123 1234567 ٣٤ ½ Ⅷ ² e é e\u0301 été e\u0301te\u0301 Å Å ﬀ 가 가 각 한 한국 "
         "क्षि ไทย 🙂 👩‍👩‍👧 🏳️‍🌈 "
         "<|im_start|> <|im_end|> <|endoftext|> <|begin_of_text|> <lst> <rst> <both> word words sword Word "
         "<|im_start|>x ǅ ß ẞ ı İ i̇ ſ K ! !!! ... -> (){} "
         "foo Bar QUX hello world QZQ ệ ộ й и\u0306 नि 你好 世界！ x=1; THE the <| |> <unk> /* */ // http://a.b/c?d=e#f \\n "
         "\\u0041 {\"a\":1}").split(" ") + [
    " ", "  ", "\t", "\n", "\r\n", "\n\n", "\n\n\n", "\r", "\u00a0", "\u3000", "\u2028", "\u0085", "\0", "\x0b", "\x0c",
    "\u2581", "\u2581a", " \u2581", "<0x0A>", "<s>",
    "\x1c", "\x1f", "\x7f", "\u0301", "\u0323\u0301", "\u200b", "\u200d", "\ufeff", "\uffff", "\ufdd0", "\ufffd",
    "\u0344", "\u0f73", "\u1f71", "\u2126", "\ufb1d", "\u0958", "\u180e",
    "\U0001d15e", "\u1100\u1161\u11a8", "\uac00\u11a8", "\u09c7\u09be", "\U0010ffff", "\U000e0001", "a b", " x", "x "]


def fragment(rng):
    kind = rng.random()
    if kind < 0.15:
        return chr(rng.randrange(0x250))
    if kind < 0.25:
        block = rng.randrange(0x110000 >> 7) << 7 if rng.random() < 0.3 else rng.randrange(0x20000 >> 7) << 7
        return "".join(chr(c) for c in (block + rng.randrange(128) for _ in range(rng.randrange(1, 6)))
                       if not 0xD800 <= c < 0xE000)
    if kind < 0.32:
        return rng.choice("abcxyzé0 \n\t\r!") * rng.randrange(1, 80)
    if kind < 0.36:
        return "".join(rng.choice(" \n\r\t") for _ in range(rng.randrange(1, 12)))
    return rng.choice(WORDS)


def random_text(rng, corpus):
    if rng.random() < 0.1:
        page = rng.choice(corpus)
        begin = rng.randrange(len(page))
        return page[begin:begin + rng.randrange(400)]
    joined = rng.random() < 0.3
    return (" " if joined else "").join(fragment(rng) for _ in range(rng.randrange(rng.choice([3, 12, 40]))))


def texts_of_every_character(step):
    """Texts with each code point beside letters, digits, spaces, marks, itself and words that added tokens look for,
    `step` texts at a time. Of the planes without assigned characters only a part is covered."""
    codes = [code for code in (*range(0x34000), *range(0xE0000, 0xE1000), *range(0x10FF00, 0x110000))
             if not 0xD800 <= code < 0xE000]
    for first in range(0, len(codes), step):
        yield [f"word{c} {c}word  a{c}b1{c}2 "
               f"{c}{c}!{c}\n{c}\u0301{c}\u0327\u0301{c}\u1161{c}\u11a8\u093c'{c}<lst>{c}<rst>{c}" for c in
               map(chr, codes[first:first + step])]


class Pair:
    """The program and the reference with one tokenizer."""

    def __init__(self, program, path):
        self.program, self.path = program, str(path)
        self.reference = Tokenizer.from_file(self.path)

    def ours(self, texts, directory):
        rows = pathlib.Path(directory, "rows.jsonl")
        rows.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
        done = subprocess.run([self.program, "tokenize", "--tokenizer", self.path, "--data", str(rows), "--format",
                               "ids"], capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip())
        return [json.loads(line) for line in done.stdout.splitlines()]

    def theirs(self, texts):
        return [self.answer(text) for text in texts]

    def answer(self, text):
        """The reference's ids; None if the reference itself breaks, as it does if white space that one added token
        strips contains another one.
        """
        try:
            return self.reference.encode(text, add_special_tokens=False).ids
        except BaseException as problem:
            if type(problem).__name__ != "PanicException":
                raise
            return None

    def cut_down(self, text, directory):
        """The shortest part of a differing text that leaving out halves, quarters, ... finds."""
        size = len(text) // 2
        while size > 0:
            parts = [text[:at] + text[at + size:] for at in range(0, len(text), size)]
            theirs = self.theirs(parts)
            for part, ours, other in zip(parts, self.ours(parts, directory), theirs):
                if other is not None and ours != other:
                    text = part
                    break
            else:
                size //= 2
            size = min(size, max(len(text) // 2, 1)) if size else 0
        return text


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("program", metavar="SPILLWAY")
    arguments.add_argument("tokenizers", nargs="*", metavar="TOKENIZER.json")
    arguments.add_argument("--seconds", type=float, default=60)
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--texts", type=int, default=400, help="for each tokenizer")
    arguments.add_argument("--characters", action="store_true",
                           help="instead: every code point of Unicode with each of the files")
    arguments.add_argument("--keep", type=pathlib.Path, help="where tokenizers that differ are put")
    given = arguments.parse_intermixed_args()
    program = str(pathlib.Path(given.program).resolve())
    corpus = [path.read_text() for path in sorted((root / "memory").glob("*.h"))]
    corpus.append("你好，世界！这是一个测试。Привет мир 🙂🚀 naïve café שלום עולם العربية हिन्दी ไทย 한국어 été " * 20)
    end, tried, texts_tried, tokens, differing, kinds = time.monotonic() + given.seconds, 0, 0, 0, 0, set()
    with tempfile.TemporaryDirectory() as holder:
        every_character = itertools.product(given.tokenizers, texts_of_every_character(1 << 14))
        for number in itertools.count(given.seed):
            rng = random.Random(number)
            path = pathlib.Path(holder, f"{number}.json")
            texts = None
            if given.characters:
                name, texts = next(every_character, (None, None))
                if name is None:
                    break
                path = pathlib.Path(name)
            elif time.monotonic() > end:
                break
            elif given.tokenizers:
                name = rng.choice(given.tokenizers)
                path = pathlib.Path(name)
            else:
                name, content = make(rng, corpus)
                path.write_text(content, encoding="utf-8")
            kinds.add(name)
            pair = Pair(program, path)
            texts = texts or [random_text(rng, corpus) for _ in range(given.texts)]
            theirs = pair.theirs(texts)
            try:
                ours = pair.ours(texts, holder)
            except RuntimeError as problem:
                print(f"seed {number}, {name}: {problem}")
                differing += 1
                continue
            tried, texts_tried = tried + 1, texts_tried + len(texts)
            tokens += sum(len(their or ()) for their in theirs)
            wrong = [text for text, our, their in zip(texts, ours, theirs)
                     if their is not None and our != their]
            if wrong or len(ours) != len(texts):
                differing += 1
                short = pair.cut_down(min(wrong, key=len), holder)
                print(f"seed {number}, {name}: {len(wrong)} of {len(texts)} texts differ, such as "
                      f"{json.dumps(short)}:\n"
                      f"  spillway   {pair.ours([short], holder)[0]}\n  reference  {pair.theirs([short])[0]}")
                if given.keep:
                    given.keep.mkdir(parents=True, exist_ok=True)
                    (given.keep / f"{number}.json").write_text(path.read_text())
    print(f"{tried} tokenizers of {len(kinds)} kinds, {texts_tried} texts, {tokens} tokens: {differing} tokenizers "
          "differ")
    return 1 if differing or not tried else 0


sys.exit(main())
