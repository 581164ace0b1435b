"""spillway plan for absent machines: GPUs, ranks, experts."""
import json
import pathlib
import shlex
import unittest

from harness import PlanTest, arguments, operations, run


class PlanMachines(PlanTest):
    def test_a_machine_that_is_not_here(self):
        changes = {"profile": "laptop", "nvme": "/not/there=2TiB", "device_memory": None, "optimizer_tier": "nvme"}
        plan, _ = self.plan(self.flags(**changes))
        self.assertTrue(plan["fits"])
        self.assertEqual(plan["tiers"]["device"]["budget_bytes"], 24 << 30)
        self.assertEqual(plan["tiers"]["nvme"]["budget_bytes"], 2 << 40)
        self.assertIn("--profile laptop", plan["flags"])
        self.check_refusal(run("plan", *arguments(self.flags(**{**changes, "nvme": "/not/there"}))), 2,
                           "/not/there without a size")
        self.check_refusal(run("train", *arguments(self.flags(**changes))), 2, "--profile laptop")
        unknown = run("plan", *arguments(self.flags(profile="rtx-4091")))
        self.check_refusal(unknown, 2, "a machine known by name (")

    def test_machines_with_devices_of_their_own(self):
        """They are planned for, by name and by file, and not run on."""
        profiles = pathlib.Path(__file__).parents[2] / "trainer/machine/profiles"
        shipped = sorted(file.stem for file in profiles.glob("*.json"))
        self.assertLess({"rtx-3090-desktop", "rtx-4090-desktop", "rtx-5060-ti-desktop", "a100-server"}, set(shipped))
        for name in shipped:
            of_machine = json.loads((profiles / f"{name}.json").read_text())
            for profile in (name, profiles / f"{name}.json"):
                flags = self.flags(profile=profile, nvme="/not/there=2TiB", device_memory=None)
                plan, _ = self.plan(flags)
                has_host = "host_memory_bytes" in of_machine
                self.assertEqual(plan["tiers"]["host"]["budget_bytes"] > 0, has_host)
                self.assertLess(plan["tiers"]["host"]["budget_bytes"], of_machine.get("host_memory_bytes", 1))
                if has_host:
                    self.assertIn("--device cuda", plan["flags"])
                    self.check_refusal(run("train", *arguments(flags)), 2, "--profile")
                    self.check_refusal(run("plan", *arguments({**flags, "device": "cpu"})), 2,
                                       "--device: found cpu with the profile of")
                else:
                    self.check_refusal(run("plan", *arguments({**flags, "device": "cuda"})), 2, "--device: found cuda")
        self.check_refusal(run("plan", *arguments(self.flags(device="cuda:1"))), 2, "--device: found cuda")
        self.check_refusal(run("train", *arguments(self.flags(device="cuda:1"))), 2, "--device cuda")
        for flags, found in (({"host_memory": "8GiB"}, "--host-memory: found 8GiB"),
                             ({"parameter_tier": "host"}, "--parameter-tier: found host"),
                             ({"optimizer_tier": "host"}, "--optimizer-tier: found host"),
                             ({"activation_tier": "host"}, "--activation-tier: found host"),
                             ({"update_on": "host"}, "--update-on: found host"),
                             ({"collectives": "ucc"}, '--collectives: found "ucc"')):
            for command in ("plan", "train"):
                self.check_refusal(run(command, *arguments(self.flags(**flags))), 2, found)

    def desktop(self, **changes):
        flags = {"model": "qwen2.5-1.5b", "profile": "rtx-4090-desktop", "nvme": "/not/there=2TiB", "seq_length": 1024,
                 "micro_batch_size": 4, "global_batch_size": 8, **changes}
        return {key: value for key, value in flags.items() if value is not None}

    def test_tiers_of_a_device_of_its_own(self):
        def lanes(plan):
            return {lane["name"] for lane in plan["lanes"]}

        forced, _ = self.plan(self.desktop(parameter_tier="host", optimizer_tier="host", update_on="host",
                                           activation_tier="host"))
        self.assertEqual(forced["choices"]["update_on"], "host")
        self.assertEqual([run[0] for run in forced["choices"]["optimizer_tier"]], [1])
        self.assertEqual(forced["tiers"]["nvme"]["peak_bytes"], 0)
        self.assertTrue({"compute", "upload", "download", "update"} <= lanes(forced))
        below, _ = self.plan(self.desktop(parameter_tier="nvme", optimizer_tier="nvme", host_memory="8GiB",
                                          update_on="device"))
        self.assertTrue({"compute", "upload", "download", "nvme_read", "nvme_write"} <= lanes(below))
        self.assertNotIn("update", lanes(below))
        for plan in (forced, below):
            for tier in plan["tiers"].values():
                self.assertLessEqual(tier["peak_bytes"], tier["budget_bytes"])
            file = self.fresh("again")
            outcome = run("plan", *shlex.split(plan["flags"]), "--format", "json", "--out", file)
            self.assertEqual(outcome.code, 0, str(outcome))
            again = json.loads(file.read_text())
            for key in ("choices", "predicted", "ops", "tiers", "flags"):
                self.assertEqual(plan[key], again[key], key)
            loaded = run("plan", *arguments(self.desktop(plan=file, host_memory=plan["tiers"]["host"]["budget_bytes"])))
            self.assertEqual(loaded.code, 0, str(loaded))
        # A link half as fast takes twice the time.
        machine = json.loads((pathlib.Path(__file__).parents[2]
                              / "trainer/machine/profiles/rtx-4090-desktop.json").read_text())
        slow = self.fresh("slow")
        halved = {key: machine[key] / 2 for key in ("upload_bytes", "mixed_upload_bytes")}
        slow.write_text(json.dumps({**machine, **halved}))
        slower, _ = self.plan(self.desktop(profile=slow, parameter_tier="host", optimizer_tier="host", update_on="host",
                                           activation_tier="host"))
        self.assertGreaterEqual(slower["predicted"]["step_s"], forced["predicted"]["step_s"])
        slow.write_text(json.dumps({key: value for key, value in machine.items() if key != "download_bytes"}))
        self.check_refusal(run("plan", *arguments(self.desktop(profile=slow))), 2, "has no download_bytes")

    def test_a_host_that_is_too_small(self):
        flags = self.desktop(model="llama-3.2-3b", nvme=None, host_memory="20GiB", device_memory="4GiB")
        outcome = run("plan", *arguments(flags))
        self.check_refusal(outcome, 3, "the host tier needs")
        offered = [line.strip() for line in outcome.err.splitlines() if line.strip().startswith("--")]
        self.assertTrue(any(line.startswith("--host-memory ") for line in offered), outcome.err)
        for line in offered:
            given = shlex.split(line)
            changed = {given[i].lstrip("-").replace("-", "_"): given[i + 1] for i in range(0, len(given), 2)}
            self.assertEqual(run("plan", *arguments({**flags, **changed})).code, 0, line)

    def test_beside_what_others_publish(self):
        """LLMQ's tokens a second on a 4090 in bf16 (https://github.com/IST-DASLab/llmq). The profile takes matrix
        products at 0.7 of the dense peak and attention at half of that, while LLMQ's whole steps reach more. Exact
        state takes 16 bytes for each parameter with its gradient in fp32, so that a part of 1.5 B does not fit the
        device; LLMQ's takes less."""
        for model, published in (("qwen2.5-0.5b", 40_000), ("qwen2.5-1.5b", 14_000)):
            for state in ("exact", "compact"):
                plan, _ = self.plan(self.desktop(model=model, global_batch_size=64, state=state))
                ratio = plan["predicted"]["tokens_per_s"] / published
                print(f"{model}, {state}: {plan['predicted']['tokens_per_s']:.0f} tokens/s planned, {published} by "
                      f"LLMQ: {ratio:.2f}")
                self.assertGreater(ratio, 0.5)
                self.assertLess(ratio, 1.1)

    def test_ranks_are_planned(self):
        flags = {"model": "llama-3.2-1b", "tokenizer": "bytes", "seq_length": 256, "micro_batch_size": 1,
                 "global_batch_size": 16, "ranks": 8, "profile": "laptop", "device_memory": "8GiB",
                 "nvme": "/not/there=8TiB"}
        whole, _ = self.plan(self.flags(**flags, zero_stage=0))
        parts, _ = self.plan(self.flags(**flags, zero_stage=3))
        parameters = whole["model"]["parameters"]
        self.assertEqual(whole["as_others_store_it"]["state_bytes"], 16 * parameters)
        self.assertEqual(parts["as_others_store_it"]["state_bytes"], 2 * parameters)
        # 2 + 2 + 12 bytes; stage 1 shares the last part, stage 2 also the second, stage 3 all.
        for plan in (whole, parts):
            self.assertEqual(plan["as_others_store_it"]["state_bytes_by_zero_stage"],
                             [parameters * each for each in (16, 2 + 2 + 12 / 8, 2 + 14 / 8, 16 / 8)])
        self.assertEqual(whole["tiers"]["nvme"]["budget_bytes"], 1 << 40)
        self.assertEqual(whole["model"]["tokens_per_step"], 16 * 256)
        kinds = [{op["kind"] for op in operations(plan) if op["lane"] == "network"} for plan in (whole, parts)]
        self.assertEqual(kinds, [{"reduce", "gather"}] * 2)  # control words are gathered, too
        self.assertIn("ranks    8, ZeRO stage 0", run("plan", *arguments(self.flags(**flags, zero_stage=0))).out)
        # Ranks of a host share its memory, its directories and its rates.
        shared, _ = self.plan(self.flags(**{**flags, "device_memory": None}))
        self.assertEqual(shared["tiers"]["device"]["budget_bytes"], 3 << 30)
        # The same if the device is apart: each rank has its own device memory, and all share the host's.
        apart = {**flags, "device": "cpu-apart", "device_memory": "2GiB"}
        for given, budget in (("16GiB", 2), (None, 1)):
            tiers = self.plan(self.flags(**apart, host_memory=given))[0]["tiers"]
            self.assertEqual(tiers["device"]["budget_bytes"], 2 << 30)
            self.assertEqual(tiers["host"]["budget_bytes"], budget << 30)
        halves = self.plan(self.flags(**{**apart, "device_memory": None}))[0]["tiers"]
        self.assertEqual([halves[tier]["budget_bytes"] for tier in ("device", "host")], [3 << 29, 3 << 29])
        self.check_refusal(run("plan", *arguments(self.flags(**{**flags, "zero_group_size": 3}))), 2,
                           "--zero-group-size")

    def test_experts_in_groups_where_memory_lacks(self):
        """A layer of Mixtral's experts is one unit, and eight where it does not fit; such a plan is read again."""
        flags = {"model": "mixtral-8x7b", "tokenizer": "bytes", "seq_length": 256, "global_batch_size": None,
                 "nvme": "/not/there=4TiB"}
        plans = {}
        for memory in ("24GiB", "6GiB"):
            plans[memory], _ = self.plan(self.flags(**flags, device_memory=memory))
            self.assertEqual((plans[memory]["model"]["parameters"], plans[memory]["model"]["active_parameters"]),
                             (46702792704, 12879925248))
        self.assertIn("layer 31 experts", {op["of"] for op in operations(plans["24GiB"])})
        self.assertNotIn("experts_in_groups", plans["24GiB"]["choices"])
        self.assertIn("layer 31 expert 7", {op["of"] for op in operations(plans["6GiB"])})
        self.assertTrue(plans["6GiB"]["choices"]["experts_in_groups"])
        file = self.fresh("plan").with_suffix(".json")
        file.write_text(json.dumps(plans["6GiB"]))
        again, _ = self.plan(self.flags(**flags, device_memory="6GiB", plan=file))
        self.assertEqual(again["ops"], plans["6GiB"]["ops"])


if __name__ == "__main__":
    unittest.main()
