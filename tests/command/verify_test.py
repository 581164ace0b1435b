"""spillway verify from outside: plans that differ, bits that do not, refusals, nothing left behind."""
import json
import unittest

from harness import CommandTest, Golden, arguments, run


class Verify(CommandTest):
    def verify(self, flags, code=0):
        outcome = run("verify", *arguments({"format": "json", **flags}))
        self.assertEqual(outcome.code, code, str(outcome))
        return json.loads(outcome.out)

    def test_on_nvme_against_in_core(self):
        golden = Golden("gpt2", self.directory)
        nvme = self.fresh_directory("nvme")
        result = self.verify(golden.flags(micro_batch_size=1, nvme=nvme, parameter_tier="nvme", optimizer_tier="nvme",
                                          activation_tier="nvme"))
        self.assertTrue(result["equal"])
        self.assertEqual([step["step"] for step in result["steps"]], [1, 2, 3])
        for step, loss in zip(result["steps"], golden.json["losses"]):
            self.assertEqual(step["loss"][0], step["loss"][1])
            self.assertAlmostEqual(step["loss"][0], loss, delta=1e-3)
        differ = " ".join(result["plans_differ"])
        for what in ("weights on nvme: 9, 0", "optimizer states on nvme: 9, 0"):
            self.assertIn(what, differ)
        self.assertEqual([path.name for path in nvme.iterdir() if "verify" in path.name], [])

    def test_in_core_against_another_schedule_and_from_a_checkpoint(self):
        golden = Golden("qwen3", self.directory)
        flags = golden.flags(dtype="bf16", state="compact", update="after", order="horizontal")
        self.assertTrue(self.verify({**flags, "steps": 2})["equal"])
        run_ = self.train({**flags, "train_iters": 1})
        before = sorted(path.name for path in run_.path.rglob("*"))
        result = self.verify({"load": run_.path, "steps": 1, "profile": flags["profile"]})
        self.assertEqual([step["step"] for step in result["steps"]], [2])
        self.assertEqual(sorted(path.name for path in run_.path.rglob("*")), before)

    def test_refusals(self):
        golden = Golden("qwen3", self.directory)
        for change, code, fragment in (({"steps": 0}, 2, "--steps"), ({"data": None}, 2, "--data"),
                                       ({"device_memory": "1MiB"}, 3, "does not fit"),
                                       ({"lr": 1e30}, 6, "nothing to compare"), ({"format": "html"}, 2, "html")):
            with self.subTest(change):
                outcome = run("verify", *arguments(golden.flags(**change)))
                self.check_refusal(outcome, code, fragment)


if __name__ == "__main__":
    unittest.main()
