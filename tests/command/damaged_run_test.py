"""Runs with damaged or edited files: checkpoints, their descriptions, plans."""
import json
import os
import pathlib
import random
import shutil
import unittest

from harness import GOLDEN, Run, arguments, edited, read_safetensors, run, safetensors_bytes
from refusals import RefusalTest


class DamagedRuns(RefusalTest):
    def test_damaged_checkpoints(self):
        run_ = self.train(self.flags())
        good = run_.state_file().read_bytes()
        tensors = read_safetensors(run_.state_file())
        first = next(iter(tensors))
        for damaged, fragment in ((good[:-100], "state.safetensors"), (b"", "state.safetensors"),
                                  (good[:100], "state.safetensors"),
                                  (safetensors_bytes({k: v for k, v in tensors.items() if k != first}), first)):
            with self.subTest(fragment=fragment, size=len(damaged)):
                run_.state_file().write_bytes(damaged)
                self.expect_any({"load": run_.path, "save": run_.path, "train_iters": 4}, (2, 4), fragment)
        run_.state_file().write_bytes(good)
        for changes in ({"model": GOLDEN / "qwen3"}, {"model": GOLDEN / "qwen3", "dtype": "bf16"}):
            with self.subTest(**{name: str(value) for name, value in changes.items()}):
                self.expect_any({"load": run_.path, "save": self.fresh(), "train_iters": 4, **changes}, (2,),
                                "is another model than that of the run")
        (run_.path / "run.json").write_text("{")
        self.expect_any({"load": run_.path, "train_iters": 4}, (2, 4), "run.json")
        os.remove(run_.path / "run.json")
        self.expect_any({"load": run_.path, "train_iters": 4}, (2, 4), "run.json")

    def test_bits_flipped_in_checkpoints(self):
        """Bits anywhere: in the state, in the description of its layout, in the checksums. Each flip is refused, or is
        in bytes that nothing reads.
        """
        run_ = self.train(self.flags())
        whole = self.train(self.flags(train_iters=4))
        files = run_.state_file(), pathlib.Path(str(run_.state_file()) + ".xxh3")
        chance, refused = random.Random(5), 0
        kept = self.fresh("kept")
        shutil.copytree(run_.path, kept)
        for number in range(40):
            file = files[number % 5 == 0]
            content = bytearray(file.read_bytes())
            at = chance.randrange(min(2000, len(content)) if number % 3 == 0 else len(content))
            content[at] ^= 1 << chance.randrange(8)
            file.write_bytes(content)
            with self.subTest(file=file.name, at=at):
                outcome = run("train", *arguments({"load": run_.path, "train_iters": 4}))
                if outcome.code == 0:
                    self.assertEqual(Run(run_.path).result(), whole.result())
                else:
                    refused += 1
                    self.assertIn(outcome.code, (2, 4), str(outcome))
                    self.check_refusal(outcome, outcome.code, "state.safetensors")
            shutil.rmtree(run_.path)
            shutil.copytree(kept, run_.path)
        self.assertGreater(refused, 35)
        self.check_refusal(run("verify", "--store", f"{run_.path}/none"), 2, "none: No such file or directory")
        scrubbed = run("verify", "--store", run_.path)
        self.assertEqual(scrubbed.code, 0, str(scrubbed))
        self.assertIn("checkpoint of step 2", scrubbed.out)
        content = bytearray(files[0].read_bytes())
        content[-1] ^= 1
        files[0].write_bytes(content)
        self.check_refusal(run("verify", "--store", run_.path), 4, "state.safetensors")
        content[-1] ^= 1
        files[0].write_bytes(content)
        os.remove(files[1])
        self.check_refusal(run("train", *arguments({"load": run_.path, "train_iters": 4})), 4,
                           "state.safetensors.xxh3 is missing")

    def plan_to_edit(self):
        plan, _ = self.plan(self.flags(order="vertical", parameter_tier="nvme", optimizer_tier="nvme"))
        return plan, self.directory / "edited.json"

    def test_edited_choices(self):
        plan, file = self.plan_to_edit()
        choices = plan["choices"]
        for path, value in (
                (["choices"], None), (["tiers"], None), (["tiers", "device", "peak_bytes"], 1),
                (["tiers", "device"], 7), (["tiers"], []),
                (["choices", "order"], "sideways"), (["choices", "order"], None), (["choices", "micro_batches"], 7),
                (["choices", "micro_batches"], -1),
                (["choices", "ahead"], -5), (["choices", "ahead"], 1 << 64), (["choices", "slots"], 3),
                (["choices", "slots"], 1),
                (["choices", "update_chunk"], 0), (["choices", "update_chunk"], 4097),
                (["choices", "weight_tier"], [[0, 1]]),
                (["choices", "weight_tier"], [[9, 7]]), (["choices", "weight_tier"], [[2, 1 << 62]]),
                (["choices", "weight_tier"], "device"),
                (["choices", "saved"], [[5, 1]]), (["choices", "clip"], "yes"),
                (["choices", "clip"], not choices["clip"]), (["choices", "graph"], "mesh"),
                (["choices", "update"], "in-backward"), (["choices", "deferred"], None),
                (["choices", "deferred"], [[2, sum(n for _, n in choices["deferred"])]]),
                (["choices", "deferred"], [[1, sum(n for _, n in choices["deferred"])]]),
                (["choices", "optimizer_tier"], [[0, sum(n for _, n in choices["optimizer_tier"])]])):
            with self.subTest(path=path, value=str(value)):
                file.write_text(json.dumps(edited(plan, path, value)))
                self.expect_any(self.flags(save=self.fresh(), plan=file), (2,), "edited.json")
        for text in ("", "{", "[]", "3", json.dumps({**plan, "fits": False, "choices": None})):
            with self.subTest(text=text[:20]):
                file.write_text(text)
                self.expect_any(self.flags(save=self.fresh(), plan=file), (2,), "edited.json")

    def test_edited_operations(self):
        """Operations follow from the choices; a file with other operations is refused by the first entry that differs.
        """
        plan, file = self.plan_to_edit()
        ops = plan["ops"]
        waiting = next(i for i, waits in enumerate(ops["waits"]) if waits)
        count = ops["count"]
        for path, value, entry in (
                (["ops"], None, "ops is missing"), (["ops"], [], "ops is []"),
                (["ops", "of"], ops["of"][:-1], f"ops.of has {count - 1}"),
                (["ops", "of"], [*ops["of"], 0], f"ops.of has {count + 1}"), (["ops", "count"], count + 1, "ops.count"),
                (["ops", "turns"], 99, "ops.turns"),
                (["ops", "class", 3], "levitate", "ops.class[3]"), (["ops", "class"], None, "ops.class is missing"),
                (["ops", "class", 4], 99, "ops.class[4]"),
                (["ops", "classes", 0, "lane"], "motorway", "ops.classes[0]"),
                (["ops", "classes", 0, "bytes"], 1 << 40, "ops.classes[0]"),
                (["ops", "digest"], "xxh3:0123456789abcdef", "ops.digest"), (["ops", "digest"], 7, "ops.digest"),
                (["ops", "digest"], None, "ops.digest is missing"),
                (["ops", "waits", waiting], [1], f"ops.waits[{waiting}]"),
                (["ops", "waits", waiting], [], f"ops.waits[{waiting}]"),
                (["ops", "waits", waiting], "all", f"ops.waits[{waiting}]"),
                (["ops", "micro_batch", 0], 99, "ops.micro_batch[0]"),
                (["choices", "group"], 3, "choices.group"), (["choices", "group"], 0, "choices.group"),
                (["choices", "strip"], 99, "choices.strip"),
                (["model", "parameters"], 7, "model.parameters"), (["model"], None, "model is missing")):
            with self.subTest(path=path, value=str(value)[:60]):
                file.write_text(json.dumps(edited(plan, path, value)))
                self.check_refusal(run("plan", *arguments(self.flags(plan=file))), 2, f"edited.json: {entry}")


if __name__ == "__main__":
    unittest.main()
