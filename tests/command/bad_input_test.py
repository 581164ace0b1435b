"""What is refused: exit code and one error line that names what was found, nothing raw, and nothing half-written left behind."""
import json
import os
import pathlib
import random
import shutil
import struct
import subprocess
import unittest

from harness import GOLDEN, PATIENCE, PROGRAM, CommandTest, Golden, Run, arguments, begin, finish, read_safetensors, run, safetensors_bytes


def listing(*directories):
    return sorted(str(path) for directory in directories for path in pathlib.Path(directory).rglob("*"))


class Refusals(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.golden = Golden("llama_gqa", cls.directory)
        cls.nvme = cls.fresh_directory("nvme")

    def flags(self, **changes):
        return self.golden.flags(**{"train_iters": 2, "nvme": self.nvme, **changes})

    def refuse(self, code, fragment, save="fresh", words=None, **changes):
        """Runs train with changed flags and expects a refusal that leaves neither a run directory nor anything on NVMe."""
        where = self.fresh("refused") if save == "fresh" else save
        before = listing(self.nvme)
        outcome = run("train", *(words if words is not None else arguments(self.flags(save=where, **changes))), timeout=60)
        self.check_refusal(outcome, code, fragment)
        self.assertEqual(listing(self.nvme), before)
        if save == "fresh":
            self.assertFalse(where.exists(), "left behind: " + str(listing(where)))
            # The same directory takes the next run.
            again = self.train(self.flags(save=where))
            self.assertEqual(again.steps(), [2])
        return outcome

    # --- the command line ---

    def test_flags(self):
        table = [
            ({"device_memory": "12 parsecs"}, "--device-memory"),
            ({"device_memory": "-1"}, "--device-memory"),
            ({"device_memory": "1e30GiB"}, "--device-memory"),
            ({"device_memory": "99999999999TiB"}, "--device-memory"),
            ({"device_memory": ""}, "--device-memory"),
            ({"device_memory": "nan"}, "--device-memory"),
            ({"nvme": f"{self.nvme}=lots"}, "--nvme"),
            ({"nvme": [self.nvme, "--nvme", self.nvme]}, "twice"),
            ({"lr": "fast"}, "--lr"),
            ({"lr": "nan"}, "--lr"),
            ({"lr": "-1"}, "--lr"),
            ({"lr": "inf"}, "--lr"),
            ({"adam_beta1": "1"}, "--adam-beta1"),
            ({"adam_beta2": "-0.5"}, "--adam-beta2"),
            ({"adam_eps": "-1"}, "--adam-eps"),
            ({"clip_grad": "-1"}, "--clip-grad"),
            ({"train_iters": "0"}, "--train-iters"),
            ({"train_iters": "-3"}, "--train-iters"),
            ({"train_iters": "99999999999999999999"}, "--train-iters"),
            ({"seq_length": "0"}, "--seq-length"),
            ({"seq_length": "129"}, "--seq-length"),
            ({"micro_batch_size": "2"}, "--global-batch-size"),
            ({"micro_batch_size": "0"}, "--micro-batch-size"),
            ({"global_batch_size": "-3"}, "--global-batch-size"),
            ({"order": "diagonal"}, "--order"),
            ({"update": "never"}, "--update"),
            ({"dtype": "int8"}, "--dtype"),
            ({"dtype": "fp16"}, "--dtype"),
            ({"state": "compact"}, "--state"),
            ({"device": "cuda"}, "--device"),
            ({"device": "tpu"}, "--device"),
            ({"activation_tier": "cloud"}, "--activation-tier"),
            ({"nvme": None, "optimizer_tier": "nvme"}, "--nvme"),
            ({"ranks": "3", "global_batch_size": "9"}, "--ranks 3"),
            ({"ranks": "2", "zero_group_size": "4"}, "--zero-group-size"),
            ({"keep_last": "-1"}, "--keep-last"),
            ({"learning_rate": "1"}, "--learning-rate"),
            ({"model": None}, "--model"),
            ({"data": None}, "--data"),
            ({"model": "no-such-model-9000"}, "no-such-model-9000"),
            ({"data": "no/such/file.jsonl"}, "no/such/file.jsonl"),
            ({"profile": "no/such/profile.json"}, "no/such/profile.json"),
            ({"plan": "no/such/plan.json"}, "no/such/plan.json"),
            ({"load": "no/such/run"}, "no/such/run"),
            ({"config": "no/such/options.json"}, "no/such/options.json"),
        ]
        for changes, fragment in table:
            with self.subTest(**{name: str(value) for name, value in changes.items()}):
                outcome = run("train", *arguments(self.flags(save=self.fresh(), **changes)), timeout=60)
                self.check_refusal(outcome, 2, fragment)
        for words, fragment in (((), "command"), (("tarin",), "tarin"), (("train", "--data"), "--data"), (("train", "extra"), "extra")):
            with self.subTest(words=words):
                self.check_refusal(run(*words), 2, fragment)

    # --- model directories ---

    def model(self, config=None, weights=None, text=None):
        """A copy of the case's model with a changed configuration (a value of None takes the key out) or other weights."""
        place = self.fresh_directory("model")
        settings = json.loads((self.golden.model / "config.json").read_text())
        settings.update(config or {})
        (place / "config.json").write_text(text if text is not None else json.dumps({k: v for k, v in settings.items() if v is not None}))
        if weights is None:
            shutil.copy(self.golden.model / "model.safetensors", place)
        elif weights:
            (place / "model.safetensors").write_bytes(weights)
        return place

    def test_configurations(self):
        table = [
            (dict(text="{"), "config.json"),
            (dict(text=""), "config.json"),
            (dict(text="[]"), "config.json"),
            (dict(text="null"), "config.json"),
            (dict(text="\xff\xfe"), "config.json"),
            (dict(text='{"a":' * 20000 + "1" + "}" * 20000), "config.json"),
            (dict(text='{"model_type": "llama", "model_type": "gpt2"}'), "model_type"),
            (dict(config={"model_type": "mamba", "architectures": ["MambaForCausalLM"]}), "mamba"),
            (dict(config={"model_type": None, "architectures": None}), "model_type"),
            (dict(config={"hidden_size": -64}), "hidden_size"),
            (dict(config={"hidden_size": 0}), "hidden_size"),
            (dict(config={"hidden_size": 64.5}), "hidden_size"),
            (dict(config={"hidden_size": "64"}), "hidden_size"),
            (dict(config={"hidden_size": 1 << 62}), "hidden_size"),
            (dict(config={"hidden_size": None}), "shape"),  # the family's default, which the weights do not have
            (dict(config={"vocab_size": 0}), "vocab_size"),
            (dict(config={"vocab_size": 1 << 60}), "vocab_size"),
            (dict(config={"num_hidden_layers": 0}), "num_hidden_layers"),
            (dict(config={"num_hidden_layers": 1 << 40}), "num_hidden_layers"),
            (dict(config={"num_attention_heads": 0}), "num_attention_heads"),
            (dict(config={"num_attention_heads": 4, "num_key_value_heads": 3}), "num_key_value_heads"),
            (dict(config={"head_dim": 15}), "head_dim"),
            (dict(config={"hidden_act": "swish9"}), "hidden_act"),
            (dict(config={"rms_norm_eps": -1}), "rms_norm_eps"),
            (dict(config={"rope_parameters": {"rope_type": "spiral", "rope_theta": 1e4}}), "spiral"),
            (dict(config={"rope_parameters": {"rope_type": "default", "rope_theta": 0}}), "rope_theta"),
            # The weights of another model.
            (dict(config={"num_hidden_layers": 3}), "model.layers.2"),
            (dict(config={"num_hidden_layers": 1}), "model.layers.1"),
            (dict(config={"vocab_size": 255}), "255"),
            (dict(config={"intermediate_size": 144}), "mlp"),
            (dict(config={"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]}), "bias"),
        ]
        for changes, fragment in table:
            with self.subTest(**{name: str(value)[:60] for name, value in changes.items()}):
                place = self.model(**changes)
                outcome = run("train", *arguments(self.flags(save=self.fresh(), model=place)), timeout=60)
                self.check_refusal(outcome, 2, fragment)
                self.assertIn(place.name, outcome.err)

    def test_weights(self):
        good = (self.golden.model / "model.safetensors").read_bytes()
        tensors = read_safetensors(self.golden.model / "model.safetensors")
        (length,) = struct.unpack_from("<Q", good)
        name = "model.layers.1.mlp.up_proj.weight"
        dtype, shape, content = tensors[name]
        header = json.loads(good[8:8 + length])

        def changed(**fields):
            return safetensors_bytes(tensors, json.dumps({**header, name: {**header[name], **fields}}).encode())

        def with_tensor(new):
            return safetensors_bytes({**tensors, name: new})

        other = header["model.norm.weight"]["data_offsets"]
        nan, infinity = struct.pack("<f", float("nan")), struct.pack("<f", float("inf"))
        doubled = json.dumps(header)[:-1] + f', "{name}": {json.dumps(header[name])}}}'
        end = len(good) - 8 - length
        table = [
            (b"\0", 4, "model.safetensors"),
            (good[:4], 4, "model.safetensors"),
            (good[:8 + length // 2], 4, "model.safetensors"),
            (good[:-1000], 4, "model.safetensors"),
            (good[:-1], 4, "model.safetensors"),
            (good + b"tail", None, "model.safetensors"),
            (struct.pack("<Q", 1 << 63) + good[8:], None, "header"),
            (struct.pack("<Q", (1 << 64) - 1) + good[8:], None, "header"),
            (struct.pack("<Q", 0) + good[8:], None, "header"),
            (b"\x89PNG\r\n\x1a\n" + bytes(1000), None, "model.safetensors"),
            (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", None, "model.safetensors"),
            (safetensors_bytes(tensors, b"{" * 5000), None, "model.safetensors"),
            (safetensors_bytes(tensors, doubled.encode()), None, name),
            (changed(data_offsets=other), None, name),
            (changed(data_offsets=[0, len(content)]), None, "model.safetensors"),
            (changed(data_offsets=[header[name]["data_offsets"][1], header[name]["data_offsets"][0]]), None, name),
            (changed(data_offsets=[end, end + len(content)]), None, "data"),
            (changed(data_offsets=[-4, len(content) - 4]), None, name),
            (changed(data_offsets=[0, 1 << 64]), None, name),
            (changed(data_offsets="all"), None, name),
            (changed(shape=[shape[1], shape[0]]), None, name),
            (changed(shape=[shape[0] * shape[1]]), None, name),
            (changed(shape=[-shape[0], -shape[1]]), None, name),
            (changed(shape=[1 << 32, 1 << 32]), None, name),
            (changed(dtype="F64"), None, name),
            (changed(dtype="BF16"), None, name),
            (changed(dtype="Q4"), None, name),
            (with_tensor(("I32", shape, content)), None, name),
            (with_tensor((dtype, shape, content[:400] + nan + content[404:])), None, name),
            (with_tensor((dtype, shape, content[:-4] + infinity)), None, name),
            (safetensors_bytes({k: v for k, v in tensors.items() if k != name}), None, name),
            (safetensors_bytes({**tensors, "model.layers.7.mlp.up_proj.weight": tensors[name]}), None, "model.layers.7"),
            (safetensors_bytes({}), None, "model.safetensors"),
        ]
        for number, (weights, code, fragment) in enumerate(table):
            with self.subTest(number, fragment=fragment):
                place = self.model(weights=weights)
                outcome = self.expect_any(self.flags(save=self.fresh(), model=place), (2, 4) if code is None else (code, 2), fragment)
                self.assertIn("model.safetensors", outcome.err)

    def expect_any(self, flags, codes, fragment):
        places = [self.nvme] + ([flags["save"].parent] if "save" in flags else [])  # a run that was there stays as it was
        before = listing(*places)
        outcome = run("train", *arguments(flags), timeout=60)
        self.assertIn(outcome.code, codes, str(outcome))
        self.check_refusal(outcome, outcome.code, fragment)
        self.assertEqual(listing(*places), before)
        return outcome

    def test_what_was_refused_runs_once_it_is_mended(self):
        """Found out while weights are read, when the run has its directory, its store and its tables."""
        good = (self.golden.model / "model.safetensors").read_bytes()
        place = self.model()
        for tiers in ({}, {"parameter_tier": "nvme", "optimizer_tier": "nvme"}):
            where = self.fresh_directory()
            flags = self.flags(model=place, save=where / "not" / "yet", csv=self.fresh("table"), tensorboard=self.fresh("curves"), **tiers)
            (place / "model.safetensors").write_bytes(good[:-1000])
            self.expect_any(flags, (2, 4), "model.safetensors")
            self.assertEqual(listing(where), [])
            (place / "model.safetensors").write_bytes(good)
            self.assertEqual(self.train(flags).steps(), [2])

    def test_shards(self):
        def sharded(index):
            place = self.fresh_directory("model")
            shutil.copy(self.golden.model / "config.json", place)
            shutil.copy(self.golden.model / "model.safetensors", place / "model-00001-of-00001.safetensors")
            (place / "model.safetensors.index.json").write_text(index if isinstance(index, str) else json.dumps(index))
            return place

        names = read_safetensors(self.golden.model / "model.safetensors")
        right = {"weight_map": {name: "model-00001-of-00001.safetensors" for name in names}}
        self.train(self.flags(model=sharded(right)))
        first = next(iter(names))
        table = [
            ("{", "index"), ({}, "weight_map"), ({"weight_map": []}, "weight_map"), ({"weight_map": {first: 3}}, "index"),
            ({"weight_map": {**right["weight_map"], first: "no-such.safetensors"}}, "no-such.safetensors"),
            ({"weight_map": {**right["weight_map"], first: "../../../etc/passwd"}}, "etc/passwd"),
            ({"weight_map": {**right["weight_map"], "model.extra.weight": "model-00001-of-00001.safetensors"}}, "model.extra.weight"),
        ]
        for index, fragment in table:
            with self.subTest(index=str(index)[:80]):
                self.expect_any(self.flags(save=self.fresh(), model=sharded(index)), (2, 4), fragment)

    # --- data ---

    def test_data(self):
        def rows(*records):
            return "".join((record if isinstance(record, str) else json.dumps(record)) + "\n" for record in records)

        good = {"input_ids": list(range(33))}
        table = [
            ("empty.jsonl", "", "empty.jsonl"),
            ("blank.jsonl", "\n\n", "blank.jsonl"),
            ("vocabulary.jsonl", rows({"input_ids": [1, 2, 256] + [0] * 30}), "256"),
            ("negative.jsonl", rows({"input_ids": [1, -2] + [0] * 31}), "-2"),
            ("huge.jsonl", rows({"input_ids": [1, 1 << 70] + [0] * 31}), "huge.jsonl"),
            ("fraction.jsonl", rows({"input_ids": [1, 2.5] + [0] * 31}), "fraction.jsonl"),
            ("long.jsonl", rows({"input_ids": [1] * 40}), "40"),
            ("one.jsonl", rows({"input_ids": [1]}), "one.jsonl"),
            ("none.jsonl", rows({"input_ids": []}), "none.jsonl"),
            ("other.jsonl", rows({"ids": [1, 2]}), "other.jsonl"),
            ("broken.jsonl", rows(good, '{"input_ids": [1, 2'), "broken.jsonl"),
            ("array.jsonl", rows([1, 2, 3]), "array.jsonl"),
            ("labels.jsonl", rows({**good, "labels": [1, 2]}), "labels"),
            ("label.jsonl", rows({**good, "labels": [300] * 33}), "300"),
            ("lossless.jsonl", rows({**good, "labels": [-100] * 33}), "loss"),
            ("nested.jsonl", "[" * 100000 + "\n", "nested.jsonl"),
            ("file.txt", "", "file.txt"),
            ("short.txt", "ab", "short.txt"),
            ("file.parquet", "PAR1", "file.parquet"),
            ("odd.bin", "abc", "odd.bin"),
            ("zero.bin", "\0" * 2048, "zero.bin"),
        ]
        place = self.fresh_directory("data")
        for name, text, fragment in table:
            with self.subTest(name):
                (place / name).write_text(text)
                self.expect_any(self.flags(save=self.fresh(), data=place / name, tokenizer="bytes" if name.endswith("txt") else None), (2, 4), fragment)
        self.expect_any(self.flags(save=self.fresh(), data=self.fresh_directory("empty")), (2,), "empty")

    def test_text_without_a_tokenizer(self):
        text = self.directory / "text.txt"
        text.write_text("words " * 100)
        self.refuse(2, "tokenizer", data=text)

    # --- budgets ---

    def test_what_it_says_would_fit_fits(self):
        for changes in ({}, {"nvme": None}, {"order": "horizontal", "update": "after", "activation_tier": "device"}):
            with self.subTest(**{name: str(value) for name, value in changes.items()}):
                flags = self.flags(**changes)
                least = self.smallest_budget(flags)
                for budget in (1, least - 4096):
                    outcome = self.refuse(3, "device", device_memory=budget, **changes)
                    plan, _ = self.plan({**flags, "device_memory": budget})
                    (offered,) = plan["would_fit"][0]
                    self.assertIn(offered, outcome.err)
                    self.assertTrue(offered.startswith("--device-memory "))
                    self.train({**flags, "device_memory": offered.split()[1]})
                    self.assertFalse(plan["fits"])
                    self.assertEqual(plan["short_tier"], "device")
                    self.assertGreater(plan["lacking_bytes"], 0)
                    self.assertTrue(plan["would_fit"])

    def test_nvme_budget(self):
        outcome = self.refuse(3, "nvme", nvme=f"{self.nvme}=64KiB", parameter_tier="nvme", optimizer_tier="nvme")
        self.assertIn("--nvme", outcome.err)

    def test_combinations_that_cannot_be_exact(self):
        for changes in ({"nvme": None}, {"durability": "checkpoint"}, {"optimizer_tier": "device"}):
            with self.subTest(**changes):
                self.refuse(2, "in-backward", update="in-backward", **changes)

    # --- directories ---

    def test_directories(self):
        missing, file = self.directory / "missing", self.directory / "file"
        file.write_text("x")
        self.refuse(2, "missing", nvme=missing)
        self.refuse_any((2, 4), "file", nvme=file)
        self.refuse_any((2, 4), "file", save=file)
        self.refuse_any((2, 4), "file", save=file / "below")
        self.assertEqual(file.read_text(), "x")

    def refuse_any(self, codes, fragment, **changes):
        outcome = run("train", *arguments(self.flags(**{"save": self.fresh(), **changes})), timeout=60)
        self.assertIn(outcome.code, codes, str(outcome))
        self.check_refusal(outcome, outcome.code, fragment)

    def test_read_only_directories(self):
        place = self.fresh_directory("readonly")
        with Mounted(self, place, "size=1m,ro"):
            self.refuse_any((2, 4), place.name, save=place / "run")
            self.refuse_any((2, 4), place.name, nvme=place, parameter_tier="nvme", optimizer_tier="nvme")

    def test_full_disk(self):
        on_nvme = {"parameter_tier": "nvme", "optimizer_tier": "nvme"}
        place = self.fresh_directory("full")
        with Mounted(self, place, "size=64k"):
            (place / "ballast").write_bytes(bytes(60 << 10))
            self.refuse_any((3,), f"--nvme {place}: there is no room", nvme=place, **on_nvme)
            # What only shows a run is not worth ending it.
            for words in ({"csv": place / "run.csv"}, {"tensorboard": place / "curves"}):
                shown = self.train(self.flags(train_iters=100, **words))
                self.assertEqual(shown.steps(), [100])
                self.assertEqual(shown.outcome.out.count(f"note: {place}"), 1)
                self.assertIn("the run goes on", shown.outcome.out)
                other = place / ("others beside " + next(iter(words)))
                for again in ({"csv": other.with_suffix(".csv")}, {"tensorboard": other}):  # there is no room to begin with
                    outcome = run("train", *arguments(self.flags(save=self.fresh(), **again)))
                    self.check_refusal(outcome, 4, str(place))
                    self.assertIn("Free space", outcome.err)
                (place / "run.csv").unlink(missing_ok=True)
        with Mounted(self, place, "size=512k"):
            # Checked by planning, where the store's size is known to be too much.
            self.refuse_any((3, 4), "nvme", nvme=place, **on_nvme)
            self.assertEqual(listing(place), [])
            # Found out while a checkpoint is written.
            outcome = run("train", *arguments(self.flags(save=place / "run")))
            self.check_refusal(outcome, 4, str(place))
            self.assertEqual([path for path in listing(place) if "safetensors" in path], [])
            self.assertEqual(len((place / "run/log.jsonl").read_text().splitlines()), 2)
        with Mounted(self, place, "size=4m"):
            # Room for one checkpoint and not for the second: the first stays, whole, and the run goes on from it.
            flags = self.flags(save=place / "run", train_iters=6, save_interval=2)
            room = self.train(self.flags(save=place / "sized")).state_file().stat().st_size
            shutil.rmtree(place / "sized")
            (place / "ballast").write_bytes(bytes((4 << 20) - room - room // 2))
            self.check_refusal(run("train", *arguments(flags)), 4, str(place))
            os.remove(place / "ballast")
            self.assertEqual(Run(place / "run").steps(), [2])
            # Two more checkpoints need room, too.
            on = self.train({"load": place / "run", "save": place / "run", "save_interval": 0, "keep_last": 1})
            self.assertEqual(on.steps(), [6])
            whole = self.train(self.flags(train_iters=6))
            self.assertEqual(on.result(), whole.result())

    def test_an_output_that_cannot_be_written(self):
        """Half a plan is no plan; a reader that has enough is none that complains."""
        words = ["plan", *arguments(self.flags(format="json"))]
        with open("/dev/full", "wb") as full:
            for what in (words, words[:-2], ["plan", "--help"]):
                self.check_refusal(run(*what, stdout=full), 4, "standard output")
            silent = subprocess.run([PROGRAM, "plan", "--no-such-flag"], stderr=full, timeout=60 * PATIENCE)
            self.assertEqual(silent.returncode, 2)
        reading, writing = os.pipe()
        os.close(reading)
        try:
            outcome = run(*words, stdout=writing)
        finally:
            os.close(writing)
        self.assertEqual((outcome.code, outcome.err), (0, ""))

    def test_closed_standard_streams(self):
        """No file of the run takes the place of the terminal, and what is told to that."""
        save = self.fresh()
        flags = self.flags(save=save, parameter_tier="nvme", optimizer_tier="nvme")
        closed = subprocess.run(["bash", "-c", '"$0" "$@" <&- >&- 2>&-', PROGRAM, "train", *arguments(flags)], timeout=60 * PATIENCE)
        self.assertEqual(closed.returncode, 0)
        self.assertEqual(Run(save).result(), self.train({**flags, "save": self.fresh()}).result())

    def test_a_directory_in_use(self):
        save, nvme = self.fresh(), self.fresh_directory("nvme")
        flags = self.flags(save=save, nvme=nvme, train_iters=1000000, parameter_tier="nvme", optimizer_tier="nvme")
        first = begin("train", *arguments(flags))
        try:
            while not (save / "log.jsonl").exists() and first.poll() is None:
                pass
            self.refuse_any((2, 4), save.name, save=save)
            self.refuse_any((2, 4), nvme.name, nvme=nvme, parameter_tier="nvme", optimizer_tier="nvme")
        finally:
            first.send_signal(2)
        self.assertEqual(finish(first).code, 130)
        self.assertEqual(listing(nvme), [])
        self.refuse_any((2,), "already holds a run", save=save)

    # --- runs that go wrong ---

    def test_numbers_that_leave_the_range(self):
        for name, changes in {"in core": {}, "nvme": {"parameter_tier": "nvme", "optimizer_tier": "nvme"}}.items():
            for update in ("after", "in-backward", "in-next-forward"):
                if name == "in core" and update == "in-backward":
                    continue
                with self.subTest(name, update=update):
                    flags = self.flags(save=self.fresh(), train_iters=20, lr=3e37, update=update, **changes)
                    outcome = run("train", *arguments(flags))
                    self.check_refusal(outcome, 6, "step ")
                    self.assertIn("training stopped", outcome.err)
                    stopped = Run(flags["save"])
                    good = len(stopped.log)
                    self.assertIn(f"step {good + 1}:", outcome.err)
                    self.assertEqual(stopped.steps(), [good])
                    self.check_finite(stopped.state_file())
                    self.assertEqual(listing(self.nvme), [])
                    # What was kept is the state that a run which ended there has.
                    short = self.train({**flags, "save": self.fresh(), "train_iters": good})
                    self.assertEqual(short.result(), stopped.result())

    def check_finite(self, path):
        for name, (dtype, _, raw) in read_safetensors(path).items():
            if dtype == "F32":
                self.assertTrue(all(value - value == 0 for value in struct.unpack(f"<{len(raw) // 4}f", raw)), name)

    def test_weights_that_are_finite_and_too_large(self):
        tensors = read_safetensors(self.golden.model / "model.safetensors")
        dtype, shape, content = tensors["lm_head.weight"]
        tensors["lm_head.weight"] = (dtype, shape, struct.pack("<f", 3e38) * (len(content) // 4))
        place = self.model(weights=safetensors_bytes(tensors))
        flags = self.flags(save=self.fresh(), model=place)
        outcome = run("train", *arguments(flags))
        self.check_refusal(outcome, 6, "step 1")
        # The same of commands that keep nothing.
        checked = run("verify", *arguments(self.flags(model=place)))
        self.check_refusal(checked, 6, "step 1")
        evaluated = run("eval", "--model", place, "--data", self.golden.data, "--seq-length", self.golden.json["seq_len"])
        self.check_refusal(evaluated, 6, "the loss is")
        self.assertNotIn("last good state is that of step 0", outcome.err)

    # --- checkpoints ---

    def test_damaged_checkpoints(self):
        run_ = self.train(self.flags())
        good = run_.state_file().read_bytes()
        tensors = read_safetensors(run_.state_file())
        first = next(iter(tensors))
        for damaged, fragment in ((good[:-100], "state.safetensors"), (b"", "state.safetensors"), (good[:100], "state.safetensors"),
                                  (safetensors_bytes({k: v for k, v in tensors.items() if k != first}), first)):
            with self.subTest(fragment=fragment, size=len(damaged)):
                run_.state_file().write_bytes(damaged)
                self.expect_any({"load": run_.path, "save": run_.path, "train_iters": 4}, (2, 4), fragment)
        run_.state_file().write_bytes(good)
        for changes in ({"model": GOLDEN / "qwen3"}, {"model": GOLDEN / "qwen3", "dtype": "bf16"}):
            with self.subTest(**{name: str(value) for name, value in changes.items()}):
                self.expect_any({"load": run_.path, "save": self.fresh(), "train_iters": 4, **changes}, (2,), "state.safetensors")
        (run_.path / "run.json").write_text("{")
        self.expect_any({"load": run_.path, "train_iters": 4}, (2, 4), "run.json")
        os.remove(run_.path / "run.json")
        self.expect_any({"load": run_.path, "train_iters": 4}, (2, 4), "run.json")

    def test_bits_flipped_in_checkpoints(self):
        """Anywhere: in the state, in what says where it lies, in the checksums. Refused, or in bytes that nothing reads."""
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
        self.check_refusal(run("train", *arguments({"load": run_.path, "train_iters": 4})), 4, "state.safetensors.xxh3 is missing")

    def test_edited_plans(self):
        flags = self.flags(order="vertical", parameter_tier="nvme", optimizer_tier="nvme")
        plan, _ = self.plan(flags)
        file = self.directory / "edited.json"

        def edited(path, value):
            copy = json.loads(json.dumps(plan))
            place = copy
            for key in path[:-1]:
                place = place[key]
            if value is None:
                del place[path[-1]]
            else:
                place[path[-1]] = value
            return copy

        choices = plan["choices"]
        for path, value in (
                (["choices"], None), (["tiers"], None), (["tiers", "device", "peak_bytes"], 1), (["tiers", "device"], 7), (["tiers"], []),
                (["choices", "order"], "sideways"), (["choices", "order"], None), (["choices", "micro_batches"], 7), (["choices", "micro_batches"], -1),
                (["choices", "lookahead"], -5), (["choices", "lookahead"], 1 << 62), (["choices", "slots"], 3), (["choices", "slots"], 1),
                (["choices", "update_chunk"], 0), (["choices", "update_chunk"], 4097), (["choices", "weight_tier"], [[0, 1]]),
                (["choices", "weight_tier"], [[9, 7]]), (["choices", "weight_tier"], [[2, 1 << 62]]), (["choices", "weight_tier"], "device"),
                (["choices", "saved"], [[5, 1]]), (["choices", "clip"], "yes"), (["choices", "clip"], not choices["clip"]), (["choices", "graph"], "mesh"),
                (["choices", "update"], "in-backward"), (["choices", "deferred"], None), (["choices", "deferred"], [[2, sum(n for _, n in choices["deferred"])]]),
                (["choices", "deferred"], [[1, sum(n for _, n in choices["deferred"])]]), (["choices", "optimizer_tier"], [[0, sum(n for _, n in choices["optimizer_tier"])]])):
            with self.subTest(path=path, value=str(value)):
                file.write_text(json.dumps(edited(path, value)))
                self.expect_any(self.flags(save=self.fresh(), plan=file), (2,), "edited.json")
        # What the operations do follows from the choices; a file that says otherwise is refused by the first entry that differs.
        ops = plan["ops"]
        waiting = next(i for i, waits in enumerate(ops["waits"]) if waits)
        count = ops["count"]
        for path, value, entry in (
                (["ops"], None, "ops is missing"), (["ops"], [], "ops is []"), (["ops", "of"], ops["of"][:-1], f"ops.of has {count - 1}"),
                (["ops", "of"], [*ops["of"], 0], f"ops.of has {count + 1}"), (["ops", "count"], count + 1, "ops.count"), (["ops", "turns"], 99, "ops.turns"),
                (["ops", "class", 3], "levitate", "ops.class[3]"), (["ops", "class"], None, "ops.class is missing"), (["ops", "class", 4], 99, "ops.class[4]"),
                (["ops", "classes", 0, "lane"], "motorway", "ops.classes[0]"), (["ops", "classes", 0, "bytes"], 1 << 40, "ops.classes[0]"),
                (["ops", "digest"], "xxh3:0123456789abcdef", "ops.digest"), (["ops", "digest"], 7, "ops.digest"), (["ops", "digest"], None, "ops.digest is missing"),
                (["ops", "waits", waiting], [1], f"ops.waits[{waiting}]"), (["ops", "waits", waiting], [], f"ops.waits[{waiting}]"),
                (["ops", "waits", waiting], "all", f"ops.waits[{waiting}]"), (["ops", "micro_batch", 0], 99, "ops.micro_batch[0]"),
                (["choices", "group"], 3, "choices.group"), (["choices", "group"], 0, "choices.group"), (["choices", "strip"], 99, "choices.strip"),
                (["model", "parameters"], 7, "model.parameters"), (["model"], None, "model is missing")):
            with self.subTest(path=path, value=str(value)[:60]):
                file.write_text(json.dumps(edited(path, value)))
                self.check_refusal(run("plan", *arguments(self.flags(plan=file))), 2, f"edited.json: {entry}")
        for text in ("", "{", "[]", "3", json.dumps({**plan, "fits": False, "choices": None})):
            with self.subTest(text=text[:20]):
                file.write_text(text)
                self.expect_any(self.flags(save=self.fresh(), plan=file), (2,), "edited.json")


class Mounted:
    """A small file system of its own, where the test may make one."""

    def __init__(self, test, place, options):
        self.place = place
        made = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(place)], capture_output=True, text=True)
        if made.returncode != 0:
            test.skipTest(f"no permission to mount a tmpfs: {made.stderr.strip()}")

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        subprocess.run(["umount", str(self.place)], check=True)


if __name__ == "__main__":
    unittest.main()
