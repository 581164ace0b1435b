"""--device cuda, the whole command, on the emulated GPU (tests/simt/): spillway_simt is the same program linked with
another device. Golden curves, equal bits for any placement of the model, kills, and messages if there is no GPU.
"""
import itertools
import json
import os
import random
import signal
import time
import unittest

import harness
from equivalence_test import BF16, FP32, bf16
from harness import (
    DATA,
    PACKED,
    CommandTest,
    Golden,
    Run,
    arguments,
    begin,
    finish,
    golden_names,
    packed_flags,
    run,
    send_signal,
    wait_for_steps,
)

harness.PROGRAM = os.environ.get("SPILLWAY_SIMT", harness.PROGRAM)
TIERS = ("device", "host", "nvme")
GPU = {"device": "cuda", "profile": DATA / "gpu_machine.json", "device_memory": "64MiB", "host_memory": "256MiB"}


class EmulatedGpu(CommandTest):
    def golden(self, name="llama_gqa"):
        return Golden(name, self.directory)

    def flags(self, golden, steps=3, **changes):
        return golden.flags(**{**GPU, "micro_batch_size": golden.micro_batch, "train_iters": steps, **changes})

    def check_curve(self, golden, run_, allow):
        g = golden.json
        for record, loss, norm in zip(run_.log, g["losses"], g["grad_norms"]):
            first = record["step"] == 1
            self.assertLessEqual(abs(record["loss"] - loss) / loss, allow[0 if first else 1], golden.name)
            self.assertLessEqual(abs(record["grad_norm"] - norm) / norm, allow[2 if first else 3], golden.name)

    def curves(self, dtype, allow, steps):
        for index, name in enumerate(golden_names()):
            with self.subTest(name):
                golden = self.golden(name)
                placed = [{}, {"parameter_tier": "host", "optimizer_tier": "host", "update_on": "host"},
                          {"optimizer_tier": "nvme", "nvme": self.fresh_directory("nvme"), "activation_tier": "host",
                           "update_on": "device"}][index % 3]
                run_ = self.train(self.flags(golden, steps, dtype=dtype, **placed))
                self.assertEqual(len(run_.log), min(steps, golden.json["steps"]))
                self.check_curve(golden, run_, allow or bf16(golden))

    def test_golden_curves(self):
        self.curves("fp32", FP32, 4)

    def test_golden_curves_in_bf16(self):
        self.curves("bf16", None, 4)

    def test_slow_whole_golden_curves(self):
        self.curves("fp32", FP32, 12)
        self.curves("bf16", None, 12)

    def test_packed_documents(self):
        golden = json.loads((PACKED / "golden.json").read_text())
        for changes in ({}, {"micro_batch_size": 1, "optimizer_tier": "host", "update_on": "host"}):
            run_ = self.train(packed_flags(**GPU, epochs=4, **changes))
            for record, loss, norm in zip(run_.log, golden["losses"], golden["grad_norms"]):
                self.assertLessEqual(abs(record["loss"] - loss) / loss, FP32[1])
                self.assertLessEqual(abs(record["grad_norm"] - norm) / norm, FP32[3])

    def check_peaks(self, run_):
        for record in run_.log:
            for tier in ("device", "host"):
                self.assertEqual(record[f"{tier}_peak_bytes"], run_.plan["tiers"][tier]["peak_bytes"], tier)

    def test_no_placement_changes_a_bit(self):
        """Twelve combinations of tiers, order, times and places of updates, each under another seed of the device's
        lateness: the bits are those in core, and all peaks are as planned.
        """
        golden = self.golden("qwen2")
        common = {"dtype": "bf16", "global_batch_size": 3}
        reference = self.train(self.flags(golden, order="horizontal", update="after", activation_tier="device",
                                          parameter_tier="device", optimizer_tier="device", **common))
        cases = list(itertools.product(TIERS, TIERS, ("host", "device"), ("horizontal", "vertical"),
                                       ("after", "in-next-forward", "in-backward")))
        for index, (parameters, optimizer, update_on, order, update) in enumerate(cases[3::9]):
            activations = ("auto", "recompute", "host", "nvme", "device")[index % 5]
            with self.subTest(parameters=parameters, optimizer=optimizer, update_on=update_on, order=order,
                              update=update, activations=activations, seed=index):
                run_ = self.train(self.flags(golden, parameter_tier=parameters, optimizer_tier=optimizer,
                                             update_on=update_on, order=order, update=update,
                                             activation_tier=activations, nvme=self.fresh_directory("nvme"), **common),
                                  environment={"SPILLWAY_SIMT_SEED": str(index)})
                self.assertEqual(run_.result(), reference.result())
                self.check_peaks(run_)

    def killed(self, kills):
        """Runs with all steps durable, killed at random instants until they have finished."""
        golden, chance, killed = self.golden("gpt2"), random.Random(11), 0
        plans = [{"parameter_tier": "device", "optimizer_tier": "host", "update": "in-next-forward"},
                 {"parameter_tier": "host", "optimizer_tier": "nvme", "update": "after", "update_on": "device"},
                 {"parameter_tier": "nvme", "optimizer_tier": "nvme", "update": "in-next-forward", "update_on": "host"}]
        common = {"dtype": "bf16", "durability": "step", "global_batch_size": 2}
        whole = self.train(self.flags(golden, 8, **{**common, "durability": "checkpoint"}))
        for plan in itertools.cycle(plans):
            if killed >= kills:
                return
            flags = self.flags(golden, 8, save=self.fresh(), nvme=self.fresh_directory("nvme"), **common, **plan)
            for start in itertools.count():
                words = {"load": flags["save"]} if (flags["save"] / "run.json").exists() else flags
                process = begin("train", *arguments(words))
                if start < 8 and chance.random() < 0.9:
                    wait_for_steps(flags["save"], chance.randrange(1, 8), process)
                    time.sleep(chance.random() * 0.3)
                    send_signal(process, signal.SIGKILL)
                outcome = finish(process)
                killed += outcome.code == -signal.SIGKILL
                if outcome.code == 0:
                    break
                self.assertEqual(outcome.code, -signal.SIGKILL, str(outcome))
            self.assertEqual(Run(flags["save"]).state(), whole.state())
            self.assertEqual(Run(flags["save"]).curve(), whole.curve())

    def test_killed_at_random_instants(self):
        self.killed(20)

    def test_slow_killed_at_200_instants(self):
        self.killed(200)

    def test_a_run_goes_on_on_the_cpu_and_comes_back(self):
        golden = self.golden()
        save = self.fresh()
        self.train(self.flags(golden, 2, save=save, dtype="bf16", host_memory="128MiB"))
        cpu = run("train", *arguments({"load": save, "device": "cpu", "train_iters": 4,
                                       "profile": DATA / "machine.json"}))
        self.assertEqual(cpu.code, 0, str(cpu))
        self.assertIn("not to the bit", cpu.out + cpu.err)
        back = run("train", *arguments({"load": save, **GPU, "train_iters": 6}))
        self.assertEqual(back.code, 0, str(back))
        self.check_curve(golden, Run(save), BF16)

    def test_a_run_goes_on_where_there_is_no_gpu_any_more(self):
        """Without --device on the command line; its options for a host are planned anew."""
        golden = self.golden()
        save = self.fresh()
        self.train(self.flags(golden, 2, save=save, dtype="bf16", optimizer_tier="host", parameter_tier="host",
                              update_on="host", activation_tier="host"))
        outcome = run("train", *arguments({"load": save, "train_iters": 4, "profile": DATA / "machine.json"}),
                      environment={"SPILLWAY_SIMT_NO_DEVICE": "this machine has no NVIDIA driver"})
        self.assertEqual(outcome.code, 0, str(outcome))
        self.assertIn("goes on on the CPU: this machine has no NVIDIA driver", outcome.err)
        self.check_curve(golden, Run(save), BF16)

    def test_another_library_is_said(self):
        """run.json has everything that a run's products depend on; if the library changes, the run goes on with a
        note."""
        golden = self.golden()
        save = self.fresh()
        self.train(self.flags(golden, 2, save=save, dtype="bf16"))
        settings = json.loads((save / "run.json").read_text())
        self.assertEqual(settings["spillway"], {"device": "host"})
        settings["spillway"]["device"] = "another library"
        (save / "run.json").write_text(json.dumps(settings))
        outcome = run("train", *arguments({"load": save, "train_iters": 4}))
        self.assertEqual(outcome.code, 0, str(outcome))
        self.assertIn("those of another library, and are chosen anew for host", outcome.out)
        self.check_curve(golden, Run(save), BF16)

    def test_verify_evaluate_and_generate(self):
        golden = self.golden()
        flags = self.flags(golden, 3, dtype="bf16", optimizer_tier="host")
        verified = run("verify", *arguments({**flags, "steps": 2}))
        self.assertEqual(verified.code, 0, str(verified))
        model = {key: flags[key] for key in ("model", "data", "seq_length", "micro_batch_size", "dtype")}
        losses = []
        too_little = run("eval", *arguments({**model, "device": "cuda", "device_memory": "1MiB",
                                             "host_memory": "8MiB"}))
        self.check_refusal(too_little, 3, "device tier needs")
        least = too_little.err.split("needs ")[1].split()[0]  # all weights on the host
        for device in ({"device": "cuda", "device_memory": "64MiB"}, {"device": "cuda", "device_memory": least},
                       {"device": "cpu"}):
            outcome = run("eval", *arguments({**model, **device, "format": "json"}))
            self.assertEqual(outcome.code, 0, str(outcome))
            losses.append(json.loads(outcome.out)["loss"])
        self.assertEqual(losses[0], losses[1], "wherever weights rest")
        self.assertLessEqual(abs(losses[0] - losses[2]) / losses[2], BF16[1])

    # --- messages if there is no GPU --------------------------------------------------------------------------------

    def test_refusals(self):
        golden = self.golden()
        flags = self.flags(golden, 1)
        cases = [
            (2, "no NVIDIA driver", {}, {"SPILLWAY_SIMT_NO_DEVICE": "this machine has no NVIDIA driver"}),
            (2, "cuda:3", {"device": "cuda:3"}, {}),
            (3, "device", {"device_memory": "512MiB"}, {"SPILLWAY_SIMT_MEMORY": str(1 << 20)}),
            (2, "host-memory", {"host_memory": 0}, {}),
            (2, "profile", {"profile": DATA / "machine.json"}, {}),
            (3, "does not fit", {"device_memory": "100KiB"}, {}),
        ]
        for code, fragment, changes, environment in cases:
            with self.subTest(fragment):
                outcome = run("train", *arguments({**flags, **changes}), environment=environment)
                self.check_refusal(outcome, code, fragment)

    def test_auto_takes_the_gpu_and_says_which(self):
        golden = self.golden()
        flags = self.flags(golden, 1, device=None, save=self.fresh())
        outcome = run("train", *arguments(flags))
        self.assertEqual(outcome.code, 0, str(outcome))
        self.assertIn("device cuda:0: emulated GPU", outcome.err)
        none = run("train", *arguments({**self.flags(golden, 1), "device": None, "host_memory": None,
                                        "profile": DATA / "machine.json"}),
                   environment={"SPILLWAY_SIMT_NO_DEVICE": "none"})
        self.assertEqual(none.code, 0, str(none))
        self.assertNotIn("cuda", none.err)


if __name__ == "__main__":
    unittest.main()
