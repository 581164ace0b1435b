"""--model ORG/NAME: a model of Hugging Face's hub, as its own programs keep it on this machine."""
import json
import pathlib
import shutil
import unittest

from harness import CommandTest, Golden, Run, arguments, run

HASHES = ("a" * 40, "b" * 40)
NAME = "Some-Org/Tiny-Llama-0.1M"


class Hub(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.golden = Golden("llama_gqa", cls.directory)
        cls.home = cls.fresh_directory("home")
        cls.model = cls.home / "hub" / f"models--{NAME.replace('/', '--')}"
        for number, hash_ in enumerate(HASHES):
            snapshot, blobs = cls.model / "snapshots" / hash_, cls.model / "blobs"
            snapshot.mkdir(parents=True)
            blobs.mkdir(exist_ok=True)
            for file in ("config.json", "model.safetensors"):
                blob = blobs / f"{file}{number}"
                shutil.copy(cls.golden.model / file, blob)
                (snapshot / file).symlink_to(pathlib.Path("../../blobs") / blob.name)
        cls.point("main", HASHES[0])
        cls.point("next", HASHES[1])

    @classmethod
    def point(cls, revision, hash_):
        (cls.model / "refs").mkdir(exist_ok=True)
        (cls.model / "refs" / revision).write_text(hash_)

    def flags(self, **changes):
        return self.golden.flags(**{"model": NAME, "train_iters": 2, **changes})

    def run(self, result=None):
        self.environment = {"HF_HOME": str(self.home), "HF_HUB_CACHE": "", "HUGGINGFACE_HUB_CACHE": ""}
        return super().run(result)

    def spillway(self, command, flags):
        return run(command, *arguments(flags), environment=self.environment)

    def test_a_name_is_its_snapshot(self):
        by_name = self.train(self.flags(), environment=self.environment)
        by_path = self.train(self.flags(model=self.golden.model))
        self.assertEqual(by_name.curve(), by_path.curve())
        self.assertEqual(json.loads((by_name.path / "run.json").read_text())["model"], f"{NAME}@{HASHES[0]}")
        for revision in ("next", HASHES[1]):
            plan = self.spillway("plan", self.flags(model=f"{NAME}@{revision}", format="json"))
            self.assertEqual(plan.code, 0, str(plan))

    def test_a_run_goes_on_with_its_commit_alone(self):
        begun = self.train(self.flags(), environment=self.environment)
        try:
            self.point("main", HASHES[1])
            refused = self.spillway("train", {"load": begun.path, "model": NAME, "train_iters": 3})
            self.assertEqual(refused.code, 2, str(refused))
            self.assertIn(f"is commit {HASHES[1]}", refused.err)
            self.assertIn(f"--model {NAME}@{HASHES[0]}", refused.err)
            for model in (None, f"{NAME}@{HASHES[0]}"):
                on = self.spillway("train", {"load": begun.path, "model": model, "train_iters": 3, "save": begun.path})
                self.assertEqual(on.code, 0, str(on))
            self.assertEqual(json.loads((begun.path / "run.json").read_text())["model"], f"{NAME}@{HASHES[0]}")
        finally:
            self.point("main", HASHES[0])
        hidden = self.model.rename(self.model.with_suffix(".away"))
        try:  # the run has what it needs
            on = self.spillway("train", {"load": begun.path, "train_iters": 4, "save": begun.path})
            self.assertEqual(on.code, 0, str(on))
            self.assertEqual(len(Run(begun.path).log), 4)
        finally:
            hidden.rename(self.model)

    def test_an_adapter_says_its_base(self):
        adapted = self.train(self.flags(lora_rank=2), environment=self.environment)
        out = self.fresh("adapter")
        self.assertEqual(run("export", "--load", adapted.path, "--out", out, environment=self.environment).code, 0)
        config = json.loads((out / "adapter_config.json").read_text())
        self.assertEqual(config["base_model_name_or_path"], NAME)
        flags = {"adapter": out, "data": self.golden.data, "seq_length": self.golden.json["seq_len"], "format": "json"}
        found = self.spillway("eval", flags)
        self.assertEqual(found.code, 0, str(found))
        named = self.spillway("eval", {**flags, "model": NAME})
        self.assertEqual(json.loads(found.out)["loss"], json.loads(named.out)["loss"])

    def test_what_the_cache_has_not(self):
        for model in ("Some-Org/Other", f"{NAME}@v9"):
            refused = self.spillway("plan", self.flags(model=model))
            self.assertEqual(refused.code, 2, str(refused))
            self.assertIn(f"--model: found {model}", refused.err)
            self.assertIn("hf download " + model.partition("@")[0], refused.err)


if __name__ == "__main__":
    unittest.main()
