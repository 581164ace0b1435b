"""spillway plan: the table, plan.json and the page. Bad input: bad_input_test.py."""
import json
import shlex
import shutil
import signal
import unittest

from harness import (
    DATA,
    GOLDEN,
    MIB,
    Page,
    PlanTest,
    Run,
    arguments,
    begin,
    finish,
    has_ended,
    operations,
    run,
    send_signal,
    shape,
    wait_for_steps,
)


class Plan(PlanTest):
    def test_every_field_of_the_contract(self):
        plan, _ = self.plan(self.flags(nvme_tbw="600TB"))
        self.assertIs(plan["fits"], True)
        for name in ("parameters", "flops_per_token"):
            self.assertGreater(plan["model"][name], 0)
        self.assertEqual(plan["process_overhead_bytes"], 150 * MIB)
        self.assertLessEqual({"device", "host", "nvme"}, set(plan["tiers"]))
        for tier in plan["tiers"]:
            self.assertEqual(set(plan["tiers"][tier]["at_rest"]),
                             {"parameters", "optimizer", "gradients", "activations", "staging"})
            self.assertLessEqual(plan["tiers"][tier]["peak_bytes"], plan["tiers"][tier]["budget_bytes"])
        self.assertEqual([lane["name"] for lane in plan["lanes"]], ["compute", "nvme_read", "nvme_write", "update"])
        for lane in plan["lanes"]:
            self.assertAlmostEqual(lane["work"] / lane["rate"] / lane["busy_s"], 1)
            self.assertIn(lane["unit"], ("flops", "bytes"))
        predicted = plan["predicted"]
        self.assertGreaterEqual(predicted["step_s"], predicted["bound_s"] * 0.999)
        self.assertAlmostEqual(predicted["tokens_per_s"] * predicted["step_s"] / plan["model"]["tokens_per_step"], 1)
        self.assertIn(predicted["binding_lane"], [lane["name"] for lane in plan["lanes"]])
        lanes = [lane["name"] for lane in plan["lanes"]]
        self.assertIn(predicted["bound"]["name"], [*lanes, "drive", "lanes", "norm"])
        self.assertGreater(len(predicted["bound"]["why"]), 20)
        for lift in plan["lifts"]:
            self.assertEqual(set(lift), {"flags", "costs", "step_s", "bound_s"})
            self.assertLess(lift["bound_s"], lift["step_s"] * 1.001)
            self.assertLess(lift["step_s"] * 1.03, predicted["step_s"] * 1.001)
        written = plan["nvme_per_step"]["written_bytes"]
        self.assertEqual(written, sum(op["times"] * op["bytes"] for op in operations(plan) if op["kind"] == "write"))
        worn = written + plan["durability"]["written_bytes_per_step"]
        self.assertAlmostEqual(plan["nvme_rating"]["steps"] * worn / 600e12, 1)
        self.assertAlmostEqual(plan["wear"]["nvme_written_tb_per_1000_steps"] / (worn * 1000 / 1e12), 1)
        self.assertEqual(plan["active_parameters"], plan["model"]["parameters"])
        self.assertEqual(plan["as_others_store_it"]["state_bytes_by_zero_stage"],
                         [16 * plan["model"]["parameters"]] * 4)
        self.assertGreaterEqual(plan["disk"]["nvme_bytes"], plan["tiers"]["nvme"]["peak_bytes"])
        self.assertLessEqual({"fits", "model", "tiers", "process_overhead_bytes", "lanes", "predicted", "nvme_per_step",
                              "durability", "active_parameters", "as_others_store_it", "flags", "choices", "ops"},
                             set(plan))
        count = plan["ops"]["count"]
        for column in ("class", "of", "micro_batch", "waits"):
            self.assertEqual(len(plan["ops"][column]), count, column)
        self.assertEqual([len(times) for times in plan["ops"]["begin_delta"] + plan["ops"]["duration"]],
                         2 * len(plan["ops"]["shown_turns"]) * [count])
        for lacking in ("16KiB", "1MiB"):
            plan, outcome = self.plan(self.flags(device_memory=lacking, nvme=None, optimizer_tier=None))
            self.assertEqual((plan["fits"], outcome.code), (False, 3))
            self.assertEqual(plan["lacking_bytes"], plan["needed_bytes"] - plan["budget_bytes"])

    def test_the_table_and_its_command(self):
        outcome = run("plan", *arguments(self.flags(nvme_tbw="1.2PB")))
        self.assertEqual(outcome.code, 0, str(outcome))
        for part in ("tier ", "device ", "lane ", "nvme_write", "tokens/s; MFU ", "times as long", "tokens a step on",
                     "a drive rated for 1.20 PB written lasts"):
            self.assertIn(part, outcome.out if part.endswith(" ") else " ".join(outcome.out.split()))
        table, command = outcome.out.split("\nspillway train ")
        for line in table.splitlines():
            self.assertLessEqual(len(line), 100 if " " in line[12:] else 1000, line)
        again = run("plan", *shlex.split(command.replace("\\\n", " ")))
        choices = [line for line in outcome.out.splitlines() if line.startswith("choices")]
        self.assertEqual([line for line in again.out.splitlines() if line.startswith("choices")], choices)

    def test_the_page_is_whole_and_names_are_text(self):
        evil = self.fresh_directory("x") / "</script><img src=x onerror=alert(1)>"
        shutil.copytree(GOLDEN / "qwen3", evil)
        file = self.fresh("page")
        outcome = run("plan", *arguments(self.flags(model=evil, format="html", out=file)))
        self.assertEqual(outcome.code, 0, str(outcome))
        text = file.read_text()
        page = Page(text)
        self.assertEqual({tag for tag, _ in page.elements},
                         {"html", "head", "meta", "title", "style", "body", "noscript", "div", "script"})
        self.assertNotRegex(text, r"https?://|url\(|@import")
        for _, attributes in page.elements:
            self.assertFalse({"src", "href"} & set(attributes))
            self.assertFalse([name for name in attributes if name.startswith("on")])
        data = json.loads(page.scripts[0])
        self.assertIn("<img src=x", data["title"])
        plan, _ = self.plan(self.flags(model=evil))
        ops = data["timeline"]["ops"]
        self.assertEqual(len(ops["kind"]), plan["ops"]["count"] * len(plan["ops"]["shown_turns"]))
        for id_, op in enumerate(operations(plan)):
            self.assertEqual(data["timeline"]["kinds"][ops["kind"][id_]], op["kind"])
            self.assertEqual(data["timeline"]["lanes"][ops["lane"][id_]], op["lane"])
            self.assertAlmostEqual(ops["planned_end"][id_] / 1e9, op["end_s"], delta=plan["ops"]["time_unit_s"])
        for tier in data["tiers"]["list"]:
            fullest = max(map(sum, zip(*tier["columns"])))
            self.assertLessEqual(fullest, plan["tiers"][tier["name"]]["peak_bytes"])
        too_small = run("plan", *arguments(self.flags(device_memory="16KiB", format="html", out=file)))
        self.assertEqual(too_small.code, 3)
        self.assertIn("does not fit", json.loads(Page(file.read_text()).scripts[0])["subtitle"])

    def test_a_plan_runs_as_it_was_made(self):
        """Even if the profile does not say with what instructions the processor multiplies, or has more threads than
        this machine.
        """
        machine = json.loads((DATA / "machine.json").read_text())
        profile, saved = self.fresh("profile"), self.fresh("plan")
        flags = self.flags(profile=profile, train_iters=2, device_memory="16MiB")

        def plan_with(**changes):
            profile.write_text(json.dumps({**machine, **changes}))
            return run("plan", *arguments({**flags, "format": "json", "out": saved}))

        for changes in ({}, {"threads": 8}):
            made = plan_with(**changes)
            self.assertEqual(made.code, 0, str(made))
            plan = json.loads(saved.read_text())
            for given in ({}, {"plan": saved}):
                ran = self.train({**flags, **given}).plan
                for key in ("choices", "tiers"):
                    self.assertEqual(ran[key], plan[key], key)
                self.assertEqual(ran["ops"]["digest"], plan["ops"]["digest"])
        self.check_refusal(plan_with(instructions="unheard_of"), 2, "instructions")

    def test_its_flags_give_the_plan_again(self):
        """Even if everything is forced, and as train itself reads them."""
        for changes in ({}, {"device_memory": None, "nvme": None, "optimizer_tier": None},
                        {"clip_grad": 0, "durability": "checkpoint"},
                        {"activation_tier": "recompute", "order": "horizontal"},
                        {"parameter_tier": "nvme", "state": "compact", "dtype": "bf16"}):
            plan, _ = self.plan(self.flags(**changes))
            file = self.fresh("again")
            outcome = run("plan", *shlex.split(plan["flags"]), "--format", "json", "--out", file)
            self.assertEqual(outcome.code, 0, str(outcome))
            again = json.loads(file.read_text())
            for key in ("choices", "predicted", "ops", "tiers", "flags"):
                self.assertEqual(plan[key], again[key], (key, changes))
            understood = run("train", *shlex.split(plan["flags"]), "--print-config")
            self.assertEqual(understood.code, 0, str(understood))

    def test_what_is_forced_is_not_faster_than_what_is_chosen(self):
        machine = {
            "name": "two cores and a drive", "threads": 2, "gemm_bf16_flops": 778e9, "gemm_fp32_flops": 374e9,
            "attention_bf16_flops": 556e9, "attention_fp32_flops": 276e9, "memory_bytes": 66.9e9,
            "update_bytes": 59.1e9, "nvme_read_bytes": 3.17e9, "nvme_write_bytes": 6.88e9,
            "nvme_mixed_read_bytes": 2.12e9, "nvme_mixed_write_bytes": 2.12e9, "nvme_read_requests": 45500,
            "nvme_write_requests": 37800, "operation_s": 38e-6, "gemm_bf16_extra_rows": 41, "gemm_fp32_extra_rows": 9.1,
            "layers_bf16": 0.94, "layers_fp32": 0.82, "compute_beside_read": 0.95, "compute_beside_write": 0.89,
            "update_beside_read": 0.91, "update_beside_write": 0.71,
            "read_beside_compute": 0.85, "write_beside_compute": 0.90, "shared_compute": 0.38, "shared_update": 0.66}
        busy_drive = {
            "nvme_read_bytes": 2.9e9, "nvme_write_bytes": 3.81e9, "nvme_mixed_read_bytes": 1.69e9,
            "nvme_mixed_write_bytes": 1.69e9, "compute_beside_read": 0.86, "compute_beside_write": 0.87,
            "read_beside_compute": 0.81, "write_beside_compute": 0.82}
        small = {"model": "gpt2", "seq_length": 256, "micro_batch_size": 1, "global_batch_size": 2, "clip_grad": 0,
                 "state": "compact", "device_memory": "384MiB"}
        clipped = {"model": "smollm2-135m", "seq_length": 512, "micro_batch_size": 4, "global_batch_size": 4,
                   "device_memory": "512MiB"}
        for name, figures, flags, update in (("small", {}, small, "in-backward"),
                                             ("clipped", busy_drive, clipped, "in-next-forward")):
            profile = self.directory / f"{name}.json"
            profile.write_text(json.dumps(machine | figures))
            flags |= {"tokenizer": "bytes", "dtype": "bf16", "nvme": "/not/there=64GiB", "optimizer_tier": None,
                      "durability": "checkpoint", "profile": profile}
            chosen_s = self.plan(self.flags(**flags))[0]["predicted"]["step_s"]
            for forced in ({}, {"activation_tier": "nvme"}, {"activation_tier": "device"}):
                plan, _ = self.plan(self.flags(**flags, update=update, **forced))
                if plan["fits"]:
                    self.assertLessEqual(chosen_s, 1.01 * plan["predicted"]["step_s"], (name, forced))

    def test_what_hardly_fits_reads_less_ahead(self):
        """Weights read two units ahead leave no room for updates in the backward; all other choices move whole
        gradients."""
        flags = {"model": "qwen3-32b", "tokenizer": "bytes", "seq_length": 128, "micro_batch_size": 1,
                 "global_batch_size": 1, "clip_grad": 0, "dtype": "bf16", "optimizer_tier": None,
                 "durability": "checkpoint", "device_memory": "2GiB", "nvme": "/not/there=4TiB", "profile": "laptop"}
        plan, _ = self.plan(self.flags(**flags))
        self.assertEqual(plan["choices"]["update"], "in-backward")
        self.assertLess(plan["predicted"]["step_s"], 1.05 * plan["predicted"]["bound_s"])

    def test_a_drive_that_is_nearly_full(self):
        flags = {"model": "llama-2-7b", "tokenizer": "bytes", "seq_length": 512, "micro_batch_size": 1,
                 "global_batch_size": 1, "clip_grad": 0, "dtype": "bf16", "state": "compact", "device_memory": "2GiB",
                 "optimizer_tier": None, "durability": "checkpoint", "profile": "laptop"}
        fits = []
        for size in range(47, 53):
            plan, _ = self.plan(self.flags(**flags, nvme=f"/not/there={size}GiB"))
            fits.append(plan["fits"])
            if plan["fits"]:
                self.assertLessEqual(plan["tiers"]["nvme"]["peak_bytes"], size << 30)
            else:
                self.assertGreater(plan["lacking_bytes"], 0)
        self.assertEqual(fits, sorted(fits))  # a plan that fits into less fits into more
        self.assertEqual({False, True}, set(fits))

    def would_fit(self, flags):
        """The offers for a command line that does not fit; each of them fits when it is pasted."""
        plan, outcome = self.plan(flags)
        self.assertEqual((plan["fits"], outcome.code), (False, 3), str(outcome))
        table = run("plan", *arguments(flags))
        for offer in plan["would_fit"]:
            pasted = dict(flags)
            for word in offer:
                name, value = shlex.split(word)
                self.assertEqual(name[:2], "--")
                key = name[2:].replace("-", "_")
                pasted[key] = [value] if pasted.get(key) is flags.get(key) else [*pasted[key], value]
            self.assertTrue(self.plan(pasted)[0]["fits"], (offer, str(outcome)))
            for text in (outcome.err, table.out, table.err):
                self.assertIn("\n  " + " ".join(offer) + "\n", text)
        return plan["would_fit"]

    def test_what_would_fit_can_be_pasted(self):
        names = lambda offers: [{word.split()[0] for word in offer} for offer in offers]
        for durability in (None, "step"):
            small = self.flags(device_memory="64KiB", durability=durability)
            self.assertIn({"--device-memory"}, names(self.would_fit(small)))
        in_core = self.flags(device_memory="2MiB", nvme=None, optimizer_tier=None)
        offers = self.would_fit(in_core)
        self.assertEqual(names(offers)[:2], [{"--device-memory"}, {"--nvme"}])
        little_room = self.flags(device_memory="2900KiB", nvme=f"{self.nvme}=64KiB", optimizer_tier=None)
        self.assertEqual(names(self.would_fit(little_room))[:2], [{"--device-memory"}, {"--nvme"}])
        # An existing directory: the one that contains --save, or the current one.
        self.assertTrue(offers[1][0].startswith("--nvme .="), offers)
        offers = self.would_fit({**in_core, "save": self.directory / "not" / "there"})
        self.assertTrue(offers[1][0].startswith(f"--nvme {self.directory}="), offers)

    def test_the_users_own_directories_with_the_room_that_is_needed(self):
        odd = self.fresh_directory("it's a disk")
        flags = self.flags(nvme=[f"{odd}=64KiB", f"{self.nvme}=64KiB"], parameter_tier="nvme")
        offers = self.would_fit(flags)
        self.assertEqual([shlex.split(word)[1].rpartition("=")[0] for word in offers[0]], [str(odd), str(self.nvme)])
        for nvme in ("/not/there=64KiB", f"{self.nvme}=64KiB", f"{self.nvme}=256KiB"):
            offers = self.would_fit(self.flags(nvme=nvme, parameter_tier="nvme"))
            self.assertEqual([word.rpartition("=")[0] for word in offers[0]], ["--nvme " + nvme.rpartition("=")[0]])
        machine = {"profile": "laptop", "model": "llama-3.1-8b", "tokenizer": "bytes", "seq_length": 256,
                   "dtype": "bf16", "device_memory": None, "optimizer_tier": None, "micro_batch_size": 1,
                   "global_batch_size": 1}
        for nvme in (None, "/not/there=20GiB"):
            offers = self.would_fit(self.flags(**machine, nvme=nvme))
            self.assertEqual([shlex.split(word)[0] for word in offers[0]], ["--nvme"], "the machine has no more memory")

    def test_memory_and_a_directory_together(self):
        flags = {"model": "llama-3.1-70b", "tokenizer": "bytes", "seq_length": 512, "micro_batch_size": 1,
                 "global_batch_size": 1, "dtype": "bf16", "optimizer_tier": None, "profile": "laptop",
                 "device_memory": "512MiB", "nvme": None}
        (offer,) = self.would_fit(self.flags(**flags))
        self.assertEqual([shlex.split(word)[0] for word in offer], ["--device-memory", "--nvme"])

    def test_micro_batches_that_are_too_large(self):
        flags = {"model": "smollm2-135m", "tokenizer": "bytes", "dtype": "bf16", "seq_length": 512,
                 "micro_batch_size": 1024, "global_batch_size": None, "optimizer_tier": None, "profile": "laptop",
                 "device_memory": "4GiB"}
        (offer,) = self.would_fit(self.flags(**flags, nvme="/not/there=64GiB", activation_tier="device"))
        self.assertEqual(offer, ["--micro-batch-size 1", "--global-batch-size 1024"])

    def test_the_disk_that_a_run_takes(self):
        nvme = self.fresh_directory("nvme")
        flags = {**self.flags(nvme=f"{nvme}=64MiB", durability="step", save_interval=2), "train_iters": 10000}
        save = self.fresh()
        plan, _ = self.plan({**flags, "save": save, "keep_last": 3})
        self.assertEqual(plan["disk"]["checkpoints"], 4)
        words = " ".join(run("plan", *arguments({**flags, "save": save, "keep_last": 3})).out.split())
        for part in ("in --nvme while the run lasts; ", "in --save for up to 4 checkpoints",
                     "TB written to NVMe in 1,000 steps, and", "TB of checkpoints"):
            self.assertIn(part, words)
        process = begin("train", *arguments({**flags, "save": save}))
        wait_for_steps(save, 6, process)
        self.assertFalse(has_ended(process))
        send_signal(process, signal.SIGKILL)
        finish(process)
        self.assertEqual((nvme / "spillway-store.bin").stat().st_size, plan["disk"]["nvme_bytes"])
        state = Run(save).state_file(2).stat().st_size
        self.assertLess(plan["disk"]["checkpoint_bytes"], state)
        self.assertGreater(plan["disk"]["checkpoint_bytes"], 0.9 * state - 64 * 1024)
        # Wear is shown even if nothing is written.
        in_core = run("plan", *arguments(self.flags(nvme=None, optimizer_tier=None, device_memory="64MiB")))
        self.assertIn("wear     0 TB written to NVMe in 1,000 steps", in_core.out)

    def test_the_run_directory_has_what_the_contract_lists(self):
        flags = self.flags(eval_data=self.golden.data, eval_interval=2)
        save = self.fresh()
        trained = self.train({**flags, "save": save, "train_iters": 5})
        names = {path.name for path in save.iterdir()}
        self.assertLessEqual({"run.json", "plan.json", "log.jsonl", "checkpoints"}, names)
        always = {"step", "loss", "grad_norm", "lr", "tokens", "step_s", "tokens_per_s", "device_peak_bytes",
                  "host_peak_bytes", "nvme_read_bytes", "nvme_written_bytes", "bound_s", "binding_lane",
                  "overlap_efficiency"}
        predicted = trained.plan["predicted"]
        for record in trained.log:
            evaluated = {"eval_loss", "best"} if record["step"] in (2, 4, 5) else set()
            if record["step"] == 1:
                evaluated = {"eval_loss_before", "best"}
            self.assertEqual(set(record), always | evaluated)
            self.assertEqual(record["overlap_efficiency"], record["bound_s"] / record["step_s"])
            for name in ("bound_s", "binding_lane"):
                self.assertEqual(record[name], predicted[name])
        printed, _ = self.plan({**flags, "save": save, "train_iters": 5})
        trained.plan["lifts"] = printed["lifts"]  # only `plan` looks for these
        self.assertEqual(shape(printed), shape(trained.plan))
        self.assertEqual(printed["choices"], trained.plan["choices"])

    def test_a_saved_plan_is_taken_or_refused_by_name(self):
        flags = self.flags()
        plan, _ = self.plan(flags)
        file = self.fresh("plan")

        def given(changed):
            file.write_text(json.dumps(changed))
            return run("plan", *arguments({**flags, "plan": file, "format": "json"}))

        self.assertEqual(json.loads(given(plan).out)["choices"], plan["choices"])
        # Keys that only describe the plan may be missing, as in files of older versions; a missing key that it is made
        # from is named.
        told = ("active_parameters", "as_others_store_it", "disk", "wear", "lanes", "predicted", "durability",
                "resident", "buffers", "profile")
        self.assertEqual(given({key: value for key, value in plan.items() if key not in told}).code, 0)
        for key in plan["choices"]:
            choices = {name: value for name, value in plan["choices"].items() if name != key}
            self.check_refusal(given({**plan, "choices": choices}), 2, f"choices.{key} is missing")

    # --- --sweep ---

    def sweep(self, sweep, **changes):
        outcome = run("plan", *arguments({**self.flags(**changes), "sweep": sweep, "format": "json"}))
        self.assertIn(outcome.code, (0, 3), str(outcome))
        return json.loads(outcome.out)

    def test_a_sweep_plans_each_value(self):
        rows = self.sweep("device-memory=64KiB,8MiB,2MiB,4096KiB")
        self.assertEqual([(row["flag"], row["value"], row["fits"]) for row in rows],
                         [("device-memory", value, value != "64KiB") for value in ("64KiB", "8MiB", "2MiB", "4MiB")])
        alone, _ = self.plan(self.flags(device_memory="64KiB"))
        for key in ("short_tier", "needed_bytes", "budget_bytes", "lacking_bytes"):
            self.assertEqual(rows[0][key], alone[key])
        for row in rows[1:]:
            plan, _ = self.plan(self.flags(device_memory=row["value"]))
            predicted = plan["predicted"]
            self.assertEqual([row[key] for key in ("step_s", "tokens_per_s", "bound_s", "binding_lane")],
                             [predicted[key] for key in ("step_s", "tokens_per_s", "bound_s", "binding_lane")])
            self.assertEqual(row["peak_bytes"], {tier: plan["tiers"][tier]["peak_bytes"] for tier in plan["tiers"]})
            self.assertEqual(row["nvme_per_step"], plan["nvme_per_step"])
            self.assertEqual(row["nvme_written_tb_per_1000_steps"], plan["wear"]["nvme_written_tb_per_1000_steps"])
        ranks = {"model": "llama-3.2-1b", "tokenizer": "bytes", "seq_length": 256, "micro_batch_size": 1,
                 "global_batch_size": None, "profile": "laptop", "device_memory": "8GiB",
                 "nvme": "/not/there=8TiB", "zero_stage": 3}
        # The global batch grows with the ranks if it is not given.
        rows = self.sweep("ranks=1,2,8", **ranks)
        self.assertEqual([row["value"] for row in rows], [1, 2, 8])
        self.assertEqual([round(row["tokens_per_s"] * row["step_s"]) for row in rows], [256, 512, 2048])
        self.assertEqual([row["value"] for row in self.sweep("global-batch-size=2,4")], [2, 4])
        self.assertEqual([row["value"] for row in self.sweep("seq-length=16,8")], [16, 8])

    def test_a_sweep_in_words_and_as_a_page(self):
        flags = self.flags(sweep="device-memory=64KiB,2MiB,8MiB", nvme_tbw="600TB")
        large = {"model": "llama-2-7b", "tokenizer": "bytes", "dtype": "bf16", "seq_length": 128, "device_memory": None,
                 "sweep": "device-memory=16KiB,2GiB", "nvme": "/not/there=4TiB", "profile": "laptop"}
        for changes in ({}, {"nvme_tbw": None}, large):
            outcome = run("plan", *arguments({**flags, **changes}))
            self.assertEqual(outcome.code, 0, str(outcome))
            for line in outcome.out.splitlines()[2:]:
                self.assertLessEqual(len(line), 100, line)
            self.assertIn("does not fit: the device tier needs", outcome.out)
        outcome = run("plan", *arguments(flags))
        lines = outcome.out.splitlines()
        rows = [line.split() for line in lines if line.startswith(("2MiB", "8MiB"))]
        self.assertEqual([row[0] for row in rows], ["2MiB", "8MiB"] * 2)
        for row in rows[2:]:
            self.assertRegex(row[2], r"^#+\|?$")
        file = self.fresh("page")
        self.assertEqual(run("plan", *arguments({**flags, "format": "html", "out": file})).code, 0)
        text = file.read_text()
        self.assertNotRegex(text, r"https?://|url\(|@import")
        data = json.loads(Page(text).scripts[0])
        self.assertEqual([bar["name"] for bar in data["bars"]["list"]], ["64KiB", "2MiB", "8MiB"])
        self.assertEqual([bar["value"] is None for bar in data["bars"]["list"]], [True, False, False])
        self.assertEqual({len(row) for row in data["tables"][0]["rows"]}, {len(data["tables"][0]["columns"])})
        outcome = run("plan", *arguments({**flags, "sweep": "device-memory=16KiB,32KiB"}))
        self.check_refusal(outcome, 3, "none of the 2 values of device-memory fits")

    def test_sweeps_that_are_refused(self):
        table = [
            ("rank=1,2", "\"rank\", which is no flag"),
            ("lr=1,2", "\"lr\", which is not swept"),
            ("device-memory=", "without values"),
            ("device-memory", "without values"),
            ("device-memory=1MiB,,2MiB", "an empty value"),
            ("", "--sweep"),
            ("device-memory=1MiB,2MB", "--device-memory: found \"2MB\""),
            ("device-memory=1MiB,1024KiB", "\"1024KiB\" twice"),
            ("seq-length=16,100000", "--seq-length: found 100000"),
            ("ranks=1,3", "--global-batch-size: found 8"),
            ("global-batch-size=" + ",".join(map(str, range(1, 66))), "at most 64"),
        ]
        for sweep, fragment in table:
            with self.subTest(sweep):
                self.check_refusal(run("plan", *arguments(self.flags(sweep=sweep))), 2, fragment)
        self.check_refusal(run("plan", *arguments(self.flags(sweep="seq-length=16", plan="plan.json"))), 2, "--plan")
        self.check_refusal(run("train", *arguments(self.flags(sweep="seq-length=16"))), 2, "--sweep")

    def test_refusals(self):
        for value in ("600", "600tb", "-1TB", "0", "10000PB"):
            outcome = run("plan", *arguments(self.flags(nvme_tbw=value)))
            if value == "600":  # bytes: allowed, if not wise
                self.assertEqual(outcome.code, 0, str(outcome))
            else:
                self.check_refusal(outcome, 2, "--nvme-tbw")


if __name__ == "__main__":
    unittest.main()
