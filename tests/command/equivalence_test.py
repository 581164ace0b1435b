"""No placement, schedule or budget changes the result: losses, gradient norms and the final state are those of the run
in core, bit for bit, while plans differ and bytes really move (as the kernel counts them). Golden cases also have the
losses and gradient norms of an independent implementation (tests/data/golden/README.md)."""
import itertools
import unittest

from harness import SANITIZED, CommandTest, Golden, file_system_of, golden_names

STEPS = 6
ORDERS = ("horizontal", "vertical")
UPDATES = ("after", "in-backward", "in-next-forward")
ACTIVATIONS = ("device", "recompute", "nvme")
FORMS = {"exact": {"dtype": "bf16"}, "compact": {"dtype": "bf16", "state": "compact"}, "fp32": {"dtype": "fp32"}}
SAVED = ("keep", "recompute", "spill")  # in the numbering of plan.json
ALL_ON_NVME = {"parameter_tier": "nvme", "optimizer_tier": "nvme"}


class Equivalence(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.golden = Golden("qwen2", cls.directory)  # tied, biases
        cls.nvme = cls.fresh_directory("nvme")
        cls.references = {}

    def flags(self, form, **changes):
        """Three micro-batches of one row, because a batch of three rows would be another sum."""
        return self.golden.flags(**{"dtype": None, "micro_batch_size": 1, "global_batch_size": 3, "train_iters": STEPS,
                                    **FORMS[form], **changes})

    def reference(self, form, **changes):
        """The plain run in core, made once for each set of options."""
        key = (form, *sorted(changes.items()))
        if key not in self.references:
            plain = {"order": "horizontal", "update": "after", "activation_tier": "device"}
            run = self.train(self.flags(form, **plain, **changes))
            self.assertEqual(run.plan["nvme_per_step"], {"read_bytes": 0, "written_bytes": 0})
            self.assertEqual(run.steps(), [STEPS])
            self.references[key] = run
        return self.references[key]

    def check_same(self, run, reference):
        self.assertEqual(run.curve(), reference.curve())
        self.assertEqual(run.state(), reference.state())
        peaks = {record["device_peak_bytes"] for record in run.log}
        self.assertEqual(peaks, {run.plan["tiers"]["device"]["peak_bytes"]}, "recorded and planned peaks")

    def check_offloaded(self, run, reference):
        self.assertNotEqual(run.choices(), reference.choices())
        self.assertNotEqual(run.plan["ops"]["count"], reference.plan["ops"]["count"])
        planned = run.plan["nvme_per_step"]
        self.assertGreater(planned["read_bytes"], 0)
        for record in run.log[1:]:  # the first step has no update of an earlier step to catch up on
            moved = (record["nvme_read_bytes"], record["nvme_written_bytes"])
            planned_moves = (planned["read_bytes"], planned["written_bytes"])
            again = run.choices()["update"] == "in-backward" and run.choices()["clip"] and record[
                "grad_norm"] > self.golden.json["clip_norm"]
            # If clipping acted after all, a speculative step ran twice.
            self.assertEqual(moved, tuple(2 * bytes_ for bytes_ in planned_moves) if again else planned_moves)

    def each_schedule(self, form, **changes):
        reference = self.reference(form, **changes)
        programs = set()
        for order, update, activation in itertools.product(ORDERS, UPDATES, ACTIVATIONS):
            with self.subTest(form=form, order=order, update=update, activation=activation, **changes):
                run = self.train(self.flags(form, order=order, update=update, activation_tier=activation,
                                            nvme=self.nvme, **ALL_ON_NVME, **changes))
                choices = run.choices()
                self.assertEqual((choices["order"], choices["update"]), (order, update))
                wanted = {"device": "keep", "recompute": "recompute", "nvme": "spill"}[activation]
                self.assertIn(wanted, [SAVED[value] for value, _ in choices["saved"]])
                self.check_same(run, reference)
                self.check_offloaded(run, reference)
                programs.add(run.plan["ops"]["digest"])
        self.assertEqual(len(programs), len(ORDERS) * len(UPDATES) * len(ACTIVATIONS),
                         "some of these plans were one and the same")

    def test_schedules_exact(self):
        self.each_schedule("exact")

    def test_schedules_compact(self):
        self.each_schedule("compact")

    def test_schedules_fp32(self):
        self.each_schedule("fp32")

    def test_schedules_without_clipping(self):
        self.each_schedule("exact", clip_grad=0)

    def test_clipping_acts_in_some_steps(self):
        """Otherwise only one of speculation's two outcomes would be tested."""
        limit = self.golden.json["clip_norm"]
        norms = [norm for _, _, norm in self.reference("exact").curve()]
        self.assertTrue(any(norm > limit for norm in norms) and any(norm <= limit for norm in norms), norms)

    def test_forms_differ(self):
        """Rules out that results are equal because the program does nothing."""
        self.assertEqual(len({self.reference(form).state() for form in FORMS}), 3)
        self.assertNotEqual(self.reference("exact").state(), self.reference("exact", clip_grad=0).state())

    def test_budgets_from_tight_to_wide(self):
        for form in FORMS:
            reference = self.reference(form)
            flags = self.flags(form, nvme=self.nvme)
            least = self.smallest_budget(flags)
            in_core = reference.plan["tiers"]["device"]["peak_bytes"]
            self.assertLess(least, in_core / 2)
            plans = set()
            for budget in (least, least + (in_core - least) // 3, least + 2 * (in_core - least) // 3, 4 * in_core):
                with self.subTest(form=form, budget=budget):
                    run = self.train({**flags, "device_memory": budget})
                    self.assertLessEqual(run.plan["tiers"]["device"]["peak_bytes"], budget)
                    self.check_same(run, reference)
                    plans.add(str(run.choices()))
            self.assertEqual(len(plans), 4)
            self.assertEqual(self.plan({**flags, "device_memory": least - 4096})[1].code, 3)

    def test_tight_budgets_of_forced_schedules(self):
        for order, update, activation in itertools.product(ORDERS, UPDATES, ACTIVATIONS):
            with self.subTest(order=order, update=update, activation=activation):
                reference = self.reference("exact")
                flags = self.flags("exact", order=order, update=update, activation_tier=activation, nvme=self.nvme,
                                   **ALL_ON_NVME)
                run = self.train({**flags, "device_memory": self.smallest_budget(flags, 16384)})
                self.check_same(run, reference)

    def test_one_slot_and_striping(self):
        reference = self.reference("exact")
        second = self.fresh_directory("nvme")
        for changes in ({"durability": "checkpoint"}, {"durability": "step"}, {"nvme": [self.nvme, "--nvme", second]}):
            with self.subTest(**changes):
                run = self.train(self.flags("exact", **{"nvme": self.nvme, **ALL_ON_NVME, **changes}))
                self.check_same(run, reference)
                self.check_offloaded(run, reference)

    def test_saved_plan(self):
        reference = self.reference("exact")
        flags = self.flags("exact", nvme=self.nvme, order="vertical", update="in-backward", activation_tier="nvme",
                           **ALL_ON_NVME)
        first = self.train(flags)
        again = self.train(self.flags("exact", nvme=self.nvme, plan=first.path / "plan.json"))
        self.assertEqual(again.choices(), first.choices())
        self.check_same(again, reference)

    def test_flags_of_a_plan_give_it_again(self):
        flags = self.flags("exact", nvme=self.nvme, order="vertical", update="in-next-forward")
        flags["device_memory"] = self.smallest_budget(flags)
        plan, _ = self.plan(flags)
        words = plan["flags"].split()
        again, _ = self.plan({"profile": flags["profile"],
                              **{words[i][2:].replace("-", "_"): words[i + 1] for i in range(0, len(words), 2)}})
        self.assertEqual(again["choices"], plan["choices"])

    @unittest.skipIf(SANITIZED, "a sanitizer's own files and memory are counted, too")
    def test_bytes_move_as_the_kernel_counts_them(self):
        kind = file_system_of(self.directory)
        if kind in ("tmpfs", "ramfs", "overlay"):
            self.skipTest(f"{self.directory} is on {kind}: its reads and writes are not counted")
        # A budget from the available memory would change from run to run.
        changes = dict(order="vertical", update="after", activation_tier="nvme", nvme=self.nvme, log_interval=50,
                       device_memory="1GiB", **ALL_ON_NVME)
        few, many = 3, 43
        short = self.train(self.flags("exact", **{**changes, "train_iters": few}))
        long = self.train(self.flags("exact", **{**changes, "train_iters": many}))
        self.assertEqual(short.choices(), long.choices())
        planned = long.plan["nvme_per_step"]
        counted = {"read_bytes": (long.outcome.read_bytes - short.outcome.read_bytes) / (many - few),
                   "written_bytes": (long.outcome.written_bytes - short.outcome.written_bytes) / (many - few)}
        print(f"a step, planned: {planned}; counted by the kernel: {counted}")
        for what, bytes_ in planned.items():
            self.assertGreater(bytes_, 1 << 20)
            self.assertAlmostEqual(counted[what] / bytes_, 1, delta=0.03, msg=what)
        in_core = self.train(self.flags("exact", train_iters=many))
        self.assertLess(in_core.outcome.read_bytes, planned["read_bytes"],
                        "a run in core must read nothing while it trains")


# Relative tolerances for fp32, as in tests/models/golden_test.cpp: first loss, losses, first gradient norm, last
# gradient norm. Norms in between get the last one's.
FP32 = (1e-5, 2e-4, 1e-4, 1e-3)
# Weights and activations are rounded to 8 bits: a root mean square error of epsilon / (2 sqrt 3) each. About 50
# roundings lie on a path through 2 or 3 layers and back and add as squares: 2 epsilon on a gradient. A loss is a mean
# over ~100 tokens with far smaller slopes: epsilon / 2, and over the steps it drifts with the weights by as much again.
EPSILON = 2.0 ** -7
BF16 = (EPSILON / 2, EPSILON, 2 * EPSILON, 6 * EPSILON)
# Rounding sends some rows of a mixture to other experts (tests/models/golden_test.cpp).
BF16_MIXTURE = (EPSILON / 2, 4 * EPSILON, 6 * EPSILON, 12 * EPSILON)


# Three cases amplify rounding more than that, PyTorch's bf16 too (tests/models/golden_test.cpp).
AMPLIFIED = {"smollm3": 4, "gemma3_wrapper": 1.5, "gpt_oss": 2}


def bf16(golden):
    loss, losses, *norms = BF16_MIXTURE if golden.is_mixture else BF16
    return (loss, losses, *(AMPLIFIED.get(golden.name, 1) * norm for norm in norms))


class GoldenCurves(CommandTest):
    def wanted(self, golden, run):
        """The case's losses and norms. A mixture's balance loss counts a micro-batch's rows: where a run's have fewer
        than the case's, its curve is that of one rank with the same micro-batches."""
        rows = run.micro_batch_size()
        if rows >= golden.micro_batch:
            return golden.json["losses"], golden.json["grad_norms"]
        one = self.train(golden.flags(micro_batch_size=rows))
        return [record["loss"] for record in one.log], [record["grad_norm"] for record in one.log]

    def check(self, golden, run, allow):
        g = golden.json
        losses, norms = self.wanted(golden, run)
        self.assertEqual([record["step"] for record in run.log], list(range(1, g["steps"] + 1)))
        loss = [abs(record["loss"] - want) / want for record, want in zip(run.log, losses, strict=True)]
        norm = [abs(record["grad_norm"] - want) / want for record, want in zip(run.log, norms, strict=True)]
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
                self.check(golden, curve_of(golden), allow or bf16(golden))

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
        self.each(lambda golden: self.train(golden.flags(micro_batch_size=golden.micro_batch)), FP32)

    def test_tight_with_nvme(self):
        def curve(golden):
            flags = golden.flags(micro_batch_size=golden.micro_batch, nvme=self.fresh_directory("nvme"))
            wide, _ = self.plan(flags)
            budget = self.smallest_budget(flags, granularity=16384)
            self.assertLess(budget, wide["tiers"]["device"]["peak_bytes"])
            run = self.train({**flags, "device_memory": budget})
            self.assertGreater(run.plan["nvme_per_step"]["read_bytes"], 0)
            return run
        self.each(curve, FP32)

    def test_bf16(self):
        self.each(lambda golden: self.train(golden.flags(dtype="bf16")), None)

    def test_compact(self):
        # Stochastic rounding of the bf16 moments is unbiased: it gets no further tolerance.
        self.each(lambda golden: self.train(golden.flags(dtype="bf16", state="compact")), None)


if __name__ == "__main__":
    unittest.main()
