"""Adapters on a frozen base: PEFT's curves under every placement, files as PEFT's, and what is refused
(tests/data/golden/README.md says what the cases in tests/data/lora are).
"""
import itertools
import json
import shutil
import signal
import struct
import unittest

from harness import (
    DATA,
    CommandTest,
    Golden,
    Run,
    arguments,
    begin,
    finish,
    read_safetensors,
    run,
    safetensors_bytes,
    send_signal,
    wait_for_steps,
)

CASES = ("llama_gqa_all", "qwen2_qv")
ON_NVME = {"parameter_tier": "nvme", "optimizer_tier": "nvme"}
IN_CORE = {"order": "horizontal", "update": "after", "activation_tier": "device"}
ALL = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def numbers(tensor):
    dtype, _, raw = tensor
    assert dtype == "F32"
    return struct.unpack(f"<{len(raw) // 4}f", raw)


class Peft:
    """A case: PEFT's adapter, and how PEFT trained it on a golden case's tokens."""

    def __init__(self, name, directory):
        self.path = DATA / "lora" / name
        self.json = json.loads((self.path / "golden.json").read_text())
        self.golden = Golden(self.json["base"], directory)

    def flags(self, **changes):
        g = self.json
        return self.golden.flags(**{"lr": g["lr"], "clip_grad": g["clip_norm"], "weight_decay": g["weight_decay"],
                                    "adapter": self.path / "adapter", **changes})


class AdapterTest(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.peft = {name: Peft(name, cls.directory) for name in CASES}
        cls.nvme = cls.fresh_directory("nvme")

    def export(self, run_, *more):
        out = self.fresh("exported")
        outcome = run("export", "--load", run_.path, "--out", out, *more)
        self.assertEqual(outcome.code, 0, str(outcome))
        return out

    def close(self, found, expected, tolerance):
        self.assertLess(abs(found - expected), tolerance * abs(expected))


class Adapters(AdapterTest):
    def check_curve(self, run_, peft):
        for record, loss, norm in zip(run_.log, peft.json["losses"], peft.json["grad_norms"], strict=True):
            self.close(record["loss"], loss, 2e-4)
            self.close(record["grad_norm"], norm, 1e-3)

    def test_peft_curves(self):
        """In core, on NVMe and on three tiers, with the final adapter and the merged model's loss."""
        for name, peft in self.peft.items():
            runs = [self.train(peft.flags(**IN_CORE)),
                    self.train(peft.flags(nvme=self.nvme, **ON_NVME)),
                    self.train(peft.flags(nvme=self.nvme, device="cpu-apart", parameter_tier="nvme",
                                          optimizer_tier="host"))]
            for run_ in runs:
                self.check_curve(run_, peft)
                self.assertEqual(run_.plan["model"]["trained_parameters"], peft.json["trainable"])
                self.assertEqual(run_.result(), runs[0].result(), name)
            adapter = self.export(runs[0])
            found = read_safetensors(adapter / "adapter_model.safetensors")
            expected = read_safetensors(peft.path / "final" / "adapter_model.safetensors")
            self.assertEqual({key: value[:2] for key, value in found.items()},
                             {key: value[:2] for key, value in expected.items()})
            for key, tensor in expected.items():
                ours, theirs = numbers(found[key]), numbers(tensor)
                difference = sum((a - b) ** 2 for a, b in zip(ours, theirs, strict=True))
                self.assertLess(difference, 4e-6 * sum(b * b for b in theirs), key)
            merged = self.export(runs[0], "--merge")
            first = self.fresh_directory() / "first.jsonl"
            batch = peft.golden.json["batch"]
            first.write_text("".join(peft.golden.data.read_text().splitlines(keepends=True)[:batch]))
            losses = []
            for model in ({"model": merged}, {"model": peft.golden.model, "adapter": adapter}, {"load": runs[0].path}):
                outcome = run("eval", *arguments({**model, "data": first, "dtype": "fp32", "format": "json",
                                                  "micro_batch_size": batch,
                                                  "seq_length": peft.golden.json["seq_len"]}))
                self.assertEqual(outcome.code, 0, str(outcome))
                losses.append(json.loads(outcome.out)["loss"])
                self.close(losses[-1], peft.json["merged_loss_on_step0_tokens"], 1e-4)
            self.assertEqual(losses[1], losses[2])

    def test_equal_bits(self):
        """Tiers x order x update, in the forms of state."""
        peft = self.peft["llama_gqa_all"]
        for form in ({"dtype": "bf16"}, {"dtype": "bf16", "state": "compact"}, {"dtype": "fp32"}):
            some = {**form, "micro_batch_size": 1, "global_batch_size": 3, "train_iters": 4}
            for clip in (1.0, 0):
                reference = self.train(peft.flags(**some, **IN_CORE, clip_grad=clip))
                tiers = ({}, {"nvme": self.nvme, **ON_NVME}, {"nvme": self.nvme, "parameter_tier": "nvme"})
                updates = ("after", "in-next-forward") if clip else ("in-backward",)
                for tier, order, update in itertools.product(tiers, ("horizontal", "vertical"), updates):
                    run_ = self.train(peft.flags(**some, **tier, order=order, update=update, clip_grad=clip))
                    self.assertEqual(run_.result(), reference.result(), f"{form} {tier} {order} {update}")

    def test_with_b_zero_the_first_loss_is_the_bases(self):
        golden = self.peft["llama_gqa_all"].golden
        for dtype in ("fp32", "bf16"):
            base = self.train(golden.flags(dtype=dtype, train_iters=1))
            adapted = self.train(golden.flags(dtype=dtype, train_iters=2, lora_rank=4, lora_alpha=7,
                                              lora_targets=["all-linear"]))
            self.assertEqual(adapted.log[0]["loss"], base.log[0]["loss"])
            self.assertNotEqual(adapted.log[1]["loss"], adapted.log[0]["loss"])

    def test_the_base_is_read_as_often_for_16_micro_batches(self):
        """In vertical order; and nothing of it is written, not even by commits and checkpoints."""
        peft = self.peft["llama_gqa_all"]
        flags = {"nvme": f"{self.nvme}=64MiB", "parameter_tier": "nvme", "optimizer_tier": "device",
                 "micro_batch_size": 1, "order": "vertical", "activation_tier": "device", "dtype": "bf16"}
        read = []
        for micro_batches in (1, 16):
            plan, _ = self.plan(peft.flags(**flags, global_batch_size=micro_batches))
            read.append(plan["nvme_per_step"]["read_bytes"])
            # The adapters' own weights alone.
            self.assertLessEqual(plan["nvme_per_step"]["written_bytes"], 4 * peft.json["trainable"] + 64 * 4096)
        # What is still there from the forward's end to the backward's begin need not be read again: that may differ.
        self.assertLess(read[1], 1.5 * read[0])
        saved = self.train(peft.flags(**{**flags, "global_batch_size": 3, "train_iters": 2}))
        arrays = read_safetensors(saved.state_file())
        self.assertTrue(all("adapter" in name for name in arrays), arrays.keys())

    def test_gpt2_and_tied_models(self):
        """Conv1D's transposed weights, one product for q, k and v; the merged model has the adapted one's loss."""
        golden = Golden("gpt2", self.directory)
        trained = self.train(golden.flags(lora_rank=4, lr=1e-2, lora_targets=["c_attn", "c_proj", "c_fc"]))
        self.assertLess(trained.log[-1]["loss"], trained.log[0]["loss"])
        losses = []
        for model in ({"load": trained.path}, {"model": self.export(trained, "--merge")}):
            outcome = run("eval", *arguments({**model, "data": golden.data, "dtype": "fp32", "format": "json",
                                              "seq_length": golden.json["seq_len"]}))
            self.assertEqual(outcome.code, 0, str(outcome))
            losses.append(json.loads(outcome.out)["loss"])
        self.close(losses[1], losses[0], 1e-5)

    def test_rank_stabilized(self):
        """alpha / sqrt(r) is the factor of an adapter that says so."""
        peft = self.peft["llama_gqa_all"]
        scaled = self.fresh("adapter")
        shutil.copytree(peft.path / "adapter", scaled)
        config = json.loads((scaled / "adapter_config.json").read_text())
        (scaled / "adapter_config.json").write_text(json.dumps({**config, "use_rslora": True, "lora_alpha": 4.0}))
        self.assertEqual(self.train(peft.flags(train_iters=3, adapter=scaled)).curve(),
                         self.train(peft.flags(train_iters=3)).curve())

    def test_generate_verify_and_ranks(self):
        peft = self.peft["qwen2_qv"]
        texts = []
        for more in ({}, {"adapter": peft.path / "final"}):
            outcome = run("generate", *arguments({"model": peft.golden.model, "tokenizer": "bytes", "prompt": "abc",
                                                  "max_new_tokens": 12, "dtype": "fp32", "format": "jsonl", **more}))
            self.assertEqual(outcome.code, 0, str(outcome))
            texts.append(json.loads(outcome.out)["tokens"])
        self.assertNotEqual(*texts)
        outcome = run("verify", *arguments(peft.flags(nvme=self.nvme, **ON_NVME, train_iters=3)))
        self.assertEqual(outcome.code, 0, str(outcome))
        two = {"dtype": "bf16", "ranks": 2, "micro_batch_size": 1, "global_batch_size": 2}
        alone = self.train(peft.flags(**two, zero_stage=0))
        for stage in (1, 3):
            sharded = self.train(peft.flags(**two, zero_stage=stage))
            self.assertEqual(sharded.result(), alone.result())


class AdapterRuns(AdapterTest):
    """Runs that stop and go on."""

    STEPS = 10

    def flags(self, **changes):
        return self.peft["llama_gqa_all"].flags(**{"dtype": "bf16", "micro_batch_size": 1, "global_batch_size": 3,
                                                   "train_iters": self.STEPS, **changes})

    def test_goes_on_from_a_checkpoint(self):
        whole = self.train(self.flags())
        half = self.train(self.flags(train_iters=4))
        arrays = read_safetensors(half.state_file())
        self.assertTrue(all("adapter" in name for name in arrays), arrays.keys())
        self.assertTrue((half.state_file().parent / "base.json").exists())
        on = self.train({"load": half.path, "save": half.path, "train_iters": self.STEPS, "nvme": self.nvme, **ON_NVME})
        self.assertEqual(on.result(), whole.result())

    def test_goes_on_after_kills(self):
        for tiers in (ON_NVME, {"parameter_tier": "nvme", "optimizer_tier": "device"}):
            whole = self.train(self.flags())
            save, nvme = self.fresh(), self.fresh_directory("nvme")
            flags = {"nvme": nvme, "durability": "step", "save": save, **tiers}
            words = arguments(self.flags(**flags))
            for steps in (3, 6):
                process = begin("train", *words)
                wait_for_steps(save, steps, process)
                send_signal(process, signal.SIGKILL)
                finish(process)
                words = arguments({"load": save})
            outcome = run("train", *words)
            self.assertEqual(outcome.code, 0, str(outcome))
            log = [json.loads(line) for line in (save / "log.jsonl").read_text().splitlines()]
            self.assertEqual(log[-1]["step"], self.STEPS)
            self.assertEqual((log[-1]["loss"], log[-1]["grad_norm"]), whole.curve()[-1][1:])

    def test_another_base_is_refused(self):
        half = self.train(self.flags(train_iters=4))
        other = self.fresh("model")
        shutil.copytree(self.peft["llama_gqa_all"].golden.model, other)
        tensors = read_safetensors(other / "model.safetensors")
        dtype, shape, raw = tensors["model.norm.weight"]
        tensors["model.norm.weight"] = (dtype, shape, struct.pack("<f", 2.0) + raw[4:])
        (other / "model.safetensors").write_bytes(safetensors_bytes(tensors))
        for command in (["train"], ["verify"], ["eval", "--data", self.peft["llama_gqa_all"].golden.data],
                        ["export", "--merge", "--out", self.fresh()]):
            self.check_refusal(run(*command, *arguments({"load": half.path, "model": other})), 2, "checksum")

    def test_a_run_goes_on_with_the_adapter_it_has(self):
        half = self.train(self.flags(train_iters=2))
        adapter = self.peft["llama_gqa_all"].path / "adapter"
        for flags, fragment in (({"adapter": adapter}, "--adapter: found with --load"),
                                ({"lora_rank": 8}, "--lora-rank: found 8, but the run in"),
                                ({"lora_targets": ["q_proj"]}, "--lora-targets: found q_proj")):
            self.check_refusal(run("train", *arguments({"load": half.path, "train_iters": 3, **flags})), 2, fragment)
        golden = self.peft["llama_gqa_all"].golden
        whole = self.train(golden.flags(train_iters=1))
        self.check_refusal(run("train", *arguments({"load": whole.path, "lora_rank": 4})), 2, "trains all weights")
        self.check_refusal(run("export", "--load", whole.path, "--out", self.fresh(), "--merge"), 2, "--merge")


class Dropout(AdapterTest):
    def flags(self, **changes):
        flags = {"lora_rank": 4, "lora_dropout": 0.2, "lr": 1e-2, "dtype": "bf16", "micro_batch_size": 1,
                 "global_batch_size": 3, "train_iters": 4}
        return self.peft["llama_gqa_all"].golden.flags(**{**flags, **changes})

    def test_masks_are_the_same_wherever_they_are_made(self):
        plain = self.train(self.flags(**IN_CORE))
        for changes in ({**ON_NVME, "nvme": self.nvme, "order": "vertical"}, {"activation_tier": "recompute"},
                        {"device": "cpu-apart", "parameter_tier": "nvme", "optimizer_tier": "host", "nvme": self.nvme}):
            with self.subTest(changes=changes):
                self.assertEqual(self.train(self.flags(**changes)).result(), plain.result())
        self.assertNotEqual(self.train(self.flags(**IN_CORE, lora_dropout=None)).curve()[1:], plain.curve()[1:])
        self.assertNotEqual(self.train(self.flags(**IN_CORE, seed=3)).curve(), plain.curve())

    def test_ranks_and_a_run_that_goes_on(self):
        ranks = [self.train(self.flags(ranks=3, zero_stage=stage)).result() for stage in (0, 3)]
        self.assertEqual(*ranks)
        whole = self.train(self.flags(**IN_CORE))
        part = self.train(self.flags(**IN_CORE, train_iters=2))
        on = run("train", *arguments({"load": part.path, "save": part.path, "train_iters": 4}))
        self.assertEqual(on.code, 0, str(on))
        self.assertEqual(Run(part.path).result(), whole.result())

    def test_nothing_is_dropped_in_an_evaluation(self):
        trained = self.train(self.flags(**IN_CORE))
        exported = self.export(trained)
        config = json.loads((exported / "adapter_config.json").read_text())
        self.assertEqual(config["lora_dropout"], 0.2)
        golden = self.peft["llama_gqa_all"].golden
        flags = {"model": golden.model, "data": golden.data, "adapter": exported, "format": "json",
                 "seq_length": golden.json["seq_len"]}
        dropping = json.loads(run("eval", *arguments(flags)).out)["loss"]
        config["lora_dropout"] = 0.0
        (exported / "adapter_config.json").write_text(json.dumps(config))
        self.assertEqual(json.loads(run("eval", *arguments(flags)).out)["loss"], dropping)


class AdapterRefusals(AdapterTest):
    def refused(self, flags, fragment):
        self.check_refusal(run("train", *arguments({"save": self.fresh(), **flags})), 2, fragment)

    def changed(self, name="llama_gqa_all", config=None, tensors=None):
        """A copy of an adapter with other entries (None: left out)."""
        copy = self.fresh("adapter")
        shutil.copytree(self.peft[name].path / "adapter", copy)
        made = {**json.loads((copy / "adapter_config.json").read_text()), **(config or {})}
        (copy / "adapter_config.json").write_text(json.dumps(made))
        stored = {**read_safetensors(copy / "adapter_model.safetensors"), **(tensors or {})}
        (copy / "adapter_model.safetensors").write_bytes(
            safetensors_bytes({key: value for key, value in stored.items() if value is not None}))
        return copy

    def test_flags(self):
        golden = self.peft["llama_gqa_all"].golden
        for flags, fragment in (
                ({"lora_alpha": 8}, "--lora-alpha: found without --lora-rank"),
                ({"lora_targets": ["q_proj"]}, "--lora-targets: found without --lora-rank"),
                ({"lora_rank": 0}, "--lora-rank"),
                ({"lora_rank": 4, "lora_targets": ["q_proj", "c_attn"]}, "--lora-targets: found c_attn"),
                ({"lora_rank": 4, "lora_targets": ["lm_head"]}, "--lora-targets: found lm_head"),
                ({"lora_rank": 4, "lora_targets": ["proj"]}, "--lora-targets: found proj"),
                ({"lora_dropout": 0.1}, "--lora-dropout: found without --lora-rank"),
                ({"lora_dropout": 1, "lora_rank": 4}, "--lora-dropout: found"),
                ({"adapter": self.fresh()}, "which has no adapter_config.json"),
                ({"adapter": self.peft["llama_gqa_all"].path / "adapter", "lora_rank": 8},
                 "--lora-rank: found 8, but")):
            self.refused(golden.flags(**flags), fragment)

    def test_other_kinds(self):
        """Each by its key."""
        peft = self.peft["llama_gqa_all"]
        for key, value in {"use_dora": True, "modules_to_save": ["lm_head"], "bias": "all", "peft_type": "LOHA",
                           "rank_pattern": {"q_proj": 8}, "alpha_pattern": {"q_proj": 8}, "task_type": "SEQ_CLS",
                           "layers_to_transform": [0], "init_lora_weights": "pissa", "target_parameters": ["x"],
                           "layer_replication": [[0, 1]], "exclude_modules": ["q_proj"], "lora_bias": True, "r": 0,
                           "target_modules": []}.items():
            self.refused(peft.flags(adapter=self.changed(config={key: value})), f"adapter_config.json: {key}")
        self.refused(peft.flags(adapter=self.changed(config={"lora_dropout": 1.0})), "lora_dropout")

    def test_of_another_base_rank_targets_or_shape(self):
        peft = self.peft["llama_gqa_all"]
        gpt2 = Golden("gpt2", self.directory)
        self.refused(gpt2.flags(adapter=peft.path / "adapter"), "no adapter of this model has")
        name = "base_model.model.model.layers.1.mlp.down_proj.lora_B.weight"
        nan = ("F32", [64, 4], struct.pack("<f", float("nan")) * 256)
        for adapter, fragment in (
                (self.changed(config={"r": 8}), "lora"),
                (self.changed(config={"target_modules": ["q_proj"]}), "no adapter of this model has"),
                (self.changed(tensors={name: None}), f"{name} is missing"),
                (self.changed(tensors={name: nan}), "nan"),
                (self.changed(tensors={"base_model.model.lm_head.weight": nan}), "no adapter of this model has")):
            self.refused(peft.flags(adapter=adapter), fragment)
        short = self.changed()
        (short / "adapter_model.safetensors").write_bytes((short / "adapter_model.safetensors").read_bytes()[:-9])
        self.refused(peft.flags(adapter=short), "adapter_model.safetensors")
        (short / "adapter_model.safetensors").unlink()
        self.refused(peft.flags(adapter=short), "has no adapter_model.safetensors")
        (short / "adapter_config.json").write_text('{"r": 4')
        self.refused(peft.flags(adapter=short), "adapter_config.json")


if __name__ == "__main__":
    unittest.main()
