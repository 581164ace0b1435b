"""Golden cases through the command: the losses and gradient norms of an independent implementation
(tests/data/golden/README.md).
"""
import unittest

from harness import CommandTest, Golden, golden_names

# Relative, as that README has them for fp32: first loss, losses, first gradient norm, last gradient norm. Norms between
# are given the last one's.
FP32 = (1e-5, 2e-4, 1e-4, 1e-3)
# Weights and activations are rounded to 8 bits: an error of epsilon / (2 sqrt 3) in the mean square each. About 50
# roundings lie on a path through 2 or 3 layers and back and add as squares: 2 epsilon on a gradient; a loss is a mean
# over ~100 tokens of far smaller slopes, epsilon / 2, and drifts with the weights by as much again over the steps.
EPSILON = 2.0 ** -7
BF16 = (EPSILON / 2, EPSILON, 2 * EPSILON, 6 * EPSILON)


class GoldenCurves(CommandTest):
    def check(self, golden, run, allow):
        g = golden.json
        self.assertEqual([record["step"] for record in run.log], list(range(1, g["steps"] + 1)))
        loss = [abs(record["loss"] - want) / want for record, want in zip(run.log, g["losses"])]
        norm = [abs(record["grad_norm"] - want) / want for record, want in zip(run.log, g["grad_norms"])]
        found = (loss[0], max(loss), norm[0], max(norm))
        print(f"{golden.name}: loss0 {found[0]:.1e}, losses {found[1]:.1e}, first norm {found[2]:.1e}, norms "
              f"{found[3]:.1e}")
        for what, error, limit in zip(("loss0", "losses", "first norm", "norms"), found, allow):
            self.assertLessEqual(error, limit, f"{golden.name}: {what}")
        self.assertEqual([record["lr"] for record in run.log], g["schedule"]["lrs"])

    def each(self, curve_of, allow):
        names = golden_names()
        self.assertGreaterEqual(len(names), 4)
        for name in names:
            with self.subTest(name):
                golden = Golden(name, self.directory)
                self.check(golden, curve_of(golden), allow)

    def test_cases_clip_in_some_steps(self):
        clipped = [want > g["clip_norm"] for g in (Golden(name, self.directory).json for name in golden_names())
                   for want in g["grad_norms"]]
        self.assertGreater(sum(clipped), len(clipped) // 4)
        self.assertLess(sum(clipped), len(clipped))

    def test_in_core(self):
        def curve(golden):
            run = self.train(golden.flags())
            self.assertEqual(run.plan["nvme_per_step"], {"read_bytes": 0, "written_bytes": 0})
            return run
        self.each(curve, FP32)

    def test_micro_batches(self):
        self.each(lambda golden: self.train(golden.flags(micro_batch_size=1)), FP32)

    def test_tight_with_nvme(self):
        def curve(golden):
            flags = golden.flags(micro_batch_size=1, nvme=self.fresh_directory("nvme"))
            wide, _ = self.plan(flags)
            budget = self.smallest_budget(flags, granularity=16384)
            self.assertLess(budget, wide["tiers"]["device"]["peak_bytes"])
            run = self.train({**flags, "device_memory": budget})
            self.assertGreater(run.plan["nvme_per_step"]["read_bytes"], 0)
            return run
        self.each(curve, FP32)

    def test_bf16(self):
        self.each(lambda golden: self.train(golden.flags(dtype="bf16")), BF16)

    def test_compact(self):
        # Moments in bf16 are rounded stochastically, which is unbiased: nothing more is allowed for them.
        self.each(lambda golden: self.train(golden.flags(dtype="bf16", state="compact")), BF16)


if __name__ == "__main__":
    unittest.main()
