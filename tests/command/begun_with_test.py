"""The things that a run began with: weights in checkpoints of every kind, with the tensors that they have; and the
configuration, tokenizer and data that a run keeps and goes on with.
"""
import json
import shutil
import unittest

from harness import CommandTest, Golden, arguments, golden_names, read_safetensors, run, safetensors_bytes

TOKENIZER = {
    "version": "1.0",
    "added_tokens": [{"id": 3, "content": "</s>", "special": True, "single_word": False, "lstrip": False,
                      "rstrip": False, "normalized": False}],
    "normalizer": None,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
              "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
              "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]},
}


def prefixless(name):
    for prefix in ("model.", "transformer."):
        if name.startswith(prefix):
            return name[len(prefix):]
    return name


class BegunWith(CommandTest):
    def copy_of(self, golden, **config):
        place = self.fresh("model")
        shutil.copytree(golden.model, place, ignore=shutil.ignore_patterns("golden.*"))
        settings = json.loads((place / "config.json").read_text())
        (place / "config.json").write_text(json.dumps({**settings, **config}))
        return place

    def loss(self, **flags):
        outcome = run("eval", *arguments({"format": "json", "dtype": "fp32", **flags}))
        self.assertEqual(outcome.code, 0, str(outcome))
        return json.loads(outcome.out)["loss"]

    def of(self, golden, model):
        return {"model": model, "data": golden.data, "seq_length": golden.json["seq_len"]}

    def notes(self, outcome):
        return [line for line in outcome.out.splitlines() if line.startswith("note: ")]

    def test_weights_of_the_bare_model(self):
        for name in golden_names():
            with self.subTest(name):
                golden = Golden(name, self.directory)
                tensors = read_safetensors(golden.model / "model.safetensors")
                place = self.copy_of(golden)
                bare = {prefixless(key): tensor for key, tensor in tensors.items()}
                (place / "model.safetensors").write_bytes(safetensors_bytes(bare))
                self.assertEqual(self.loss(**self.of(golden, place)), self.loss(**self.of(golden, golden.model)))

    def test_a_head_that_lacks_in_a_bare_model_is_drawn(self):
        golden = Golden("llama_gqa", self.directory)
        place = self.copy_of(golden)
        tensors = read_safetensors(golden.model / "model.safetensors")
        self.assertIn("lm_head.weight", tensors)
        bare = {prefixless(key): tensor for key, tensor in tensors.items() if key != "lm_head.weight"}
        (place / "model.safetensors").write_bytes(safetensors_bytes(bare))
        run_ = self.train(golden.flags(model=place, train_iters=1))
        self.assertIn("lm_head.weight is drawn", " ".join(self.notes(run_.outcome)))
        # A checkpoint of the whole model that lacks its head is not taken for a bare one.
        whole = {key: tensor for key, tensor in tensors.items() if key != "lm_head.weight"}
        (place / "model.safetensors").write_bytes(safetensors_bytes(whole))
        self.check_refusal(run("train", *arguments(golden.flags(model=place, train_iters=1))), 2, "lm_head.weight")

    def test_a_head_that_is_not_the_embedding_is_untied(self):
        golden = Golden("llama_gqa", self.directory)
        apart = golden.model
        self.assertFalse(json.loads((apart / "config.json").read_text()).get("tie_word_embeddings"))
        tied = self.copy_of(golden, tie_word_embeddings=True)
        self.assertEqual(self.loss(**self.of(golden, tied)), self.loss(**self.of(golden, apart)))
        run_ = self.train(golden.flags(model=tied, train_iters=2))
        self.assertIn("lm_head.weight differs", " ".join(self.notes(run_.outcome)))
        self.assertEqual(run_.curve(), self.train(golden.flags(train_iters=2)).curve())
        out = self.fresh("hf")
        self.assertEqual(run("export", "--load", run_.path, "--out", out).code, 0)
        self.assertIs(json.loads((out / "config.json").read_text())["tie_word_embeddings"], False)
        on = self.train({"load": run_.path, "save": run_.path, "train_iters": 3})
        self.assertEqual(on.steps(), [2, 3])
        # A head that equals the embedding stays tied.
        tensors = read_safetensors(apart / "model.safetensors")
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
        (tied / "model.safetensors").write_bytes(safetensors_bytes(tensors))
        run_ = self.train(golden.flags(model=tied, train_iters=1))
        self.assertNotIn("differs", " ".join(self.notes(run_.outcome)))

    def test_weights_that_cannot_be_read_are_not_replaced(self):
        golden = Golden("qwen3", self.directory)
        for name in ("model.pth", "consolidated.00.pth", "weights.pt", "tf_model.h5", "flax_model.msgpack", "m.gguf",
                     "pytorch_model.bin", "pytorch_model.bin.index.json", "pytorch_model-00001-of-00002.bin"):
            with self.subTest(name):
                place = self.copy_of(golden)
                (place / "model.safetensors").unlink()
                (place / name).write_text("x")
                self.check_refusal(run("train", *arguments(golden.flags(model=place))), 2, name)
        (place / name).unlink()
        refused = run("train", *arguments(golden.flags(model=place)))
        self.check_refusal(refused, 2, "no weights")
        self.assertIn("--init random", refused.err)
        drawn = self.train(golden.flags(model=place, init="random", train_iters=1))
        self.assertIn("--init random: weights are drawn", " ".join(self.notes(drawn.outcome)))
        # The same draws, whether the model has weights or only a configuration.
        again = self.train(golden.flags(init="random", train_iters=1))
        shape = self.train(golden.flags(model=golden.model / "config.json", train_iters=1))
        self.assertEqual(drawn.curve(), again.curve())
        self.assertEqual(drawn.curve(), shape.curve())
        self.assertEqual(run("plan", *arguments(golden.flags(model=place))).code, 0, "a plan needs no weights")

    def text_run(self, golden, **changes):
        data = self.fresh("text").with_suffix(".txt")
        data.write_text("abab ab ba " * 400)
        return golden.flags(data=data, train_iters=2, lr_decay_iters=4, **changes)

    def test_the_tokenizer_that_was_used_is_exported(self):
        golden = Golden("qwen3", self.directory)
        model, other = self.copy_of(golden), self.fresh_directory("tokenizer")
        (model / "tokenizer.json").write_text("{} of the model")
        (model / "generation_config.json").write_text("{}")
        (other / "mine.json").write_text(json.dumps(TOKENIZER))
        (other / "tokenizer_config.json").write_text('{"of": "mine"}')
        (other / "additional_chat_templates").mkdir()
        (other / "additional_chat_templates" / "tool_use.jinja").write_text("{{ messages }}")
        flags = self.text_run(golden, tokenizer=other / "mine.json")
        data = flags.pop("data")
        data.write_text("ab" * 4000)
        for given in (model, model / "config.json"):
            with self.subTest(given):
                run_ = self.train({**flags, "data": data, "model": given})
                shutil.move(other, self.fresh("moved")) if given != model else None
                out = self.fresh("hf")
                self.assertEqual(run("export", "--load", run_.path, "--out", out).code, 0)
                self.assertEqual(json.loads((out / "tokenizer.json").read_text()), TOKENIZER)
                self.assertEqual((out / "tokenizer_config.json").read_text(), '{"of": "mine"}')
                self.assertEqual((out / "additional_chat_templates" / "tool_use.jinja").read_text(), "{{ messages }}")
                self.assertTrue((out / "generation_config.json").exists())
        run_ = self.train(golden.flags(model=model, data=data, tokenizer="bytes", train_iters=1))
        out = self.fresh("hf")
        self.assertEqual(run("export", "--load", run_.path, "--out", out).code, 0)
        self.assertFalse((out / "tokenizer.json").exists())

    def test_what_changed_since_is_said(self):
        golden = Golden("llama_gqa", self.directory)
        model = self.copy_of(golden)
        (model / "tokenizer.json").write_text(json.dumps(TOKENIZER))
        flags = self.text_run(golden, model=model)
        flags["data"].write_text("ab" * 4000)
        whole = self.train({**flags, "train_iters": 4})
        half = self.train(flags)
        self.assertEqual(self.notes(half.outcome), [])
        on = {"load": half.path, "train_iters": 4}
        same = self.train(on)
        self.assertEqual([note for note in self.notes(same.outcome) if "chang" in note], [])
        self.assertEqual(same.curve(), whole.curve()[2:])

        (model / "tokenizer.json").write_text(json.dumps({**TOKENIZER, "version": "1.1"}))
        settings = json.loads((model / "config.json").read_text())
        (model / "config.json").write_text(json.dumps({**settings, "rope_theta": 123.0, "rope_parameters": None}))
        changed = self.train(on)
        notes = " ".join(self.notes(changed.outcome))
        self.assertIn("rope theta", notes)
        self.assertIn("tokenizer.json has changed", notes)
        self.assertEqual(changed.curve(), whole.curve()[2:], "it goes on with what it was begun with")
        refused = run("train", *arguments({**on, "model": model}))
        self.check_refusal(refused, 2, "--model")
        self.assertIn("rope theta", refused.err)

        shutil.rmtree(model)
        gone = self.train(on)
        self.assertIn("--model", " ".join(self.notes(gone.outcome)))
        self.assertEqual(gone.curve(), whole.curve()[2:])
        evaluated = run("eval", *arguments({"load": half.path, "data": flags["data"]}))
        self.assertEqual(evaluated.code, 0, str(evaluated))

        flags["data"].write_text("ba" * 4000)
        other = self.train(on)
        self.assertIn("--data", " ".join(self.notes(other.outcome)))
        self.assertIn("has changed since the run was begun", " ".join(self.notes(other.outcome)))

    def test_a_run_of_an_older_version_whose_model_is_gone(self):
        golden = Golden("qwen3", self.directory)
        model = self.copy_of(golden)
        half = self.train(golden.flags(model=model, train_iters=1))
        shutil.rmtree(half.path / "begun-with")
        (half.path / "data-files.json").unlink()
        shutil.move(model, moved := self.fresh("moved"))
        refused = run("train", *arguments({"load": half.path, "train_iters": 2}))
        self.check_refusal(refused, 2, str(model))
        self.assertIn("--model", refused.err)
        self.assertEqual(self.train({"load": half.path, "train_iters": 2, "model": moved}).steps(), [2])

    def test_a_seed_and_a_last_step_are_noted(self):
        golden = Golden("qwen3", self.directory)
        half = self.train(golden.flags(train_iters=2, lr_decay_iters=3))
        self.assertIn("nothing is left to train",
                      " ".join(self.notes(self.train({"load": half.path}).outcome)))
        on = self.train({"load": half.path, "train_iters": 3, "seed": 5})
        self.assertIn("--seed 5 instead of", " ".join(self.notes(on.outcome)))

    def test_checkpoints_that_do_not_fit_are_refused_first(self):
        golden = Golden("qwen3", self.directory)
        save = self.fresh()
        flags = golden.flags(save=save, train_iters=1 << 39, save_interval=1)
        refused = run("train", *arguments(flags))
        self.check_refusal(refused, 3, f"--save {save}")
        self.assertIn("--keep-last", refused.err)
        self.assertFalse(save.exists())
        planned = run("plan", *arguments(flags))
        self.check_refusal(planned, 3, f"--save {save}")
        self.assertIn("an export takes", planned.out)
        kept = self.train({**flags, "train_iters": 3, "keep_last": 1})
        self.assertEqual(kept.steps(), [3])


if __name__ == "__main__":
    unittest.main()
