"""--dtype fp16 on the emulated GPU: golden curves, losses whose scale falls, grows and is kept, the same bits wherever
the model rests, kills, exports, and what is refused.
"""
import itertools
import json
import math
import os
import signal
import struct
import unittest

import harness
from equivalence_test import BF16_MIXTURE
from gpu_test import GPU, TIERS
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
    send_signal,
    wait_for_steps,
)

harness.PROGRAM = os.environ.get("SPILLWAY_SIMT", harness.PROGRAM)
# As for bf16 (equivalence_test.py), with fp16's epsilon. Gradients far below the largest lose bits at the lower end of
# its range, which the scale keeps rare.
EPSILON = 2.0 ** -10
FP16 = (EPSILON / 2, EPSILON, 2 * EPSILON, 6 * EPSILON)
FP16_MIXTURE = tuple(allowed / 8 for allowed in BF16_MIXTURE)
LARGE = 2.0 ** 24  # a scale that gradients overflow with, and still at a 32nd of it


class Fp16Test(CommandTest):
    def golden(self, name="llama_gqa"):
        return Golden(name, self.directory)

    def flags(self, golden, steps, **changes):
        return golden.flags(**{**GPU, "micro_batch_size": golden.micro_batch, "train_iters": steps, "dtype": "fp16",
                               **changes})

    def check_curve(self, golden, run_, allow):
        g = golden.json
        for record, loss, norm in zip(run_.log, g["losses"], g["grad_norms"]):
            first = record["step"] == 1
            self.assertLessEqual(abs(record["loss"] - loss) / loss, allow[0 if first else 1], golden.name)
            self.assertLessEqual(abs(record["grad_norm"] - norm) / norm, allow[2 if first else 3], golden.name)


class Fp16Curves(Fp16Test):
    def test_golden_curves(self):
        """Dense models, a mixture with its balance loss, and a Gemma, whose embeddings have a factor."""
        for index, name in enumerate(("gpt2", "llama_gqa", "qwen3", "gemma2", "olmoe")):
            with self.subTest(name):
                golden = self.golden(name)
                placed = [{}, {"parameter_tier": "host", "optimizer_tier": "host", "update_on": "host"},
                          {"optimizer_tier": "nvme", "nvme": self.fresh_directory("nvme"), "update_on": "device"}]
                run_ = self.train(self.flags(golden, 4, **placed[index % 3]))
                self.check_curve(golden, run_, FP16_MIXTURE if golden.is_mixture else FP16)
                self.assertEqual([record["loss_scale"] for record in run_.log], [65536.0] * 4)

    def test_14_bytes_a_parameter(self):
        planned, _ = self.plan(self.flags(self.golden(), 1))
        rest = planned["tiers"]["device"]["at_rest"]
        self.assertEqual(rest["optimizer"], 6 * rest["parameters"], "an fp32 master and two moments beside a half")


class Fp16Scales(Fp16Test):
    def test_a_large_scale_comes_down_and_trains(self):
        golden = self.golden("qwen2")
        for policy, hysteresis in (("deepspeed", 1), ("pytorch", None)):
            with self.subTest(policy):
                run_ = self.train(self.flags(golden, 24, loss_scale_policy=policy, initial_loss_scale=LARGE,
                                             hysteresis=hysteresis, global_batch_size=2))
                applied = [isinstance(record["grad_norm"], float) for record in run_.log]
                first = applied.index(True)
                self.assertGreaterEqual(first, 5)
                scales = [LARGE / 2 ** applied[:step].count(False) for step in range(24)]
                self.assertEqual([record["loss_scale"] for record in run_.log], scales)
                self.assertGreater(applied.count(True), 12)
                self.assertLess(run_.log[-1]["loss"], run_.log[first]["loss"])
                self.assertIn(f"at the loss scale {int(LARGE)}: nothing was applied", run_.outcome.out)

    def test_skipped_steps_leave_no_trace(self):
        """Steps that overflow leave weights and moments as they were, and AdamW does not count them: with the same
        rows, a run with some of them equals one without."""
        golden = self.golden()
        rows = self.fresh("rows").with_suffix(".jsonl")
        rows.write_text(golden.data.read_text().splitlines()[0] + "\n")
        flags = self.flags(golden, 3, data=rows, global_batch_size=1, initial_loss_scale=2.0 ** 6)
        plain = self.train(flags)
        late = self.train({**flags, "initial_loss_scale": LARGE, "hysteresis": 1, "train_iters": 14})
        skipped = [record["step"] for record in late.log if not isinstance(record["grad_norm"], float)]
        self.assertEqual(skipped, list(range(1, len(skipped) + 1)))
        self.assertGreater(len(skipped), 3)
        for before, after in zip(plain.log, late.log[len(skipped):]):
            self.assertLessEqual(abs(before["loss"] - after["loss"]) / before["loss"], FP16[1])
            self.assertLessEqual(abs(before["grad_norm"] - after["grad_norm"]) / before["grad_norm"], FP16[3])

    def test_the_scale_grows(self):
        run_ = self.train(self.flags(self.golden(), 7, initial_loss_scale=64, loss_scale_window=2, global_batch_size=1))
        self.assertEqual([record["loss_scale"] for record in run_.log], [64, 64, 64, 128, 128, 256, 256])

    def test_a_fixed_scale_stays(self):
        golden = self.golden()
        run_ = self.train(self.flags(golden, 3, loss_scale=1024))
        self.assertEqual({record["loss_scale"] for record in run_.log}, {1024.0})
        self.check_curve(golden, run_, FP16)
        skips = self.train(self.flags(golden, 3, loss_scale=LARGE))
        self.assertEqual(len(skips.log), 3)
        self.assertFalse(any(isinstance(record["grad_norm"], float) for record in skips.log))

    def test_the_least_scale_ends_training(self):
        """With the numbers, and the state of the last good step."""
        golden = self.golden()
        flags = self.flags(golden, 12, initial_loss_scale=LARGE, min_loss_scale=LARGE / 4, hysteresis=1,
                           global_batch_size=1)
        for update, durability in itertools.product(("after", "in-next-forward"), ("checkpoint", "step")):
            with self.subTest(update, durability=durability):
                flags["save"] = self.fresh()
                outcome = run("train", *arguments({**flags, "update": update, "durability": durability,
                                                   "optimizer_tier": "nvme", "nvme": self.fresh_directory("nvme")}))
                self.check_refusal(outcome, 6, f"at the loss scale {int(LARGE / 4)}, which cannot be lower")
                self.assertIn("step 3:", outcome.err)
                self.assertEqual(Run(flags["save"]).steps(), [2])
        # A loss that is not a number is so at any scale.
        model = self.fresh_directory("broken")
        (model / "config.json").write_bytes((golden.model / "config.json").read_bytes())
        tensors = read_safetensors(golden.model / "model.safetensors")
        name = next(name for name in tensors if name.endswith("norm.weight"))
        kind, shape, content = tensors[name]
        tensors[name] = (kind, shape, struct.pack("<f", 3e38) * (len(content) // 4))
        (model / "model.safetensors").write_bytes(harness.safetensors_bytes(tensors))
        fixed = run("train", *arguments(self.flags(golden, 3, model=model, loss_scale=8)))
        self.check_refusal(fixed, 6, "at the loss scale 8, which is fixed")


class Fp16Placement(Fp16Test):
    def test_no_placement_changes_a_bit(self):
        """Steps that overflow among them."""
        golden = self.golden("qwen2")
        common = {"global_batch_size": 2, "initial_loss_scale": LARGE, "hysteresis": 1}
        steps = 10
        reference = self.train(self.flags(golden, steps, order="horizontal", update="after", activation_tier="device",
                                          parameter_tier="device", optimizer_tier="device", **common))
        norms = [record["grad_norm"] for record in reference.log]
        self.assertIsInstance(norms[-1], float)
        self.assertNotIsInstance(norms[0], float)
        cases = list(itertools.product(TIERS, TIERS, ("host", "device"), ("horizontal", "vertical"),
                                       ("after", "in-next-forward")))
        for index, (parameters, optimizer, update_on, order, update) in enumerate(cases[1::11]):
            with self.subTest(parameters=parameters, optimizer=optimizer, update_on=update_on, order=order,
                              update=update, seed=index):
                run_ = self.train(self.flags(golden, steps, parameter_tier=parameters, optimizer_tier=optimizer,
                                             update_on=update_on, order=order, update=update,
                                             activation_tier=("auto", "recompute", "host")[index % 3],
                                             nvme=self.fresh_directory("nvme"), **common),
                                  environment={"SPILLWAY_SIMT_SEED": str(index)})
                self.assertEqual(run_.result(), reference.result())
                for record in run_.log:
                    for tier in ("device", "host"):
                        self.assertEqual(record[f"{tier}_peak_bytes"], run_.plan["tiers"][tier]["peak_bytes"], tier)

    def test_ranks_agree_on_what_overflows(self):
        golden = self.golden()
        flags = self.flags(golden, 10, device="cuda:0,0", ranks=2, initial_loss_scale=LARGE, hysteresis=1,
                           global_batch_size=2)
        whole = self.train({**flags, "zero_stage": 0})
        self.assertIsInstance(whole.log[-1]["grad_norm"], float)
        sharded = self.train({**flags, "zero_stage": 3})
        self.assertEqual(sharded.result(), whole.result())

    def test_verify(self):
        verified = run("verify", *arguments({**self.flags(self.golden(), 3, initial_loss_scale=LARGE, hysteresis=1),
                                             "steps": 3}))
        self.assertEqual(verified.code, 0, str(verified))


class Fp16Kept(Fp16Test):
    WINDOW = {"initial_loss_scale": LARGE, "loss_scale_window": 3, "hysteresis": 2, "global_batch_size": 1}

    def test_a_stopped_run_equals_one_that_was_not(self):
        golden = self.golden()
        whole = self.train(self.flags(golden, 18, **self.WINDOW))
        scales = [record["loss_scale"] for record in whole.log]
        self.assertGreater(max(later / former for former, later in itertools.pairwise(scales)), 1, "it grows")
        save = self.fresh()
        self.train(self.flags(golden, 3, save=save, **self.WINDOW))
        for steps in (4, 11, 18):
            outcome = run("train", *arguments({"load": save, "train_iters": steps}))
            self.assertEqual(outcome.code, 0, str(outcome))
        self.assertEqual(Run(save).result(), whole.result())
        self.assertEqual([record["loss_scale"] for record in Run(save).log], scales)
        # From an older checkpoint, into another directory.
        other = self.fresh()
        (older := self.fresh()).mkdir()
        for name in ("run.json", "begun-with", "log.jsonl"):
            os.symlink(save / name, older / name)
        (older / "checkpoints").mkdir()
        os.symlink(save / "checkpoints" / "4", older / "checkpoints" / "4")
        outcome = run("train", *arguments({"load": older, "save": other, "train_iters": 18}))
        self.assertEqual(outcome.code, 0, str(outcome))
        self.assertEqual(Run(other).state(), whole.state())

    def test_killed_at_any_instant(self):
        golden = self.golden("gpt2")
        common = {"durability": "step", "parameter_tier": "host", "optimizer_tier": "nvme", **self.WINDOW}
        for update, update_on in (("after", "device"), ("in-next-forward", "host")):
            with self.subTest(update):
                plan = {**common, "update": update, "update_on": update_on}
                whole = self.train(self.flags(golden, 14, nvme=self.fresh_directory("nvme"), **plan))
                save = self.fresh()
                flags = self.flags(golden, 14, save=save, nvme=self.fresh_directory("nvme"), **plan)
                for steps in (4, 9):
                    process = begin("train", *arguments(flags if steps == 4 else {"load": save}))
                    wait_for_steps(save, steps, process)
                    send_signal(process, signal.SIGKILL)
                    self.assertEqual(finish(process).code, -signal.SIGKILL)
                # Under another plan the durable step becomes a checkpoint first, with its scale.
                moved = {"optimizer_tier": "device"} if update == "after" else {}
                outcome = run("train", *arguments({"load": save, **moved}))
                self.assertEqual(outcome.code, 0, str(outcome))
                self.assertEqual("becomes a checkpoint first" in outcome.out, bool(moved))
                self.assertEqual(Run(save).result(), whole.result())

    def test_another_type_goes_on(self):
        golden = self.golden()
        save = self.fresh()
        self.train(self.flags(golden, 2, save=save))
        for dtype in ("bf16", "fp16", "fp32"):
            steps = Run(save).steps()[-1] + 1
            outcome = run("train", *arguments({"load": save, "dtype": dtype, "train_iters": steps}))
            self.assertEqual(outcome.code, 0, str(outcome))
            self.assertIn(f"--dtype {dtype} instead of", outcome.out)
            self.assertEqual((save / "loss-scale.jsonl").exists(), dtype == "fp16")
        cpu = run("train", *arguments({"load": save, "device": "cpu", "train_iters": 6,
                                       "profile": DATA / "machine.json"}))
        self.assertEqual(cpu.code, 0, str(cpu))
        self.check_curve(golden, Run(save), tuple(8 * allowed for allowed in FP16))

    def test_a_damaged_scale_is_named(self):
        save = self.fresh()
        self.train(self.flags(self.golden(), 2, save=save))
        file = save / "checkpoints" / "2" / "loss-scale.jsonl"
        line = json.loads(file.read_text())
        self.assertEqual(line, {"step": 2, "scale": 65536.0, "hysteresis": 2, "good_steps": 2, "skipped_steps": 0})
        file.write_text(json.dumps({**line, "scale": 3}) + "\n")
        self.check_refusal(run("train", *arguments({"load": save, "train_iters": 3})), 4, "scale is no power of two")
        file.unlink()
        self.check_refusal(run("train", *arguments({"load": save, "train_iters": 3})), 4, "is missing")
        other = run("train", *arguments({"load": save, "dtype": "bf16", "train_iters": 3}))
        self.assertEqual(other.code, 0, str(other))


class Fp16Others(Fp16Test):
    def test_export_evaluate_and_generate(self):
        golden = self.golden()
        save = self.fresh()
        self.train(self.flags(golden, 3, save=save))
        weights = {}
        for dtype, kind in ((None, "F16"), ("fp32", "F32"), ("bf16", "BF16")):
            out = self.fresh()
            exported = run("export", *arguments({"load": save, "out": out, "dtype": dtype}))
            self.assertEqual(exported.code, 0, str(exported))
            tensors = read_safetensors(out / "model.safetensors")
            self.assertEqual({kind for kind, _, _ in tensors.values()}, {kind})
            config = json.loads((out / "config.json").read_text())
            self.assertIn({"F16": "float16", "F32": "float32", "BF16": "bfloat16"}[kind],
                          (config.get("dtype"), config.get("torch_dtype")))
            weights[kind] = (out, tensors)
        for name, (_, _, masters) in weights["F32"][1].items():
            count = len(masters) // 4
            rounded = struct.pack(f"<{count}e", *struct.unpack(f"<{count}f", masters))
            self.assertEqual(rounded, weights["F16"][1][name][2], name)
        losses = []
        common = {"data": golden.data, "seq_length": golden.json["seq_len"], "format": "json", "device": "cuda",
                  "device_memory": "64MiB"}
        for model in ({"load": save}, {"model": weights["F16"][0], "dtype": "fp16"},
                      {"load": save, "dtype": "fp32"}):
            outcome = run("eval", *arguments({**common, **model}))
            self.assertEqual(outcome.code, 0, str(outcome))
            losses.append(json.loads(outcome.out)["loss"])
        self.assertEqual(losses[0], losses[1])
        self.assertLessEqual(abs(losses[0] - losses[2]) / losses[2], FP16[1])
        # A run that goes on from the export has its masters from it, and a CPU evaluates it in fp32 alone.
        again = self.train(self.flags(golden, 1, model=weights["F16"][0]))
        self.assertTrue(math.isfinite(again.log[0]["loss"]))
        self.check_refusal(run("eval", *arguments({**common, "load": save, "device": "cpu"})), 2, "fp16 on the CPU")
        text = run("generate", *arguments({"model": weights["F16"][0], "dtype": "fp16", "tokenizer": "bytes",
                                           "prompt": "ab", "max_new_tokens": 3, "device": "cuda",
                                           "device_memory": "64MiB"}))
        self.assertEqual(text.code, 0, str(text))

    def test_adapters(self):
        golden = self.golden()
        flags = {"lora_rank": 4, "lora_alpha": 8}
        save = self.fresh()
        half = self.train(self.flags(golden, 4, save=save, **flags))
        whole = self.train(self.flags(golden, 4, dtype="fp32", **flags))
        for record, like in zip(half.log, whole.log):
            self.assertLessEqual(abs(record["loss"] - like["loss"]) / like["loss"], FP16[1])
        out = self.fresh()
        exported = run("export", *arguments({"load": save, "out": out}))
        self.assertEqual(exported.code, 0, str(exported))
        kinds = {kind for kind, _, _ in read_safetensors(out / "adapter_model.safetensors").values()}
        self.assertEqual(kinds, {"F32"})
        self.assertEqual(run("export", *arguments({"load": save, "out": self.fresh(), "merge": True})).code, 0)

    def test_deepspeeds_file(self):
        golden = self.golden()
        file = self.fresh("ds").with_suffix(".json")
        file.write_text(json.dumps({"fp16": {"enabled": True, "loss_scale": 0, "initial_scale_power": 6,
                                             "loss_scale_window": 2}}))
        flags = self.flags(golden, 4, dtype=None, deepspeed_config=file)
        self.assertEqual([record["loss_scale"] for record in self.train(flags).log], [64, 64, 64, 128])

    def test_rates_of_deepspeed_wait_for_steps_that_overflow(self):
        """Ours are a function of the step alone."""
        common = {"initial_loss_scale": LARGE, "hysteresis": 1, "lr_warmup_iters": 8, "global_batch_size": 1}
        golden = self.golden()
        steps = 16
        theirs = self.train(self.flags(golden, steps, lr_rule="deepspeed", **common)).log
        skipped = sum(not isinstance(record["grad_norm"], float) for record in theirs)
        self.assertGreater(steps - skipped, 4)
        free = {**common, "initial_loss_scale": 64, "lr_rule": "deepspeed"}
        without = self.train(self.flags(golden, steps - skipped, **free)).log
        self.assertEqual([record["lr"] for record in theirs],
                         [without[0]["lr"]] * skipped + [record["lr"] for record in without])
        ours = self.train(self.flags(golden, 10, **common)).log
        plain = self.train(self.flags(golden, 10, **{**common, "initial_loss_scale": 64})).log
        self.assertEqual([record["lr"] for record in ours], [record["lr"] for record in plain])

    def test_refusals(self):
        golden = self.golden()
        flags = self.flags(golden, 1)
        no_gpu = {"SPILLWAY_SIMT_NO_DEVICE": "none"}
        cpu = {"device_memory": None, "host_memory": None, "profile": DATA / "machine.json"}
        for fragment, changes, environment in (
                ("fp16 on the CPU", {"device": "cpu", **cpu}, {}),
                ("fp16 on the CPU", {"device": "cpu-apart", **cpu}, {}),
                ("fp16 on the CPU", {"device": None, **cpu}, no_gpu),
                ("no", {}, no_gpu),
                ("in-backward", {"update": "in-backward"}, {}),
                ("compact", {"state": "compact"}, {}),
                ("power of two", {"loss_scale": 3}, {}),
                ("--dtype fp16", {"dtype": "bf16", "hysteresis": 3}, {})):
            with self.subTest(fragment, **{"changes": str(changes)}):
                outcome = run("train", *arguments({**flags, **changes}), environment=environment)
                self.check_refusal(outcome, 2, fragment)
        planned = run("plan", *arguments({**flags, "device": None, **cpu}), environment=no_gpu)
        self.check_refusal(planned, 2, "fp16 on the CPU")
        h200 = run("plan", *arguments({"model": golden.model, "dtype": "fp16", "profile": "h200-server"}))
        self.assertEqual(h200.code, 0, str(h200))


if __name__ == "__main__":
    unittest.main()
