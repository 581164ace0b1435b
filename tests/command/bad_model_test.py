"""Directories of models that are refused: configurations, weights, shards."""
import json
import shutil
import struct
import unittest

from harness import arguments, read_safetensors, run, safetensors_bytes
from refusals import RefusalTest, listing


class RefusedModels(RefusalTest):
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
            (safetensors_bytes({**tensors, "model.layers.7.mlp.up_proj.weight": tensors[name]}), None,
             "model.layers.7"),
            (safetensors_bytes({}), None, "model.safetensors"),
        ]
        for number, (weights, code, fragment) in enumerate(table):
            with self.subTest(number, fragment=fragment):
                place = self.model(weights=weights)
                outcome = self.expect_any(self.flags(save=self.fresh(), model=place),
                                          (2, 4) if code is None else (code, 2), fragment)
                self.assertIn("model.safetensors", outcome.err)

    def test_what_was_refused_runs_once_it_is_mended(self):
        """The fault shows while weights are read, when the run has its directory, its store and its tables."""
        good = (self.golden.model / "model.safetensors").read_bytes()
        place = self.model()
        for tiers in ({}, {"parameter_tier": "nvme", "optimizer_tier": "nvme"}):
            where = self.fresh_directory()
            flags = self.flags(model=place, save=where / "not" / "yet", csv=self.fresh("table"),
                               tensorboard=self.fresh("curves"), **tiers)
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
            ("{", "index"), ({}, "weight_map"), ({"weight_map": []}, "weight_map"),
            ({"weight_map": {first: 3}}, "index"),
            ({"weight_map": {**right["weight_map"], first: "no-such.safetensors"}}, "no-such.safetensors"),
            ({"weight_map": {**right["weight_map"], first: "../../../etc/passwd"}}, "etc/passwd"),
            ({"weight_map": {**right["weight_map"], "model.extra.weight": "model-00001-of-00001.safetensors"}},
             "model.extra.weight"),
        ]
        for index, fragment in table:
            with self.subTest(index=str(index)[:80]):
                self.expect_any(self.flags(save=self.fresh(), model=sharded(index)), (2, 4), fragment)

    def test_weights_that_are_finite_and_too_large(self):
        tensors = read_safetensors(self.golden.model / "model.safetensors")
        dtype, shape, content = tensors["lm_head.weight"]
        tensors["lm_head.weight"] = (dtype, shape, struct.pack("<f", 3e38) * (len(content) // 4))
        place = self.model(weights=safetensors_bytes(tensors))
        flags = self.flags(save=self.fresh(), model=place)
        outcome = run("train", *arguments(flags))
        self.check_refusal(outcome, 6, "step 1")
        # The same for commands that keep nothing.
        checked = run("verify", *arguments(self.flags(model=place)))
        self.check_refusal(checked, 6, "step 1")
        evaluated = run("eval", "--model", place, "--data", self.golden.data, "--seq-length",
                        self.golden.json["seq_len"])
        self.check_refusal(evaluated, 6, "the loss is")
        self.assertNotIn("last good state is that of step 0", outcome.err)


if __name__ == "__main__":
    unittest.main()
