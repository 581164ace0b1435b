"""Writes tests/data/tokenizers: small tokenizers of every kind that Spillway reads, with the reference implementation's
(the `tokenizers` package's) tokens for texts that are hard to cut. Usage: tokenizer_cases.py OUT_DIRECTORY"""
import json
import pathlib
import random
import sys
import unicodedata

from marked_tokenizers import KINDS, add_tokens, marked
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

root = pathlib.Path(__file__).resolve().parents[2]
out = pathlib.Path(sys.argv[1])
random_ = random.Random(6)

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| "
          r"?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN = LLAMA3.replace("{1,3}", "")
corpus = [path.read_text() for path in sorted((root / "memory").glob("*.h"))]
corpus.append("你好，世界！这是一个测试。Привет мир 🙂🚀 naïve café שלום עולם العربية हिन्दी ไทย " * 20)

added = [
    AddedToken("<|im_start|>", special=True), AddedToken("<|im_end|>", special=True),
    AddedToken("<lst>", lstrip=True, special=True),
    AddedToken("<rst>", rstrip=True), AddedToken("<both>", lstrip=True, rstrip=True, normalized=False),
    AddedToken("word", single_word=True), AddedToken("été", single_word=True, normalized=True),
    AddedToken("<|im_start|>x"), AddedToken("  ", normalized=False), AddedToken("\n\n\n"),
]


def byte_level(**options):
    return pre_tokenizers.ByteLevel(**options)


def split(pattern, behavior, invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


def save(name, content):
    (out / f"{name}.json").write_text(json.dumps(content, ensure_ascii=False, separators=(",", ":")) + "\n")
    return name


def write(name, pre_tokenizer, normalizer=None, ignore_merges=False, tokens=(), vocabulary=420, unknown=None):
    tokenizer = Tokenizer(models.BPE(unk_token=unknown))
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    if normalizer:
        tokenizer.normalizer = normalizer
    special = ["<|endoftext|>"] + ([unknown] if unknown else [])
    alphabet = [] if unknown else sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=vocabulary, initial_alphabet=alphabet,
                                                              special_tokens=special, show_progress=False))
    add_tokens(tokenizer, tokens)
    content = json.loads(tokenizer.to_str())
    content["model"]["ignore_merges"] = ignore_merges
    if name == "gpt2":  # in older files a merge is a line
        content["model"]["merges"] = [" ".join(merge) for merge in content["model"]["merges"]]
    return save(name, content)


names = [
    write("gpt2", byte_level(add_prefix_space=False)),
    write("prefix_space", byte_level(add_prefix_space=True), tokens=added[:3]),
    write("llama3", pre_tokenizers.Sequence([split(LLAMA3, "isolated"),
                                             byte_level(add_prefix_space=False, use_regex=False)]),
          ignore_merges=True, tokens=added[:2]),
    write("qwen2", pre_tokenizers.Sequence([split(QWEN, "isolated"),
                                            byte_level(add_prefix_space=False, use_regex=False)]),
          normalizer=normalizers.NFC(), tokens=added),
    write("smollm2", pre_tokenizers.Sequence([pre_tokenizers.Digits(True), byte_level(add_prefix_space=False)]),
          tokens=added),
    write("digit_runs", pre_tokenizers.Sequence([pre_tokenizers.Digits(False), byte_level(add_prefix_space=True)]),
          normalizer=normalizers.Sequence([normalizers.NFC()]), tokens=added),
    write("unknown", byte_level(add_prefix_space=False), unknown="<unk>", vocabulary=300),
]
for behavior in ("isolated", "removed", "merged_with_previous", "merged_with_next", "contiguous"):
    for invert in (False, True):
        pre = pre_tokenizers.Sequence([split(r"\s+|[A-Z]|\d*", behavior, invert),
                                       pre_tokenizers.Split("e", behavior, invert),
                                       byte_level(add_prefix_space=False, use_regex=False)])
        names.append(write(f"{behavior}{'_inverted' if invert else ''}", pre, vocabulary=300))

def write_marked(name, kind, tokens=(), **options):
    tokenizer = Tokenizer.from_str(json.dumps(marked(corpus, kind, **options)))
    add_tokens(tokenizer, tokens)
    content = json.loads(tokenizer.to_str())
    content["pre_tokenizer"] = KINDS[kind][1]  # keeps older spellings, which the reference would write in the new way
    return save(name, content)


names += [write_marked(kind, tokens=added[:i % 3 * 3], kind=kind, vocabulary=420) for i, kind in enumerate(KINDS)]
names += [write_marked("marked_unknown", kind="llama2", vocabulary=300, falls_back=False),
          write_marked("marked_inside", kind="llama2", vocabulary=500, spaces_inside=True, tokens=added[:3])]

fragments = ("'s 'S 'll 'LL don't I'VE 123 1234567 ٣٤ ½ Ⅷ ² e é e\u0301 été e\u0301te\u0301 Å Å ﬀ 가 가 각 한 क्षि ไทย 🙂 "
             "👩‍👩‍👧 🏳️‍🌈 "
             "<|im_start|> <|im_end|> <|endoftext|> <lst> <rst> <both> word words sword <|im_start|>x ǅ ß ı İ ſ K ! "
             "!!! ... -> (){} foo Bar "
             "QUX hello world QZQ ệ ộ й и\u0306 नि 你好 世界！ x=1;").split(" ") + [
    " ", "  ", "\t", "\n", "\r\n", "\n\n", "\n\n\n", "\r", "\u00a0", "\u3000", "\u2028", "\u0085", "\0", "\x0b", "\x1f",
    "\u0301", "\u0323\u0301", "\u200b", "\u200d", "\ufeff", "\uffff", "\ufdd0", "\u0344", "\u0f73", "\u1f71", "\u2126",
    "\ufb1d", "\u0958", "\u2581", "<0x0A>", "<s>",
    "\U0001d15e", "\u1100\u1161\u11a8", "\uac00\u11a8", "\u09c7\u09be", "a" * 60, " " * 40,
    "the quick brown fox " * 3]


def fragment():
    kind = random_.random()
    if kind < 0.15:
        return chr(random_.randrange(0x20, 0x250))
    if kind < 0.2:
        while True:
            code = random_.randrange(0x20000)
            if not 0xD800 <= code < 0xE000 and unicodedata.category(chr(code)) != "Cn":
                return chr(code)
    if kind < 0.25:
        return random_.choice("abcxyz \n") * random_.randrange(1, 60)
    return random_.choice(fragments)


texts = ["", " ", "  a", "a\0b"] + ["".join(fragment() for _ in range(random_.randrange(1, 22))) for _ in range(150)]
cases = {"texts": texts, "ids": {}}
for name in names:
    tokenizer = Tokenizer.from_file(str(out / f"{name}.json"))
    cases["ids"][name] = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
(out / "cases.json").write_text(json.dumps(cases, separators=(",", ":")) + "\n")
