"""Compares with transformers, if the interpreter has it (tools/test --python): the losses of eval, exported
directories, conversations.
"""
import json
import os
import random
import shutil
import unittest

from harness import DATA, CommandTest, Golden, arguments, run

os.environ["HF_HUB_OFFLINE"] = "1"
try:
    import torch
    import transformers
except ImportError:
    transformers = None

COMMON = dict(vocab_size=300, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=64,
              initializer_range=0.2, bos_token_id=None, eos_token_id=None, pad_token_id=None)
GROUPED = dict(COMMON, intermediate_size=128, num_key_value_heads=2)
MODELS = {
    "GPT2": dict(vocab_size=300, n_embd=64, n_layer=2, n_head=4, n_positions=64, initializer_range=0.2,
                 bos_token_id=None, eos_token_id=None),
    "Llama": GROUPED, "Mistral": GROUPED, "Mistral, window": dict(GROUPED, sliding_window=9), "Qwen2": GROUPED,
    "Qwen2, window": dict(GROUPED, use_sliding_window=True, sliding_window=9, max_window_layers=1),
    "Qwen3": dict(GROUPED, head_dim=32),
    "Llama, tied, llama3 rope": dict(GROUPED, tie_word_embeddings=True, rope_parameters={
        "rope_type": "llama3", "rope_theta": 10000.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32}),
    "Phi3, longrope": dict(GROUPED, tie_word_embeddings=True, original_max_position_embeddings=40, rope_parameters={
        "rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 0.75,
        "short_factor": [1.0, 1.1, 1.2, 1.4, 1.7, 2.0], "long_factor": [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]}),
    "Olmo2": GROUPED, "Olmo3": dict(GROUPED, sliding_window=9, layer_types=["sliding_attention", "full_attention"]),
    "Glm4": dict(GROUPED, head_dim=20, partial_rotary_factor=0.4),
    "Ernie4_5": dict(GROUPED, head_dim=16, use_bias=True),
}


def rows_of(path, length, count):
    random_ = random.Random(1)
    rows = [[random_.randrange(300) for _ in range(length)] for _ in range(count)]
    path.write_text("".join(json.dumps({"input_ids": row}) + "\n" for row in rows))
    return torch.tensor(rows)


def loss_of(model, rows):
    with torch.no_grad():
        logits = model(rows).logits[:, :-1]
        return float(torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]).double(),
                                                       rows[:, 1:].reshape(-1)))


@unittest.skipIf(transformers is None, "transformers is not installed")
class HuggingFace(CommandTest):
    def model(self, name):
        torch.manual_seed(3)
        kind, suffix = name.split(",")[0], "LMHeadModel" if name == "GPT2" else "ForCausalLM"
        model = getattr(transformers, kind + suffix)(getattr(transformers, kind + "Config")(**MODELS[name])).eval()
        directory = self.fresh("model")
        model.save_pretrained(directory)
        return model, directory

    def evaluate(self, **flags):
        outcome = run("eval", *arguments({"format": "json", **flags}))
        self.assertEqual(outcome.code, 0, str(outcome))
        return json.loads(outcome.out)["loss"]

    def test_eval_gives_the_losses_of_transformers(self):
        for name in MODELS:
            with self.subTest(name):
                model, directory = self.model(name)
                data = self.fresh("rows").with_suffix(".jsonl")
                want = loss_of(model, rows_of(data, 49, 6))
                self.assertAlmostEqual(self.evaluate(model=directory, data=data, seq_length=48, dtype="fp32"), want,
                                       delta=2e-6 * want)
                self.assertAlmostEqual(self.evaluate(model=directory, data=data, seq_length=48), want,
                                       delta=2e-2 * want)

    def test_exported_directories_load_and_give_the_same_logits(self):
        for name in MODELS:
            with self.subTest(name):
                model, directory = self.model(name)
                config = json.loads((directory / "config.json").read_text())
                (directory / "config.json").write_text(json.dumps({**config, "a_key_of_ours": [1, None]}))
                data = self.fresh("rows").with_suffix(".jsonl")
                rows = rows_of(data, 33, 4)
                flags = {"model": directory, "data": data, "seq_length": 32, "train_iters": 2, "micro_batch_size": 2,
                         "dtype": "fp32"}
                for lr in (0, 1e-3):
                    trained, out = self.train({**flags, "lr": lr}), self.fresh("hf")
                    outcome = run("export", *arguments({"load": trained.path, "out": out, "max_shard_size": "100KB"}))
                    self.assertEqual(outcome.code, 0, str(outcome))
                    self.assertGreater(len(list(out.glob("*.safetensors"))), 1)
                    loaded, report = transformers.AutoModelForCausalLM.from_pretrained(out, output_loading_info=True,
                                                                                       dtype=torch.float32)
                    self.assertFalse(report["missing_keys"] or report["unexpected_keys"], report)
                    self.assertEqual(loaded.config.a_key_of_ours, [1, None])
                    with torch.no_grad():
                        same = torch.equal(loaded.eval()(rows).logits, model(rows).logits)
                    self.assertEqual(same, lr == 0)
                    want = loss_of(loaded, rows)
                    self.assertAlmostEqual(self.evaluate(load=trained.path, data=data), want, delta=2e-6 * want)

    def test_tokenizers_come_along_and_conversations_are_theirs(self):
        golden = Golden("llama_gqa", self.directory)
        model = self.fresh("model")
        shutil.copytree(golden.model, model)
        content = json.loads((DATA / "tokenizers" / "qwen2.json").read_text())
        (model / "tokenizer.json").write_text(json.dumps(content))
        (model / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast",
                                                                 "eos_token": "<|im_end|>",
                                                                 "bos_token": "<|im_start|>"}))
        gold = json.loads((DATA / "chat" / "gold.json").read_text())
        rows = self.fresh("rows").with_suffix(".jsonl")
        rows.write_text("".join(json.dumps(row) + "\n" for row in gold["rows"]))
        for template in sorted((DATA / "chat").glob("*.jinja")):
            shutil.copy(template, model / "chat_template.jinja")
            reference = transformers.AutoTokenizer.from_pretrained(model)
            outcome = run("tokenize", "--model", model, "--data", rows, "--format", "ids")
            self.assertEqual(outcome.code, 0, str(outcome))
            want = [reference.apply_chat_template(row["messages"], tools=row.get("tools"), tokenize=True,
                                                  return_dict=False) for row in gold["rows"]]
            self.assertEqual([json.loads(line) for line in outcome.out.splitlines()], want, template.name)


if __name__ == "__main__":
    unittest.main()
