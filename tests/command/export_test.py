"""spillway export: every weight is there, the configuration is kept, and a failure leaves nothing. spillway eval: the
loss of a model on data, for any micro-batch and any place of the weights. And spillway verify: plans that differ, bits
that do not, refusals, nothing left behind.
"""
import json
import math
import pathlib
import re
import shutil
import struct
import sys
import unittest

from harness import CommandTest, Golden, arguments, golden_names, read_safetensors, run

# Fails writes beyond this size of a file, like a full disk.
FULL = ("import os, resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100000, 100000)); os.execv(sys.argv[1], sys.argv[1:])")


def exported(path):
    tensors = {}
    for file in sorted(pathlib.Path(path).glob("*.safetensors")):
        tensors |= read_safetensors(file)
    return tensors


class Export(CommandTest):
    def untouched(self, golden, **changes):
        """A run whose only step changes nothing, so that its weights are those of the model's file."""
        return self.train(golden.flags(train_iters=1, lr=0, **changes))

    def export(self, run_, code=0, fragment="", **flags):
        flags = {"load": run_.path, "out": self.fresh("hf"), **flags}
        outcome = run("export", *arguments(flags))
        if code:
            self.check_refusal(outcome, code, fragment)
        else:
            self.assertEqual(outcome.code, 0, str(outcome))
        return flags["out"]

    def test_weights_are_those_of_the_file(self):
        for name in golden_names():
            with self.subTest(name):
                golden = Golden(name, self.directory)
                out = self.export(self.untouched(golden), max_shard_size="40KB")
                self.assertEqual(exported(out), read_safetensors(golden.model / "model.safetensors"))
                index = json.loads((out / "model.safetensors.index.json").read_text())
                self.assertGreater(len(set(index["weight_map"].values())), 1)
                given, kept = (json.loads((place / "config.json").read_text()) for place in (golden.model, out))
                for key in given.keys() - {"dtype", "torch_dtype"}:
                    self.assertEqual(kept[key], given[key], key)

    def test_bf16_run_gives_back_the_master_and_its_high_half(self):
        golden = Golden("qwen3", self.directory)
        run_ = self.untouched(golden, dtype="bf16")
        want = read_safetensors(golden.model / "model.safetensors")
        self.assertEqual(exported(self.export(run_, dtype="fp32")), want)
        halves = exported(self.export(run_))
        for name, (kind, shape, raw) in halves.items():
            self.assertEqual((kind, shape), ("BF16", want[name][1]))
            bits = struct.unpack(f"<{len(raw) // 2}H", raw)
            masters = struct.unpack(f"<{len(raw) // 2}I", want[name][2])
            self.assertEqual(bits, tuple(((master + 0x8000) >> 16) & 0xFFFF for master in masters), name)

    def test_tokenizer_files_and_unknown_keys_come_along(self):
        golden = Golden("qwen3", self.directory)
        model = self.fresh("model")
        shutil.copytree(golden.model, model)
        config = json.loads((model / "config.json").read_text())
        (model / "config.json").write_text(json.dumps({**config, "a_key_of_ours": {"kept": [1, 2.5, None]}}))
        files = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.json", "merges.txt",
                 "generation_config.json", "chat_template.jinja")
        for file in files:
            (model / file).write_text("{} " + file)
        out = self.export(self.untouched(golden, model=model))
        self.assertEqual(json.loads((out / "config.json").read_text())["a_key_of_ours"], {"kept": [1, 2.5, None]})
        for file in files:
            self.assertEqual((out / file).read_text(), "{} " + file)
        self.assertEqual(sorted(path.name for path in out.iterdir()),
                         sorted((*files, "config.json", "model.safetensors")))

    def test_a_step_is_chosen_and_what_is_exported_trains_on(self):
        golden = Golden("gpt2", self.directory)
        run_ = self.train(golden.flags(train_iters=2, save_interval=1))
        first, second = self.export(run_, step=1), self.export(run_)
        self.assertNotEqual(exported(first), exported(second))
        self.export(run_, 2, "--step: found 7", step=7)
        again = self.train(golden.flags(train_iters=1, lr=0, model=second))
        self.assertEqual(exported(self.export(again)), exported(second))

    def test_refusals_leave_nothing(self):
        golden = Golden("qwen3", self.directory)
        run_ = self.untouched(golden)
        before = self.export(run_)
        self.export(run_, 2, "not empty", out=before)
        self.export(run_, 2, "not a directory", out=golden.data)
        self.export(run_, 2, "run.json", load=self.fresh_directory())
        self.export(run_, 2, "--dtype", dtype="fp8")
        self.export(run_, 2, "--max-shard-size", max_shard_size="much")
        place = self.fresh_directory("full")
        outcome = run("export", *arguments({"load": run_.path, "out": place / "hf"}),
                      prefix=(sys.executable, "-c", FULL))
        self.check_refusal(outcome, 4, "hf")
        self.assertEqual(list(place.iterdir()), [])

    def test_damage_is_noticed(self):
        golden = Golden("qwen3", self.directory)
        run_ = self.untouched(golden)
        whole = run_.state_file().read_bytes()
        (length,) = struct.unpack_from("<Q", whole)
        place = self.fresh_directory("damaged")
        run_.state_file().write_bytes(whole[:100000])
        self.export(run_, 4, "state.safetensors", out=place / "a")
        at = 8 + length + 400
        run_.state_file().write_bytes(whole[:at] + b"\xff\xff\xff\x7f" + whole[at + 4:])
        damaged = run("export", *arguments({"load": run_.path, "out": place / "a"}))
        self.check_refusal(damaged, 4, "embedding tile 0/weight is damaged")
        # The same, but with a checksum that agrees, as if the run had saved it.
        found, written = re.search(r"has checksum (\w{16}) and was written with (\w{16})", damaged.err).groups()
        sums = pathlib.Path(f"{run_.state_file()}.xxh3")
        sums.write_text(sums.read_text().replace(written, found))
        self.export(run_, 4, "element 100", out=place / "a")
        shutil.rmtree(run_.state_file().parent)
        self.export(run_, 2, "no checkpoint", out=place / "a")
        self.assertEqual(list(place.iterdir()), [])



class Evaluation(CommandTest):
    def evaluate(self, **flags):
        outcome = run("eval", *arguments({"format": "json", **flags}))
        self.assertEqual(outcome.code, 0, str(outcome))
        return json.loads(outcome.out)

    def flags(self, golden, **changes):
        return {"model": golden.model, "data": golden.data, "seq_length": golden.json["seq_len"], "dtype": "fp32",
                **changes}

    def test_loss_of_the_first_batch_is_the_golden_one(self):
        for name in golden_names():
            with self.subTest(name):
                golden = Golden(name, self.directory)
                batch = self.fresh("batch").with_suffix(".jsonl")
                batch.write_text("".join(golden.data.read_text().splitlines(True)[:golden.json["batch"]]))
                result = self.evaluate(**self.flags(golden, data=batch))
                # An evaluation is of tokens alone, without the loss of a mixture's routers.
                routers = golden.json.get("aux_losses", [0])[0] * golden.json.get("router_aux_loss_coef", 0)
                expected = golden.json["losses"][0] - routers
                self.assertAlmostEqual(result["loss"], expected, delta=1e-5 * result["loss"])
                self.assertEqual(result["sequences"], golden.json["batch"])
                self.assertEqual(result["perplexity"], math.exp(result["loss"]))

    def test_every_sequence_counts_once(self):
        golden = Golden("qwen3", self.directory)
        results = [self.evaluate(**self.flags(golden, micro_batch_size=size)) for size in (1, 5, 64)]
        for result in results:
            self.assertEqual((result["tokens"], result["sequences"]), (48 * 24, 48))
            self.assertAlmostEqual(result["loss"], results[0]["loss"], delta=1e-6)

    def test_weights_on_nvme_give_the_same_bits(self):
        golden = Golden("qwen3", self.directory)
        flags = self.flags(golden)
        self.check_refusal(run("eval", *arguments({**flags, "device_memory": 720896})), 3, "does not fit")
        spilled = self.evaluate(**flags, device_memory=720896, nvme=self.fresh_directory("nvme"))
        self.assertEqual(spilled["loss"], self.evaluate(**flags)["loss"])

    def test_of_a_run_as_train_logs_it(self):
        golden = Golden("llama_gqa", self.directory)
        run_ = self.train(golden.flags(train_iters=2, save_interval=1, eval_interval=1, eval_data=golden.data))
        for step, record in enumerate(run_.log, 1):
            self.assertEqual(self.evaluate(load=run_.path, step=step)["loss"], record["eval_loss"])
        self.assertEqual(self.evaluate(load=run_.path)["loss"], run_.log[-1]["eval_loss"])

    def test_refusals(self):
        golden = Golden("qwen3", self.directory)
        for change, fragment in (({"data": None}, "--data"), ({"model": None}, "--model"), ({"step": 1}, "--step"),
                                 ({"load": self.fresh_directory()}, "run.json"),
                                 ({"data": "nowhere"}, "nowhere")):
            with self.subTest(change):
                self.check_refusal(run("eval", *arguments(self.flags(golden, **change))), 2, fragment)


class Verify(CommandTest):
    def verify(self, flags, code=0):
        outcome = run("verify", *arguments({"format": "json", **flags}))
        self.assertEqual(outcome.code, code, str(outcome))
        return json.loads(outcome.out)

    def test_on_nvme_against_in_core(self):
        golden = Golden("gpt2", self.directory)
        nvme = self.fresh_directory("nvme")
        result = self.verify(golden.flags(micro_batch_size=1, nvme=nvme, parameter_tier="nvme", optimizer_tier="nvme",
                                          activation_tier="nvme"))
        self.assertTrue(result["equal"])
        self.assertEqual([step["step"] for step in result["steps"]], [1, 2, 3])
        for step, loss in zip(result["steps"], golden.json["losses"]):
            self.assertEqual(step["loss"][0], step["loss"][1])
            self.assertAlmostEqual(step["loss"][0], loss, delta=1e-3)
        differ = " ".join(result["plans_differ"])
        for what in ("weights on nvme: 9, 0", "optimizer states on nvme: 9, 0"):
            self.assertIn(what, differ)
        self.assertEqual([path.name for path in nvme.iterdir() if "verify" in path.name], [])

    def test_in_core_against_another_schedule_and_from_a_checkpoint(self):
        golden = Golden("qwen3", self.directory)
        flags = golden.flags(dtype="bf16", state="compact", update="after", order="horizontal")
        self.assertTrue(self.verify({**flags, "steps": 2})["equal"])
        run_ = self.train({**flags, "train_iters": 1})
        before = sorted(path.name for path in run_.path.rglob("*"))
        result = self.verify({"load": run_.path, "steps": 1, "profile": flags["profile"]})
        self.assertEqual([step["step"] for step in result["steps"]], [2])
        self.assertEqual(sorted(path.name for path in run_.path.rglob("*")), before)

    def test_refusals(self):
        golden = Golden("qwen3", self.directory)
        for change, code, fragment in (({"steps": 0}, 2, "--steps"), ({"data": None}, 2, "--data"),
                                       ({"device_memory": "1MiB"}, 3, "does not fit"),
                                       ({"lr": 1e30}, 6, "nothing to compare"), ({"format": "html"}, 2, "html")):
            with self.subTest(change):
                outcome = run("verify", *arguments(golden.flags(**change)))
                self.check_refusal(outcome, code, fragment)


if __name__ == "__main__":
    unittest.main()
