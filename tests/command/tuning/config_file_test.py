"""--config FILE.yaml: the file trains the same bits as the flags that it stands for; a hostile one is refused.

Not here: what each value may be and the answers to other trainers' keys (tests/trainer/options/yaml_config_test.cpp).
"""
import json
import unittest

from harness import MIB, SANITIZED, CommandTest, Golden, arguments, run


def in_yaml(value):
    """Texts in quotes, lists in blocks."""
    if isinstance(value, list):
        return "".join(f"\n  - {in_yaml(one)}" for one in value)
    return json.dumps(value if isinstance(value, bool | int | float) else str(value))


class ConfigFile(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.golden = Golden("gpt2", cls.directory)

    def file(self, text, ending=".yaml"):
        path = self.fresh("config").with_suffix(ending)
        path.write_text(text)
        return path

    def test_yaml_trains_the_bits_of_its_flags(self):
        flags = self.golden.flags(device="cpu", train_iters=3)
        file = self.file("# The golden case\n" + "".join(
            f"{name.replace('_', '-')}: {in_yaml(value)}\n" for name, value in flags.items()
            if value is not None and name != "save"))
        by_file = self.train({"config": file, "save": self.fresh()})
        by_flags = self.train(flags)
        self.assertEqual(by_file.result(), by_flags.result())
        self.assertEqual(len(by_file.log), 3)
        told = json.loads(run("train", *arguments({"config": file, "train_iters": 5, "format": "json",
                                                   "print_config": True})).out)
        self.assertEqual(told["train-iters"], {"value": 5, "from": "flag"})
        self.assertEqual(told["lr"], {"value": flags["lr"], "from": "config file"})

    def test_keys_of_others_are_one_message(self):
        file = self.file("base_model: x/y\nmicro_batch_size: 2\nlrr: 1\n", ".yml")
        for command in ("train", "plan"):
            self.check_refusal(run(command, "--config", file), 2,
                               f'{file}: found 3 keys that are not read here: line 1: "base_model" (--model); line 2: '
                               '"micro_batch_size" (written micro-batch-size); line 3: "lrr" (lr?)')

    def test_aliases_that_grow_are_refused_in_little_memory(self):
        growing = "a0: &a0 [x]\n"
        for i in range(1, 40):
            growing += f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n"
        table = ((growing, "more than 100000 values"), ("[" * MIB, "allowed: a word"), ("x" * (2 * MIB), ""),
                 ("a: " + "[" * 100_000 + "]" * 100_000, "nested more than 64 deep"))
        for text, said in table:
            refused = run("train", "--config", self.file(text))
            self.check_refusal(refused, 2, said)
            if not SANITIZED:
                self.assertLess(refused.resident_bytes, 512 * MIB, str(refused))


if __name__ == "__main__":
    unittest.main()
