"""The files that a run writes beside its log: TensorBoard's event files, a table, samples of text. None of them changes
a bit of the training.
"""
import csv
import json
import shutil
import struct
import unittest

from harness import PROCESS_OVERHEAD, SANITIZED, CommandTest, arguments, run
from memory_test import SHAPE

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ImportError:
    EventAccumulator = None


class Watching(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = cls.directory / "config.json"
        cls.model.write_text(json.dumps({**SHAPE, "vocab_size": 257, "hidden_size": 64, "intermediate_size": 128,
                                         "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
                                         "head_dim": 16, "max_position_embeddings": 64}))
        cls.text = cls.directory / "text.txt"
        cls.text.write_text("the cat sat on the mat. " * 100)

    def flags(self, **changes):
        return {"model": self.model, "data": self.text, "tokenizer": "bytes", "seq_length": 32, "train_iters": 12,
                "lr": 3e-3, "micro_batch_size": 2, "global_batch_size": 4, **changes}

    def sampling(self, **changes):
        return self.flags(**{"sample_interval": 5, "sample_prompt": "the cat", "sample_tokens": 6, **changes})

    def test_samples_change_nothing_and_are_in_the_log(self):
        nvme = self.fresh_directory("nvme")
        # The planner's own choice; state on the disk with the update deferred; a fused head.
        for placement in ({}, {"nvme": nvme, "optimizer_tier": "nvme", "update": "in-next-forward"},
                          {"nvme": nvme, "parameter_tier": "nvme", "order": "horizontal"}):
            with self.subTest(**placement):
                plain = self.train(self.flags(**placement))
                sampled = self.train(self.sampling(**placement))
                self.assertEqual(sampled.curve(), plain.curve())
                samples = {record["step"]: record["sample"] for record in sampled.log if "sample" in record}
                self.assertEqual(sorted(samples), [5, 10])
                for text in samples.values():
                    self.assertTrue(text.startswith("the cat"))
                    self.assertIn("sample: " + text.splitlines()[0], sampled.outcome.out)

    def test_a_sample_is_what_generate_says(self):
        run_ = self.train(self.sampling(train_iters=60, sample_interval=60, dtype="fp32"))
        outcome = run("generate", *arguments({"load": run_.path, "prompt": "the cat", "max_new_tokens": 6,
                                              "format": "jsonl"}))
        self.assertEqual(outcome.code, 0, str(outcome))
        self.assertEqual(run_.log[-1]["sample"], "the cat" + json.loads(outcome.out)["text"])

    def test_room_for_samples_is_planned(self):
        least = self.smallest_budget(self.sampling())
        self.assertGreaterEqual(least, self.smallest_budget(self.flags()))
        run_ = self.train(self.sampling(device_memory=least))
        self.assertLessEqual(run_.plan["tiers"]["device"]["peak_bytes"], least)
        if not SANITIZED:
            self.assertLessEqual(run_.outcome.resident_bytes, least + PROCESS_OVERHEAD)

    def test_table_has_what_the_log_has_and_goes_on(self):
        table, events = self.fresh("table"), self.fresh("events")
        run_ = self.train(self.flags(csv=table, tensorboard=events, save_interval=4, train_iters=10,
                                     eval_data=self.text, eval_interval=3))
        for step in (8, 10):  # from a checkpoint before the last row
            shutil.rmtree(run_.path / "checkpoints" / str(step))
        on = self.train({"load": run_.path, "train_iters": 12, "save": run_.path})
        with open(table) as rows:
            rows = list(csv.DictReader(rows))
        self.assertEqual([row["step"] for row in rows], [str(step) for step in range(1, 13)])
        for row, record in zip(rows, on.log):
            for key in ("loss", "grad_norm", "lr", "step_s"):
                self.assertEqual(float(row[key]), record[key])
            self.assertEqual(row["eval_loss"], str(record.get("eval_loss", "")))
        self.assertEqual(self.steps_of(events), list(range(1, 13)))
        self.check_refusal(run("train", *arguments(self.flags(csv=table))), 2, "--csv")
        self.check_refusal(run("train", *arguments(self.flags(tensorboard=events))), 2, "--tensorboard")

    def steps_of(self, events):
        """Reads only the framing: the step is the second field of an event, a varint."""
        (file,) = events.iterdir()
        raw, steps, at = file.read_bytes(), [], 0
        while at < len(raw):
            (length,) = struct.unpack_from("<Q", raw, at)
            steps.append(raw[at + 12 + 10])
            at += 16 + length
        self.assertEqual(steps[0], 0)
        return steps[1:]

    @unittest.skipIf(EventAccumulator is None, "tensorboard is not installed")
    def test_tensorboard_reads_it(self):
        events = self.fresh("events")
        run_ = self.train(self.sampling(tensorboard=events, eval_data=self.text, eval_interval=5))
        reader = EventAccumulator(str(events), size_guidance={"scalars": 0, "tensors": 0})
        reader.Reload()
        self.assertEqual(sorted(reader.Tags()["scalars"]), ["eval_loss", "grad_norm", "loss", "lr", "tokens_per_s"])
        for tag in ("loss", "grad_norm", "lr", "eval_loss"):
            expected = [(record["step"], struct.unpack("<f", struct.pack("<f", record[tag]))[0]) for record in run_.log
                        if tag in record]
            self.assertEqual([(point.step, point.value) for point in reader.Scalars(tag)], expected)
        samples = [(point.step, point.tensor_proto.string_val[0].decode()) for point in reader.Tensors("sample")]
        self.assertEqual(samples, [(record["step"], record["sample"]) for record in run_.log if "sample" in record])

    def test_a_bit_flipped_in_weights_is_neither_exported_nor_generated_from(self):
        run_ = self.train(self.flags())
        file, out = run_.state_file(), self.fresh("exported")
        content = bytearray(file.read_bytes())
        header = 8 + int.from_bytes(content[:8], "little")
        arrays = json.loads(content[8:header])
        weight = next(name for name in arrays if name.endswith("/weight"))
        content[header + arrays[weight]["data_offsets"][0] + 1] ^= 1
        file.write_bytes(content)
        for command in (("export", "--load", run_.path, "--out", out),
                        ("generate", "--load", run_.path, "--prompt", "a"),
                        ("eval", "--load", run_.path, "--data", self.text)):
            with self.subTest(command[0]):
                self.check_refusal(run(*command), 4, f"{weight} is damaged")
        self.assertFalse(out.exists())

    def test_refusals(self):
        for change, fragment in (({"sample_interval": 2}, "--sample-prompt"),
                                 ({"sample_prompt": "x"}, "--sample-interval"),
                                 ({"sample_interval": 2, "sample_prompt": "y" * 32}, "32 tokens, allowed: at most 31"),
                                 ({"sample_interval": 2, "sample_prompt": "x", "sample_tokens": 0}, "--sample-tokens"),
                                 ({"tensorboard": self.text}, "--tensorboard")):
            with self.subTest(change):
                outcome = run("train", *arguments(self.flags(**change)))
                self.check_refusal(outcome, 4 if "tensorboard" in change else 2, fragment)


if __name__ == "__main__":
    unittest.main()
