"""Small tokenizers of SentencePiece's kind, like Llama 2's, Mistral's and Gemma's: characters and marked spaces."""
import json

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

MARK = "\u2581"
REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": MARK}
PREPEND = {"type": "Prepend", "prepend": MARK}


def metaspace(scheme, split):
    return {"type": "Metaspace", "replacement": MARK, "prepend_scheme": scheme, "split": split}


def add_tokens(tokenizer, tokens):
    for token in tokens:
        (tokenizer.add_special_tokens if token.special else tokenizer.add_tokens)([token])


# The normalizer and the pre-tokenizer of each kind.
KINDS = {
    "llama2": ({"type": "Sequence", "normalizers": [PREPEND, REPLACE]}, None),
    "gemma": (REPLACE, {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious",
                        "invert": False}),
    "metaspace_first": (None, metaspace("first", False)),
    "metaspace_always": (None, metaspace("always", True)),
    "metaspace_never": (None, {"type": "Sequence", "pretokenizers": [metaspace("never", True)]}),
    "metaspace_old": (None, {"type": "Metaspace", "replacement": MARK, "add_prefix_space": True}),
}


def marked(corpus, kind, vocabulary, falls_back=True, fuses=True, ignores_merges=False, spaces_inside=False):
    """A tokenizer.json as a dictionary. `spaces_inside`: tokens may go on after a mark, across words."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=fuses))
    tokenizer.normalizer = normalizers.Replace(" ", MARK)
    tokenizer.pre_tokenizer = (pre_tokenizers.Split("\n", "isolated") if spaces_inside else
                               pre_tokenizers.Metaspace(MARK, prepend_scheme="never", split=True))
    trainer = trainers.BpeTrainer(vocab_size=vocabulary, special_tokens=["<unk>", "<s>", "</s>"], show_progress=False,
                                  limit_alphabet=vocabulary // 3)
    lines = (line for page in corpus for line in page.splitlines()[:400])
    tokenizer.train_from_iterator(lines if spaces_inside else corpus, trainer)
    content = json.loads(tokenizer.to_str())
    content["normalizer"], content["pre_tokenizer"] = KINDS[kind]
    words = content["model"]["vocab"]
    if falls_back:
        for byte in range(256):
            words[f"<0x{byte:02X}>"] = len(words)
    content["model"]["byte_fallback"], content["model"]["ignore_merges"] = falls_back, ignores_merges
    content["decoder"] = {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": MARK}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]}
    return content
