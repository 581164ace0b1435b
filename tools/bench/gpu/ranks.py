#!/usr/bin/env python3
"""Trains with two ranks on the GPUs of this machine, which may be one.

    tools/bench/gpu/ranks.py [--parts threads nccl] [--profile FILE] [--out FILE.json]

threads  two ranks of one process, which copy between their GPUs' memory: the same bits for every ZeRO stage, in core
         and with state on the host; tokens a second beside one rank's
nccl     the same two ranks as processes, by NCCL: the bits of threads. With one GPU each process tells NCCL another
         host's name, as NCCL refuses two ranks on one GPU; it may refuse all the same, which is said and is no failure

tools/gpu_check ranks runs it. The program is --spillway, built for the GPU of this machine.
"""

import csv
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))
import common  # noqa: E402: beside the other benchmarks

MODEL, MICRO, SEQUENCE, GLOBAL = "smollm2-135m", 4, 1024, 16
STEPS = 6


class Runs:
    def __init__(self, arguments, directory):
        self.arguments, self.directory, self.count = arguments, directory, 0
        self.data = directory / "rows.jsonl"
        common.write_tokens(self.data, common.model_config(MODEL), SEQUENCE, 2 * GLOBAL)

    def command(self, device, log, *more):
        profile = ["--profile", self.arguments.profile] if self.arguments.profile else []
        words = [self.arguments.spillway.resolve(), "train",
                 *common.spillway_flags(MODEL, self.data, MICRO, GLOBAL, SEQUENCE, device=device), *profile,
                 "--train-iters", STEPS, "--lr", "1e-4", "--lr-decay-style", "constant", "--csv", log, *more]
        return [str(word) for word in words]

    def log(self):
        self.count += 1
        return self.directory / f"run{self.count}.csv"

    def train(self, device, *more):
        """One process."""
        log = self.log()
        ran = subprocess.run(self.command(device, log, *more), capture_output=True, text=True, check=False,
                             env=common.environment_with(self.directory), cwd=self.directory,
                             timeout=self.arguments.timeout)
        return self.result(log, ran.returncode, ran.stderr)

    def launch(self, device, *more):
        """Two processes, as torchrun starts them."""
        log = self.log()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        ranks = []
        for rank in range(2):
            own = {"RANK": rank, "WORLD_SIZE": 2, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": 2, "MASTER_PORT": port - 1}
            if len(set(device.split(":")[1].split(","))) == 1:
                own["NCCL_HOSTID"] = f"host-{rank}"
            environment = {**common.environment_with(self.directory),
                           **{key: str(value) for key, value in own.items()}}
            ranks.append(subprocess.Popen(self.command(device, log, *more), stdout=subprocess.PIPE,
                                          stderr=subprocess.PIPE, text=True, env=environment, cwd=self.directory))
        ended = [rank.communicate(timeout=self.arguments.timeout) for rank in ranks]
        return self.result(log, max(rank.returncode for rank in ranks), "".join(words for _, words in ended))

    @staticmethod
    def result(log, code, words):
        if code != 0:
            return {"error": f"exit {code}: {words[-800:]}"}
        with open(log, encoding="ascii") as file:
            rows = list(csv.DictReader(file))
        result = {key: [float(row[key]) for row in rows] for key in ("loss", "grad_norm", "step_s")}
        result["tokens_per_s"] = GLOBAL * SEQUENCE / statistics.median(result["step_s"][2:])
        return result


def same(ours, theirs):
    return "error" not in ours and all(ours[key] == theirs[key] for key in ("loss", "grad_norm"))


def show(what, case, ran, verdict):
    speed = ran.get("tokens_per_s", 0)
    print(f"{what:8} {case:26} {ran.get('error') or verdict} {speed:9.0f} tokens/s", flush=True)


def threads(runs, device):
    """Returns rows, and the bits that other transports must have."""
    one = runs.train(device.split(",")[0])
    show("threads", "one rank", one, "-")
    rows, first = [{"case": "one rank", **one}], None
    below = ["--optimizer-tier", "host", "--parameter-tier", "host"]
    for case, more in (("stage 0", ["--zero-stage", 0]), ("stage 2", ["--zero-stage", 2]),
                       ("stage 3", ["--zero-stage", 3]),
                       ("stage 3, state on the host", ["--zero-stage", 3, *below]),
                       ("stage 2, updates on the host", ["--zero-stage", 2, *below, "--update-on", "host"])):
        ran = runs.train(device, "--ranks", 2, *more)
        first = first or ran
        is_same = "error" not in first and same(ran, first)
        rows.append({"case": case, **ran, "same_bits": is_same})
        show("threads", case, ran, "same" if is_same else "DIFFER")
    return rows, first


def nccl(runs, device, first):
    rows = []
    for stage in (0, 3):
        ran = runs.launch(device, "--zero-stage", stage, "--collectives", "nccl")
        is_same = "error" not in ran and "error" not in first and same(ran, first)
        rows.append({"case": f"stage {stage}", **ran, "same_bits": is_same})
        show("nccl", f"stage {stage}", ran, "same" if is_same else "DIFFER")
    return rows


def main():
    parser = common.parser_of(__doc__)
    parser.add_argument("--parts", nargs="+", choices=["threads", "nccl"], default=["threads", "nccl"])
    parser.add_argument("--profile", type=pathlib.Path)
    parser.add_argument("--timeout", type=float, default=240)
    parser.add_argument("--out", type=pathlib.Path)
    arguments = parser.parse_args()
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False).stdout.splitlines()
    device = "cuda:0,1" if len(listed) > 1 and "CUDA_VISIBLE_DEVICES" not in os.environ else "cuda:0,0"
    if arguments.profile:
        arguments.profile = arguments.profile.resolve()
    with common.temporary_directory(arguments.directory) as directory:
        runs = Runs(arguments, directory)
        result = {"devices": device}
        result["threads"], first = threads(runs, device)
        if "nccl" in arguments.parts:
            result["nccl"] = nccl(runs, device, first)
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    refused = device == "cuda:0,0" and all("error" in row for row in result.get("nccl", []))
    failed = any(not row.get("same_bits", True) for row in result["threads"])
    return 1 if failed or (not refused and any(not row["same_bits"] for row in result.get("nccl", []))) else 0


if __name__ == "__main__":
    sys.exit(main())
