"""The best checkpoint and early stopping: of the lowest eval_loss, and the same whether or not the run was stopped."""
import json
import shutil
import signal
import unittest

from harness import CommandTest, Golden, arguments, begin, finish, run, send_signal, wait_for_steps

STEPS = 24


class Best(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.golden = Golden("gpt2", cls.directory)
        lines = cls.golden.data.read_text().splitlines()
        cls.few, cls.others = cls.directory / "few.jsonl", cls.directory / "others.jsonl"
        cls.few.write_text("\n".join(lines[:2]) + "\n")  # so few that they are learned by heart
        cls.others.write_text("\n".join(lines[2:6]) + "\n")
        cls.wholes = {}

    def flags(self, **changes):
        """The loss of the other rows falls first, then it rises."""
        return self.golden.flags(**{"micro_batch_size": 1, "global_batch_size": 2, "train_iters": STEPS, "lr": 3e-3,
                                    "data": self.few, "eval_data": self.others, "eval_interval": 2, "keep_best": True,
                                    "keep_last": 1, "save_interval": 3, **changes})

    def whole(self, **changes):
        key = str(sorted(changes.items()))
        if key not in self.wholes:
            self.wholes[key] = self.train(self.flags(**changes))
        return self.wholes[key]

    @staticmethod
    def best_of(run_):
        return json.loads((run_.path / "best.json").read_text())

    @staticmethod
    def evaluations(run_):
        """(step, loss) of the log, the one before step 1 included."""
        found = []
        for record in run_.log:
            if "eval_loss_before" in record:
                found.append((record["step"] - 1, record["eval_loss_before"]))
            if "eval_loss" in record:
                found.append((record["step"], record["eval_loss"]))
        return found

    def check_best(self, run_):
        """best.json and log.jsonl say which is the lowest of all evaluations; its checkpoint is there."""
        found = self.evaluations(run_)
        step, loss = min(found, key=lambda pair: pair[1])
        kept = self.best_of(run_)
        self.assertEqual(kept["best"], {"step": step, "eval_loss": loss})
        self.assertEqual([(one["step"], one["eval_loss"]) for one in kept["evaluations"]], found)
        last = [record["best"] for record in run_.log if "best" in record][-1]
        self.assertEqual(last, step)
        self.assertIn(step, run_.steps())
        return step

    def test_the_best_is_kept(self):
        run_ = self.whole()
        found = self.evaluations(run_)
        self.assertEqual([step for step, _ in found], list(range(0, STEPS + 1, 2)))
        step = self.check_best(run_)
        self.assertTrue(0 < step < STEPS, found)
        self.assertEqual(run_.steps(), [step, STEPS])
        # The commands take it.
        shown = run("eval", "--load", run_.path, "--step", "best", "--format", "json", "--device", "cpu")
        self.assertEqual(json.loads(shown.out)["loss"], min(loss for _, loss in found), str(shown))
        out = self.fresh("exported")
        exported = run("export", "--load", run_.path, "--step", "best", "--out", out)
        self.assertIn(f"exported step {step} of", exported.out)
        again = run("eval", "--model", out, "--data", self.others, "--format", "json", "--dtype", "fp32",
                    "--device", "cpu", "--seq-length", self.golden.json["seq_len"])
        self.assertAlmostEqual(json.loads(again.out)["loss"], min(loss for _, loss in found), places=6)

    def test_bits_are_those_of_a_run_that_does_not_look(self):
        plain = self.train(self.flags(keep_best=None, eval_data=None))
        self.assertEqual(plain.result(), self.whole().result())

    def test_without_keep_last_all_of_the_interval_and_the_best_are_kept(self):
        run_ = self.train(self.flags(keep_last=None, save_interval=9))
        self.assertEqual(run_.steps(), sorted({9, 18, STEPS, self.check_best(run_)}))

    def test_the_state_before_the_first_step_may_be_the_best(self):
        run_ = self.train(self.flags(lr=0.3, clip_grad=0, train_iters=4, eval_interval=2))
        self.assertEqual(self.check_best(run_), 0)
        shown = run("eval", "--load", run_.path, "--step", "best", "--format", "json", "--device", "cpu")
        self.assertEqual(json.loads(shown.out)["loss"], run_.log[0]["eval_loss_before"], str(shown))

    def stopped(self):
        return self.whole(early_stopping_patience=3)

    def test_a_run_stops_after_evaluations_without_gain(self):
        run_ = self.stopped()
        found = self.evaluations(self.whole())
        best, gone, last = None, 0, None
        for step, loss in found:
            gone = 0 if best is None or loss < best else gone + 1
            best = loss if best is None else min(best, loss)
            if gone >= 3:
                last = step
                break
        self.assertIsNotNone(last, found)
        self.assertLess(last, STEPS)
        self.assertEqual(run_.log[-1]["step"], last)
        self.assertEqual(self.evaluations(run_), [pair for pair in found if pair[0] <= last])
        self.assertIn(f"stopped early after step {last}: 3 evaluations in a row without gain", run_.outcome.out)
        self.assertEqual(run_.steps(), [self.check_best(run_), last])
        # Nothing is left, unless it is given more patience.
        before = run_.result()
        again = self.train({"load": run_.path, "save": run_.path})
        self.assertEqual(again.result(), before)
        self.assertIn("stopped early", again.outcome.out)

    def test_the_threshold_counts(self):
        run_ = self.train(self.flags(early_stopping_patience=2, early_stopping_threshold=1e6))
        self.assertEqual(run_.log[-1]["step"], 4, "the first evaluation is a gain, no other")

    def test_ranks_stop_at_the_same_step(self):
        for stage in (0, 3):
            run_ = self.train(self.flags(ranks=2, zero_stage=stage, early_stopping_patience=3))
            self.assertEqual(run_.log[-1]["step"], self.stopped().log[-1]["step"])
            self.check_best(run_)

    def check_same(self, run_, whole):
        self.assertEqual(run_.result(), whole.result())
        self.assertEqual(self.evaluations(run_), self.evaluations(whole))
        self.assertEqual(self.best_of(run_), self.best_of(whole))
        self.assertEqual(run_.steps(), whole.steps())
        for step in run_.steps():
            self.assertEqual(run_.state(step), whole.state(step))

    def test_a_run_that_was_interrupted_equals_one_that_was_not(self):
        for seconds in (signal.SIGINT, signal.SIGTERM):
            for after in (1, 4, 7):
                with self.subTest(signal=seconds, after=after):
                    save = self.fresh()
                    process = begin("train", *arguments(self.flags(save=save, early_stopping_patience=3)))
                    wait_for_steps(save, after, process)
                    send_signal(process, seconds)
                    finish(process)
                    on = self.train({"load": save, "save": save})
                    self.check_same_as_stopped(on)

    def check_same_as_stopped(self, on):
        """But for where an evaluation that the stop cut off stands in the log."""
        whole = self.stopped()
        self.assertEqual(on.curve(), whole.curve())
        self.assertEqual(on.state(), whole.state())
        self.assertEqual(self.best_of(on), self.best_of(whole))
        self.assertEqual(self.evaluations(on), self.evaluations(whole))
        best = self.best_of(whole)["best"]["step"]
        self.assertEqual(on.state(best), whole.state(best))

    def test_a_run_that_was_killed_equals_one_that_was_not(self):
        nvme = self.fresh_directory("nvme")
        for changes in ({"durability": "checkpoint"},
                        {"nvme": nvme, "parameter_tier": "nvme", "optimizer_tier": "nvme", "durability": "step"}):
            for after in (2, 5, 8):
                with self.subTest(changes=str(changes), after=after):
                    save = self.fresh()
                    process = begin("train", *arguments(self.flags(save=save, early_stopping_patience=3, **changes)))
                    wait_for_steps(save, after, process)
                    send_signal(process, signal.SIGKILL)
                    finish(process)
                    on = self.train({"load": save, "save": save})
                    self.check_killed(on)

    def check_killed(self, on):
        whole = self.stopped()
        self.assertEqual(on.state(), whole.state())
        self.assertEqual(self.best_of(on), self.best_of(whole))
        best = self.best_of(whole)["best"]["step"]
        self.assertEqual(on.state(best), whole.state(best))

    def test_going_back_forgets_what_came_after(self):
        run_ = self.train(self.flags(keep_last=None, save_interval=4))
        whole = self.best_of(run_)
        for step in run_.steps():
            if step > 4:
                shutil.rmtree(run_.path / "checkpoints" / str(step))
        on = self.train({"load": run_.path, "save": run_.path})
        self.assertEqual(self.best_of(on), whole)
        self.check_best(on)

    def test_other_data_begin_anew(self):
        run_ = self.train(self.flags(train_iters=4))
        on = self.train({"load": run_.path, "save": run_.path, "train_iters": 6, "eval_data": self.few})
        self.assertEqual([one["step"] for one in self.best_of(on)["evaluations"]], [4, 6])

    def test_what_is_not_there_is_said(self):
        plain = self.train(self.flags(eval_data=None, keep_best=None, train_iters=2))
        for command in (["eval"], ["generate", "--prompt", "a"], ["export", "--out", self.fresh("out")]):
            refused = run(*command, "--load", plain.path, "--step", "best")
            self.check_refusal(refused, 2, "--step: found best, but the run in")
            self.check_refusal(run(*command, "--load", plain.path, "--step", "worst"), 2, "--step: found worst")
        unkept = self.train(self.flags(keep_best=None))
        refused = run("eval", "--load", unkept.path, "--step", "best")
        self.check_refusal(refused, 2, "but its checkpoint was not kept")
        damaged = self.fresh()
        shutil.copytree(plain.path, damaged)
        (damaged / "best.json").write_text('{"data": "00", "evaluations": 5}')
        self.assertIn(run("eval", "--load", damaged, "--step", "best").code, (2, 4))
        for changes in ({"eval_data": None}, {"eval_data": None, "keep_best": None, "early_stopping_patience": 2}):
            refused = run("train", *arguments(self.flags(save=self.fresh(), **changes)))
            self.check_refusal(refused, 2, "without evaluations")

    def test_standing_runs_are_read(self):
        """A run of an earlier version has no best.json: it goes on, and is evaluated where it goes on."""
        run_ = self.train(self.flags(train_iters=4))
        (run_.path / "best.json").unlink()
        on = self.train({"load": run_.path, "save": run_.path, "train_iters": 6})
        self.assertEqual([one["step"] for one in self.best_of(on)["evaluations"]], [4, 6])


if __name__ == "__main__":
    unittest.main()
