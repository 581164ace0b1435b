#!/usr/bin/env python3
"""Compares the planner's choice with every combination that one could force instead, by running all of them.

    tools/bench/forced_combinations.py [--nvme DIR] [--profile FILE] [--shapes NAME ...] [--first-steps N] [--steps N]
    [--each-tier]

For each shape the planner chooses freely; then order, update, activations and the tiers of parameters and optimizer
state (both together; with --each-tier also each alone) are forced in every way that fits. The free choice may take at
most 1.05 of the time of the fastest. Combinations that give the same plan run once, for a step or two. The fastest of
many runs is also the luckiest, and disks change their rate from minute to minute: the few fastest run again, in turns
with the planner's choice, and only these turns are compared.
"""

import dataclasses
import itertools
import os
import statistics
import sys

import common

AIM = 1.05
FINALISTS = 4


@dataclasses.dataclass(frozen=True)
class Shape:
    name: str
    model: str
    micro_batches: int
    sequences: int  # in a micro-batch
    tokens: int
    device_memory: str
    flags: tuple = ()


# Small enough to run all combinations in minutes, and bound by different lanes.
SHAPES = [
    Shape("disk", "smollm2-135m", 2, 1, 64, "256MiB", ("--clip-grad", 0)),
    Shape("balanced", "gpt2", 2, 1, 256, "384MiB", ("--clip-grad", 0, "--state", "compact")),
    Shape("clipped", "smollm2-135m", 2, 1, 128, "512MiB"),
]
ORDERS = ("horizontal", "vertical")
UPDATES = ("after", "in-backward", "in-next-forward")
ACTIVATIONS = ("device", "recompute", "nvme")
PARAMETERS, OPTIMIZER = ("--parameter-tier", "nvme"), ("--optimizer-tier", "nvme")


def combinations(each_tier):
    """The combinations as flags; choices that are not forced are left to the planner."""
    tiers = ((), PARAMETERS + OPTIMIZER) + ((PARAMETERS, OPTIMIZER) if each_tier else ())
    return [("--order", order, "--update", update, "--activation-tier", activations, *tier)
            for order, update, activations, tier in itertools.product(ORDERS, UPDATES, ACTIVATIONS, tiers)]


class Comparison:
    def __init__(self, arguments, directory, nvme):
        self.arguments, self.directory, self.nvme = arguments, directory, nvme
        self.profile = arguments.profile or common.machine_profile(arguments.spillway, directory, nvme, thorough=False)

    def flags(self, shape, forced):
        data = self.directory / f"{shape.name}.jsonl"
        if not data.exists():
            common.write_tokens(data, common.model_config(shape.model), shape.tokens, 16)
        return common.spillway_flags(shape.model, data, shape.sequences, shape.sequences * shape.micro_batches,
                                     shape.tokens, "--profile", self.profile, "--device-memory", shape.device_memory,
                                     "--nvme", self.nvme, "--durability", "checkpoint", *shape.flags, *forced)

    def plan(self, shape, forced):
        """The plan, or None if no plan fits or is exact."""
        try:
            plan = common.plan(self.arguments.spillway, self.flags(shape, forced), self.directory)
        except RuntimeError as error:
            # 2: refused, like speculation without a second slot; 3: does not fit.
            if "exit code 2:" in str(error) or "exit code 3:" in str(error):
                return None
            raise
        return plan if plan["fits"] else None

    def run(self, shape, forced, steps):
        arguments = self.arguments
        return common.train(arguments.spillway, self.flags(shape, forced), self.directory, steps, arguments.warm_up,
                            arguments.timeout)


def compare(comparison, shape):
    chosen_plan = comparison.plan(shape, ())
    if chosen_plan is None:
        common.fail(f"{shape.name}: nothing fits")
    plans, refused = {}, 0
    for forced in combinations(comparison.arguments.each_tier):
        plan = comparison.plan(shape, forced)
        if plan is None:
            refused += 1
        else:  # the same operations are the same plan, whatever the flags
            plans.setdefault(plan["ops"]["digest"], (forced, plan["predicted"]["step_s"]))
    others = []
    for forced, predicted_s in plans.values():
        run = comparison.run(shape, forced, comparison.arguments.first_steps)
        others.append({"flags": forced, "median_step_s": run.median_s(), "predicted_s": predicted_s,
                       "step_s": run.step_s})
    others.sort(key=lambda other: other["median_step_s"])
    chosen, finals = common.Run(), {other["flags"]: common.Run() for other in others[:FINALISTS]}
    for _ in range(comparison.arguments.rounds):
        chosen.join(comparison.run(shape, (), comparison.arguments.steps))
        for forced, run in finals.items():
            run.join(comparison.run(shape, forced, comparison.arguments.steps))
    for other in others[:FINALISTS]:
        other["again_s"] = finals[other["flags"]].median_s()
    best = min(others[:FINALISTS], key=lambda other: other["again_s"])
    choices = chosen_plan["choices"]
    return {"shape": shape.name, "combinations": len(combinations(comparison.arguments.each_tier)),
            "model": shape.model, "device_memory": shape.device_memory, "chosen": choices,
            "flags": chosen_plan["flags"], "predicted_s": chosen_plan["predicted"]["step_s"],
            "chosen_step_s": chosen.step_s, "chosen_s": chosen.median_s(), "best": best,
            "ratio": chosen.median_s() / best["again_s"], "refused": refused, "forced": others,
            "load_average": os.getloadavg()[0]}


def show(result):
    print(f"{result['shape']}: {result['model']} in {result['device_memory']}; {len(result['forced'])} plans of "
          f"{result['combinations']} combinations, {result['refused']} do not fit or cannot be exact")
    rows = [("plan", "predicted", "recorded", "again, in turns")]
    rows.append(("the planner's choice", f"{result['predicted_s']:.3f} s", "", f"{result['chosen_s']:.3f} s"))
    for other in result["forced"]:
        words = " ".join(word.removeprefix("--") for word in other["flags"])
        rows.append((words, f"{other['predicted_s']:.3f} s", f"{other['median_step_s']:.3f} s",
                     f"{other['again_s']:.3f} s" if "again_s" in other else ""))
    common.print_table(rows)
    print(f"  the choice: {result['flags']}")
    verdict = common.verdict(result["ratio"], AIM, at_least=False)
    middle = statistics.median(other["median_step_s"] for other in result["forced"])
    print(f"  over the best of all: {result['ratio']:.3f}, at most {AIM} is asked: {verdict}; "
          f"the middle of all forced over the fastest: {middle / result['forced'][0]['median_step_s']:.2f}", flush=True)


def main():
    parser = common.parser_of(__doc__)
    common.add_nvme_flag(parser)
    parser.add_argument("--profile", type=common.pathlib.Path,
                        help="plan for this profile of this machine rather than measure one")
    parser.add_argument("--shapes", nargs="+", choices=[shape.name for shape in SHAPES],
                        default=[shape.name for shape in SHAPES])
    parser.add_argument("--each-tier", action="store_true", help="force the tiers of parameters and of optimizer state "
                                                                 "one by one, too")
    parser.add_argument("--first-steps", type=int, default=2, help="measured steps of each combination (2)")
    parser.add_argument("--steps", type=int, default=4, help="measured steps of each turn of the fastest (4)")
    parser.add_argument("--rounds", type=int, default=2, help="turns of the choice and the fastest (2)")
    parser.add_argument("--warm-up", type=int, default=1, help="steps before them (1)")
    parser.add_argument("--timeout", type=float, default=600, help="seconds that one run may take (600)")
    arguments = parser.parse_args()
    common.check_program(arguments)
    results = []
    with common.work_directories(arguments) as (directory, nvme):
        comparison = Comparison(arguments, directory, nvme)
        try:
            for shape in SHAPES:
                if shape.name in arguments.shapes:
                    results.append(compare(comparison, shape))
                    show(results[-1])
        finally:
            common.save_result("forced_combinations", {"results": results})
    return 0


if __name__ == "__main__":
    sys.exit(main())
