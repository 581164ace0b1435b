"""A mixture of experts that does not fit: killed at random instants, within its plan in a control group while all rows
go to the same experts, and with its experts in groups where a layer's do not fit as one."""
import json
import unittest

from control_group import ControlGroup
from durable_runs import PLANS, DurableTest
from harness import DATA, MIB, PROCESS_OVERHEAD, SANITIZED, CommandTest, Golden

# An expert has 9 million parameters, so that seven are a group: three groups a layer.
SHAPE = {"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "hidden_size": 1024,
         "intermediate_size": 3072, "num_hidden_layers": 1, "num_attention_heads": 8, "num_key_value_heads": 4,
         "num_local_experts": 18, "num_experts_per_tok": 2, "vocab_size": 512, "max_position_embeddings": 128,
         "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": False, "output_router_logits": True}
LENGTH = 96


class MixtureKilled(DurableTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.golden = Golden("olmoe", cls.directory)

    def test_killed_at_random_instants(self):
        self.kill_at_random([PLANS[0], PLANS[5]], 4)

    def test_slow_20_kills(self):
        self.kill_at_random(PLANS, 20)


class LargeMixture(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = cls.directory / "config.json"
        cls.model.write_text(json.dumps(SHAPE))
        cls.nvme = cls.fresh_directory("nvme")

    def data(self, token_of):
        path = self.fresh("rows").with_suffix(".jsonl")
        path.write_text("".join(json.dumps({"input_ids": [token_of(row, i) for i in range(LENGTH + 1)]}) + "\n"
                                for row in range(4)))
        return path

    def flags(self, data, **changes):
        return {"model": self.model, "data": data, "data_order": "sequential", "seq_length": LENGTH,
                "micro_batch_size": 1, "global_batch_size": 2, "train_iters": 2, "lr": 1e-3, "state": "compact",
                "nvme": self.nvme, "profile": DATA / "machine.json", **changes}

    @unittest.skipIf(SANITIZED, "a sanitizer's own memory is counted, too")
    def test_slow_all_rows_to_the_same_experts_within_a_limit_of_the_system(self):
        flags = self.flags(self.data(lambda row, i: 7), parameter_tier="nvme", optimizer_tier="nvme")
        flags["device_memory"] = self.smallest_budget(flags, 16 * MIB)
        planned = self.plan(flags)[0]["tiers"]["device"]["peak_bytes"]
        group = ControlGroup(planned + PROCESS_OVERHEAD)
        if group.error:
            self.skipTest(group.error)
        try:
            run_ = self.train(flags, prefix=group.prefix(), timeout=600)
        finally:
            group.close()
        over = run_.outcome.resident_bytes - planned
        print(f"planned {planned / MIB:.1f} MiB, {over / MIB:.1f} MiB over")
        self.assertLessEqual(over, PROCESS_OVERHEAD)
        self.assertEqual({record["device_peak_bytes"] for record in run_.log}, {planned})
        self.assertEqual({record["expert_load_most"] for record in run_.log}, {9.0})  # two of 18 have all rows

    def test_slow_groups_where_a_layer_does_not_fit(self):
        """The same bits with a layer's experts as one unit in core, and with a unit a group in less memory."""
        data = self.data(lambda row, i: (i * i * 7 + row * 131) % 512)
        whole = self.train(self.flags(data), timeout=600)
        self.assertNotIn("experts_in_groups", whole.choices())
        tight = self.flags(data)
        tight["device_memory"] = self.smallest_budget(tight, 16 * MIB)
        grouped = self.train(tight, timeout=600)
        self.assertTrue(grouped.choices()["experts_in_groups"])
        self.assertLess(grouped.plan["tiers"]["device"]["peak_bytes"],
                        whole.plan["tiers"]["device"]["peak_bytes"] / 2)
        self.assertEqual(grouped.result(), whole.result())


if __name__ == "__main__":
    unittest.main()
