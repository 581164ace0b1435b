#!/usr/bin/env python3
"""Kills runs at random instants until each has finished, and compares their final bits with those of a run that was
never killed.

    tools/bench/kills.py [--kills 1000] [--seed N] [--directory DIR] [-- FLAGS of train]

The model is small, the program and the disk are real. Each start of a run is killed (SIGKILL) after a random time
between its first instant and the end of its remaining steps, or now and then not at all; the next start goes on by
--load. Prints the number of kills, the shares of the run at which they came, the number of steps done twice, and every
difference found. Exit code 1 if there was one.
"""

import hashlib
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import common

STEPS = 60
PLANS = {
    "all on nvme, update in the next forward": ["--parameter-tier", "nvme", "--optimizer-tier", "nvme", "--update",
                                                "in-next-forward"],
    "all on nvme, update in the backward": ["--parameter-tier", "nvme", "--optimizer-tier", "nvme", "--update",
                                            "in-backward"],
    "all on nvme, update after": ["--parameter-tier", "nvme", "--optimizer-tier", "nvme", "--update", "after"],
    "optimizer on the device": ["--parameter-tier", "nvme", "--optimizer-tier", "device", "--update", "after"],
    "weights on the device, every third step": ["--parameter-tier", "device", "--optimizer-tier", "nvme",
                                                "--durability-interval", "3"],
    "all on the device": ["--parameter-tier", "device", "--optimizer-tier", "device"],
}
MODEL = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 128, "n_head": 4, "n_layer": 3,
         "n_positions": 64, "vocab_size": 512}


def outcome_of(run):
    """Everything that a kill must not change: loss and gradient norm of each step, and the state."""
    curve = [(record["step"], record["loss"], record["grad_norm"])
             for record in map(json.loads, (run / "log.jsonl").read_text().splitlines())]
    return curve, hashlib.sha256((run / "checkpoints" / str(STEPS) / "state.safetensors").read_bytes()).hexdigest()


class Killer:
    def __init__(self, arguments, space):
        self.program, self.space, self.chance = arguments.spillway, space, random.Random(arguments.seed)
        model = space / "config.json"
        model.write_text(json.dumps(MODEL))
        text = space / "text.txt"
        text.write_text("".join(chr(32 + self.chance.randrange(90)) for _ in range(200000)))
        self.flags = ["--model", model, "--data", text, "--tokenizer", "bytes", "--micro-batch-size", "2",
                      "--global-batch-size", "4", "--seq-length", "64",
                      "--train-iters", str(STEPS), "--lr", "1e-3", "--profile", common.ROOT / "tests/data/machine.json",
                      *arguments.flags]
        self.kills, self.starts, self.twice, self.shares = 0, 0, 0, [0] * 10

    def start(self, flags):
        self.starts += 1
        return subprocess.Popen([self.program, "train", *map(str, flags)], stdin=subprocess.DEVNULL,
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def unbroken(self):
        run = self.space / "unbroken"
        began = time.monotonic()
        process = self.start([*self.flags, "--save", run, "--durability", "checkpoint"])
        if process.wait() != 0:
            common.fail(process.stderr.read().decode())
        self.seconds = time.monotonic() - began
        return outcome_of(run)

    def steps_logged(self, run):
        log = run / "log.jsonl"
        return log.read_bytes().count(b"\n") if log.exists() else 0

    def killed_until_through(self, plan, number):
        run = self.space / f"run{number}"
        stores = [self.space / f"nvme{number}.{i}" for i in range(1 + number % 2)]
        for store in stores:
            store.mkdir()
        first = [*self.flags, *plan, "--save", run, "--durability", "step",
                 *[word for store in stores for word in ("--nvme", store)]]
        while True:
            process = self.start(["--load", run, "--save", run] if (run / "run.json").exists() else first)
            logged = self.steps_logged(run)
            try:
                process.wait(self.chance.uniform(0, 1.5) * self.seconds)
            except subprocess.TimeoutExpired:
                process.kill()
            code = process.wait()
            error = process.stderr.read().decode()
            process.stderr.close()
            if code == 0:
                break
            if code != -signal.SIGKILL:
                common.fail(f"run {number} ended with {code}: {error}")
            self.kills += 1
            done = self.steps_logged(run)
            self.shares[min(9, 10 * done // STEPS)] += 1
            self.twice += max(0, logged - done)
        left = [name for store in stores for name in os.listdir(store)]
        result = outcome_of(run)
        for directory in (run, *stores):
            shutil.rmtree(directory)
        return result, left


def main():
    parser = common.parser_of(__doc__)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("flags", nargs="*", help="further flags of train")
    arguments = parser.parse_args()
    common.check_program(arguments)
    differences = 0
    with tempfile.TemporaryDirectory(prefix="kills_", dir=arguments.directory) as space:
        killer = Killer(arguments, pathlib.Path(space))
        expected = killer.unbroken()
        number = 0
        while killer.kills < arguments.kills:
            name = list(PLANS)[number % len(PLANS)]
            result, left = killer.killed_until_through(PLANS[name], number)
            if result != expected or left:
                differences += 1
                what = ("another state" if result[1] != expected[1] else "another log" if result != expected
                        else f"left {left}")
                print(f"run {number} ({name}): {what}")
            number += 1
            if number % 20 == 0:
                print(f"{killer.kills} kills, {number} runs, {differences} differences", flush=True)
    print(f"{killer.kills} kills at {killer.shares} tenths of the steps, {killer.starts - 1} starts, {number} runs "
          f"under {len(PLANS)} plans: {differences} differences")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
