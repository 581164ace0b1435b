#!/usr/bin/env python3
"""Compares plans for GPUs with the figures that another trainer publishes for them.

    published_steps.py [--only TEXT] [--state exact|compact]

Shows the tokens a second of LLMQ (https://github.com/IST-DASLab/llmq, b77d969) in bf16, on a 4090 and on an H100,
beside those that `spillway plan` predicts from the shipped profiles: sequences of 1,024 tokens, 524,288 tokens in a
step, and the micro-batch size that is planned to be the fastest of several. Nothing is run: no GPU is needed. Rows that
differ by more than a quarter are marked, and README.md says why they do.
"""

import json
import subprocess

import common

SEQUENCE, SEQUENCES = 1024, 512
MICRO_BATCHES = (4, 8, 16, 32)
PUBLISHED = [  # model, profile, LLMQ's tokens/s, its share of its own speed of light
    ("qwen2.5-0.5b", "rtx-4090-desktop", 40_000, 0.75),
    ("qwen2.5-1.5b", "rtx-4090-desktop", 14_000, 0.81),
    ("qwen2.5-7b", "rtx-4090-desktop", 2_800, 0.72),
    ("qwen2.5-14b", "rtx-4090-desktop", 1_300, 0.70),
    ("qwen2.5-0.5b", "h100-server", 149_000, 0.47),
    ("qwen2.5-1.5b", "h100-server", 59_000, 0.57),
    ("qwen2.5-7b", "h100-server", 14_000, 0.60),
]


def planned(program, model, profile, micro_batch, state):
    """Its plan.json; None if it does not fit."""
    command = [program, "plan", "--model", model, "--profile", profile, "--nvme", "/not/there=2TiB", "--state", state,
               "--seq-length", SEQUENCE, "--micro-batch-size", micro_batch, "--global-batch-size", SEQUENCES,
               "--durability", "checkpoint", "--format", "json"]
    ran = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if ran.returncode == 3:
        return None
    if ran.returncode != 0:
        common.fail(f"{' '.join(map(str, command))}:\n{ran.stderr}")
    return json.loads(ran.stdout)


def main():
    parser = common.parser_of(__doc__)
    parser.add_argument("--only", default="", help="rows whose model and profile have this text")
    parser.add_argument("--state", choices=("exact", "compact"), action="append", help="how state is stored (both)")
    arguments = parser.parse_args()
    print(f"{'model':<14} {'profile':<18} {'state':<8} {'batch':>5} {'planned':>9} {'LLMQ':>9} {'ratio':>6}  compute")
    for model, profile, published, _ in PUBLISHED:
        if arguments.only not in f"{model} {profile}":
            continue
        for state in arguments.state or ("exact", "compact"):
            plans = {batch: planned(arguments.spillway, model, profile, batch, state) for batch in MICRO_BATCHES}
            fitting = {batch: plan for batch, plan in plans.items() if plan is not None and plan["fits"]}
            if not fitting:
                print(f"{model:<14} {profile:<18} {state:<8} does not fit")
                continue
            batch, plan = max(fitting.items(), key=lambda item: item[1]["predicted"]["tokens_per_s"])
            speed = plan["predicted"]["tokens_per_s"]
            busy = next(lane for lane in plan["lanes"] if lane["name"] == "compute")
            ratio = speed / published
            print(f"{model:<14} {profile:<18} {state:<8} {batch:>5} {speed:>9,.0f} {published:>9,} {ratio:>6.2f}  "
                  f"{share_of(busy, plan):.0%}{'  *' if abs(ratio - 1) > 0.25 else ''}", flush=True)


def share_of(lane, plan):
    return lane["busy_s"] / plan["predicted"]["step_s"]


if __name__ == "__main__":
    main()
