"""spillway probe: a profile that plan takes, kept for the next run, and nothing left on the disk."""
import json
import os
import pathlib
import unittest

from harness import DATA, MIB, SANITIZED, CommandTest, Golden, arguments, run


class Probe(CommandTest):
    def test_a_profile_is_measured_kept_and_taken(self):
        nvme = self.fresh_directory("nvme")
        file = self.fresh("profile")
        outcome = run("probe", "--nvme", f"{nvme}=64MiB", "--format", "json", "--out", file)
        self.assertEqual(outcome.code, 0, str(outcome))
        self.assertEqual(list(nvme.iterdir()), [])
        if not SANITIZED:
            self.assertLess(outcome.resident_bytes, 150 * MIB)
        profile = json.loads(file.read_text())
        for name, value in json.loads((DATA / "machine.json").read_text()).items():
            self.assertIn(name, profile)
            if isinstance(value, float):
                self.assertGreater(profile[name], 0, name)
        parts = {name: values for name, values in profile["samples"].items() if " " in name}  # classes of shapes
        self.assertEqual(len(parts), 12)
        for value, least, most, _ in parts.values():
            self.assertTrue(0 < least <= value <= most)
        for name, (least, most, samples) in ((name, values) for name, values in profile["samples"].items() if name not in parts):
            self.assertLessEqual(least, profile[name])
            self.assertLessEqual(profile[name], most)
            self.assertGreater(samples, 0)
        golden = Golden("qwen3", self.directory)
        plan, _ = self.plan(golden.flags(profile=file, nvme=nvme))
        self.assertTrue(plan["fits"])

        # What was kept is what plan finds; of another way of measuring, older than the machine's start, or damaged, it is measured anew.
        (kept,) = (pathlib.Path(os.environ["XDG_CACHE_HOME"]) / "spillway").glob("profile-*.json")
        marked = {**json.loads(kept.read_text()), "operation_s": 12345e-9}
        for change, stays in (({}, True), ({"measured_by": 1}, False)):
            kept.write_text(json.dumps({**marked, **change}))
            self.plan(golden.flags(profile=None, nvme=nvme))
            self.assertEqual(json.loads(kept.read_text())["operation_s"] == 12345e-9, stays)
        kept.write_text(json.dumps(marked))
        os.utime(kept, (1, 1))
        self.plan(golden.flags(profile=None, nvme=nvme))
        self.assertNotEqual(json.loads(kept.read_text())["operation_s"], 12345e-9)

    def test_refusals(self):
        for flags, fragment in (({"nvme": "/nowhere/at/all"}, "/nowhere/at/all"), ({"format": "html"}, "--format"), ({"thorougly": True}, "--thorougly")):
            self.check_refusal(run("probe", *arguments(flags)), 2, fragment)


if __name__ == "__main__":
    unittest.main()
