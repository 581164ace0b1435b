"""spillway report: the page and the trace of a run, and messages about damaged run directories."""
import json
import shutil
import unittest

from harness import DATA, CommandTest, Golden, Page, arguments, edited, operations, run


class Report(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.nvme = cls.fresh_directory("nvme")
        golden = Golden("qwen3", cls.directory)
        flags = golden.flags(nvme=f"{cls.nvme}=64MiB", optimizer_tier="nvme", parameter_tier="nvme",
                             device_memory="4MiB", train_iters=4, save=cls.fresh())
        outcome = run("train", *arguments(flags))
        assert outcome.code == 0, str(outcome)
        cls.run_directory = flags["save"]

    def copy(self):
        path = self.fresh()
        shutil.copytree(self.run_directory, path)
        return path

    def report(self, path, *more):
        outcome = run("report", path, *more)
        self.assertEqual(outcome.code, 0, str(outcome))
        return outcome, json.loads(Page((path / "report.html").read_text()).scripts[0])

    def test_the_page(self):
        path = self.copy()
        outcome, data = self.report(path)
        self.assertIn("against plan", outcome.out)
        log = [json.loads(line) for line in (path / "log.jsonl").read_text().splitlines()]
        plan = json.loads((path / "plan.json").read_text())
        spans = json.loads((path / "timeline.json").read_text())["spans"]
        loss = data["curves"][0]
        self.assertEqual((loss["x"], loss["y"]),
                         ([record["step"] for record in log], [record["loss"] for record in log]))
        ops = data["timeline"]["ops"]
        for id_, op in enumerate(operations(plan)):
            self.assertAlmostEqual(ops["planned_begin"][id_] / 1e9, op["begin_s"], places=8)
            self.assertAlmostEqual(ops["recorded_end"][id_] / 1e9, spans[id_][1], places=8)
        titles = [table["title"] for table in data["tables"]]
        self.assertEqual(titles, ["Lanes in figures", "Operations that cost most against plan", "Longest stalls",
                                  "Tiers in figures"])
        # Each tier over the step, as planned and as it ran: never above the peak, and at it if buffers are packed
        # without gaps.
        self.assertEqual([tier["name"] for tier in data["tiers"]["list"]],
                         ["device, planned", "device, recorded in step 4", "nvme, planned", "nvme, recorded in step 4"])
        for tier in data["tiers"]["list"]:
            fullest = max(sum(categories) for categories in zip(*tier["columns"]))
            self.assertLessEqual(fullest, tier["peak_bytes"], tier["name"])
            self.assertGreater(fullest, tier["peak_bytes"] / 2)
        self.assertEqual(data["tiers"]["step_ns"], max(plan["predicted"]["step_s"], log[-1]["step_s"]) * 1e9)
        costs = data["tables"][1]["rows"]
        self.assertLessEqual(len(costs), 10)
        device = data["tables"][3]["rows"][0]
        self.assertEqual(device[2], device[3])  # peak bytes: planned and recorded

    def test_a_step_of_many_turns(self):
        """The first, the third and the last turn are shown, as planned and as they ran; the bits are those of one turn.
        """
        golden, losses = Golden("qwen3", self.directory), set()
        for order, turns, shown in (("horizontal", 8, [0, 2, 7]), ("2", 4, [0, 2, 3]), ("4", 2, [0, 1]),
                                    ("vertical", 1, [0])):
            path = self.fresh("run")
            outcome = run("train", *arguments(golden.flags(micro_batch_size=1, global_batch_size=8, train_iters=3,
                                                           order=order, save=path)))
            self.assertEqual(outcome.code, 0, str(outcome))
            _, data = self.report(path, "--trace", self.fresh("trace"))
            plan = json.loads((path / "plan.json").read_text())
            self.assertEqual((plan["ops"]["turns"], plan["ops"]["shown_turns"]), (turns, shown))
            self.assertEqual(len(json.loads((path / "timeline.json").read_text())["spans"]),
                             len(shown) * plan["ops"]["count"])
            ops = data["timeline"]["ops"]
            self.assertEqual(len(ops["planned_begin"]), len(shown) * plan["ops"]["count"])
            self.assertEqual(set(ops["micro_batch"]) - {-1},
                             {turn * 8 // turns + i for turn in shown for i in range(8 // turns)})
            self.assertEqual("are shown: the others" in data["timeline"]["note"], turns > 3)
            for at, (begin, end) in enumerate(zip(ops["recorded_begin"], ops["recorded_end"])):
                self.assertLessEqual(begin, end, at)
            losses.add(tuple(json.loads(line)["loss"] for line in (path / "log.jsonl").read_text().splitlines()))
        self.assertEqual(len(losses), 1)
        self.check_refusal(run("plan", *arguments(golden.flags(micro_batch_size=1, global_batch_size=8, order="3"))), 2,
                           "--order 3")
        for order in ("0", "-1", "2x", "99999999"):
            self.check_refusal(run("plan", *arguments(golden.flags(order=order))), 2, "--order: found")

    def test_a_page_elsewhere_leaves_the_directory_alone(self):
        path, page = self.copy(), self.fresh("page")
        before = sorted(path.rglob("*"))
        self.assertEqual(run("report", path, "--out", page).code, 0)
        self.assertEqual(sorted(path.rglob("*")), before)
        self.assertTrue(page.exists())

    def test_the_trace_is_what_perfetto_takes(self):
        path, file = self.copy(), self.fresh("trace")
        self.report(path, "--trace", file)
        trace = json.loads(file.read_text())
        plan = json.loads((path / "plan.json").read_text())
        spans = json.loads((path / "timeline.json").read_text())["spans"]
        self.assertEqual(set(trace), {"displayTimeUnit", "traceEvents"})
        named, threads, seen, rows = {}, {}, {1: set(), 2: set()}, operations(plan)
        for event in trace["traceEvents"]:
            for key in ("pid", "tid"):
                self.assertIs(type(event[key]), int)
            if event["ph"] == "M":
                self.assertIn(event["name"], ("process_name", "process_sort_index", "thread_name", "thread_sort_index"))
                if event["name"] == "thread_name":
                    named[event["pid"], event["tid"]] = event["args"]["name"]
                continue
            self.assertEqual(event["ph"], "X")
            self.assertEqual(set(event), {"ph", "pid", "tid", "ts", "dur", "name", "cat", "args"})
            self.assertGreater(event["dur"], 0)
            id_ = event["args"]["operation"]
            op = rows[id_]
            self.assertEqual(event["cat"], op["kind"])
            # A thread is named before it is used.
            self.assertTrue(named[event["pid"], event["tid"]].startswith(op["lane"]))
            begin, end = spans[id_] if event["pid"] == 1 else (op["begin_s"], op["end_s"])
            self.assertAlmostEqual(event["ts"], begin * 1e6, delta=0.001)
            self.assertAlmostEqual(event["ts"] + event["dur"], end * 1e6, delta=0.002)
            self.assertNotIn(id_, seen[event["pid"]])
            seen[event["pid"]].add(id_)
            threads.setdefault((event["pid"], event["tid"]),
                               []).append((round(event["ts"] * 1000), round((event["ts"] + event["dur"]) * 1000)))
        self.assertEqual(seen[2], {op["id"] for op in rows if op["end_s"] > op["begin_s"]})
        self.assertEqual(seen[1], {id_ for id_, (begin, end) in enumerate(spans)
                                   if round(end * 1e9) > round(begin * 1e9)})
        for events in threads.values():  # events of a thread follow one another
            for (_, end), (begin, _) in zip(events, events[1:]):
                self.assertLessEqual(end, begin)

    def test_a_run_without_a_timeline_yet(self):
        path = self.copy()
        (path / "timeline.json").unlink()
        _, data = self.report(path)
        self.assertFalse(data["timeline"]["recorded"])
        self.check_refusal(run("report", path, "--trace", self.fresh("trace")), 2, "timeline.json")

    def test_names_in_a_run_are_text(self):
        path = self.copy()
        plan = json.loads((path / "plan.json").read_text())
        plan["ops"]["names"] = len(plan["ops"]["names"]) * ["</script><script>alert(1)</script>"]
        (path / "plan.json").write_text(json.dumps(plan))
        _, data = self.report(path)
        self.assertEqual(data["timeline"]["units"], ["</script><script>alert(1)</script>"])
        self.assertNotIn("<script>alert", (path / "report.html").read_text())

    def test_drift_is_said_once(self):
        profile = {**json.loads((DATA / "machine.json").read_text()), "gemm_fp32_flops": 1e16,
                   "attention_fp32_flops": 1e16, "memory_bytes": 1e14}
        fast = self.fresh("profile")
        fast.write_text(json.dumps(profile))
        # Steps are so long that the wait of one update for a processor, on a machine that does other work, is short
        # beside them.
        data = self.fresh("data").with_suffix(".jsonl")
        with open(data, "w") as out:
            for row in range(12 * 16):
                out.write(json.dumps({"input_ids": [(31 * row + 7 * t) % 256 for t in range(129)]}) + "\n")
        flags = Golden("qwen3", self.directory).flags(profile=fast, data=data, seq_length=128, micro_batch_size=16,
                                                      global_batch_size=16, train_iters=12)
        for threshold, notes in (("0.25", 1), ("1e9", 0), ("0", 0)):
            outcome = run("train", *arguments({**flags, "drift_threshold": threshold}))
            self.assertEqual(outcome.code, 0, str(outcome))
            said = [line for line in outcome.out.splitlines() if line.startswith("note: steps take ")]
            self.assertEqual(len(said), notes, str(outcome))
            for line in said:
                self.assertRegex(line, r"longer than the planned .*: most of it on compute \(.* busy, planned .*\); "
                                       r"operations \d+ (forward|backward) .* \(.*, planned .*\)")
        self.check_refusal(run("train", *arguments({**flags, "drift_threshold": "-1"})), 2, "--drift-threshold")

    def test_refusals(self):
        cases = [("plan.json", ["predicted", "step_s"], -1, "predicted.step_s"),
                 ("plan.json", ["predicted"], None, "predicted is missing"),
                 ("plan.json", ["ops", "classes", 0, "lane"], "motorway", "ops.classes[0].lane"),
                 ("plan.json", ["ops", "class", 2], 777, "ops.class[2]"),
                 ("plan.json", ["ops", "duration", 0, 1], -5, "ops.duration[0][1]"),
                 ("plan.json", ["ops", "classes", 0, "kind"], None, "ops.classes[0].kind is missing"),
                 ("plan.json", ["ops", "begin_delta", 0], [], "ops.begin_delta[0] has 0"),
                 ("plan.json", ["ops", "begin_delta"], [], "ops.begin_delta has 0"),
                 ("plan.json", ["ops", "shown_turns"], [7], "ops.shown_turns[0]"),
                 ("plan.json", ["ops", "of", 1], 1 << 20, "ops.of[1]"),
                 ("plan.json", ["ops", "time_unit_s"], 0, "ops.time_unit_s"),
                 ("plan.json", ["choices", "group"], "all", "choices.group"),
                 ("plan.json", ["ops", "count"], 0, "ops.count is 0"),
                 ("plan.json", ["ops", "waits", 1], [1 << 40], "ops.waits[1][0]"),
                 ("plan.json", ["tiers", "nvme", "peak_bytes"], "much", "tiers.nvme.peak_bytes"),
                 ("plan.json", ["tiers", "device", "peak_bytes"], 1 << 63, "tiers.device.peak_bytes"),
                 ("plan.json", ["buffers", "ops", 0], [1 << 30], "buffers.ops[0][0]"),
                 ("plan.json", ["buffers", "classes", 0, "category"], "luggage", "buffers.classes[0].category"),
                 ("plan.json", ["resident", "device"], None, "resident.device is missing"),
                 ("timeline.json", ["spans", 4], [1, 0], "spans[4][1]"),
                 ("timeline.json", ["spans", 4], ["now", 1], "spans[4][0]"),
                 ("timeline.json", ["spans", 0], None, "spans has"),
                 ("timeline.json", ["step"], None, "step is missing"),
                 ("run.json", ["modle"], "x", "modle")]
        for name, path, value, fragment in cases:
            with self.subTest(file=name, fragment=fragment):
                file = self.copy() / name
                file.write_text(json.dumps(edited(json.loads(file.read_text()), path, value)))
                outcome = run("report", file.parent)
                self.check_refusal(outcome, 2, fragment)
                self.assertIn(name, outcome.err)
        for name in ("plan.json", "run.json", "log.jsonl", "timeline.json"):
            for content in (None, "", "{", "[1, 2", "\x00" * 100 + "\n", '{"step": 1}\n'):
                if content is None and name == "timeline.json":
                    continue  # not there yet
                with self.subTest(file=name, content=content):
                    path = self.copy()
                    (path / name).unlink() if content is None else (path / name).write_text(content)
                    self.check_refusal(run("report", path), 2, name)
        path = self.copy()
        lines = (path / "log.jsonl").read_text().splitlines()
        (path / "log.jsonl").write_text("\n".join([lines[0], lines[0], lines[1]]) + "\n")
        self.check_refusal(run("report", path), 2, "log.jsonl line 2")
        self.check_refusal(run("report"), 2, "no run directory")
        self.check_refusal(run("report", "/nowhere/at/all"), 2, "/nowhere/at/all")
        self.check_refusal(run("report", path, "--outt", "x"), 2, "--outt")


if __name__ == "__main__":
    unittest.main()
