"""--device cpu-apart: a device with memory apart from the host's. State, gradients and activations rest on three tiers,
updates run on either side, and the bits are those of the CPU in core."""
import itertools
import json
import unittest

from equivalence_test import FP32, GoldenCurves
from harness import CommandTest, Golden, Run, arguments, run

STEPS = 5
TIERS = ("device", "host", "nvme")


class ApartGolden(CommandTest):
    wanted, check, each = GoldenCurves.wanted, GoldenCurves.check, GoldenCurves.each

    def test_golden_curves(self):
        for update_on, tier in (("host", "host"), ("device", "nvme")):
            self.each(lambda golden, update_on=update_on, tier=tier: self.train(golden.flags(
                device="cpu-apart", micro_batch_size=golden.micro_batch, device_memory="64MiB", host_memory="256MiB",
                nvme=self.fresh_directory("nvme"), update_on=update_on, parameter_tier=tier, optimizer_tier=tier,
                activation_tier="host")), FP32)


class Apart(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.golden = Golden("qwen2", cls.directory)
        cls.nvme = cls.fresh_directory("nvme")

    def flags(self, **changes):
        return self.golden.flags(**{"dtype": "bf16", "micro_batch_size": 1, "global_batch_size": 3,
                                    "train_iters": STEPS, **changes})

    def apart(self, **changes):
        return self.flags(**{"device": "cpu-apart", "device_memory": "64MiB", "host_memory": "256MiB",
                             "nvme": self.nvme, **changes})

    def check_peaks(self, run_):
        for record in run_.log:
            for tier in ("device", "host"):
                self.assertEqual(record[f"{tier}_peak_bytes"], run_.plan["tiers"][tier]["peak_bytes"], tier)

    def test_no_placement_changes_a_bit(self):
        """All tiers of parameters and optimizer, both places of updates, orders and times of updates: each pair of
        values occurs somewhere.
        """
        reference = self.train(self.flags(order="horizontal", update="after", activation_tier="device"))
        clipped = [record["grad_norm"] > self.golden.json["clip_norm"] for record in reference.log]
        self.assertTrue(any(clipped))
        cases = itertools.product(TIERS, TIERS, ("host", "device"), ("horizontal", "vertical"),
                                  ("after", "in-next-forward"))
        for index, (parameters, optimizer, update_on, order, update) in enumerate(cases):
            if (index * 7) % 3:  # a third of them
                continue
            activations = ("auto", "recompute", "host", "nvme", "device")[index % 5]
            with self.subTest(parameters=parameters, optimizer=optimizer, update_on=update_on, order=order,
                              update=update, activations=activations):
                run_ = self.train(self.apart(parameter_tier=parameters, optimizer_tier=optimizer, update_on=update_on,
                                             order=order, update=update, activation_tier=activations))
                self.assertEqual(run_.result(), reference.result())
                self.check_peaks(run_)
                lanes = {lane["name"] for lane in run_.plan["lanes"]}
                if update_on == "host" or parameters != "device" or optimizer != "device":
                    self.assertIn("upload", lanes)
                self.assertEqual("update" in lanes, update_on == "host")
                self.assertEqual("nvme_read" in lanes, "nvme" in (parameters, optimizer, activations)
                                 or run_.plan["nvme_per_step"]["read_bytes"] > 0)

    def test_without_clipping_updates_run_in_the_backward(self):
        for state in ("exact", "compact"):
            reference = self.train(self.flags(clip_grad=0, state=state))
            for update_on in ("host", "device"):
                run_ = self.train(self.apart(clip_grad=0, state=state, update="in-backward", update_on=update_on,
                                             parameter_tier="host", optimizer_tier="nvme"))
                self.assertEqual(run_.choices()["update"], "in-backward")
                self.assertEqual(run_.result(), reference.result())

    def test_goes_on_and_is_verified(self):
        flags = self.apart(optimizer_tier="host", save=self.fresh(), save_interval=2)
        whole = self.train(self.flags())
        self.train({**flags, "train_iters": 4, "lr_decay_iters": STEPS})
        outcome = run("train", *arguments({"load": flags["save"], "train_iters": STEPS}))
        self.assertEqual(outcome.code, 0, str(outcome))
        again = Run(flags["save"])
        self.assertEqual(again.curve(), whole.curve())
        self.assertEqual(again.state(), whole.state())
        verified = run("verify", *arguments({**self.apart(update_on="host"), "steps": 2}))
        self.assertEqual(verified.code, 0, str(verified))
        self.assertIn("bit for bit", verified.out)

    def test_what_fits_where_several_tiers_lack(self):
        for nvme in (f"{self.nvme}=1GiB", f"{self.nvme}=64KiB"):
            flags = self.apart(device_memory="64KiB", host_memory="64KiB", nvme=nvme)
            small = run("train", *arguments(flags))
            self.check_refusal(small, 3, "does not fit")
            offered = [line.split() for line in small.err.splitlines() if line.startswith("  --device-memory")]
            self.assertTrue(offered, small.err)
            for words in offered:
                self.assertIn("--host-memory", words)
                self.assertEqual("--nvme" in words, nvme.endswith("64KiB"), small.err)
                given = {flag[2:].replace("-", "_"): value for flag, value in zip(words[::2], words[1::2])}
                self.train({**flags, **given})

    def test_refusals(self):
        small = run("train", *arguments(self.apart(host_memory="64KiB", optimizer_tier="host")))
        self.check_refusal(small, 3, "the host tier needs")
        self.assertIn("Each of these fits:", small.err, "this machine has as much")
        self.check_refusal(run("train", *arguments(self.apart(profile="rtx-4090-desktop"))), 2, "--profile")
        self.check_refusal(run("train", *arguments(self.apart(device="apart"))), 2, "--device")
        self.check_refusal(run("train", *arguments(self.apart(host_memory="0"))), 2, "--host-memory: found 0")
        saved = self.fresh("plan")
        self.assertEqual(run("plan", *arguments(self.apart(format="json", out=saved))).code, 0)
        self.check_refusal(run("train", *arguments(self.flags(nvme=self.nvme, plan=saved))), 2,
                           "the tiers device, host, nvme; the flags say one with device, nvme")
        again = self.train(self.apart(plan=saved))
        self.assertEqual(again.choices()["tiers"], list(TIERS))
        self.check_refusal(run("train", *arguments(self.apart(update="in-backward"))), 2, "--clip-grad 0")

    def test_evaluation_is_that_of_the_cpu(self):
        flags = {"model": self.golden.model, "data": self.golden.data, "seq_length": self.golden.json["seq_len"],
                 "format": "json"}
        losses = []
        for device in ("cpu", "cpu-apart"):
            outcome = run("eval", *arguments({**flags, "device": device}))
            self.assertEqual(outcome.code, 0, str(outcome))
            losses.append(json.loads(outcome.out)["loss"])
        self.assertEqual(*losses)


if __name__ == "__main__":
    unittest.main()
