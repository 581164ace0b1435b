"""The text half of a checkpoint that wraps it: training leaves the other tensors alone, an export has them as they
were, adapters have the names of the whole model's modules, and the names that files have do not
matter.
"""
import json
import os
import shutil
import unittest

from harness import CommandTest, Golden, arguments, read_safetensors, run, safetensors_bytes

os.environ["HF_HUB_OFFLINE"] = "1"
try:
    import peft
    import torch
    import transformers
except ImportError:
    transformers = None

TEXT, MODULES = "language_model.model.", "model.language_model."
REFUSED = {"no text": ({"text_config": None}, "text_config is missing"),
           "another text": ({"text_config": {"model_type": "bert"}}, "the text half of gemma3 is known as gemma3_text"),
           "another wrapper": ({"model_type": "llava", "architectures": None}, "known are gemma3, mistral3, qwen3_vl")}


def tensors_of(directory):
    return read_safetensors(directory / "model.safetensors")


class Wrapper(CommandTest):
    def setUp(self):
        super().setUp()
        self.golden = Golden("gemma3_wrapper", self.directory)

    def export(self, run_, code=0, fragment="", **flags):
        flags = {"load": run_.path, "out": self.fresh("hf"), **flags}
        outcome = run("export", *arguments(flags))
        if code:
            self.check_refusal(outcome, code, fragment)
        else:
            self.assertEqual(outcome.code, 0, str(outcome))
        return flags["out"]

    def with_names(self, rename):
        model = self.fresh("model")
        shutil.copytree(self.golden.model, model)
        tensors = {rename(name): tensor for name, tensor in tensors_of(model).items()}
        (model / "model.safetensors").write_bytes(safetensors_bytes(tensors))
        return model

    def loss(self, **flags):
        flags = {"data": self.golden.data, "seq_length": self.golden.json["seq_len"], "dtype": "fp32", "format": "json",
                 **flags}
        outcome = run("eval", *arguments(flags))
        self.assertEqual(outcome.code, 0, str(outcome))
        return json.loads(outcome.out)["loss"]

    def test_export_has_what_is_around_the_text_half(self):
        out = self.export(self.train(self.golden.flags(train_iters=2)))
        before, after = tensors_of(self.golden.model), tensors_of(out)
        self.assertEqual(after.keys(), before.keys())
        changed = {name for name in before if before[name] != after[name]}
        self.assertEqual(changed, {name for name in before if name.startswith("language_model.")})
        self.assertEqual((out / "config.json").read_bytes(), (self.golden.model / "config.json").read_bytes())
        halves = tensors_of(self.export(self.train(self.golden.flags(train_iters=1)), dtype="bf16"))
        self.assertEqual({name for name, (kind, _, _) in halves.items() if kind == "BF16"}, changed)

    def test_names_of_files_do_not_matter(self):
        want = self.loss(model=self.golden.model)
        for prefix in (MODULES, "model.", "language_model."):
            with self.subTest(prefix):
                model = self.with_names(lambda name, prefix=prefix: name.replace(TEXT, prefix))
                self.assertEqual(self.loss(model=model), want)
                flags = self.golden.flags(model=model, train_iters=1, lr=0)
                self.assertEqual(tensors_of(self.export(self.train(flags))), tensors_of(model))

    def test_adapters_have_the_names_of_modules(self):
        run_ = self.train(self.golden.flags(train_iters=2, lora_rank=4, lora_targets=["q_proj", "down_proj"]))
        out = self.export(run_)
        names = read_safetensors(out / "adapter_model.safetensors").keys()
        layer = "base_model.model." + MODULES + "layers.0.self_attn.q_proj.lora_A.weight"
        self.assertIn(layer, names)
        targets = json.loads((out / "adapter_config.json").read_text())["target_modules"]
        self.assertEqual(set(targets), {name.split(".lora_")[0].removeprefix("base_model.model.") for name in names})
        want = self.loss(load=run_.path)
        self.assertAlmostEqual(self.loss(model=self.golden.model, adapter=out), want, delta=1e-6 * want)
        merged = self.export(run_, merge=True, dtype="fp32")
        self.assertAlmostEqual(self.loss(model=merged), want, delta=1e-5 * want)
        for name, tensor in tensors_of(self.golden.model).items():
            if not name.startswith(TEXT):
                self.assertEqual(tensors_of(merged)[name], tensor, name)
        # As older versions of transformers named the modules.
        tensors = {name.replace(MODULES, TEXT): tensor for name, tensor in
                   read_safetensors(out / "adapter_model.safetensors").items()}
        (out / "adapter_model.safetensors").write_bytes(safetensors_bytes(tensors))
        config = json.loads((out / "adapter_config.json").read_text())
        config["target_modules"] = [name.replace(MODULES, TEXT) for name in targets]
        (out / "adapter_config.json").write_text(json.dumps(config))
        self.assertAlmostEqual(self.loss(model=self.golden.model, adapter=out), want, delta=1e-6 * want)

    def test_bad_wrappers_are_refused(self):
        for name, (changes, fragment) in REFUSED.items():
            with self.subTest(name):
                model = self.fresh("model")
                shutil.copytree(self.golden.model, model)
                config = {**json.loads((model / "config.json").read_text()), **changes}
                (model / "config.json").write_text(json.dumps({k: v for k, v in config.items() if v is not None}))
                self.check_refusal(run("plan", *arguments({"model": model, "seq_length": 8})), 2, fragment)
        extra = self.with_names(lambda name: name.replace("layers.2.", "layers.3."))
        self.check_refusal(run("eval", *arguments({"model": extra, "data": self.golden.data, "seq_length": 32})), 2,
                           "layers.2.")
        model = self.fresh("model")
        shutil.copytree(self.golden.model, model)
        run_ = self.train(self.golden.flags(model=model, train_iters=1))
        (model / "model.safetensors").unlink()
        self.export(run_, 2, "the gemma3 checkpoint whose text half the run trains")

    @unittest.skipIf(transformers is None, "transformers and peft are not installed")
    def test_transformers_and_peft_load_what_is_exported(self):
        steps, rows = 2, self.golden.json["batch"]
        batch = self.fresh("batch").with_suffix(".jsonl")
        batch.write_text("".join(self.golden.data.read_text().splitlines(True)[:rows]))
        tokens = torch.tensor([json.loads(line)["input_ids"] for line in batch.read_text().splitlines()])

        def loss_of(model):
            with torch.no_grad():
                logits = model(input_ids=tokens[:, :-1]).logits
            return float(torch.nn.functional.cross_entropy(logits.flatten(0, 1).double(), tokens[:, 1:].flatten()))

        def loaded(directory):
            kind = transformers.Gemma3ForConditionalGeneration
            model, report = kind.from_pretrained(directory, output_loading_info=True, dtype=torch.float32)
            self.assertFalse(report["missing_keys"] or report["unexpected_keys"] or report["mismatched_keys"], report)
            return model.eval()

        run_ = self.train(self.golden.flags(train_iters=steps))
        want = self.loss(load=run_.path, data=batch)
        self.assertAlmostEqual(loss_of(loaded(self.export(run_))), want, delta=1e-5 * want)
        run_ = self.train(self.golden.flags(train_iters=steps, lora_rank=4, lr=1e-2))
        want = self.loss(load=run_.path, data=batch)
        with_adapter = peft.PeftModel.from_pretrained(loaded(self.golden.model), str(self.export(run_)))
        self.assertAlmostEqual(loss_of(with_adapter), want, delta=1e-5 * want)


if __name__ == "__main__":
    unittest.main()
