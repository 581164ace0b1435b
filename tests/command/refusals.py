"""Shared by the tests of refused input: a case to spoil, and a check that a refusal leaves nothing behind. Not here:
what is refused (the tests that use it).
"""
import json
import pathlib
import shutil

from harness import CommandTest, Golden, arguments, run


def listing(*directories):
    return sorted(str(path) for directory in directories for path in pathlib.Path(directory).rglob("*"))


class RefusalTest(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.golden = Golden("llama_gqa", cls.directory)
        cls.nvme = cls.fresh_directory("nvme")

    def flags(self, **changes):
        return self.golden.flags(**{"train_iters": 2, "nvme": self.nvme, **changes})

    def refuse(self, code, fragment, save="fresh", words=None, **changes):
        """Runs train with changed flags and expects a refusal that leaves neither a run directory nor anything on NVMe.
        """
        where = self.fresh("refused") if save == "fresh" else save
        before = listing(self.nvme)
        outcome = run("train", *(words if words is not None else arguments(self.flags(save=where, **changes))),
                      timeout=60)
        self.check_refusal(outcome, code, fragment)
        self.assertEqual(listing(self.nvme), before)
        if save == "fresh":
            self.assertFalse(where.exists(), "left behind: " + str(listing(where)))
            # The next run can use the same directory.
            again = self.train(self.flags(save=where))
            self.assertEqual(again.steps(), [2])
        return outcome

    def expect_any(self, flags, codes, fragment):
        # A run that was there stays unchanged.
        places = [self.nvme] + ([flags["save"].parent] if "save" in flags else [])
        before = listing(*places)
        outcome = run("train", *arguments(flags), timeout=60)
        self.assertIn(outcome.code, codes, str(outcome))
        self.check_refusal(outcome, outcome.code, fragment)
        self.assertEqual(listing(*places), before)
        return outcome

    def refuse_any(self, codes, fragment, **changes):
        outcome = run("train", *arguments(self.flags(**{"save": self.fresh(), **changes})), timeout=60)
        self.assertIn(outcome.code, codes, str(outcome))
        self.check_refusal(outcome, outcome.code, fragment)

    def model(self, config=None, weights=None, text=None):
        """A copy of the case's model with a changed configuration (a value of None removes the key) or other weights.
        """
        place = self.fresh_directory("model")
        settings = json.loads((self.golden.model / "config.json").read_text())
        settings.update(config or {})
        (place / "config.json").write_text(text if text is not None
                                           else json.dumps({k: v for k, v in settings.items() if v is not None}))
        if weights is None:
            shutil.copy(self.golden.model / "model.safetensors", place)
        elif weights:
            (place / "model.safetensors").write_bytes(weights)
        return place
