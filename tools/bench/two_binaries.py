#!/usr/bin/env python3
"""Compares two builds of spillway: is the new one as fast, in and out of core, reading and writing text?

    tools/bench/two_binaries.py OLD NEW [--cases in-core|out-of-core|generate|scripts|all] [--only TEXT] [--nvme DIR]
                                [--rounds N] [--steps N] [--sequence N] [--aim R]

Both run each case in turns (old, new, new, old), with one profile, so that other load on the machine falls on both
alike. Medians of steps are compared, and CPU seconds, which neighbours hardly disturb. If both have room in memory they
train at the same time, and each is stopped while the other does a few steps: a machine's speed may differ by a tenth
from one minute to the next, and hardly does from one step to the next. Data on its way to or from the drive when a
program is stopped arrives meanwhile and costs it nothing, so the first step of a turn is not counted. One program's
speed differs by some percent from one start to the next and stays so until it ends, and the plans that two programs
choose depend on what a probe saw. So a case's ratio is the geometric mean of its rounds' ratios, each with a probe and
a start of both of its own, and their spread is printed beside it. A ratio above one means that the new build is faster.
The losses' bits are compared, too: a change that promises to leave them alone is held to it. Exit code 1 if a ratio
misses --aim.
"""

import argparse
import contextlib
import dataclasses
import functools
import os
import pathlib
import resource
import signal
import statistics
import subprocess
import sys
import time

import common
import out_of_core


@dataclasses.dataclass(frozen=True)
class Training:
    group: str
    model: str
    micro_batch: int
    global_batch: int
    flags: tuple
    device_memory: str = ""

    def name(self):
        where = f"in {self.device_memory}" if self.device_memory else "in core"
        flags = " ".join(self.flags).replace("--", "")
        return f"{self.model} {self.global_batch // self.micro_batch}·{self.micro_batch} {where} {flags}"


@dataclasses.dataclass(frozen=True)
class Speaking:
    """A run's model reads a prompt and continues it. With one new token almost all is prefill, with many almost all is
    decoding."""

    group: str
    what: str
    prompt: int
    tokens: int

    def name(self):
        return f"smollm2-135m {self.what}: {self.prompt} tokens read, {self.tokens} written"


NO_CLIP = ("--clip-grad", "0")
CASES = [
    Training("in-core", "smollm2-135m", 4, 4, NO_CLIP),
    Training("in-core", "smollm2-135m", 2, 8, ("--clip-grad", "1")),
    Training("in-core", "llama-3.2-1b", 1, 1, NO_CLIP),
    Training("out-of-core", "smollm2-135m", 4, 4, NO_CLIP, "512MiB"),
    Training("out-of-core", "smollm2-135m", 4, 4, ("--clip-grad", "1", "--durability", "step"), "512MiB"),
    Training("out-of-core", "smollm2-135m", 1, 1, NO_CLIP, "256MiB"),
    Training("out-of-core", "smollm2-135m", 4, 4, (*NO_CLIP, "--state", "compact"), "512MiB"),
    Training("out-of-core", "llama-3.2-1b", 1, 2, NO_CLIP, "1GiB"),
    Speaking("generate", "prefill", 960, 1),
    Speaking("generate", "decode", 16, 200),
]
# The cases of out_of_core.py and deepspeed.py and, in core, of speed_of_light.py, too. They take hours.
CASES += [
    Training("scripts", case.model, case.micro_batch, case.global_batch,
             (*NO_CLIP, "--state", case.state, "--durability", "checkpoint", *case.flags), case.device_memory)
    for case in out_of_core.SMALL + out_of_core.LARGE
] + [Training("scripts", "llama-3.2-1b", 2, 8, NO_CLIP, "1GiB")]


class Stepwise:
    """A run of `spillway train` that does steps when it is asked to, and is stopped until then."""

    def __init__(self, program, flags, directory, iterations, timeout_s=3600):
        self.timeout_s = timeout_s
        self.next_record = common.lines_of(directory / "saved" / "log.jsonl")
        self.output = open(directory / "output.txt", "w+", encoding="utf-8")
        command = common.train_command(program, flags, iterations, directory / "saved")
        self.child = subprocess.Popen([str(word) for word in command], env=common.environment_with(directory),
                                      cwd=directory, stdin=subprocess.DEVNULL, stdout=self.output,
                                      stderr=subprocess.STDOUT)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        common.stop_child(self.child)
        self.output.close()

    def advance(self, steps):
        """Lets the run do `steps` steps and returns them."""
        run = common.Run()
        self.child.send_signal(signal.SIGCONT)
        for _ in range(steps):
            began, before_cpu = time.monotonic(), common.cpu_seconds(self.child.pid)
            run.loss.append(self.next_step(began)["loss"])
            run.step_s.append(time.monotonic() - began)
            run.cpu_s.append(common.cpu_seconds(self.child.pid) - before_cpu)
        self.child.send_signal(signal.SIGSTOP)
        return run

    def next_step(self, began):
        while (record := self.next_record()) is None:
            if self.child.poll() is not None or time.monotonic() - began > self.timeout_s:
                self.output.seek(0)
                raise RuntimeError(f"{' '.join(self.child.args)} ended or stands still:\n{self.output.read()[-4000:]}")
            time.sleep(0.001)
        return record


class Comparison:
    def __init__(self, arguments, directory, nvme):
        self.arguments, self.directory, self.nvme = arguments, directory, nvme
        self.programs = (arguments.old, arguments.new)
        self.profile = None  # one for each round
        self.spoken_run = None

    def probe(self):
        # Uses the old program, because the new one can read its profile.
        return common.machine_profile(self.arguments.old, self.directory, self.nvme, thorough=False)

    def flags_of(self, case, nvme):
        data = self.directory / f"{case.model}.jsonl"
        if not data.exists():
            common.write_tokens(data, common.model_config(case.model), self.arguments.sequence, 64)
        flags = common.spillway_flags(case.model, data, case.micro_batch, case.global_batch, self.arguments.sequence,
                                      "--profile", self.profile, *case.flags)
        if case.device_memory:
            flags += ["--device-memory", case.device_memory, "--nvme", nvme]
        return flags

    def train(self, program, case):
        # Runs are killed, and nobody goes on with what one keeps on NVMe.
        with common.temporary_directory(self.nvme) as nvme:
            return common.train(program, self.flags_of(case, nvme), self.directory, self.arguments.steps, warm_up=2)

    def have_room(self, case):
        """Returns true if there is memory for the runs of both programs at the same time."""
        planned = common.plan(self.programs[1], self.flags_of(case, self.nvme), self.directory)
        return 2 * (planned["tiers"]["device"]["peak_bytes"] + common.GIB) < common.available_memory()

    def train_in_turns(self, case):
        old, new, turns = common.Run(), common.Run(), 2
        steps = 1 + turns * (1 + self.arguments.steps)
        with contextlib.ExitStack() as stack:
            both = []
            for run, program in zip((old, new), self.programs):
                directory = stack.enter_context(common.temporary_directory(self.directory))
                nvme = stack.enter_context(common.temporary_directory(self.nvme))
                # They are killed before they would save.
                both.append((run, stack.enter_context(
                    Stepwise(program, self.flags_of(case, nvme), directory, steps + 2))))
                run.loss += both[-1][1].advance(1).loss  # starts, and is stopped, before the other one starts
            for turn in range(turns):
                for run, stepwise in both[::-1 if turn % 2 else 1]:
                    advanced = stepwise.advance(1 + self.arguments.steps)
                    run.loss += advanced.loss
                    run.step_s += advanced.step_s[1:]
                    run.cpu_s += advanced.cpu_s[1:]
        return old, new

    def speak(self, program, case):
        if not self.spoken_run:
            self.spoken_run = self.directory / "spoken"
            data = self.directory / "spoken.txt"
            data.write_text("spillway " * 400, encoding="ascii")
            flags = common.spillway_flags("smollm2-135m", data, 1, 1, 64, "--tokenizer", "bytes", "--train-iters", 1,
                                          "--save", self.spoken_run, "--profile", self.profile)
            self.run_to_its_end([self.arguments.old.resolve(), "train", *flags])
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        self.run_to_its_end([program.resolve(), "generate", "--load", self.spoken_run, "--tokenizer", "bytes",
                             "--prompt", "s" * case.prompt, "--max-new-tokens", case.tokens])
        seconds, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return common.Run(step_s=[seconds], cpu_s=[cpu])

    def run_to_its_end(self, command):
        common.run_to_its_end(command, self.directory, common.environment_with(self.directory))

    def run_in_turns(self, case):
        run = self.train if isinstance(case, Training) else self.speak
        old, new = common.Run(), common.Run()
        for index in (0, 1, 1, 0):
            (new if index else old).join(run(self.programs[index], case))
        return old, new

    def compare(self, case):
        rounds, run = [], None
        for _ in range(self.arguments.rounds):
            self.profile = self.probe()
            if run is None:
                at_once = isinstance(case, Training) and self.have_room(case)
                run = self.train_in_turns if at_once else self.run_in_turns
            rounds.append(run(case))
        ratios = [old.median_s() / new.median_s() for old, new in rounds]
        old, new = (functools.reduce(common.Run.join, runs, common.Run()) for runs in zip(*rounds))
        return {"case": case.name(), "old_s": old.step_s, "new_s": new.step_s,
                "old_cpu_s": old.cpu_s, "new_cpu_s": new.cpu_s, "ratio": statistics.geometric_mean(ratios),
                "ratios_of_rounds": ratios, "of_cpu_seconds": old.median_cpu_s() / new.median_cpu_s(),
                "same_losses": old.loss == new.loss if old.loss else None}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=pathlib.Path, help="the program of before")
    parser.add_argument("new", type=pathlib.Path, help="the program of now")
    parser.add_argument("--cases", choices=["in-core", "out-of-core", "generate", "scripts", "all"], default="all",
                        help="all but those of other scripts (default), or one kind")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose name has this")
    parser.add_argument("--nvme", type=pathlib.Path, help="where state that does not fit goes (a temporary directory)")
    parser.add_argument("--directory", type=pathlib.Path, help="where temporary files go, all removed at the end")
    parser.add_argument("--rounds", type=int, default=2,
                        help="starts of both at once, or turns of old, new, new, old (2)")
    parser.add_argument("--steps", type=int, default=5,
                        help="counted steps of each run, after two (5); of each of two turns where both run at once")
    parser.add_argument("--sequence", type=int, default=512, help="tokens of a sequence that is trained on (512)")
    parser.add_argument("--aim", type=float, default=0.98, help="least ratio of old to new (0.98)")
    arguments = parser.parse_args()
    for program in (arguments.old, arguments.new):
        if not os.access(program, os.X_OK):
            common.fail(f"{program}: there is no such program")
    groups = {"in-core", "out-of-core", "generate"} if arguments.cases == "all" else {arguments.cases}
    cases = [case for case in CASES if case.group in groups and arguments.only in case.name()]
    if not cases:
        common.fail(f"--only {arguments.only}: no case has this in its name")
    results = []
    with common.temporary_directory(arguments.directory) as directory:
        nvme = arguments.nvme or directory / "nvme"
        nvme.mkdir(exist_ok=True)
        comparison = Comparison(arguments, directory, nvme)
        for case in cases:
            results.append(comparison.compare(case))
            print(f"{results[-1]['ratio']:.3f}  {case.name()}", flush=True)
    rows = [("case", "old", "new", "old/new", "of its rounds", "of CPU seconds", "losses")]
    for result in results:
        old_s, new_s = statistics.median(result["old_s"]), statistics.median(result["new_s"])
        rounds = result["ratios_of_rounds"]
        losses = {True: "the same", False: "differ", None: ""}[result["same_losses"]]
        rows.append((result["case"], f"{old_s:.3f} s", f"{new_s:.3f} s", f"{result['ratio']:.3f}",
                     f"{min(rounds):.3f} to {max(rounds):.3f}", f"{result['of_cpu_seconds']:.3f}", losses))
    common.print_table(rows)
    ratios = [result["ratio"] for result in results]
    mean, least = statistics.geometric_mean(ratios), min(ratios)
    print(f"geometric mean {mean:.3f}, least {least:.3f}: {common.verdict(least, arguments.aim)} ({arguments.aim})")
    common.save_result("two_binaries", {"results": results, "geometric_mean": mean})
    return 0 if least >= arguments.aim else 1


if __name__ == "__main__":
    sys.exit(main())
