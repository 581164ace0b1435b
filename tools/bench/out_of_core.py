#!/usr/bin/env python3
"""Compares runs out of core with runs in core, and the plan with the run.

    tools/bench/out_of_core.py [--cases small|large|all] [--nvme DIR] [--steps N] [--rounds N]

For each case (a model, a budget, choices) it shows: the step over the in-core step of the same model (at most 1.10 if
compute binds); the bound over the step (at least 0.90 otherwise); the peak on each tier and the bytes moved, predicted
and recorded; resident memory beside the planned peak (at most 150 MiB); and whether the losses are those of the in-core
run, bit for bit.

The bound is the longer of two: the compute lane's work as planned, and the time that fio takes to move as many bytes in
the same proportion of reads and writes (direct, same block and depth). Many disks change their rate from minute to
minute, so fio runs right before and right after the training that it is compared with, alone and beside busy
processors: a virtual disk, whose host copies the data, is slower then, and no step can have both its full rate and all
of the processors. The aim counts against fio alone. Without fio the bound is the plan's. Runs take turns; medians are
compared.
"""

import dataclasses
import os
import shutil
import subprocess
import sys

import common

STRETCH_AIM, EFFICIENCY_AIM = 1.10, 0.90


@dataclasses.dataclass(frozen=True)
class Case:
    model: str
    micro_batch: int
    global_batch: int
    device_memory: str
    state: str = "exact"
    flags: tuple = ()

    def name(self):
        extra = " ".join(self.flags).replace("--", "")
        micro_batches = self.global_batch // self.micro_batch
        batch = f"{self.micro_batch}" if micro_batches == 1 else f"{micro_batches}·{self.micro_batch}"
        return f"{self.model} {batch}x512 {self.device_memory} {self.state} {extra}".strip()

    def in_core(self):
        """The in-core case that this one is compared with."""
        return dataclasses.replace(self, device_memory="in core", flags=())


SMALL = [
    Case("smollm2-135m", 4, 4, "1GiB"),
    Case("smollm2-135m", 4, 4, "512MiB"),
    Case("smollm2-135m", 4, 4, "256MiB"),
    Case("smollm2-135m", 4, 4, "512MiB", "compact"),
    Case("smollm2-135m", 4, 4, "512MiB", "exact", ("--update", "after")),
    Case("smollm2-135m", 4, 4, "512MiB", "exact", ("--update", "in-next-forward")),
    Case("smollm2-135m", 2, 8, "512MiB", "exact", ("--order", "vertical")),
    Case("smollm2-135m", 2, 8, "512MiB", "exact", ("--order", "horizontal")),
    Case("smollm2-135m", 1, 1, "256MiB"),
]
LARGE = [
    Case("llama-3.2-1b", 1, 1, "1GiB"),
    Case("llama-3.2-1b", 1, 1, "1GiB", "compact"),
    Case("llama-3.2-1b", 1, 8, "1GiB"),
    Case("llama-3.2-1b", 1, 8, "1GiB", "compact"),
]


class DiskAlone:
    """fio's rates on the disk under a mix of reads and writes, while a file of its own exists there."""

    FILE_BYTES, BLOCK, DEPTH, SECONDS = 8 << 30, 2 << 20, 32, 5

    def __init__(self, directory):
        self.file = directory / "spillway-fio.bin"
        self.fio("--rw=write", f"--size={self.FILE_BYTES}")

    def fio(self, *flags):
        return common.fio(self.file, self.BLOCK, self.DEPTH, "--name=mix", *flags)[0]

    def bytes_per_s(self, read_bytes, written_bytes):
        share = round(100 * read_bytes / (read_bytes + written_bytes))
        job = self.fio("--rw=rw", f"--rwmixread={share}", f"--size={self.FILE_BYTES}", "--time_based",
                       f"--runtime={self.SECONDS}", "--invalidate=0")
        return (job["read"]["io_bytes"] + job["write"]["io_bytes"]) / (max(job["read"]["runtime"],
                                                                           job["write"]["runtime"]) / 1e3)

    def bytes_per_s_beside_busy_processors(self, read_bytes, written_bytes):
        busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count())]
        try:
            return self.bytes_per_s(read_bytes, written_bytes)
        finally:
            for process in busy:
                process.kill()
                process.wait()


class Comparison:
    def __init__(self, arguments, directory, nvme):
        self.arguments = arguments
        self.directory = directory
        self.nvme = nvme
        self.profile = common.machine_profile(arguments.spillway, directory, nvme)
        self.data = {}
        self.disk = DiskAlone(nvme) if shutil.which("fio") else None
        self.mix = {}         # by case: bytes that a step reads and writes
        self.disk_rates = {}  # by case: fio's bytes a second before and after its runs
        self.busy_rates = {}  # the same beside busy processors

    def flags(self, case):
        if case.model not in self.data:
            self.data[case.model] = self.directory / f"{case.model}.jsonl"
            common.write_tokens(self.data[case.model], common.model_config(case.model), 512, 64)
        flags = common.spillway_flags(case.model, self.data[case.model], case.micro_batch, case.global_batch, 512,
                                      "--clip-grad", 0, "--state", case.state, "--data-order", "sequential",
                                      "--profile", self.profile, *case.flags)
        if case.device_memory != "in core":
            flags += ["--device-memory", case.device_memory, "--nvme", self.nvme, "--durability", "checkpoint"]
        return flags

    def measure_disk(self, case):
        if self.disk and case in self.mix:
            self.disk_rates.setdefault(case, []).append(self.disk.bytes_per_s(*self.mix[case]))
            self.busy_rates.setdefault(case, []).append(self.disk.bytes_per_s_beside_busy_processors(*self.mix[case]))

    def run(self, case):
        arguments = self.arguments
        if case.device_memory != "in core" and case not in self.mix:
            moved = common.plan(arguments.spillway, self.flags(case), self.directory)["nvme_per_step"]
            if moved["read_bytes"] + moved["written_bytes"] > 0:
                self.mix[case] = (moved["read_bytes"], moved["written_bytes"])
        self.measure_disk(case)
        run = common.train(arguments.spillway, self.flags(case), self.directory, arguments.steps, arguments.warm_up,
                           arguments.timeout)
        self.measure_disk(case)
        return run


def judge(case, ours, in_core, disk_rates, busy_rates):
    tiers, predicted, moved = ours.plan["tiers"], ours.plan["predicted"], ours.plan["nvme_per_step"]
    device_peak = tiers["device"]["peak_bytes"]
    recorded = {record["device_peak_bytes"] for record in ours.log}
    recorded_moves = {(record["nvme_read_bytes"], record["nvme_written_bytes"]) for record in ours.log}
    step_s = ours.median_s()
    compute_s = next(lane["busy_s"] for lane in ours.plan["lanes"] if lane["name"] == "compute")
    bound_s, binding_lane = predicted["bound_s"], predicted["binding_lane"]
    busy_bound_s = None
    if disk_rates:
        disk_s, busy_disk_s = ((moved["read_bytes"] + moved["written_bytes"]) * len(rates) / sum(rates)
                               for rates in (disk_rates, busy_rates))
        bound_s, binding_lane = (disk_s, "disk") if disk_s > compute_s else (compute_s, "compute")
        busy_bound_s = max(busy_disk_s, compute_s)
    result = {
        "case": case.name(), "step_s": ours.step_s, "cpu_s": ours.cpu_s, "start_s": ours.start_s,
        "median_step_s": step_s, "binding_lane": binding_lane,
        "bound_s": bound_s, "disk_bytes_per_s": disk_rates, "predicted": predicted, "efficiency": bound_s / step_s,
        "disk_bytes_per_s_beside_busy_processors": busy_rates,
        "efficiency_beside_busy_processors": busy_bound_s and busy_bound_s / step_s,
        "peak_predicted": device_peak, "peak_recorded": sorted(recorded), "peaks_agree": recorded == {device_peak},
        "moves_predicted": [moved["read_bytes"], moved["written_bytes"]], "moves_recorded": sorted(recorded_moves),
        "moves_agree": recorded_moves == {(moved["read_bytes"], moved["written_bytes"])},
        "disk_bytes_by_proc": [ours.read_bytes, ours.written_bytes],
        "resident_beside_plan": ours.peak_resident_bytes - device_peak, "flags": ours.plan["flags"],
        "choices": ours.plan.get("choices"),
    }
    result["resident_ok"] = result["resident_beside_plan"] <= common.OVERHEAD
    if in_core:
        result["in_core_step_s"] = in_core.median_s()
        result["stretch"] = step_s / in_core.median_s()
        result["stretch_of_best"] = min(ours.step_s) / min(in_core.step_s)
        result["stretch_of_cpu_seconds"] = ours.median_cpu_s() / in_core.median_cpu_s()
        steps = min(len(ours.loss), len(in_core.loss))
        result["losses_agree"] = ours.loss[:steps] == in_core.loss[:steps]
    if binding_lane == "compute" and in_core:
        result["verdict"] = common.verdict(result["stretch"], STRETCH_AIM, at_least=False)
    else:
        result["verdict"] = common.verdict(result["efficiency"], EFFICIENCY_AIM)
    return result


def print_results(results):
    def mark(value):
        return "-" if value is None else "yes" if value else "NO"

    rows = [("case", "step", "bound", "by", "bound/step", "disk beside busy CPUs", "over in core", "of CPU s", "aim",
             "peak as planned", "moves as planned", "resident beside plan", "same losses")]
    for result in results:
        stretch, busy = result.get("stretch"), result["efficiency_beside_busy_processors"]
        rows.append((result["case"], f"{result['median_step_s']:.2f} s", f"{result['bound_s']:.2f} s",
                     result["binding_lane"], f"{result['efficiency']:.2f}",
                     f"{busy:.2f}" if busy else "-", f"{stretch:.2f}" if stretch else "-",
                     f"{result['stretch_of_cpu_seconds']:.2f}" if stretch else "-", result["verdict"],
                     mark(result["peaks_agree"]), mark(result["moves_agree"]),
                     f"{result['resident_beside_plan'] / common.MIB:.0f} "
                     f"MiB{'' if result['resident_ok'] else ' TOO MUCH'}", mark(result.get("losses_agree"))))
    common.print_table(rows)


def take_turns(comparison, cases, runs, failures):
    """Runs each case once and, before it, its in-core case once."""
    done = set()
    for case in cases:
        for wanted in (case.in_core(), case):
            if wanted in done or (wanted.device_memory == "in core" and comparison.arguments.without_in_core):
                continue
            done.add(wanted)
            try:
                run = runs.setdefault(wanted, common.Run()).join(comparison.run(wanted))
                seconds = ", ".join(f"{step_s:.2f}" for step_s in run.step_s)
                print(f"{wanted.name()}: {seconds} s, start {run.start_s:.0f} s; load {os.getloadavg()[0]:.1f}",
                      flush=True)
            except RuntimeError as error:
                failures.append(f"{wanted.name()}: {error}")
                print(f"{wanted.name()}: failed", flush=True)


def show(comparison, cases, runs, failures):
    measured = {case: run for case, run in runs.items() if run.step_s}
    results = [judge(case, measured[case], measured.get(case.in_core()), comparison.disk_rates.get(case, []),
                     comparison.busy_rates.get(case, [])) for case in cases if case in measured]
    print_results(results)
    for failure in failures:
        print(failure)
    common.save_result("out_of_core", {"results": results, "failures": failures})


def main():
    parser = common.parser_of(__doc__)
    common.add_nvme_flag(parser)
    parser.add_argument("--cases", choices=("small", "large", "all"), default="small",
                        help="small: 135 M parameters; large: 1.2 B, 30 GB of disk (small)")
    parser.add_argument("--only", metavar="TEXT", help="only cases whose name has this in it")
    parser.add_argument("--steps", type=int, default=4, help="measured steps a round (4)")
    parser.add_argument("--warm-up", type=int, default=2, help="steps before them (2)")
    parser.add_argument("--rounds", type=int, default=1, help="turns of each run (1)")
    parser.add_argument("--timeout", type=float, default=3600, help="seconds that one run may take (3600)")
    parser.add_argument("--without-in-core", action="store_true", help="leave out the in-core runs")
    arguments = parser.parse_args()
    common.check_program(arguments)
    cases = (SMALL if arguments.cases != "large" else []) + (LARGE if arguments.cases != "small" else [])
    cases = [case for case in cases if not arguments.only or arguments.only in case.name()]
    runs, failures = {}, []
    with common.work_directories(arguments) as (directory, nvme):
        comparison = Comparison(arguments, directory, nvme)
        try:
            for _ in range(arguments.rounds):
                take_turns(comparison, cases, runs, failures)
        finally:  # shows what was measured even if the rest is interrupted
            show(comparison, cases, runs, failures)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
