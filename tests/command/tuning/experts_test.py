"""Mixtures of experts under the command: their losses beside an independent implementation's, equal bits under every
placement, the load of their experts, bad input. Golden curves, evaluation and export of each family are in the tests of
all golden cases."""
import itertools
import json
import struct
import unittest

from harness import GOLDEN, CommandTest, Golden, Run, arguments, read_safetensors, run, safetensors_bytes

MIXTURES = ("gpt_oss", "granitemoe", "mixtral", "olmoe", "qwen2_moe", "qwen3_moe")
ON_NVME = {"parameter_tier": "nvme", "optimizer_tier": "nvme"}


class Experts(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.nvme = cls.fresh_directory("nvme")
        cls.golden = {name: Golden(name, cls.directory) for name in MIXTURES}

    def close(self, found, expected, tolerance):
        self.assertLess(abs(found - expected), tolerance * abs(expected))

    def flags(self, name, **changes):
        """Three micro-batches of a row."""
        return self.golden[name].flags(**{"dtype": "bf16", "micro_batch_size": 1, "global_batch_size": 3,
                                          "train_iters": 4, **changes})

    def test_losses_and_load(self):
        for name, golden in self.golden.items():
            with self.subTest(name=name):
                log = self.train(golden.flags()).log
                for record, balance in zip(log, golden.json["aux_losses"], strict=True):
                    self.close(record["aux_loss"], balance, 2e-4)
                    self.close(record["loss"], record["lm_loss"] + golden.json["router_aux_loss_coef"] * balance, 1e-5)
                    self.assertGreater(record["expert_load_most"], 1)
                    self.assertLess(record["expert_load_least"], 1)
                    self.assertLess(0, record["expert_entropy"])
                    self.assertLess(record["expert_entropy"], 1)
                    self.assertNotIn("router_z_loss", record)

    def test_coefficients(self):
        first = {}
        for balance, z in ((None, None), (0, None), (0.5, 0.25)):
            flags = self.golden["olmoe"].flags(train_iters=1, router_aux_loss_coef=balance, router_z_loss_coef=z)
            first[balance, z] = self.train(flags).log[0]
        none = first[0, None]
        self.assertNotIn("aux_loss", none)
        self.assertNotIn("lm_loss", none)
        both = first[0.5, 0.25]
        self.assertEqual(both["lm_loss"], none["loss"])
        self.assertEqual(both["aux_loss"], first[None, None]["aux_loss"])
        self.close(both["loss"], both["lm_loss"] + 0.5 * both["aux_loss"] + 0.25 * both["router_z_loss"], 1e-12)
        self.assertEqual(len({record["grad_norm"] for record in first.values()}), 3)

    def test_no_placement_changes_a_bit(self):
        for name in MIXTURES:
            plain = self.train(self.flags(name, order="horizontal", update="after", activation_tier="device"))
            programs = set()
            for order, update, activation in itertools.product(
                    ("horizontal", "vertical"), ("after", "in-backward", "in-next-forward"), ("recompute", "nvme")):
                with self.subTest(name=name, order=order, update=update, activation=activation):
                    found = self.train(self.flags(name, order=order, update=update, activation_tier=activation,
                                                  nvme=self.nvme, **ON_NVME))
                    self.assertEqual(found.result(), plain.result())
                    self.assertEqual({record["device_peak_bytes"] for record in found.log},
                                     {found.plan["tiers"]["device"]["peak_bytes"]})
                    programs.add(found.plan["ops"]["digest"])
            self.assertEqual(len(programs), 12)
            for apart in ({"optimizer_tier": "host"}, {"parameter_tier": "nvme", "optimizer_tier": "host"}):
                with self.subTest(name=name, apart=apart):
                    found = self.train(self.flags(name, device="cpu-apart", nvme=self.nvme, **apart))
                    self.assertEqual(found.result(), plain.result())

    def test_ranks(self):
        flags = self.golden["qwen3_moe"].flags(micro_batch_size=1, global_batch_size=2, train_iters=6)
        alone = self.train(flags)
        runs = [self.train({**flags, "ranks": 2, "zero_stage": stage, "nvme": self.nvme, **ON_NVME})
                for stage in (0, 3)]
        self.assertEqual(runs[0].result(), runs[1].result())
        for one, two in zip(alone.log, runs[0].log, strict=True):
            for key in ("loss", "lm_loss", "aux_loss", "grad_norm", "expert_load_most", "expert_entropy"):
                self.close(two[key], one[key], 1e-4)

    def test_all_rows_to_the_same_experts(self):
        """No row is dropped, no plan is left: the same tokens everywhere make the same rows everywhere."""
        golden = self.golden["mixtral"]
        data = self.fresh("same").with_suffix(".jsonl")
        data.write_text((json.dumps({"input_ids": [5] * 33}) + "\n") * 12)
        flags = self.flags("mixtral", data=data, router_aux_loss_coef=0)
        plain = self.train(flags)
        self.assertEqual({record["expert_load_most"] for record in plain.log}, {2.0})  # two of four experts have all
        self.assertEqual({record["expert_load_least"] for record in plain.log}, {0.0})
        offloaded = self.train({**flags, "order": "vertical", "nvme": self.nvme, **ON_NVME})
        self.assertEqual(offloaded.result(), plain.result())
        # An expert that no row met is decayed, and nothing else.
        out = self.fresh("exported")
        self.assertEqual(run("export", "--load", self.train({**flags, "dtype": "fp32"}).path, "--out", out).code, 0)
        decay = (1 - golden.json["optimizer"]["lr"] * golden.json["optimizer"]["weight_decay"]) ** len(plain.log)
        begun, ended = (read_safetensors(place / "model.safetensors") for place in (golden.model, out))
        names = [name for name in begun if ".experts." in name and name.endswith("w2.weight")]
        unmet = []
        for name in names:
            before, after = (struct.unpack(f"<{len(raw) // 4}f", raw) for raw in (begun[name][2], ended[name][2]))
            apart = max(abs(b - decay * a) for a, b in zip(before, after, strict=True))
            if apart < 1e-6:
                unmet.append(name)
        self.assertEqual(len(unmet), len(names) // 2, unmet)

    def test_a_nan_in_a_router(self):
        golden = self.golden["olmoe"]
        place = self.fresh_directory("damaged")
        (place / "config.json").write_bytes((golden.model / "config.json").read_bytes())
        tensors = read_safetensors(golden.model / "model.safetensors")
        name = "model.layers.1.mlp.gate.weight"
        kind, shape, _ = tensors[name]
        large = struct.pack("<f", 3e38) * shape[1]  # finite, but no product with it is
        tensors[name] = (kind, shape, large + struct.pack("<f", -3e38) * shape[1] + large * (shape[0] - 2))
        (place / "model.safetensors").write_bytes(safetensors_bytes(tensors))
        outcome = run("train", *arguments(self.flags("olmoe", model=place, save=self.fresh())))
        self.check_refusal(outcome, 6, "the router of layer 1 met what is not a number")

    def test_a_run_goes_on(self):
        whole = self.train(self.flags("olmoe", train_iters=6))
        part = self.train(self.flags("olmoe", train_iters=3))
        on = run("train", *arguments({"load": part.path, "save": part.path, "train_iters": 6}))
        self.assertEqual(on.code, 0, str(on))
        self.assertEqual(Run(part.path).result(), whole.result())

    def test_adapters_on_attention(self):
        """Experts and routers are frozen; what is trained is attention's."""
        run_ = self.train(self.flags("qwen3_moe", lora_rank=4, lr=1e-2, train_iters=12))
        self.assert_finite_fall(run_)
        out = self.fresh("adapter")
        self.assertEqual(run("export", "--load", run_.path, "--out", out).code, 0)
        names = read_safetensors(out / "adapter_model.safetensors")
        self.assertTrue(names and all("self_attn" in name or ".layers.1.mlp" in name for name in names), names.keys())
        plain = self.train(self.flags("qwen3_moe", lora_rank=4, train_iters=3))
        offloaded = self.train(self.flags("qwen3_moe", lora_rank=4, train_iters=3, parameter_tier="nvme",
                                          nvme=self.nvme, order="vertical"))
        self.assertEqual(offloaded.result(), plain.result())
        refused = self.flags("mixtral", lora_rank=4, lora_targets="w1")
        self.check_refusal(run("train", *arguments(refused)), 2, "w1")

    def test_generation(self):
        for name in MIXTURES:
            config = json.loads((GOLDEN / name / "config.json").read_text())
            model = self.fresh_directory("bytes") / "config.json"
            model.write_text(json.dumps({**config, "vocab_size": 256}))
            flags = {"model": model, "tokenizer": "bytes", "prompt": "ab", "max_new_tokens": 8, "temperature": 0}
            texts = [run("generate", *arguments({**flags, **more}))
                     for more in ({}, {"nvme": self.nvme, "device_memory": "1MiB"})]
            self.assertEqual([text.code for text in texts], [0, 0], str(texts[1]))
            self.assertEqual(texts[0].out, texts[1].out)

    def test_verify(self):
        flags = self.flags("olmoe", nvme=self.nvme, **ON_NVME)
        verified = run("verify", *arguments({**flags, "train_iters": None}))
        self.assertEqual(verified.code, 0, str(verified))

    def test_refusals(self):
        dense = Golden("qwen3", self.directory)
        self.check_refusal(run("train", *arguments(dense.flags(router_aux_loss_coef=0.1))), 2,
                           "--router-aux-loss-coef: found 0.1, allowed: for a mixture of experts")
        self.check_refusal(run("train", *arguments(self.flags("olmoe", router_z_loss_coef=-1))), 2,
                           "--router-z-loss-coef: found")
        self.check_refusal(run("train", *arguments(self.flags("olmoe", expert_model_parallel_size=2))), 2,
                           "--expert-model-parallel-size")


if __name__ == "__main__":
    unittest.main()
