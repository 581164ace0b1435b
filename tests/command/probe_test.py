"""spillway probe: a profile that plan takes, kept for the next run, and nothing left on the disk."""
import json
import os
import pathlib
import unittest

from harness import DATA, MIB, SANITIZED, CommandTest, Golden, arguments, operations, run

MINUTE = r"^\d{4}-\d\d-\d\dT\d\d:\d\dZ$"
RATES = ("nvme_read_bytes", "nvme_write_bytes", "nvme_mixed_read_bytes", "nvme_mixed_write_bytes")


def busy_share(trained):
    """The share of the last step in which anything moved to or from the drive."""
    spans = json.loads((trained.path / "timeline.json").read_text())["spans"]
    busy, until = 0, 0
    for begin, end in sorted(span for op, span in zip(operations(trained.plan), spans)
                             if op["lane"].startswith("nvme")):
        busy += max(0, end - max(begin, until))
        until = max(until, end)
    return busy / max(end for _, end in spans)


class Probe(CommandTest):
    def test_a_profile_is_measured_kept_and_taken(self):
        nvme = self.fresh_directory("nvme")
        file = self.fresh("profile")
        outcome = run("probe", "--nvme", f"{nvme}=64MiB", "--format", "json", "--out", file)
        self.assertEqual(outcome.code, 0, str(outcome))
        self.assertEqual(list(nvme.iterdir()), [])
        if not SANITIZED:
            # 133 MiB if the library is oneDNN 2.6, 158 if it is 3.6, both with AMX, whose products it compiles.
            self.assertLess(outcome.resident_bytes, 180 * MIB)
        profile = json.loads(file.read_text())
        for name, value in json.loads((DATA / "machine.json").read_text()).items():
            self.assertIn(name, profile)
            if isinstance(value, float):
                self.assertGreater(profile[name], 0, name)
        parts = {name: values for name, values in profile["samples"].items() if " " in name}  # classes of shapes
        self.assertEqual(len(parts), 12)
        for value, least, most, _ in parts.values():
            self.assertTrue(0 < least <= value <= most)
        for name, (least, most, samples) in ((name, values) for name, values in profile["samples"].items()
                                             if name not in parts):
            self.assertLessEqual(least, profile[name])
            self.assertLessEqual(profile[name], most)
            self.assertGreater(samples, 0)
        self.assertRegex(profile["probed_at"], MINUTE)
        golden = Golden("qwen3", self.directory)
        plan, _ = self.plan(golden.flags(profile=file, nvme=nvme))
        self.assertTrue(plan["fits"])

        # plan finds the kept profile, also for other directories on the drive, and says nothing about it. If it was
        # measured in another way, or before the machine's last start, the machine is measured again, and the waiting
        # user is told once.
        (kept,) = (pathlib.Path(os.environ["XDG_CACHE_HOME"]) / "spillway").glob("profile-*.json")
        marked = {**json.loads(kept.read_text()), "operation_s": 12345e-9}
        kept.write_text(json.dumps(marked))
        for directory in (nvme, self.fresh_directory("nvme"), f"{self.fresh_directory('nvme')}=32MiB"):
            plan, outcome = self.plan(golden.flags(profile=None, nvme=directory))
            self.assertEqual(outcome.err, "")
            self.assertEqual(plan["machine"]["profile"], marked)
        kept.write_text(json.dumps({**marked, "measured_by": 1}))
        _, outcome = self.plan(golden.flags(profile=None, nvme=nvme))
        self.assertRegex(outcome.err, rf"^note: measuring this machine \(\d+ threads, and what is under {nvme}\): "
                                      rf"about \d+ s, once; kept in {kept}\n$")
        self.assertNotEqual(json.loads(kept.read_text())["operation_s"], 12345e-9)
        kept.write_text(json.dumps(marked))
        os.utime(kept, (1, 1))
        for told in (1, 0):
            outcome = self.train(golden.flags(profile=None, nvme=nvme)).outcome
            self.assertEqual(outcome.out.count("note: measuring this machine"), told)
        self.assertNotEqual(json.loads(kept.read_text())["operation_s"], 12345e-9)

    def flags(self, **changes):
        flags = {"nvme": f"{self.fresh_directory('nvme')}=64MiB", "optimizer_tier": "nvme", "durability": "checkpoint"}
        return Golden("qwen3", self.directory).flags(**{**flags, **changes})

    def test_a_plan_says_which_rates_of_the_drive_it_goes_by(self):
        machine = json.loads((DATA / "machine.json").read_text())
        probed = {name: machine[name] for name in RATES}
        seen = {name: rate / 4 for name, rate in probed.items()}
        seen |= {"at": "2026-11-23T09:00Z", "seconds": 84.0, "bytes": 1e11}
        steps = {}
        for source, more in (("probed", {}), ("seen", {"seen": seen})):
            profile = self.fresh("profile")
            profile.write_text(json.dumps({**machine, "probed_at": "2026-11-22T18:30Z", **more}))
            flags = self.flags(profile=profile)
            plan, _ = self.plan(flags)
            said = plan["machine"]
            self.assertEqual((said["drive_rates"], said["probed"]), (source, probed))
            self.assertEqual(said.get("seen"), more.get("seen"))
            self.assertEqual(said["at"], "2026-11-23T09:00Z" if more else "2026-11-22T18:30Z")
            steps[source] = plan["predicted"]["step_s"]
            told = ["as probed (2026-11-22 18:30 UTC)"]
            if more:
                told = ["as a run saw it (2026-11-23 09:00 UTC", "it was 4.00 times as fast"]
            page = self.fresh("page")
            for shown in (run("plan", *arguments(flags)).out, self.train(flags).outcome.out,
                          run("plan", *arguments({**flags, "format": "html", "out": page})).out + page.read_text()):
                for part in told:
                    self.assertIn(part, " ".join(shown.split()))
        self.assertGreater(steps["seen"], 1.5 * steps["probed"])

    def test_a_saved_plan_is_run_without_measuring(self):
        """Its prediction comes from the machine that it was made for, if no profile of this one is kept."""
        file, cache, flags = self.fresh("plan"), self.fresh_directory("cache"), self.flags()
        self.assertEqual(run("plan", *arguments({**flags, "format": "json", "out": file})).code, 0)
        plan = json.loads(file.read_text())
        again = self.train({**flags, "profile": None, "plan": file}, environment={"XDG_CACHE_HOME": str(cache)})
        self.assertNotIn("measuring", again.outcome.out + again.outcome.err)
        self.assertEqual(list(cache.rglob("*")), [])
        for key in ("predicted", "machine", "choices"):
            self.assertEqual(again.plan[key], plan[key], key)
        damaged = self.fresh("plan")
        profile = {**plan["machine"]["profile"], "memory_bytes": "much"}
        damaged.write_text(json.dumps({**plan, "machine": {"profile": profile}}))
        outcome = run("train", *arguments({**flags, "profile": None, "plan": damaged}),
                      environment={"XDG_CACHE_HOME": str(cache)})
        self.check_refusal(outcome, 2, 'machine.profile.memory_bytes is "much"')

    def test_refusals(self):
        for flags, fragment in (({"nvme": "/nowhere/at/all"}, "/nowhere/at/all"), ({"format": "html"}, "--format"),
                                ({"thorougly": True}, "--thorougly")):
            self.check_refusal(run("probe", *arguments(flags)), 2, fragment)

    def test_slow_runs_leave_what_they_saw_of_the_drive(self):
        """A few gigabytes through the drive: the next plan uses the rates that were seen."""
        nvme = self.fresh_directory("nvme")
        self.assertEqual(run("probe", "--nvme", f"{nvme}=4GiB").code, 0)
        text = self.fresh("text").with_suffix(".txt")
        text.write_text("All that is moved is seen. " * 2000)
        flags = {"model": "smollm2-135m", "data": text, "tokenizer": "bytes", "micro_batch_size": 1,
                 "global_batch_size": 1, "seq_length": 16, "train_iters": 16, "device_memory": "256MiB", "nvme": nvme,
                 "durability": "checkpoint"}
        plan, _ = self.plan(flags)
        self.assertEqual(plan["machine"]["drive_rates"], "probed")
        moved = sum(plan["nvme_per_step"].values()) * flags["train_iters"]
        self.assertGreater(moved, 10e9)
        trained = self.train(flags, timeout=600)
        plan, _ = self.plan({**flags, "nvme": self.fresh_directory("nvme")})
        if busy_share(trained) < 0.75:  # and its rate could not be determined
            self.skipTest("other programs left this one too little of the processors to keep the drive busy")
        self.assertEqual(plan["machine"]["drive_rates"], "seen")
        seen = plan["machine"]["seen"]
        self.assertRegex(seen["at"], MINUTE)
        self.assertTrue(5e9 < seen["bytes"] <= moved and seen["seconds"] >= 5, seen)


if __name__ == "__main__":
    unittest.main()
