#!/usr/bin/env python3
"""A full-parameter step of a 7 B shape with 2 GiB of device memory: compact state on NVMe, all 6.7 G parameters
trained.

    tools/bench/seven_billion.py --nvme DIR [--steps N] [--model NAME] [--device-memory SIZE]

Needs about 60 GB of free disk in DIR (the plan says how much exactly; this is checked first), all of it freed at the
end. Prints step times, the plan's bound, the bytes read and written, and resident memory beside the planned peak.
"""

import sys

import common


def main():
    parser = common.parser_of(__doc__)
    common.add_nvme_flag(parser)
    parser.add_argument("--model", default="llama-2-7b")
    parser.add_argument("--device-memory", default="2GiB")
    parser.add_argument("--state", default="compact")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--sequence", type=int, default=512)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=7200)
    arguments = parser.parse_args()
    common.check_program(arguments)
    with common.work_directories(arguments) as (directory, nvme):
        config = common.model_config(arguments.model)
        data = directory / "tokens.jsonl"
        common.write_tokens(data, config, arguments.sequence, 8)
        profile = common.machine_profile(arguments.spillway, directory, nvme)
        flags = common.spillway_flags(arguments.model, data, arguments.batch, arguments.batch, arguments.sequence,
                                      "--device-memory", arguments.device_memory, "--state", arguments.state, "--nvme",
                                      nvme, "--clip-grad", 0, "--profile", profile, "--durability", "checkpoint")
        plan = common.plan(arguments.spillway, flags, directory)
        wanted = common.require_room(plan, nvme)
        print(f"{plan['model']['parameters'] / 1e9:.2f} G parameters; {wanted / 1e9:.1f} GB on disk; predicted step "
              f"{plan['predicted']['step_s']:.0f} s, "
              f"bound {plan['predicted']['bound_s']:.0f} s by {plan['predicted']['binding_lane']}", flush=True)
        run = common.train(arguments.spillway, flags, directory, arguments.steps, warm_up=0,
                           timeout_s=arguments.timeout)
    peak = run.plan["tiers"]["device"]["peak_bytes"]
    beside = run.peak_resident_bytes - peak
    rows = [("step", "loss", "seconds", "tokens/s", "bound/step", "read", "written")]
    for record in run.log:
        rows.append((record["step"], f"{record['loss']:.4f}", f"{record['step_s']:.1f}",
                     f"{record['tokens_per_s']:.1f}", f"{record['overlap_efficiency']:.2f}",
                     f"{record['nvme_read_bytes'] / 1e9:.1f} GB", f"{record['nvme_written_bytes'] / 1e9:.1f} GB"))
    common.print_table(rows)
    print(f"  device peak {peak / common.GIB:.2f} GiB as planned: "
          f"{'yes' if {r['device_peak_bytes'] for r in run.log} == {peak} else 'NO'}; "
          f"resident beside it {beside / common.MIB:.0f} MiB ({'within' if beside <= common.OVERHEAD else 'MORE THAN'} "
          "150 MiB)")
    common.save_result("seven_billion", {"model": arguments.model, "log": run.log, "cpu_s": run.cpu_s,
                                         "plan": {key: run.plan[key]
                                                  for key in ("tiers", "predicted", "nvme_per_step", "lanes", "flags")},
                                         "resident_beside_plan": beside})
    return 0 if beside <= common.OVERHEAD else 1


if __name__ == "__main__":
    sys.exit(main())
