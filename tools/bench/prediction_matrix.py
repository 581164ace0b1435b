#!/usr/bin/env python3
"""Compares predicted step times with recorded ones, over many kinds of runs: one simulator, fresh probes.

    tools/bench/prediction_matrix.py [--sweeps N] [--nvme DIR] [--thorough] [--only TEXT] [--lanes]

The machine is probed at the beginning of a sweep, and before each run that uses the drive, because a drive that was
just busy or at rest has other rates than before. Every run is planned from the last profile and trained, and the median
of its steps is compared with its plan's prediction (aim: within 10 %). A machine shared with others changes from minute
to minute, too: over several sweeps the median of predicted by recorded counts, and the least and most are shown. Runs
cover small and large batches; bounds by compute, by memory bandwidth (the update) and by NVMe; each time of the update;
several shapes and forms of state; and cpu-apart, which also has copies in both directions (aim: within 15 %). --lanes
also shows how long each lane was busy, planned and recorded: the parts of the prediction.
"""

import dataclasses
import json
import os
import statistics
import sys

import common


@dataclasses.dataclass(frozen=True)
class Case:
    model: str
    batch: str                 # micro-batches x sequences of each x tokens
    device_memory: str = ""    # empty: in core
    flags: tuple = ()
    device: str = "cpu"

    def name(self):
        words = " ".join(str(word).removeprefix("--") for word in self.flags)
        device = self.device if self.device != "cpu" else ""
        return " ".join(filter(None, (self.model, self.batch, device, self.device_memory or "in core", words)))

    def aim(self):
        return 0.10 if self.device == "cpu" else 0.15


IN_BACKWARD = ("--clip-grad", 0, "--update", "in-backward")
AFTER = ("--clip-grad", 0, "--update", "after")
NEXT = ("--update", "in-next-forward")  # with clipping
COMPACT, FP32 = ("--state", "compact"), ("--dtype", "fp32")
CASES = [
    Case("smollm2-135m", "1x4x512", "", AFTER),
    Case("smollm2-135m", "1x1x64", "", AFTER),
    Case("smollm2-135m", "1x1x64", "", IN_BACKWARD + COMPACT),
    Case("smollm2-135m", "1x2x256", "", FP32),
    Case("gpt2", "2x2x512", "", IN_BACKWARD),
    Case("qwen2.5-0.5b", "1x1x256", "", IN_BACKWARD),
    Case("smollm2-135m", "1x4x512", "512MiB", IN_BACKWARD),
    Case("smollm2-135m", "4x1x512", "512MiB", NEXT + ("--order", "vertical")),
    Case("smollm2-135m", "4x1x512", "512MiB", AFTER + ("--order", "horizontal")),
    Case("smollm2-135m", "1x1x128", "256MiB", AFTER),
    Case("smollm2-135m", "1x1x128", "256MiB", IN_BACKWARD),
    Case("smollm2-135m", "1x1x512", "256MiB", NEXT + COMPACT),
    Case("smollm2-135m", "1x8x512", "1GiB", IN_BACKWARD + ("--activation-tier", "nvme")),
    Case("gpt2-medium", "1x1x512", "512MiB", IN_BACKWARD + COMPACT),
    Case("smollm2-360m", "1x1x256", "512MiB", NEXT),
    Case("qwen2.5-0.5b", "1x2x512", "1GiB", IN_BACKWARD),
    Case("smollm2-135m", "1x4x512", "1GiB", IN_BACKWARD + ("--host-memory", "3GiB"), "cpu-apart"),
    Case("smollm2-135m", "4x1x512", "512MiB", NEXT + ("--host-memory", "1GiB"), "cpu-apart"),
    Case("smollm2-135m", "2x2x512", "512MiB", AFTER + ("--update-on", "device", "--host-memory", "1GiB"), "cpu-apart"),
]


class Matrix:
    def __init__(self, arguments, directory, nvme):
        self.arguments, self.directory, self.nvme = arguments, directory, nvme
        self.profiles = []

    def probe(self):
        arguments = self.arguments
        self.profile = arguments.profile or common.machine_profile(arguments.spillway, self.directory, self.nvme,
                                                                   arguments.thorough)
        self.profiles.append(json.loads(self.profile.read_text()))

    def flags(self, case):
        micro_batches, sequences, tokens = map(int, case.batch.split("x"))
        data = self.directory / f"{case.model}-{tokens}.jsonl"
        if not data.exists():
            common.write_tokens(data, common.model_config(case.model), tokens, 16)
        flags = common.spillway_flags(case.model, data, sequences, sequences * micro_batches, tokens, "--profile",
                                      self.profile, *case.flags, device=case.device)
        return flags + (["--device-memory", case.device_memory, "--nvme", self.nvme] if case.device_memory else [])

    def measure(self, case):
        arguments = self.arguments
        if not self.profiles or (case.device_memory and not arguments.profile):
            self.probe()
        run = common.train(arguments.spillway, self.flags(case), self.directory, arguments.steps, arguments.warm_up,
                           arguments.timeout, with_timeline=arguments.lanes, least_s=arguments.seconds)
        predicted, recorded = run.plan["predicted"], run.median_s()
        result = {"case": case.name(), "step_s": run.step_s, "median_step_s": recorded,
                  "predicted_s": predicted["step_s"], "ratio": predicted["step_s"] / recorded, "aim": case.aim(),
                "binding_lane": predicted["binding_lane"], "bound_s": predicted["bound_s"], "start_s": run.start_s,
                "load_average": os.getloadavg()[0], "choices": run.plan.get("choices"),
                "lane_seconds": lane_seconds(run)}
        print(f"{case.name()}: predicted {predicted['step_s']:.3f} s, recorded {recorded:.3f} s, "
              f"{result['ratio']:.3f}; start {run.start_s:.1f} s", flush=True)
        for kind, (planned, took) in result["lane_seconds"].items():
            print(f"    {kind:32} {planned:8.3f} s planned {took:8.3f} s recorded {planned / took if took else 0:8.3f}",
                  flush=True)
        return result


@dataclasses.dataclass(frozen=True)
class Row:
    """One case over all sweeps; each figure but the extremes is the median over sweeps."""
    results: list

    def middle(self, key):
        return statistics.median(result[key] for result in self.results)

    def cells(self):
        steps = [step_s for result in self.results for step_s in result["step_s"]]
        ratios = [result["ratio"] for result in self.results]
        return (self.results[0]["case"], f"{self.middle('predicted_s'):.3f} s", f"{self.middle('median_step_s'):.3f} s",
                f"{min(steps):.3f} to {max(steps):.3f}", f"{self.middle('ratio'):.3f}",
                f"{min(ratios):.3f} to {max(ratios):.3f}",
                f"{self.aim():.2f} {common.verdict(self.error(), self.aim(), at_least=False)}",
                self.results[0]["binding_lane"], f"{self.middle('load_average'):.1f}")

    def error(self):
        return error_of(self.middle("ratio"))

    def aim(self):
        return self.results[0]["aim"]


def error_of(ratio):
    return abs(ratio - 1)


def print_results(results):
    rows = [Row([result for result in results if result["case"] == case])
            for case in dict.fromkeys(result["case"] for result in results)]
    heading = ("case", "predicted", "recorded", "least to most", "predicted/recorded", "of sweeps", "aim",
               "bound by", "load")
    common.print_table([heading, *(row.cells() for row in rows)])
    worst = max(rows, key=Row.error)
    print(f"{sum(row.error() <= row.aim() for row in rows)} of {len(rows)} within their aim; "
          f"worst: {worst.results[0]['case']}, predicted {worst.middle('ratio'):.3f} of what ran")
    for sweep in sorted({result["sweep"] for result in results}):
        reached = [error_of(result["ratio"]) <= result["aim"] for result in results if result["sweep"] == sweep]
        print(f"sweep {sweep}: {sum(reached)} of {len(reached)} within their aim")


def lane_seconds(run):
    """Planned and recorded seconds of a lane's time, by lane and kind of operation; if requests overlap, a request's
    time begins at the end of the one before.
    """
    seconds, planned_end, recorded_end = {}, {}, {}
    for operation, span in zip(run.operations, run.spans):
        lane = operation["lane"]
        cell = seconds.setdefault(f"{lane} {operation['kind']}", [0, 0])
        cell[0] += max(0, operation["end_s"] - max(operation["begin_s"], planned_end.get(lane, 0)))
        cell[1] += max(0, span[1] - max(span[0], recorded_end.get(lane, 0)))
        planned_end[lane], recorded_end[lane] = operation["end_s"], span[1]
    return seconds


def main():
    parser = common.parser_of(__doc__)
    common.add_nvme_flag(parser)
    parser.add_argument("--profile", type=common.pathlib.Path,
                        help="plan for this profile of this machine rather than measure one")
    parser.add_argument("--sweeps", type=int, default=5, help="of a probe and all runs (5)")
    parser.add_argument("--thorough", action="store_true", help="probe for minutes rather than for seconds")
    parser.add_argument("--only", metavar="TEXT", help="only cases whose name has this in it")
    parser.add_argument("--lanes", action="store_true",
                        help="let runs save, and show how long lanes were busy, planned and recorded")
    parser.add_argument("--steps", type=int, default=5, help="measured steps a run, at least (5)")
    parser.add_argument("--seconds", type=float, default=8,
                        help="measured for so long, at least (8): steps of a moment are all slow or all fast")
    parser.add_argument("--warm-up", type=int, default=2, help="steps before them (2)")
    parser.add_argument("--timeout", type=float, default=600, help="seconds that one run may take (600)")
    arguments = parser.parse_args()
    common.check_program(arguments)
    results, failures, profiles = [], [], []
    with common.work_directories(arguments) as (directory, nvme):
        try:
            for sweep in range(1, arguments.sweeps + 1):
                matrix = Matrix(arguments, directory, nvme)
                profiles.append(matrix.profiles)
                for case in CASES:
                    if arguments.only and arguments.only not in case.name():
                        continue
                    try:
                        results.append({"sweep": sweep, **matrix.measure(case)})
                    except RuntimeError as error:
                        failures.append(f"{case.name()}: {error}")
                        print(f"{case.name()}: failed", flush=True)
        finally:  # shows what was measured even if the rest is interrupted
            if results:
                print_results(results)
            for failure in failures:
                print(failure)
            common.save_result("prediction_matrix", {"profiles": profiles, "results": results, "failures": failures})
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
