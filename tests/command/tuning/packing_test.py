"""Documents that are packed together do not see each other: losses, norms and weights are those of the documents alone
(tests/data/packing/llama has an independent implementation's), under every placement."""
import json
import re
import unittest

from harness import DATA, PACKED, CommandTest, Golden, Run, arguments, packed_flags, run

ON_NVME = {"parameter_tier": "nvme", "optimizer_tier": "nvme"}
# Learned positions; norms of heads; windows and two kinds of angles; a window everywhere.
FAMILIES = ("gpt2", "qwen3", "gemma3", "mistral_window")


class Packing(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.nvme = cls.fresh_directory("nvme")
        cls.golden = json.loads((PACKED / "golden.json").read_text())

    def close(self, found, expected, tolerance):
        self.assertLess(abs(found - expected), tolerance * abs(expected))

    def check_curve(self, log, losses, norms, allow=(2e-4, 1e-3)):
        for record, loss, norm in zip(log, losses, norms, strict=True):
            self.close(record["loss"], loss, allow[0])
            self.close(record["grad_norm"], norm, allow[1])

    def test_the_curve_is_that_of_the_documents_alone(self):
        for changes in ({}, {"data_order": "sequential", "micro_batch_size": 1, **ON_NVME, "nvme": self.nvme},
                        {"micro_batch_size": 2, "ranks": 2, "zero_stage": 3}, {"split_rows": True},
                        {"device": "cpu-apart", "optimizer_tier": "host", "micro_batch_size": 2}):
            with self.subTest(changes=changes):
                found = self.train(packed_flags(**changes))
                self.check_curve(found.log, self.golden["losses"], self.golden["grad_norms"])
                self.assertEqual({record["tokens"] for record in found.log}, {self.golden["valid_tokens"]})
                for record in found.log:
                    self.close(record["tokens_per_s"] * record["step_s"], self.golden["valid_tokens"], 1e-2)

    def test_no_placement_changes_a_bit(self):
        base = {"dtype": "bf16", "micro_batch_size": 1, "epochs": 4}
        plain = self.train(packed_flags(order="horizontal", update="after", activation_tier="device", **base))
        for changes in ({**ON_NVME, "order": "vertical"}, {**ON_NVME, "update": "in-next-forward"},
                        {"activation_tier": "recompute"}, {"device": "cpu-apart", "parameter_tier": "nvme",
                                                           "optimizer_tier": "host"}):
            with self.subTest(changes=changes):
                found = self.train(packed_flags(**base, **changes, nvme=self.nvme))
                self.assertEqual(found.result(), plain.result())

    def test_a_run_goes_on(self):
        whole = self.train(packed_flags(epochs=6, micro_batch_size=2))
        part = self.train(packed_flags(epochs=3, micro_batch_size=2))
        on = run("train", *arguments({"load": part.path, "save": part.path, "epochs": 6}))
        self.assertEqual(on.code, 0, str(on))
        self.assertEqual(Run(part.path).result(), whole.result())

    def test_families(self):
        """Rows of a family's own golden case, cut to many lengths: packed, and each padded to a sequence of its own."""
        for name in FAMILIES:
            golden = Golden(name, self.directory)
            rows = [json.loads(line)["input_ids"] for line in golden.data.read_text().splitlines()]
            length = golden.json["seq_len"]
            documents = [row[:2 + 5 * i % (length - 1)] for i, row in enumerate(rows)]
            data = self.fresh("documents").with_suffix(".jsonl")
            data.write_text("".join(json.dumps({"input_ids": row}) + "\n" for row in documents))
            flags = golden.flags(data=data, train_iters=None, epochs=3, micro_batch_size=1)
            alone = self.train({**flags, "global_batch_size": len(documents)})
            first = run("train", *arguments({**flags, "packing": True, "epochs": None, "train_iters": 1}))
            packs = int(re.search(r"rows lie in (\d+) packs", first.out)[1])
            self.assertLess(packs, 0.7 * len(documents))
            together = self.train({**flags, "packing": True, "global_batch_size": packs})
            self.assertEqual(len(together.log), len(alone.log))
            self.check_curve(together.log, [record["loss"] for record in alone.log],
                             [record["grad_norm"] for record in alone.log], (2e-5, 2e-4))

    def test_evaluation(self):
        flags = {"model": PACKED, "data": PACKED / "documents.jsonl", "dtype": "fp32", "seq_length": 64,
                 "format": "json"}
        alone, packed = (json.loads(run("eval", *arguments({**flags, **more})).out) for more in ({}, {"packing": True}))
        self.close(packed["loss"], alone["loss"], 1e-6)
        self.close(packed["loss"], self.golden["loss0"], 1e-5)
        self.assertEqual((packed["sequences"], alone["sequences"]), (4, 17))
        self.assertEqual(packed["tokens"], alone["tokens"])

    def test_plans_count_attention_by_the_documents(self):
        data = self.fresh("short").with_suffix(".jsonl")
        data.write_text("".join(json.dumps({"input_ids": [1] * 33}) + "\n" for _ in range(64)))
        flags = {"model": "smollm2-135m", "init": "random", "seq_length": 2048, "profile": DATA / "machine.json"}
        packed, _ = self.plan({**flags, "data": data, "packing": True})
        whole, _ = self.plan({**flags, "packing": True})
        plain, _ = self.plan(flags)
        step_s = [plan["predicted"]["step_s"] for plan in (packed, whole, plain)]
        self.assertGreater(step_s[1], 1.02 * step_s[0])
        self.close(step_s[1], step_s[2], 0.01)

    def test_refused(self):
        text = self.fresh("text").with_suffix(".txt")
        text.write_text("many words " * 50)
        for changes, words in (({"packing": None, "split_rows": True}, "--split-rows: found without --packing"),
                               ({"split_rows": True, "truncate": True}, "--split-rows: found with --truncate"),
                               ({"data": text, "tokenizer": "bytes"}, "--packing: found no file of rows in --data"),
                               ({"seq_length": 16}, "found 60 tokens, allowed: at most 17 (--seq-length + 1)")):
            with self.subTest(words=words):
                outcome = run("train", *arguments(packed_flags(**changes)))
                self.assertEqual(outcome.code, 2, str(outcome))
                self.assertIn(words, outcome.err)


if __name__ == "__main__":
    unittest.main()
