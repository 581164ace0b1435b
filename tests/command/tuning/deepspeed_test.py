"""--deepspeed-config FILE: the JSON trains the same bits as the flags that it stands for, at DeepSpeed's own rates.

Not here: what each key means (tests/trainer/options/deepspeed/).
"""
import json
import unittest

from harness import DATA, CommandTest, Golden, arguments, run

STEPS = 4
RATES = json.loads((DATA / "deepspeed" / "lr.json").read_text())["cases"]


class DeepSpeed(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.golden = Golden("gpt2", cls.directory)

    def file(self, content):
        path = self.fresh("ds").with_suffix(".json")
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    def flags(self, config, /, **changes):
        """The case without the flags that a JSON says; fp32 is one of these."""
        said = ("dtype", "micro_batch_size", "global_batch_size", "lr", "lr_decay_style", "adam_beta1", "adam_beta2",
                "adam_eps", "weight_decay", "clip_grad")
        return self.golden.flags(**{**dict.fromkeys(said), "device": "cpu", "train_iters": STEPS,
                                    "deepspeed_config": self.file(config), **changes})

    CONFIG = {
        "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 3, "gradient_clipping": 0.5,
        "bf16": {"enabled": False}, "wall_clock_breakdown": True,
        "optimizer": {"type": "AdamW", "params": {"lr": 0.004, "betas": [0.8, 0.95], "eps": 1e-6, "weight_decay": 0.1}},
        "scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": 6, "warmup_num_steps": 2,
                                                          "warmup_max_lr": 0.004}},
    }
    # The same in our flags.
    MEANING = {
        "micro_batch_size": 1, "global_batch_size": 3, "clip_grad": 0.5, "dtype": "fp32", "lr": 0.004,
        "adam_beta1": 0.8, "adam_beta2": 0.95, "adam_eps": 1e-6, "weight_decay": 0.1, "lr_rule": "deepspeed",
        "lr_decay_style": "linear", "lr_warmup_style": "log", "lr_warmup_iters": 2, "lr_decay_iters": 6,
    }

    def test_it_trains_the_bits_of_its_flags(self):
        by_file = self.train(self.flags(self.CONFIG))
        by_flags = self.train(self.golden.flags(device="cpu", train_iters=STEPS, **self.MEANING))
        self.assertEqual(by_file.result(), by_flags.result())
        self.assertEqual([record["lr"] for record in by_file.log], [record["lr"] for record in by_flags.log])
        self.assertEqual(by_file.outcome.err.count("wall_clock_breakdown: "), 1, str(by_file.outcome))
        # The file counts: without it the bits are others.
        plain = self.train(self.golden.flags(device="cpu", train_iters=STEPS))
        self.assertNotEqual(plain.curve()[1:], by_file.curve()[1:])
        # A run goes on with what the file said, without it.
        on = self.train({"load": by_file.path, "save": by_file.path, "train_iters": STEPS + 1, "device": "cpu"})
        longer = self.train(self.golden.flags(device="cpu", train_iters=STEPS + 1, **self.MEANING))
        self.assertEqual(on.state(), longer.state())

    def test_offload_goes_where_the_file_says(self):
        drive = self.fresh_directory("nvme")
        zero = {"stage": 2, "offload_optimizer": {"device": "nvme", "nvme_path": str(drive)}, "offload_param":
                {"device": "nvme", "nvme_path": str(drive)}}
        run_ = self.train(self.flags({**self.CONFIG, "train_micro_batch_size_per_gpu": 3,
                                      "gradient_accumulation_steps": 1, "zero_optimization": zero}, ranks=1))
        by_flags = self.train(self.golden.flags(device="cpu", train_iters=STEPS, **{**self.MEANING,
                                                                                   "micro_batch_size": 3}))
        self.assertEqual(run_.result(), by_flags.result())
        for flag in ("parameter_tier", "optimizer_tier"):
            self.assertEqual(json.loads((run_.path / "run.json").read_text())[flag.replace("_", "-")], "nvme")
        self.assertGreater(run_.plan["nvme_per_step"]["read_bytes"], 0)

    def test_rates_in_the_log_are_deepspeeds(self):
        self.assertEqual({case["scheduler"]["type"] for case in RATES},
                         {"WarmupLR", "WarmupDecayLR", "WarmupCosineLR"})
        for case in RATES:
            with self.subTest(case["scheduler"]):
                config = {"bf16": {"enabled": False}, "scheduler": case["scheduler"],
                          "optimizer": {"type": "AdamW", "params": {"lr": case["optimizer_lr"]}}}
                run_ = self.train(self.flags(config, seq_length=8, truncate=True, train_iters=14))
                for record, rate in zip(run_.log, case["lrs"], strict=False):
                    self.assertAlmostEqual(record["lr"], rate, delta=1e-15, msg=f"step {record['step']}")
                self.assertEqual(len(run_.log), 14)
                self.assertGreaterEqual(len(case["lrs"]), 14)

    def test_print_config_says_whence_each_value_came(self):
        config = self.fresh("c").with_suffix(".json")
        config.write_text('{"min-lr": 0.0, "adam-eps": 1e-6}')
        flags = self.flags({**self.CONFIG, "optimizer": {"type": "AdamW", "params": {"lr": "auto", "eps": "auto"}}},
                           lr=0.004, config=config, format="json", print_config=True)
        outcome = run("train", *arguments(flags))
        self.assertEqual(outcome.code, 0, str(outcome))
        told = json.loads(outcome.out)
        for flag, value, source in (("lr", 0.004, "flag"), ("adam-eps", 1e-6, "config file"),
                                    ("clip-grad", 0.5, "DeepSpeed's file"),
                                    ("global-batch-size", 3, "DeepSpeed's file"),
                                    ("lr-rule", "deepspeed", "DeepSpeed's file"),
                                    ("weight-decay", 0.0, "DeepSpeed's default"), ("keep-last", None, "default")):
            if value is not None:
                self.assertEqual(told[flag]["value"], value, flag)
            self.assertEqual(told[flag]["from"], source, flag)
        table = run("train", *arguments({**flags, "format": None})).out
        self.assertRegex(table, r"(?m)^  clip-grad +0\.5 +DeepSpeed's file$")

    def test_all_faults_are_in_one_message(self):
        faulty = ('{"train_batch_size": 0, "gradient_clipping": 2.0, "scheduler": {"type": "OneCycle"}, '
                  '"bf16": {"enabled": true, "enabled": true}, "zero_optimization": {"stage": 7, "stagee": 1}}')
        for command in ("train", "plan"):
            refused = run(command, *arguments(self.flags(faulty, clip_grad=1.0, save=None)))
            self.check_refusal(refused, 2, "found 6 errors: ")
            error = next(line for line in refused.err.splitlines() if line.startswith("error: "))
            for said in ("train_batch_size: found 0", "gradient_clipping: makes --clip-grad 2.0, but 1.0 was given",
                         "OneCycle", '"bf16.enabled": found twice', "zero_optimization.stage: found 7",
                         "(did you mean stage?)"):
                self.assertIn(said, error)
        self.check_refusal(run("train", *arguments(self.flags("[" * 100_000))), 2, "nested more than 64 deep")
        missing = arguments({**self.flags("{}"), "deepspeed_config": self.fresh("none")})
        self.check_refusal(run("train", *missing), 2, "--deepspeed-config: found no file")


if __name__ == "__main__":
    unittest.main()
