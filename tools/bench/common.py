"""Shared by the scripts that compare whole runs: starts spillway and another program, measures steps and memory of a
run, prints results.

Not a benchmark by itself. Times come with the CPU seconds of the process: other programs on the same cores disturb the
clock, but hardly disturb CPU seconds.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from plan_operations import operations  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESULTS = ROOT / "build/bench"
MIB = 1 << 20
GIB = 1 << 30
# Bytes that a process may take besides the planned peaks (process_overhead_bytes of plan.json).
OVERHEAD = 150 * MIB
# A program that leaves less free memory is stopped before the kernel stops others.
LEAST_FREE_MEMORY = 1 * GIB


def fail(message):
    sys.exit(f"error: {message}")


def parser_of(doc):
    """A parser with the flags that every script has; a script adds its own."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spillway", type=pathlib.Path, default=ROOT / "build/release/spillway",
                        help="the program (build/release/spillway)")
    parser.add_argument("--directory", type=pathlib.Path, default=None,
                        help="where temporary files go, all of them removed at the end (the system's directory for "
                             "them)")
    return parser


def add_nvme_flag(parser):
    parser.add_argument("--nvme", type=pathlib.Path, help="a directory on the disk to use (within --directory)")


def add_worker_flags(parser):
    """Adds the flags of a script that starts itself again as the program that ours is compared with."""
    parser.add_argument("--worker-shape", type=shape, help=argparse.SUPPRESS)
    parser.add_argument("--worker-data", help=argparse.SUPPRESS)
    parser.add_argument("--worker-log", help=argparse.SUPPRESS)


def add_comparison_flags(parser, shapes):
    """Adds the flags of a script that runs ours and PyTorch in turns at `shapes`, those of its worker among them."""
    parser.add_argument("--shapes", nargs="+", default=shapes, metavar="MODEL:BATCHxSEQUENCE")
    parser.add_argument("--steps", type=int, default=6, help="measured steps a round (6)")
    parser.add_argument("--warm-up", type=int, default=2, help="steps before them (2)")
    parser.add_argument("--rounds", type=int, default=2, help="turns of each program (2)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--python", default=sys.executable, help="an interpreter that has torch and transformers (this "
                                                                 "one)")
    parser.add_argument("--timeout", type=float, default=3600, help="seconds that one run may take (3600)")
    add_worker_flags(parser)


def check_program(arguments):
    if not os.access(arguments.spillway, os.X_OK):
        fail(f"{arguments.spillway}: there is no such program; build it, or name it by --spillway")


def shape(text):
    """smollm2-135m:4x512 → its three parts."""
    found = re.fullmatch(r"([^:]+):(\d+)x(\d+)", text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text}: a shape is MODEL:BATCHxSEQUENCE, like smollm2-135m:4x512")
    return found[1], int(found[2]), int(found[3])


def model_config(name):
    """config.json of a catalogue name, or of a file."""
    if os.path.exists(name):
        return json.loads(pathlib.Path(name).read_text())
    for family in sorted((ROOT / "models/catalogue").glob("*.json")):
        models = json.loads(family.read_text())
        if name in models:
            return models[name]
    fail(f"{name}: neither a file nor a name of models/catalogue")


def machine():
    """The machine of the figures, and its load at the time."""
    cpu = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    return {"cpu": cpu[1] if cpu else "unknown", "threads": len(os.sched_getaffinity(0)),
            "load_average": os.getloadavg()[0],
            "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
            "utc": time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())}


def available_memory():
    return int(re.search(r"MemAvailable:\s*(\d+)", pathlib.Path("/proc/meminfo").read_text())[1]) * 1024


@contextlib.contextmanager
def temporary_directory(base=None):
    """A directory that is removed however the script ends."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    path = pathlib.Path(tempfile.mkdtemp(prefix="spillway_bench_", dir=base))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def work_directories(arguments):
    """One directory for runs, below --directory, and one for their state, below --nvme."""
    with temporary_directory(arguments.directory) as directory:
        with temporary_directory(arguments.nvme or directory) as nvme:
            yield directory, nvme


def write_tokens(path, config, sequence, rows, seed=1):
    """Rows of random tokens; spillway and its peers train on the same ones."""
    random_tokens = random.Random(seed)
    vocabulary = config["vocab_size"]
    with open(path, "w", encoding="ascii") as file:
        for _ in range(rows):
            file.write(json.dumps({"input_ids": [random_tokens.randrange(vocabulary) for _ in range(sequence + 1)]})
                       + "\n")


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_resident(pid):
    found = re.search(r"VmHWM:\s*(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) * 1024 if found else 0


@dataclasses.dataclass
class Run:
    """Measured steps, without the warm-up steps."""

    step_s: list = dataclasses.field(default_factory=list)
    cpu_s: list = dataclasses.field(default_factory=list)  # CPU seconds of the process, in each step
    peak_resident_bytes: int = 0
    loss: list = dataclasses.field(default_factory=list)   # of every step
    log: list = dataclasses.field(default_factory=list)    # spillway: log.jsonl
    plan: dict = dataclasses.field(default_factory=dict)   # spillway: plan.json without the operations
    read_bytes: int = 0                                    # read by the process from disks, in each step
    written_bytes: int = 0
    written_bytes_all: int = 0                             # written by it in all measured steps
    start_s: float = 0                                     # from the program's start to its first step
    # spillway: from plan.json, for a run that went to its end
    operations: list = dataclasses.field(default_factory=list)
    spans: list = dataclasses.field(default_factory=list)       # recorded, one for each operation

    def median_s(self):
        return statistics.median(self.step_s)

    def median_cpu_s(self):
        return statistics.median(self.cpu_s)

    def join(self, other):
        self.step_s += other.step_s
        self.cpu_s += other.cpu_s
        self.loss += other.loss
        self.log += other.log
        self.plan = self.plan or other.plan
        self.written_bytes_all += other.written_bytes_all
        self.peak_resident_bytes = max(self.peak_resident_bytes, other.peak_resident_bytes)
        self.read_bytes, self.written_bytes, self.start_s = other.read_bytes, other.written_bytes, other.start_s
        return self


def disk_bytes(pid):
    fields = dict(line.split(": ") for line in pathlib.Path(f"/proc/{pid}/io").read_text().splitlines())
    return int(fields["read_bytes"]), int(fields["write_bytes"])


def stop_child(child):
    if child.poll() is None:
        child.kill()
    child.wait()


def follow(command, environment, directory, next_step, steps, warm_up, timeout_s, threads=None, to_its_end=False,
           least_s=0):
    """Runs a program until it has done `steps` steps over at least `least_s` seconds. next_step gives the record of a
    step, or None if there is none yet.

    The program is killed after its last measured step, because its save is mostly of no interest and would disturb the
    next run. With fewer threads than the machine has, it is pinned to that number of processors.
    """
    run = Run()
    processors = sorted(os.sched_getaffinity(0))[:threads]
    with open(directory / "output.txt", "w+", encoding="utf-8") as output:
        child = subprocess.Popen([str(word) for word in command], env=environment, cwd=directory,
                                 stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                 preexec_fn=lambda: os.sched_setaffinity(0, processors))
        try:
            before_cpu = before_io = None
            began = time.monotonic()
            deadline = began + timeout_s
            while len(run.loss) < warm_up + steps or sum(run.step_s) < least_s:
                ended = child.poll() is not None
                record = next_step()
                if record is None:
                    if available_memory() < LEAST_FREE_MEMORY:
                        raise RuntimeError(f"{pathlib.Path(command[0]).name} left less than "
                                           f"{LEAST_FREE_MEMORY / GIB:.0f} GiB of the machine's memory and was stopped")
                    if ended or time.monotonic() > deadline:
                        output.seek(0)
                        why = (f"ended with exit code {child.returncode}" if ended
                               else f"took more than {timeout_s:.0f} s")
                        raise RuntimeError(f"{pathlib.Path(command[0]).name} {why}:\n{output.read()[-4000:]}\ncommand: "
                                           f"{' '.join(map(str, command))}")
                    time.sleep(0.01)
                    continue
                if not run.loss:
                    run.start_s = time.monotonic() - began - record["step_s"]
                run.loss.append(record["loss"])
                if not ended:
                    cpu, io = cpu_seconds(child.pid), disk_bytes(child.pid)
                    run.peak_resident_bytes = peak_resident(child.pid)
                    if before_cpu is not None and len(run.loss) > warm_up:
                        run.cpu_s.append(cpu - before_cpu)
                        run.read_bytes, run.written_bytes = io[0] - before_io[0], io[1] - before_io[1]
                        run.written_bytes_all += run.written_bytes
                    before_cpu, before_io = cpu, io
                if len(run.loss) > warm_up:
                    run.step_s.append(record["step_s"])
                    run.log.append(record)
            if to_its_end:
                child.wait(timeout=timeout_s)
        finally:
            stop_child(child)
    return run


def lines_of(path):
    """A function that gives the next whole line of a growing file of JSON objects, or None."""
    state = {"offset": 0}

    def next_line():
        if not path.exists():
            return None
        with open(path, encoding="utf-8") as file:
            file.seek(state["offset"])
            line = file.readline()
        if not line.endswith("\n"):
            return None
        state["offset"] += len(line.encode())
        return json.loads(line)

    return next_line


def environment_with(directory, **variables):
    """Gives the comparison a cache of machine profiles of its own."""
    environment = dict(os.environ)
    environment["XDG_CACHE_HOME"] = str(directory / "cache")
    environment.update(variables)
    return environment


def spillway_flags(model, data, micro_batch, global_batch, sequence, *more, device="cpu"):
    return ["--device", device, "--model", model, "--data", data, "--micro-batch-size", micro_batch,
            "--global-batch-size", global_batch, "--seq-length", sequence, *more]


def train_command(program, flags, iterations, saved):
    # Peers lose everything but their checkpoints, too; durability_cost.py measures the cost of durable steps.
    durability = [] if "--durability" in flags else ["--durability", "checkpoint"]
    return [program.resolve(), "train", *flags, *durability, "--train-iters", iterations, "--lr-decay-style",
            "constant", "--save", saved]


def train(program, flags, directory, steps, warm_up=1, timeout_s=3600, threads=None, with_timeline=False, least_s=0,
          prefix=()):
    """`spillway train` for warm_up + steps steps, and more until the measured ones fill least_s. With the timeline of
    the last step, the run goes to its end after warm_up + steps. prefix: words of a launcher, whose memory is measured
    then."""
    with tempfile.TemporaryDirectory(prefix="run_", dir=directory) as run_directory:
        saved = pathlib.Path(run_directory) / "saved"
        # One step more than measured: the run is killed in it, before it saves.
        least_s = 0 if with_timeline else least_s
        iterations = 1_000_000 if least_s else steps + warm_up + (0 if with_timeline else 2)
        command = [*prefix, *train_command(program, flags, iterations, saved)]
        run = follow(command, environment_with(directory), pathlib.Path(run_directory), lines_of(saved / "log.jsonl"),
                     steps, warm_up, timeout_s, threads, with_timeline, least_s)
        run.plan = json.loads((saved / "plan.json").read_text())
        if with_timeline:
            shown = range(len(run.plan["ops"]["shown_turns"]))
            run.operations = [operation for turn in shown for operation in operations(run.plan, turn)]
            run.spans = json.loads((saved / "timeline.json").read_text())["spans"]
        run.plan.pop("ops")
        return run


def run_to_its_end(command, directory, environment):
    """Returns the program's output; raises an error if it fails."""
    done = subprocess.run([str(word) for word in command], env=environment, cwd=directory, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"exit code {done.returncode}: {' '.join(map(str, command))}\n{done.stdout[-2000:]}")
    return done.stdout


def plan(program, flags, directory):
    """The output of `spillway plan` in JSON."""
    path = directory / "plan.json"
    run_to_its_end([program.resolve(), "plan", *flags, "--format", "json", "--out", path], directory,
                   environment_with(directory))
    return json.loads(path.read_text())


def require_room(planned, nvme):
    """Checks that the disk has room for a plan's state and a little more; returns the bytes that the state takes."""
    wanted, free = planned["tiers"]["nvme"]["peak_bytes"], shutil.disk_usage(nvme).free
    if wanted + GIB > free:
        fail(f"{nvme.parent} has {free / 1e9:.0f} GB free; the state takes {wanted / 1e9:.0f} GB and a little more")
    return wanted


def machine_profile(program, directory, nvme=None, thorough=True):
    """The profile that spillway measures, in minutes or in seconds: a disk's rate over seconds differs from that of its
    first moment.
    """
    path = directory / "profile.json"
    with tempfile.TemporaryDirectory(prefix="probe_", dir=directory) as cache:
        probe(program, directory, {**os.environ, "XDG_CACHE_HOME": cache}, nvme, thorough, "--format", "json", "--out",
              path)
    return path


def keep_machine_profile(program, directory, nvme=None, thorough=True):
    """The same, kept where plan() and train() find it if no profile is named."""
    probe(program, directory, environment_with(directory), nvme, thorough)


def probe(program, directory, environment, nvme, thorough, *more):
    run_to_its_end([program.resolve(), "probe", *(["--thorough"] if thorough else []),
                    *(["--nvme", nvme] if nvme else []), *more],
                   directory, environment)


def fio(file, block, depth, *flags):
    """Runs fio's jobs on the file with direct I/O by io_uring. Its buffers are on huge pages, like ours: on small pages
    a block has more pieces than a request to the disk may have."""
    command = ["fio", f"--filename={file}", "--ioengine=io_uring", "--direct=1", f"--bs={block}", f"--iodepth={depth}",
               "--thread", "--output-format=json", *flags]
    environment = {**os.environ, "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
    done = subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                          env=environment)
    return json.loads(done.stdout[done.stdout.index("{"):])["jobs"]


def print_table(rows):
    """Prints a table; the first row is its head."""
    widths = [max(len(str(row[i])) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print("  " + "  ".join(str(cell).ljust(width) if i == 0 else str(cell).rjust(width)
                               for i, (cell, width) in enumerate(zip(row, widths))))
    sys.stdout.flush()


def verdict(value, aim, at_least=True):
    return "reached" if (value >= aim if at_least else value <= aim) else "missed"


def save_result(name, result):
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({"machine": machine(), **result}, indent=1) + "\n")
    print(f"JSON: {path.relative_to(ROOT)}")
