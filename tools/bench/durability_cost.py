#!/usr/bin/env python3
"""The cost of durable steps: runs the same training with --durability checkpoint and with step, in turns, and compares
both with the plan.

    tools/bench/durability_cost.py [--shapes MODEL:BATCHxSEQUENCE...] [--device-memory SIZE] [--steps N] [--rounds N]
    [-- FLAGS of train]

Prints for each mode the step time and CPU seconds of a step (medians; other programs disturb the clock but hardly
disturb CPU seconds), and the bytes that the kernel counts as written in a step beside those of the plan: operations,
records and copies. Every state and its copies are on a disk, in a directory that is removed at the end. Exit code 1 if
the bytes differ by more than 1 %.
"""

import os
import pathlib
import sys

import common

MODES = ("checkpoint", "step")


def planned_bytes(plan):
    return plan["nvme_per_step"]["written_bytes"] + plan["durability"].get("written_bytes_per_step", 0)


def measure(arguments, shape, directory, nvme, profile):
    model, batch, sequence = shape
    data = directory / f"{pathlib.Path(model).name}.jsonl"
    common.write_tokens(data, common.model_config(model), sequence, 16)
    flags = common.spillway_flags(model, data, batch, batch, sequence, "--device-memory", arguments.device_memory,
                                  "--nvme", nvme, "--profile", profile, "--data-order", "sequential", *arguments.flags)
    runs = {mode: common.Run() for mode in MODES}
    # Whole intervals, so that the counted records and copies are as many as planned.
    interval = common.plan(arguments.spillway, [*flags, "--durability", "step"], directory)["durability"]["interval"]
    steps = -(-arguments.steps // interval) * interval
    for _ in range(arguments.rounds):
        for mode in MODES:
            run = common.train(arguments.spillway, [*flags, "--durability", mode], directory, steps, arguments.warm_up)
            runs[mode].join(run)
            # The killed run leaves its store behind, as it was told to.
            for left in nvme.glob("spillway-store.*"):
                left.unlink()
            print(f"{model} {mode}: {', '.join(f'{seconds:.3f}' for seconds in run.step_s)} s; load "
                  f"{os.getloadavg()[0]:.1f}", flush=True)
    return runs


def judge(name, mode, run, against):
    planned, written = planned_bytes(run.plan), run.written_bytes_all / len(run.cpu_s)
    return {"shape": name, "durability": mode, "interval": run.plan["durability"].get("interval"),
            "median_step_s": run.median_s(), "median_cpu_s": run.median_cpu_s(),
            "of_checkpoint": run.median_s() / against.median_s(),
            "cpu_of_checkpoint": run.median_cpu_s() / against.median_cpu_s(),
            "planned_written_bytes": planned, "written_bytes": written,
            "difference": written / planned - 1 if planned else 0.0}


def main():
    parser = common.parser_of(__doc__)
    parser.add_argument("--shapes", type=common.shape, nargs="+", default=[common.shape("smollm2-135m:1x512")])
    parser.add_argument("--device-memory", default="384MiB")
    common.add_nvme_flag(parser)
    parser.add_argument("--steps", type=int, default=8, help="measured steps a turn (8)")
    parser.add_argument("--warm-up", type=int, default=2, help="steps before them (2)")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each mode (3)")
    parser.add_argument("flags", nargs="*", help="further flags of train")
    arguments = parser.parse_args()
    common.check_program(arguments)
    results = []
    with common.work_directories(arguments) as (directory, nvme):
        profile = common.machine_profile(arguments.spillway, directory, nvme)
        for shape in arguments.shapes:
            runs = measure(arguments, shape, directory, nvme, profile)
            results += [judge("{}:{}x{}".format(*shape), mode, runs[mode], runs["checkpoint"]) for mode in MODES]
    rows = [("shape", "durability", "every", "step", "of checkpoint", "CPU", "of checkpoint", "written by the kernel",
             "planned", "difference")]
    for result in results:
        rows.append((result["shape"], result["durability"], result["interval"] or "-",
                     f"{result['median_step_s']:.3f} s", f"{result['of_checkpoint']:.3f}",
                     f"{result['median_cpu_s']:.2f} s", f"{result['cpu_of_checkpoint']:.3f}",
                     f"{result['written_bytes'] / 1e6:.2f} MB", f"{result['planned_written_bytes'] / 1e6:.2f} MB",
                     f"{100 * result['difference']:+.2f} %"))
    common.print_table(rows)
    common.save_result("durability_cost", {"results": results})
    return 1 if any(abs(result["difference"]) > 0.01 for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
