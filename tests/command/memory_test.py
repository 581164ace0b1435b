"""The memory of a run: planned peaks equal the recorded ones, and the process stays within the plan and its stated
overhead, even if the system enforces it."""
import json
import pathlib
import unittest

from control_group import ControlGroup
from harness import MIB, PROCESS_OVERHEAD, SANITIZED, CommandTest

# 29 million parameters: their state alone is 350 MB.
SHAPE = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 512, "intermediate_size": 1536,
         "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 64,
         "vocab_size": 16384, "max_position_embeddings": 512,
         "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": False,
         "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}
ROWS, LENGTH = 4, 128


class LargerModel(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = cls.directory / "config.json"
        cls.model.write_text(json.dumps(SHAPE))
        cls.data = cls.directory / "rows.jsonl"
        # The same few rows again and again, so that the loss falls within a few steps.
        with open(cls.data, "w") as out:
            for row in range(ROWS):
                out.write(json.dumps({"input_ids": [(i * i * 7 + row * 131) % 16384 for i in range(LENGTH + 1)]})
                          + "\n")
        cls.nvme = cls.fresh_directory("nvme")

    def flags(self, **changes):
        return {"model": self.model, "data": self.data, "data_order": "sequential", "seq_length": LENGTH,
                "micro_batch_size": 1, "global_batch_size": ROWS,
                "train_iters": 3, "lr": 1e-3, "lr_decay_style": "constant", "nvme": self.nvme,
                "profile": pathlib.Path(__file__).parent.parent / "data" / "machine.json", **changes}


class Memory(LargerModel):

    def train_within(self, limit, flags):
        """Runs in a control group with this many bytes of memory; skips the test if there are no control groups."""
        group = ControlGroup(limit)
        if group.error:
            self.skipTest(group.error)
        try:
            return self.train(flags, prefix=group.prefix())
        finally:
            group.close()

    def check(self, run_):
        self.assert_finite_fall(run_)
        self.assertLessEqual({"device", "host", "nvme"}, set(run_.plan["tiers"]))
        for tier in set(run_.plan["tiers"]) - {"nvme"}:
            planned = run_.plan["tiers"][tier]["peak_bytes"]
            self.assertEqual({record[f"{tier}_peak_bytes"] for record in run_.log}, {planned}, tier)
            # The bytes alive at the peak, less the gaps between lifetimes that could not be packed more tightly.
            named = sum(run_.plan["tiers"][tier]["at_rest"].values())
            self.assertLessEqual(named, planned, tier)
            self.assertGreaterEqual(named, 0.75 * planned, tier)
            self.assertLessEqual(planned, run_.plan["tiers"][tier]["budget_bytes"] or planned)
        self.assertEqual(run_.plan["process_overhead_bytes"], PROCESS_OVERHEAD)

    def check_resident(self, run_):
        planned = run_.plan["tiers"]["device"]["peak_bytes"]
        over = run_.outcome.resident_bytes - planned
        print(f"planned {planned / MIB:.1f} MiB, resident {run_.outcome.resident_bytes / MIB:.1f} MiB: "
              f"{over / MIB:.1f} MiB over")
        self.assertLessEqual(over, PROCESS_OVERHEAD)

    def budgets(self):
        least = self.smallest_budget(self.flags(), 4 * MIB)
        self.assertLess(least, 128 * MIB)
        return [least, 2 * least, 4096 * MIB]

    @unittest.skipIf(SANITIZED, "a sanitizer's own memory is counted, too")
    def test_resident_memory(self):
        peaks = []
        for budget in self.budgets():
            with self.subTest(budget=budget):
                run_ = self.train(self.flags(device_memory=budget))
                self.check(run_)
                self.check_resident(run_)
                peaks.append(run_.plan["tiers"]["device"]["peak_bytes"])
        self.assertGreater(peaks[-1], 340 * MIB, "in core all state is on the device")

    @unittest.skipIf(SANITIZED, "a sanitizer's own memory is counted, too")
    def test_within_a_limit_of_the_system(self):
        for form in ({"state": "compact"}, {"dtype": "fp32"}):
            with self.subTest(**form):
                flags = self.flags(**form)
                flags["device_memory"] = self.smallest_budget(flags, 4 * MIB)
                planned = self.plan(flags)[0]["tiers"]["device"]["peak_bytes"]
                run_ = self.train_within(planned + PROCESS_OVERHEAD, flags)
                self.check(run_)
                self.check_resident(run_)

    @unittest.skipIf(SANITIZED, "a sanitizer's own memory is counted, too")
    def test_three_tiers_within_a_limit_of_the_system(self):
        flags = self.flags(device="cpu-apart", device_memory="96MiB", host_memory="128MiB", update_on="host")
        tiers = self.plan(flags)[0]["tiers"]
        planned = tiers["device"]["peak_bytes"] + tiers["host"]["peak_bytes"]
        run_ = self.train_within(planned + PROCESS_OVERHEAD, flags)
        self.check(run_)
        print(f"planned {planned / MIB:.1f} MiB, resident {run_.outcome.resident_bytes / MIB:.1f} MiB")
        self.assertGreater(run_.plan["tiers"]["nvme"]["peak_bytes"], 0)
        self.assertLessEqual(run_.outcome.resident_bytes, planned + PROCESS_OVERHEAD)

    @unittest.skipIf(SANITIZED, "a sanitizer's own memory is counted, too")
    def test_what_is_free_is_what_the_group_leaves(self):
        """Without --device-memory, a run inside a group takes the memory of the group, not of the machine."""
        limit = 600 * MIB
        run_ = self.train_within(limit, self.flags())
        self.check(run_)
        self.assertLess(run_.plan["tiers"]["device"]["budget_bytes"], limit)
        self.assertGreater(run_.plan["nvme_per_step"]["read_bytes"], 0)

    @unittest.skipIf(SANITIZED, "slow under a sanitizer")
    def test_save_load_and_evaluation_take_no_more(self):
        least = self.smallest_budget(self.flags(eval_data=self.data), 4 * MIB)
        run_ = self.train(self.flags(device_memory=least, eval_data=self.data, eval_interval=2, save_interval=2))
        self.check_resident(run_)
        self.assertEqual([record["step"] for record in run_.log if "eval_loss" in record], [2, 3])
        on = self.train({"load": run_.path, "save": run_.path, "train_iters": 4})
        self.check_resident(on)
        self.assertEqual(on.steps(), [2, 3, 4])


if __name__ == "__main__":
    unittest.main()
