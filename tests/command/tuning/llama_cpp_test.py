"""Exports go through llama.cpp's converters, and the .gguf files have the exported weights bit for bit.

Where $SPILLWAY_LLAMA_CPP, or else PATH, has convert_hf_to_gguf.py and convert_lora_to_gguf.py, and the interpreter
(tools/test --python) what these import: torch, transformers, gguf, sentencepiece.
Not here: that exports load in transformers (hugging_face_test.py).
"""
import json
import lzma
import os
import pathlib
import shutil
import subprocess
import sys
import unittest

from harness import DATA, CommandTest, arguments, run

os.environ["HF_HUB_OFFLINE"] = "1"
WHOLE, ADAPTER = "convert_hf_to_gguf.py", "convert_lora_to_gguf.py"
found = os.environ.get("SPILLWAY_LLAMA_CPP") or os.path.dirname(shutil.which(WHOLE) or "")
FOLDER = pathlib.Path(found) if found else None
if FOLDER:
    sys.path.insert(1, str(FOLDER / "gguf-py"))
try:
    import gguf
    import numpy
    import sentencepiece  # noqa: F401: the converter's, which fails late without it
    import torch  # noqa: F401
    import transformers  # noqa: F401
    from safetensors.torch import load_file
    missing = None if FOLDER else "llama.cpp's converters are not installed"
except ImportError as error:
    missing = str(error)

HEADS, KEY_HEADS, WIDTH = 4, 2, 16
CONFIG = dict(vocab_size=151936, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=HEADS,
              num_key_value_heads=KEY_HEADS, head_dim=WIDTH, max_position_embeddings=64, rms_norm_eps=1e-6,
              rope_theta=10000.0, hidden_act="silu", initializer_range=0.2, bos_token_id=151643, eos_token_id=151645)
# Of each converter's names, the ends; all are "blk.N.<theirs>" for "model.layers.N.<ours>".
IN_LAYERS = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
             "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
             "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm", "ffn_gate": "mlp.gate_proj",
             "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
OUTSIDE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def our_name(theirs):
    """The name in an exported file of a tensor of a .gguf file."""
    name, _, last = theirs.partition(".weight")
    if name.startswith("blk."):
        _, layer, name = name.split(".")
        module = f"model.layers.{layer}.{IN_LAYERS[name]}"
    else:
        module = OUTSIDE[name]
    return f"base_model.model.{module}.lora_{last[-1].upper()}.weight" if last else module + ".weight"


def in_their_order(weights, name, model_type):
    """llama.cpp rotates neighbours where Llama's files have halves, so that rows of q and k are in another order."""
    if model_type != "llama" or not any(end in name for end in ("q_proj", "k_proj")) or "lora_A" in name:
        return weights
    heads = HEADS if "q_proj" in name else KEY_HEADS
    return weights.reshape(heads, 2, WIDTH // 2, -1).swapaxes(1, 2).reshape(weights.shape)


@unittest.skipIf(missing, missing)
class LlamaCpp(CommandTest):
    def model(self, model_type, architecture, **changes):
        """A directory without weights: the converter knows tokenizers by what they make of its own text."""
        directory = self.fresh_directory("model")
        (directory / "tokenizer.json").write_bytes(
            lzma.decompress((DATA / "tokenizers" / "qwen3.tokenizer.json.xz").read_bytes()))
        (directory / "tokenizer_config.json").write_text(json.dumps(
            {"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>",
             "chat_template": "{% for m in messages %}{{ m.content }}{% endfor %}"}))
        (directory / "config.json").write_text(json.dumps(
            {**CONFIG, "model_type": model_type, "architectures": [architecture], **changes}))
        return directory

    def trained(self, model, **changes):
        rows = self.fresh("rows").with_suffix(".jsonl")
        rows.write_text('{"text": "The quick brown fox jumps over the lazy dog."}\n' * 4)
        return self.train({"model": model, "data": rows, "seq_length": 16, "train_iters": 2, "micro_batch_size": 2,
                           "device": "cpu", "lr": 0.01, **changes})

    def exported(self, run_):
        out = self.fresh("hf")
        outcome = run("export", *arguments({"load": run_.path, "out": out}))
        self.assertEqual(outcome.code, 0, str(outcome))
        return out

    def convert(self, script, *words):
        out = self.fresh("out").with_suffix(".gguf")
        done = subprocess.run([sys.executable, FOLDER / script, *words, "--outfile", out, "--outtype", "f32"],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        return gguf.GGUFReader(out)

    def compare(self, reader, file, model_type):
        weights = load_file(file)
        self.assertEqual({our_name(tensor.name) for tensor in reader.tensors}, set(weights))
        for tensor in reader.tensors:
            name = our_name(tensor.name)
            want = in_their_order(weights[name].float().numpy(), name, model_type)
            self.assertTrue(numpy.array_equal(tensor.data.view(numpy.uint32), want.copy().view(numpy.uint32)), name)

    def check(self, model_type, architecture, **changes):
        whole = self.exported(self.trained(self.model(model_type, architecture, **changes), init="random"))
        reader = self.convert(WHOLE, whole)
        self.compare(reader, whole / "model.safetensors", model_type)
        self.assertEqual(reader.fields["general.architecture"].contents(), model_type)
        self.assertEqual(reader.fields["tokenizer.ggml.eos_token_id"].contents(), CONFIG["eos_token_id"])
        self.assertIn("m.content", reader.fields["tokenizer.chat_template"].contents())

        adapter = self.exported(self.trained(whole, lora_rank=4, lora_alpha=8))
        reader = self.convert(ADAPTER, "--base", whole, adapter)
        self.compare(reader, adapter / "adapter_model.safetensors", model_type)
        self.assertEqual(reader.fields["adapter.lora.alpha"].contents(), 8)

    def test_qwen3_and_its_adapter(self):
        self.check("qwen3", "Qwen3ForCausalLM", tie_word_embeddings=True)

    def test_llama_and_its_adapter(self):
        self.check("llama", "LlamaForCausalLM", tie_word_embeddings=False)


if __name__ == "__main__":
    unittest.main()
