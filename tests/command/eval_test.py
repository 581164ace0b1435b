"""spillway eval: the loss of a model on data, for any micro-batch and any place of the weights. And spillway verify:
plans that differ, bits that do not, refusals, nothing left behind.
"""
import json
import math
import unittest

from harness import CommandTest, Golden, arguments, golden_names, run


class Evaluation(CommandTest):
    def evaluate(self, **flags):
        outcome = run("eval", *arguments({"format": "json", **flags}))
        self.assertEqual(outcome.code, 0, str(outcome))
        return json.loads(outcome.out)

    def flags(self, golden, **changes):
        return {"model": golden.model, "data": golden.data, "seq_length": golden.json["seq_len"], "dtype": "fp32",
                **changes}

    def test_loss_of_the_first_batch_is_the_golden_one(self):
        for name in golden_names():
            with self.subTest(name):
                golden = Golden(name, self.directory)
                batch = self.fresh("batch").with_suffix(".jsonl")
                batch.write_text("".join(golden.data.read_text().splitlines(True)[:golden.json["batch"]]))
                result = self.evaluate(**self.flags(golden, data=batch))
                self.assertAlmostEqual(result["loss"], golden.json["losses"][0], delta=1e-5 * result["loss"])
                self.assertEqual(result["sequences"], golden.json["batch"])
                self.assertEqual(result["perplexity"], math.exp(result["loss"]))

    def test_every_sequence_counts_once(self):
        golden = Golden("qwen3", self.directory)
        results = [self.evaluate(**self.flags(golden, micro_batch_size=size)) for size in (1, 5, 64)]
        for result in results:
            self.assertEqual((result["tokens"], result["sequences"]), (48 * 24, 48))
            self.assertAlmostEqual(result["loss"], results[0]["loss"], delta=1e-6)

    def test_weights_on_nvme_give_the_same_bits(self):
        golden = Golden("qwen3", self.directory)
        flags = self.flags(golden)
        self.check_refusal(run("eval", *arguments({**flags, "device_memory": 720896})), 3, "does not fit")
        spilled = self.evaluate(**flags, device_memory=720896, nvme=self.fresh_directory("nvme"))
        self.assertEqual(spilled["loss"], self.evaluate(**flags)["loss"])

    def test_of_a_run_as_train_logs_it(self):
        golden = Golden("llama_gqa", self.directory)
        run_ = self.train(golden.flags(train_iters=2, save_interval=1, eval_interval=1, eval_data=golden.data))
        for step, record in enumerate(run_.log, 1):
            self.assertEqual(self.evaluate(load=run_.path, step=step)["loss"], record["eval_loss"])
        self.assertEqual(self.evaluate(load=run_.path)["loss"], run_.log[-1]["eval_loss"])

    def test_refusals(self):
        golden = Golden("qwen3", self.directory)
        for change, fragment in (({"data": None}, "--data"), ({"model": None}, "--model"), ({"step": 1}, "--step"),
                                 ({"load": self.fresh_directory()}, "run.json"),
                                 ({"data": "nowhere"}, "nowhere")):
            with self.subTest(change):
                self.check_refusal(run("eval", *arguments(self.flags(golden, **change))), 2, fragment)


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
