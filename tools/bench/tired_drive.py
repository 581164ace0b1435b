#!/usr/bin/env python3
"""Runs steps of 20 s and more that the drive binds, and compares three times: predicted by the probe, predicted with
the rates that a first run saw, and recorded.

    tools/bench/tired_drive.py [--nvme DIR] [--model NAME] [--device-memory SIZE] [--first-steps N] [--steps N]

The machine is probed, and a first run of a few steps adds the rates that it saw to the kept profile. A second run is
planned with these: its prediction counts (aim: within 10 %). Needs about 40 GB of free disk with the default model (the
plan says how much exactly; this is checked first), all of it freed at the end.
"""

import sys

import common

AIM = 0.10


def main():
    parser = common.parser_of(__doc__)
    common.add_nvme_flag(parser)
    parser.add_argument("--model", default="llama-3.2-3b")
    parser.add_argument("--device-memory", default="1GiB")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--sequence", type=int, default=512)
    parser.add_argument("--first-steps", type=int, default=4, help="of the run that looks at the drive (4)")
    parser.add_argument("--steps", type=int, default=5, help="measured, planned with what the first run saw (5)")
    parser.add_argument("--warm-up", type=int, default=1, help="steps before them (1)")
    parser.add_argument("--thorough", action="store_true", help="probe for minutes rather than for seconds")
    parser.add_argument("--timeout", type=float, default=7200, help="seconds that one run may take (7200)")
    arguments = parser.parse_args()
    common.check_program(arguments)
    with (common.temporary_directory(arguments.directory) as directory,
          common.temporary_directory(arguments.nvme or directory) as nvme):
        result = measure(arguments, directory, nvme)
    print_result(result)
    common.save_result("tired_drive", result)
    return 0 if result["saw_the_drive"] and abs(result["ratio"] - 1) <= AIM else 1


def measure(arguments, directory, nvme):
    data = directory / "tokens.jsonl"
    common.write_tokens(data, common.model_config(arguments.model), arguments.sequence, 8)
    flags = common.spillway_flags(arguments.model, data, arguments.batch, arguments.batch, arguments.sequence,
                                  "--device-memory", arguments.device_memory, "--nvme", nvme,
                                  "--durability", "checkpoint")
    # Kept where the runs look for it, because none of them is given a profile.
    common.keep_machine_profile(arguments.spillway, directory, nvme, arguments.thorough)
    first_plan = common.plan(arguments.spillway, flags, directory)
    wanted = common.require_room(first_plan, nvme)
    print(f"{first_plan['model']['parameters'] / 1e9:.2f} G parameters, {wanted / 1e9:.1f} GB on disk; by the probe "
          f"{first_plan['predicted']['step_s']:.2f} s a step", flush=True)
    first = common.train(arguments.spillway, flags, directory, arguments.first_steps, 0, arguments.timeout)
    machine = common.plan(arguments.spillway, flags, directory)["machine"]
    second = common.train(arguments.spillway, flags, directory, arguments.steps, arguments.warm_up, arguments.timeout)
    predicted, recorded = second.plan["predicted"], second.median_s()
    return {"model": arguments.model, "machine": machine, "saw_the_drive": machine["drive_rates"] == "seen",
            "nvme_per_step": second.plan["nvme_per_step"], "binding_lane": predicted["binding_lane"],
            "by_the_probe": times(first_plan, first), "by_what_was_seen": times(second.plan, second),
            "ratio": predicted["step_s"] / recorded}


def times(plan, run):
    return {"predicted_s": plan["predicted"]["step_s"], "step_s": run.step_s, "recorded_s": run.median_s()}


def print_result(result):
    rows = [("planned by", "predicted", "recorded", "least to most", "predicted/recorded")]
    for source in ("by_the_probe", "by_what_was_seen"):
        run = result[source]
        name, predicted, recorded = source.removeprefix("by_").replace("_", " "), run["predicted_s"], run["recorded_s"]
        rows.append((name, f"{predicted:.2f} s", f"{recorded:.2f} s",
                     f"{min(run['step_s']):.2f} to {max(run['step_s']):.2f}", f"{predicted / recorded:.3f}"))
    common.print_table(rows)
    moved = result["nvme_per_step"]
    print(f"  {moved['read_bytes'] / 1e9:.1f} GB read and {moved['written_bytes'] / 1e9:.1f} GB written a step; "
          f"bound by {result['binding_lane']}")
    for source in ("probed", "seen"):
        rates = [f"{name.removeprefix('nvme_').removesuffix('_bytes').replace('_', ' ')} {rate / 1e9:.2f} GB/s"
                 for name, rate in result["machine"].get(source, {}).items() if name.endswith("_bytes")]
        print(f"  {source}: {', '.join(rates) or 'too little of the drive; longer runs see more'}")
    if result["saw_the_drive"]:
        print(f"  within {AIM:.0%} of what ran: {common.verdict(abs(result['ratio'] - 1), AIM, at_least=False)}")


if __name__ == "__main__":
    sys.exit(main())
