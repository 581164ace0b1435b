"""Several ranks of one host train one model: the curves of one rank, the same bits whatever is sharded and wherever it
rests, and runs that go on with another number of ranks."""
import itertools
import json
import os
import shutil
import signal
import unittest

from durable_runs import STEPS, DurableTest
from equivalence_test import FP32, GoldenCurves
from harness import (
    MIB,
    PROCESS_OVERHEAD,
    SANITIZED,
    Run,
    arguments,
    begin,
    finish,
    read_safetensors,
    run,
    send_signal,
    wait_for_steps,
)
from ranks.small_ranks import SmallRanks

FEW = 6
FURTHER_RANK = 20 * MIB  # of memory beside the plan


class GoldenCurvesOfRanks(GoldenCurves):
    """Batches are of two, three or four rows: as many ranks, or half as many, share them."""

    def test_in_core(self):
        self.each(lambda golden: self.train(golden.flags(ranks=golden.json["batch"], micro_batch_size=1)), FP32)

    def test_fewer_ranks(self):
        def curve(golden):
            ranks = 2 if golden.json["batch"] % 2 == 0 else 3
            return self.train(golden.flags(ranks=ranks, micro_batch_size=1, zero_stage=3))
        self.each(curve, FP32)

    def test_with_nvme(self):
        def curve(golden):
            run_ = self.train(golden.flags(ranks=golden.json["batch"], micro_batch_size=1, zero_stage=3,
                                           nvme=self.fresh_directory("nvme"), parameter_tier="nvme",
                                           optimizer_tier="nvme"))
            self.assertGreater(run_.log[-1]["nvme_read_bytes"], 0)
            return run_
        self.each(curve, FP32)


class RanksTest(SmallRanks):
    COMMON = {"ranks": 2, "train_iters": FEW}

    @staticmethod
    def tensors(run_, step=None):
        """The state, without its file's checksum."""
        return read_safetensors(run_.state_file(step))


class Ranks(RanksTest):
    def pairs(self, every):
        """Cases of stage, group, tier, order, update and activations: all, or enough for each pair of values."""
        values = ((0, 1, 2, 3), (None, 2), ("device", "nvme"), ("horizontal", "vertical"),
                  ("after", "in-backward", "in-next-forward"), ("device", "recompute", "nvme"))
        cases = list(itertools.product(*values))
        if every:
            return cases
        chosen, seen = [], set()
        for case in sorted(cases, key=lambda case: hash_of(case)):
            pairs = {(i, j, case[i], case[j]) for i in range(len(case)) for j in range(i)}
            if pairs - seen:
                chosen.append(case)
                seen |= pairs
        return chosen

    def check_bits(self, ranks, every=False, **changes):
        reference = self.train(self.flags(ranks=ranks, zero_stage=0, order="horizontal", update="after",
                                          activation_tier="device", **changes))
        digests = set()
        for stage, group, tier, order, update, activation in self.pairs(every):
            if group is not None and ranks != 4:
                group = None
            with self.subTest(stage=stage, group=group, tier=tier, order=order, update=update, activation=activation):
                flags = self.flags(ranks=ranks, zero_stage=stage, zero_group_size=group, order=order, update=update,
                                   activation_tier=activation, parameter_tier=tier, optimizer_tier=tier,
                                   nvme=self.nvme, **changes)
                if update == "in-backward":  # has to be able to take updates back, or not to clip
                    continue
                ours = self.train(flags)
                self.assertEqual(ours.curve(), reference.curve())
                self.assertEqual(self.tensors(ours), self.tensors(reference))
                digests.add(ours.plan["ops"]["digest"])
        self.assertGreater(len(digests), 8)
        self.assertEqual(os.listdir(self.nvme), [])

    def test_bits_of_two(self):
        self.check_bits(2)

    def test_bits_of_four(self):
        self.check_bits(4)

    def test_bits_of_three_compact(self):
        self.check_bits(3, state="compact", global_batch_size=6)

    def test_slow_bits_all(self):
        for ranks in (1, 2, 3, 4):
            self.check_bits(ranks, every=True, global_batch_size=12)

    def test_updates_in_the_backward(self):
        reference = self.train(self.flags(zero_stage=0, clip_grad=0))
        for stage in (1, 3):
            ours = self.train(self.flags(zero_stage=stage, clip_grad=0, update="in-backward", nvme=self.nvme,
                                         parameter_tier="nvme", optimizer_tier="nvme"))
            self.assertEqual(ours.curve(), reference.curve())
            self.assertEqual(self.tensors(ours), self.tensors(reference))

    def test_bytes_sent_are_the_closed_form(self):
        """8, 6, 6 and 8 bytes a parameter times ranks - 1, less the weights that the backward finds still there."""
        for ranks, group, stage in ((2, None, 0), (3, None, 1), (4, None, 2), (4, 2, 2), (2, None, 3), (4, 2, 3)):
            run_ = self.train(self.flags(ranks=ranks, zero_group_size=group, zero_stage=stage, order="vertical",
                                         global_batch_size=2 * ranks))
            planned = run_.plan["network_per_step"]
            self.assertEqual([record["network_bytes"] for record in run_.log[1:]],
                             [planned["sent_bytes"]] * (FEW - 1))
            self.assertIn("as the closed form has it", run_.outcome.out)
            parameters = sum(value[1][0] for name, value in self.tensors(run_).items() if name.endswith("/weight"))
            group = group or ranks
            copies = ranks // group
            self.assertEqual(planned["gradients"], 4 * parameters * (
                2 * (ranks - 1) if stage == 0 else copies * (group - 1) + 2 * (copies - 1)))
            once = 2 * parameters * copies * (group - 1)
            if stage in (1, 2):
                self.assertEqual(planned["weights"], once)
            elif stage == 3:
                self.assertGreater(planned["weights"], once)
                self.assertLessEqual(planned["weights"], 2 * once)
            else:
                self.assertEqual(planned["weights"], 0)

    def test_textbook_variants(self):
        """A parameter server has the same bits; a ring has its own, whatever the stage, and close ones."""
        direct = self.train(self.flags(ranks=4))
        server = self.train(self.flags(ranks=4, collectives="parameter-server"))
        self.assertEqual(server.curve(), direct.curve())
        self.assertEqual(self.tensors(server), self.tensors(direct))
        rings = [self.train(self.flags(ranks=4, reduce_algorithm="ring", zero_stage=stage)) for stage in (0, 3)]
        self.assertEqual(rings[0].curve(), rings[1].curve())
        self.assertEqual(self.tensors(rings[0]), self.tensors(rings[1]))
        self.assertNotEqual(self.tensors(rings[0]), self.tensors(direct))
        for ours, theirs in zip(rings[0].log, direct.log):
            self.assertAlmostEqual(ours["loss"] / theirs["loss"], 1, delta=2e-3)

    def test_one_order_of_data(self):
        """The first loss is that of one rank to the bit; the rest differs by the order of sums alone."""
        one = self.train(self.flags(ranks=1))
        for ranks in (2, 4):
            several = self.train(self.flags(ranks=ranks))
            self.assertEqual(several.log[0]["loss"], one.log[0]["loss"])
            for ours, theirs in zip(several.log, one.log):
                self.assertEqual(ours["tokens"], theirs["tokens"])
                self.assertAlmostEqual(ours["loss"] / theirs["loss"], 1, delta=2e-3)

    def test_auto_takes_the_fastest_stage(self):
        plans = {stage: self.plan(self.flags(zero_stage=stage))[0] for stage in (0, 1, 2, 3, "auto")}
        fastest = min(plans[stage]["predicted"]["step_s"] for stage in (0, 1, 2, 3))
        self.assertEqual(plans["auto"]["predicted"]["step_s"], fastest)
        self.assertIn("--zero-stage", plans["auto"]["flags"])
        default, _ = self.plan(self.flags())
        self.assertEqual(default["choices"], plans["auto"]["choices"])

    def test_evaluates_as_one_rank(self):
        # An odd number of sequences: the last round is not full.
        flags = {"eval_data": self.golden.data, "eval_interval": FEW, "lr": 0, "weight_decay": 0, "min_lr": 0}
        one = self.train(self.flags(ranks=1, **flags)).log[-1]["eval_loss"]
        for ranks, stage in ((2, 3), (4, 0)):
            ours = self.train(self.flags(ranks=ranks, zero_stage=stage, **flags)).log[-1]["eval_loss"]
            self.assertAlmostEqual(ours / one, 1, delta=1e-12)

    def test_samples_between_steps(self):
        flags = {"tokenizer": "bytes", "sample_interval": 3, "sample_prompt": "a", "sample_tokens": 4}
        one, two = (self.train(self.flags(ranks=ranks, lr=0, min_lr=0, weight_decay=0, **flags)) for ranks in (1, 2))
        self.assertEqual([record.get("sample") for record in one.log], [record.get("sample") for record in two.log])

    def test_verify(self):
        outcome = run("verify", *arguments(self.flags(zero_stage=3, order="vertical", steps=3, train_iters=None,
                                                      format="json")))
        self.assertEqual(outcome.code, 0, str(outcome))
        self.assertTrue(json.loads(outcome.out)["equal"])

    def test_other_commands_need_no_ranks(self):
        run_ = self.train(self.flags(ranks=4))
        outcome = run("eval", "--load", run_.path, "--data", self.golden.data, "--format", "json")
        self.assertEqual(outcome.code, 0, str(outcome))
        target = self.fresh("exported")
        outcome = run("export", "--load", run_.path, "--out", target)
        self.assertEqual(outcome.code, 0, str(outcome))

    @unittest.skipIf(SANITIZED, "a sanitizer's own memory is counted, too")
    def test_memory_is_that_of_the_plans(self):
        for ranks in (1, 2, 4):
            run_ = self.train(self.flags(ranks=ranks, zero_stage=3))
            planned = ranks * run_.plan["tiers"]["device"]["peak_bytes"]
            limit = planned + PROCESS_OVERHEAD + (ranks - 1) * FURTHER_RANK
            print(f"{ranks} ranks: planned {planned / MIB:.0f} MiB, resident {run_.outcome.resident_bytes / MIB:.0f}")
            self.assertLess(run_.outcome.resident_bytes, limit)


class RanksGoOn(RanksTest):
    def test_with_other_ranks(self):
        """Saved by some ranks, loaded by others under another stage: the state is the same to the bit."""
        for before, after, stage in ((4, 1, 0), (4, 2, 3), (4, 3, 3), (3, 4, 2), (1, 4, 3), (2, 4, 1)):
            with self.subTest(before=before, after=after, stage=stage):
                first = self.train(self.flags(ranks=before, zero_stage=3, global_batch_size=12, train_iters=3))
                again = self.train({"load": first.path, "save": self.fresh(), "ranks": after, "zero_stage": stage,
                                    "profile": None, "lr": 0, "min_lr": 0, "weight_decay": 0, "adam_beta1": None,
                                    "train_iters": 4})
                weights = {name: value for name, value in self.tensors(first).items() if name.endswith("/weight")}
                self.assertGreater(len(weights), 4)
                for name, value in weights.items():
                    self.assertEqual(self.tensors(again)[name], value, name)
                note = "instead of" if before != after else "loaded"
                self.assertIn(note, again.outcome.out)

    def test_as_if_it_had_not_stopped(self):
        whole = self.train(self.flags(ranks=3, zero_stage=2, global_batch_size=6))
        first = self.train(self.flags(ranks=3, zero_stage=3, global_batch_size=6, save_interval=2, train_iters=4))
        self.assertEqual(first.steps(), [2, 4])
        again = self.train({"load": first.path, "save": first.path, "zero_stage": 0, "train_iters": FEW})
        self.assertEqual(again.curve(), whole.curve())
        self.assertEqual(self.tensors(again), self.tensors(whole))

    def test_interrupted(self):
        flags = self.flags(ranks=2, train_iters=2000, save=self.fresh(), nvme=self.nvme, optimizer_tier="nvme")
        process = begin("train", *arguments(flags))
        wait_for_steps(flags["save"], 3, process)
        send_signal(process, signal.SIGINT)
        outcome = finish(process)
        self.assertEqual(outcome.code, 130, str(outcome))
        stopped = Run(flags["save"])
        self.assertEqual(stopped.steps()[-1], stopped.log[-1]["step"])
        self.assertEqual(os.listdir(self.nvme), [])
        end = stopped.steps()[-1] + 2
        again = self.train({"load": flags["save"], "save": flags["save"], "train_iters": end})
        whole = self.train({**flags, "save": self.fresh(), "train_iters": end})
        self.assertEqual([r["loss"] for r in again.log], [r["loss"] for r in whole.log])


# Three micro-batches of a step, one for each of three ranks.
PLANS_OF_RANKS = [
    {"zero_stage": 3, "parameter_tier": "nvme", "optimizer_tier": "nvme", "update": "in-next-forward"},
    {"zero_stage": 2, "parameter_tier": "nvme", "optimizer_tier": "nvme", "update": "after"},
    {"zero_stage": 1, "parameter_tier": "device", "optimizer_tier": "nvme", "update": "in-next-forward"},
    {"zero_stage": 0, "parameter_tier": "device", "optimizer_tier": "nvme", "update": "after",
     "durability_interval": 3},
    {"zero_stage": 3, "parameter_tier": "device", "optimizer_tier": "device", "update": "in-next-forward"},
    {"zero_stage": 3, "parameter_tier": "nvme", "optimizer_tier": "nvme", "update": "in-backward"},
]


class DurableRanks(DurableTest):
    def flags(self, **changes):
        return super().flags(**{"ranks": 3, **changes})

    def check_ended(self, path, whole, directories):
        on = Run(path)
        self.assertEqual(read_safetensors(on.state_file()), read_safetensors(whole.state_file()))
        self.assertEqual(on.curve(), whole.curve())
        for directory in directories:
            self.assertEqual(os.listdir(directory), [])
        self.assertFalse((on.path / "store.json").exists())

    def test_killed_at_random_instants(self):
        self.kill_at_random(PLANS_OF_RANKS, 20)

    def test_slow_killed_two_hundred_times(self):
        self.kill_at_random(PLANS_OF_RANKS, 200)

    def test_each_rank_has_a_store(self):
        flags, directories = self.killed_with_state(PLANS_OF_RANKS[0])
        for directory in directories:
            self.assertEqual(sorted(os.listdir(directory)), ["rank-0", "rank-1", "rank-2"])
        scrubbed = run("verify", "--store", flags["save"])
        self.assertEqual(scrubbed.code, 0, str(scrubbed))
        outcome = self.go_on(flags)
        self.assertEqual(outcome.code, 0, str(outcome))
        self.assertIn("goes on with the state on nvme", outcome.out)
        self.check_ended(flags["save"], self.whole(lr_decay_iters=STEPS), directories)

    def test_goes_on_with_another_stage(self):
        for plan, stage in ((0, 0), (1, 3), (3, 3), (4, 2)):
            with self.subTest(plan=plan, stage=stage):
                flags, directories = self.killed_with_state(PLANS_OF_RANKS[plan])
                outcome = self.go_on(flags, zero_stage=stage)
                self.assertEqual(outcome.code, 0, str(outcome))
                self.assertIn("becomes a checkpoint first", outcome.out)
                self.check_ended(flags["save"], self.whole(lr_decay_iters=STEPS), directories)

    def test_goes_on_with_other_ranks(self):
        for ranks in (1, 3):
            flags, directories = self.killed_with_state(PLANS_OF_RANKS[0], ranks=4 - ranks)
            outcome = self.go_on(flags, ranks=ranks)
            self.assertEqual(outcome.code, 0, str(outcome))
            self.assertIn("becomes a checkpoint first", outcome.out)
            self.assertIn(f"--ranks {ranks} instead of {4 - ranks}", outcome.out)
            self.assertEqual(Run(flags["save"]).log[-1]["step"], STEPS)
            for directory in directories:
                self.assertEqual(os.listdir(directory), [])

    def test_a_store_that_is_missing(self):
        flags, directories = self.killed_with_state(PLANS_OF_RANKS[0])
        shutil.rmtree(directories[1] / "rank-2")
        outcome = self.go_on(flags)
        self.check_refusal(outcome, 4, "rank-2")
        self.assertIn("store.json", outcome.err)

    def test_stores_that_changed_places(self):
        flags, directories = self.killed_with_state(PLANS_OF_RANKS[0], count=1)
        (directories[0] / "rank-1").rename(directories[0] / "x")
        (directories[0] / "rank-2").rename(directories[0] / "rank-1")
        (directories[0] / "x").rename(directories[0] / "rank-2")
        self.check_refusal(self.go_on(flags), 4, "rank 2 of 3")

    def test_a_run_that_needs_the_room(self):
        """A run that was not asked to be kept makes way: its stores become a checkpoint of it."""
        flags, directories = self.killed_with_state(PLANS_OF_RANKS[0], durability=None)
        other = self.with_directories(self.flags(save=self.fresh(), durability=None, **PLANS_OF_RANKS[0]), directories)
        outcome = run("train", *arguments(other))
        self.assertEqual(outcome.code, 0, str(outcome))
        self.assertIn("becomes a checkpoint of it first", outcome.out)
        self.assertEqual(len(Run(flags["save"]).steps()), 1)
        for directory in directories:
            self.assertEqual(os.listdir(directory), [])


class RanksRefused(RanksTest):
    def refused(self, fragment, code=2, **changes):
        outcome = run("train", *arguments(self.flags(**changes)))
        self.check_refusal(outcome, code, fragment)

    def test_more_ranks_than_micro_batches(self):
        self.refused("--global-batch-size: found 4, allowed: a multiple of 8", ranks=8)

    def test_groups(self):
        self.refused("--zero-group-size: found 3 with --ranks 4", ranks=4, zero_group_size=3)
        self.refused("power of two", ranks=6, zero_group_size=3, global_batch_size=6)

    def test_what_comes_later(self):
        self.refused("--sum-groups", sum_groups=2)
        self.refused("--reduce-dtype", reduce_dtype="bf16")
        self.refused("--collectives", collectives="nccl")
        self.refused("--reduce-algorithm: found ring", reduce_algorithm="ring", collectives="parameter-server")

    def test_a_loss_that_is_not_finite(self):
        outcome = run("train", *arguments(self.flags(lr=1e30, lr_decay_style="constant", clip_grad=0, train_iters=20,
                                                     save=self.fresh(), zero_stage=3)))
        self.assertEqual(outcome.code, 6, str(outcome))

    def test_more_ranks_than_cores(self):
        flags = self.flags(ranks=4, threads=2)
        outcome = run("train", *arguments(flags))
        self.assertEqual(outcome.code, 0, str(outcome))
        self.assertIn("4 ranks on 2 threads", outcome.out)


def hash_of(case):
    """An order of the cases that is the same in each run, and is not theirs."""
    value = 17
    for part in str(case):
        value = (value * 31 + ord(part)) % 1000003
    return value


if __name__ == "__main__":
    unittest.main()
