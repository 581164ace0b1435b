"""spillway generate: the same text for any place of the weights, the right ends, and messages about bad input."""
import json
import shutil
import subprocess
import unittest

from harness import GOLDEN, MIB, PROCESS_OVERHEAD, PROGRAM, SANITIZED, CommandTest, arguments, golden_names, run
from memory_test import SHAPE

try:
    import torch
    import transformers
except ImportError:
    transformers = None


class Generation(CommandTest):
    def generate(self, **flags):
        """One JSON object for each prompt."""
        outcome = run("generate", *arguments({"tokenizer": "bytes", "format": "jsonl", "dtype": "fp32", **flags}))
        self.assertEqual(outcome.code, 0, str(outcome))
        self.outcome = outcome
        return [json.loads(line) for line in outcome.out.splitlines()]

    @classmethod
    def wide(cls, family="llama", **changes):
        """A model with a token for every byte, drawn from the seed."""
        path = cls.fresh_directory("model") / "config.json"
        path.write_text(json.dumps({**SHAPE, "vocab_size": 300, "max_position_embeddings": 64, "hidden_size": 64,
                                    "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
                                    "num_key_value_heads": 2, "head_dim": 16, **changes}))
        return path

    def test_the_same_prompt_gives_the_same_text(self):
        flags = {"model": self.wide(), "prompt": "the cat", "max_new_tokens": 20}
        first = self.generate(**flags)[0]
        self.assertEqual((len(first["tokens"]), first["prompt_tokens"], first["stopped"]), (20, 7, "--max-new-tokens"))
        self.assertEqual(self.generate(**flags)[0]["tokens"], first["tokens"])
        sampled = {**flags, "temperature": 1.5, "top_k": 50, "top_p": 0.95}
        second = self.generate(**sampled)[0]
        self.assertNotEqual(second["tokens"], first["tokens"])
        self.assertEqual(self.generate(**sampled)[0]["tokens"], second["tokens"])
        # The drawn weights come from the seed, too; weights of a file stay the same.
        trained = {**sampled, "model": GOLDEN / "qwen3"}
        if json.loads((GOLDEN / "qwen3" / "config.json").read_text())["vocab_size"] >= 256:
            self.assertNotEqual(self.generate(**trained, seed=1)[0]["tokens"],
                                self.generate(**trained, seed=2)[0]["tokens"])

    def test_prompts_after_one_another_are_as_if_alone(self):
        model = self.wide()
        prompts = ["a", "something longer than the others", "and b"]
        words = ["generate", "--model", model, "--tokenizer", "bytes", "--format", "jsonl", "--dtype", "fp32",
                 "--max-new-tokens", 9]
        for prompt in prompts:
            words += ["--prompt", prompt]
        outcome = run(*words)
        self.assertEqual(outcome.code, 0, str(outcome))
        together = [json.loads(line) for line in outcome.out.splitlines()]
        self.assertEqual([text["prompt"] for text in together], prompts)
        for prompt, text in zip(prompts, together):
            self.assertEqual(self.generate(model=model, prompt=prompt, max_new_tokens=9)[0]["tokens"], text["tokens"])

    def test_prompt_from_a_file_and_from_the_standard_input(self):
        model = self.wide()
        expected = self.generate(model=model, prompt="two\nlines", max_new_tokens=5)
        file = self.fresh("prompt")
        file.write_text("two\nlines\n")
        self.assertEqual(self.generate(model=model, prompt_file=file, max_new_tokens=5)[0]["tokens"],
                         expected[0]["tokens"])
        words = [PROGRAM, "generate", "--model", model, "--tokenizer", "bytes", "--format", "jsonl", "--dtype", "fp32",
                 "--prompt-file", "-", "--max-new-tokens", "5"]
        given = subprocess.run(words, input=b"two\nlines\n", capture_output=True)
        self.assertEqual(json.loads(given.stdout)["tokens"], expected[0]["tokens"])

    def test_text_goes_to_the_output_and_the_figures_beside_it(self):
        model = self.wide()
        expected = self.generate(model=model, prompt="x", max_new_tokens=30)[0]["text"]
        outcome = run("generate", *arguments({"model": model, "tokenizer": "bytes", "dtype": "fp32", "prompt": "x",
                                              "max_new_tokens": 30}))
        self.assertEqual(outcome.out, expected + "\n")
        self.assertIn("tokens/s", outcome.err)

    def test_ends_at_the_end_of_text_and_of_the_context(self):
        model = self.wide()
        tokens = self.generate(model=model, prompt="x", max_new_tokens=12)[0]["tokens"]
        end = tokens[4]
        for place in ("generation_config.json", "config.json"):
            with self.subTest(place):
                directory = self.fresh_directory("ends")
                shutil.copy(model, directory / "config.json")
                settings = json.loads(model.read_text()) if place == "config.json" else {}
                (directory / place).write_text(json.dumps({**settings, "eos_token_id": [299, end]}))
                text = self.generate(model=directory / "config.json", prompt="x", max_new_tokens=12)[0]
                self.assertEqual((text["tokens"], text["stopped"]), (tokens[:tokens.index(end)], "end of text"))
        text = self.generate(model=model, prompt="y" * 60, max_new_tokens=100)[0]
        self.assertEqual((len(text["tokens"]), text["stopped"]), (4, "end of the model's context"))

    def test_a_run_says_what_its_export_says(self):
        rows = self.fresh("rows").with_suffix(".txt")
        rows.write_text("the cat sat on the mat. " * 200)
        model = self.wide()
        run_ = self.train({"model": model, "data": rows, "tokenizer": "bytes", "seq_length": 32, "train_iters": 40,
                           "lr": 3e-3, "dtype": "fp32", "micro_batch_size": 4, "global_batch_size": 4})
        text = self.generate(load=run_.path, prompt="the cat sat", max_new_tokens=12)[0]
        out = self.fresh("export")
        self.assertEqual(run("export", *arguments({"load": run_.path, "out": out})).code, 0)
        self.assertEqual(self.generate(model=out, prompt="the cat sat", max_new_tokens=12)[0]["tokens"], text["tokens"])
        self.assertIn(" on the mat", text["text"])

    @unittest.skipIf(SANITIZED, "a sanitizer's own memory is counted, too")
    def test_larger_than_its_memory(self):
        """Weights on the disk: the same tokens, and the process stays within its budget."""
        shape = {**SHAPE, "num_hidden_layers": 6, "hidden_size": 1024, "intermediate_size": 4096,
                 "num_attention_heads": 16, "vocab_size": 512}
        model = self.wide(**shape)  # 95 million parameters, 190 MB
        flags = {"model": model, "prompt": "once upon a time", "max_new_tokens": 8, "dtype": "bf16"}
        expected = self.generate(**flags)[0]["tokens"]
        budget = 80 * MIB
        self.check_refusal(run("generate", *arguments({"tokenizer": "bytes", **flags, "device_memory": budget})), 3,
                           "does not fit")
        self.assertEqual(self.generate(**flags, device_memory=budget, nvme=self.fresh_directory("nvme"))[0]["tokens"],
                         expected)
        print(f"budget {budget / MIB:.0f} MiB, resident {self.outcome.resident_bytes / MIB:.1f} MiB")
        self.assertLessEqual(self.outcome.resident_bytes, budget + PROCESS_OVERHEAD)

    def test_refusals(self):
        model = self.wide()
        flags = {"model": model, "prompt": "x", "tokenizer": "bytes"}
        few = self.wide(vocab_size=200)
        for change, fragment in (({"prompt": None}, "--prompt"), ({"model": None}, "--model"), ({"step": 1}, "--step"),
                                 ({"prompt": ""}, "no tokens"),
                                 ({"prompt": "y" * 64}, "64 tokens, allowed: at most 63"),
                                 ({"max_new_tokens": 0}, "--max-new-tokens"),
                                 ({"temperature": -1}, "--temperature"), ({"top_k": -1}, "--top-k"),
                                 ({"top_p": 0}, "--top-p"), ({"top_p": 1.1}, "--top-p"),
                                 ({"tokenizer": None}, "--tokenizer"), ({"tokenizer": "nowhere"}, "nowhere"),
                                 ({"model": few}, "vocabulary of 200"),
                                 ({"prompt": None, "prompt_file": "nowhere"}, "nowhere"),
                                 ({"format": "xml"}, "--format"), ({"dtype": "fp16"}, "fp16"),
                                 ({"load": self.fresh_directory()}, "run.json"),
                                 ({"micro_batch_size": 1}, "--micro-batch-size")):
            with self.subTest(change):
                self.check_refusal(run("generate", *arguments({**flags, **change})), 2, fragment)

    def test_every_family(self):
        for name in golden_names():
            with self.subTest(name):
                config = json.loads((GOLDEN / name / "config.json").read_text())
                directory = self.fresh_directory("family")
                config.get("text_config", config)["vocab_size"] = 260
                (directory / "config.json").write_text(json.dumps(config))
                for dtype in ("bf16", "fp32"):
                    text = self.generate(model=directory / "config.json", prompt="q", max_new_tokens=6, dtype=dtype)[0]
                    self.assertEqual(len(text["tokens"]) if text["stopped"] != "end of text" else 6, 6)

    @unittest.skipIf(transformers is None, "transformers is not installed")
    def test_the_tokens_are_those_of_transformers(self):
        common = dict(vocab_size=300, hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
                      max_position_embeddings=64, initializer_range=0.2,
                      bos_token_id=None, eos_token_id=None, pad_token_id=None)
        grouped = dict(common, intermediate_size=128, num_key_value_heads=2)
        models = {"GPT2": dict(vocab_size=300, n_embd=64, n_layer=2, n_head=4, n_positions=64, initializer_range=0.2,
                               bos_token_id=None, eos_token_id=None),
                  "Llama": grouped, "Mistral": dict(grouped, sliding_window=9), "Qwen2": grouped,
                  "Qwen3": dict(grouped, head_dim=16), "Olmo2": grouped, "Olmo3": dict(grouped, sliding_window=9),
                  "Glm4": dict(grouped, head_dim=20, partial_rotary_factor=0.4), "Ernie4_5": dict(grouped, head_dim=16)}
        prompt = "What is said here"
        for name, settings in models.items():
            suffix = "LMHeadModel" if name == "GPT2" else "ForCausalLM"
            for dtype, torch_dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
                with self.subTest(name, dtype=dtype):
                    torch.manual_seed(1)
                    model = getattr(transformers,
                                    name + suffix)(getattr(transformers,
                                                           name + "Config")(**settings)).to(torch_dtype).eval()
                    directory = self.fresh(name)
                    model.save_pretrained(directory)
                    ids = torch.tensor([list(prompt.encode())])
                    theirs = model.generate(ids, max_new_tokens=40, do_sample=False,
                                            use_cache=True)[0, ids.shape[1]:].tolist()
                    ours = self.generate(model=directory, prompt=prompt, max_new_tokens=40, dtype=dtype)[0]["tokens"]
                    if dtype == "fp32":
                        self.assertEqual(ours, theirs)
                        continue
                    # In bf16 two tokens may be equally likely: each of ours is one of their likeliest after the same
                    # tokens.
                    with torch.no_grad():
                        logits = model(torch.tensor([list(prompt.encode()) + ours])).logits[0, ids.shape[1] - 1:
                                                                                            -1].float()
                    chosen = logits.gather(1, torch.tensor(ours)[:, None])[:, 0]
                    self.assertLess(float((logits.max(1).values - chosen).max()), 0.05 * float(logits.abs().max()))


if __name__ == "__main__":
    unittest.main()
