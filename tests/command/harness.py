"""Shared by the tests of the command: runs it, reads its files, makes model directories and data for it.

Not here: what is expected of a run (the *_test.py beside this file). Standard library only. The program is $SPILLWAY;
files go to a directory below $SPILLWAY_TEST_SPACE, or below the current one: on a real disk, because moved bytes are
counted.
"""
import hashlib
import html.parser
import json
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
from plan_operations import operations  # noqa: E402, F401: for the tests

PROGRAM = os.environ.get("SPILLWAY", "")
DATA = pathlib.Path(__file__).resolve().parent.parent / "data"
GOLDEN = DATA / "golden"
SANITIZED = os.environ.get("SPILLWAY_SANITIZED", "") == "1"  # memory and speed are not the program's own then
# The program gets this many times the time of a release build.
PATIENCE = int(os.environ.get("SPILLWAY_PATIENCE", "1"))
MIB = 1 << 20
PROCESS_OVERHEAD = 150 * MIB


# --- safetensors ------------------------------------------------------------------------------------------------------

def read_safetensors(path):
    """{name: (dtype, shape, bytes)}"""
    raw = pathlib.Path(path).read_bytes()
    (length,) = struct.unpack_from("<Q", raw)
    header = json.loads(raw[8:8 + length])
    header.pop("__metadata__", None)
    data = raw[8 + length:]
    return {name: (t["dtype"], t["shape"], data[t["data_offsets"][0]:t["data_offsets"][1]])
            for name, t in header.items()}


def safetensors_bytes(tensors, header=None):
    """The bytes of a file with {name: (dtype, shape, bytes)}; `header` replaces the right header."""
    made, offset, data = {}, 0, b""
    for name, (dtype, shape, content) in tensors.items():
        made[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + len(content)]}
        data += content
        offset += len(content)
    text = header if header is not None else json.dumps(made).encode()
    return struct.pack("<Q", len(text)) + text + data


def edited(whole, path, value):
    """A copy of JSON data with another value (None: removed) at that path of keys."""
    copy = json.loads(json.dumps(whole))
    place = copy
    for key in path[:-1]:
        place = place[key]
    if value is None:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return copy


def sha256(path):
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()


# --- golden cases -----------------------------------------------------------------------------------------------------

class Golden:
    """A golden case as the command takes it: rows of input_ids (and labels) in the order of its training."""

    def __init__(self, name, directory):
        self.name = name
        self.model = GOLDEN / name
        self.json = json.loads((self.model / "golden.json").read_text())
        tensors = read_safetensors(self.model / "golden.safetensors")
        _, (steps, batch, width), raw = tensors["tokens"]
        tokens = struct.unpack(f"<{steps * batch * width}i", raw)
        targets = None
        if "targets" in tensors:
            targets = struct.unpack(f"<{steps * batch * (width - 1)}i", tensors["targets"][2])
        self.data = pathlib.Path(directory) / f"{name}.jsonl"
        with open(self.data, "w") as out:
            for row in range(steps * batch):
                record = {"input_ids": tokens[row * width:(row + 1) * width]}
                if targets is not None:  # label t is the target of position t - 1
                    record["labels"] = (-100, *targets[row * (width - 1):(row + 1) * (width - 1)])
                out.write(json.dumps(record) + "\n")

    @property
    def is_mixture(self):
        return "router_aux_loss_coef" in self.json

    @property
    def micro_batch(self):
        """The fewest sequences of a micro-batch with which losses are the case's own: a mixture's balance loss is that
        of a micro-batch's rows."""
        return self.json["batch"] if self.is_mixture else 1

    def flags(self, **changes):
        """The case's own settings, in fp32; a change to None leaves the flag out."""
        g, optimizer = self.json, self.json["optimizer"]
        flags = {
            "model": self.model, "data": self.data, "data_order": "sequential", "dtype": "fp32",
            "micro_batch_size": g["batch"], "global_batch_size": g["batch"], "seq_length": g["seq_len"],
            "train_iters": g["steps"], "lr": optimizer["lr"], "lr_decay_style": "constant",
            "adam_beta1": optimizer["betas"][0], "adam_beta2": optimizer["betas"][1], "adam_eps": optimizer["eps"],
            "weight_decay": optimizer["weight_decay"], "clip_grad": g["clip_norm"], "profile": DATA / "machine.json",
        }
        return {**flags, **changes}


PACKED = DATA / "packing" / "llama"  # documents that lie together in packs


def packed_flags(**changes):
    """The case's own settings: each of its epochs is a step."""
    g = json.loads((PACKED / "golden.json").read_text())
    optimizer = g["optimizer"]
    flags = {
        "model": PACKED, "data": PACKED / "documents.jsonl", "packing": True, "dtype": "fp32",
        "micro_batch_size": 4, "global_batch_size": 4, "seq_length": g["seq_len"], "epochs": g["steps"],
        "lr": optimizer["lr"], "lr_decay_style": "constant", "adam_beta1": optimizer["betas"][0],
        "adam_beta2": optimizer["betas"][1], "adam_eps": optimizer["eps"], "weight_decay": optimizer["weight_decay"],
        "clip_grad": g["clip_norm"], "profile": DATA / "machine.json",
    }
    return {**flags, **changes}


def golden_names():
    return sorted(path.name for path in GOLDEN.iterdir() if (path / "golden.json").exists())


# --- running ----------------------------------------------------------------------------------------------------------

def arguments(flags):
    made = []
    for name, value in flags.items():
        if value is None:
            continue
        made.append("--" + name.replace("_", "-"))
        if value is not True:
            made += [os.fspath(v) if isinstance(v, os.PathLike) else str(v)
                     for v in (value if isinstance(value, list) else [value])]
    return made


class Outcome:
    def __init__(self, code, out, err, usage, command):
        self.code, self.out, self.err, self.command = code, out, err, command
        self.resident_bytes = usage.ru_maxrss * 1024
        self.read_bytes, self.written_bytes = usage.ru_inblock * 512, usage.ru_oublock * 512

    def __str__(self):
        return f"{' '.join(self.command)}\nexit {self.code}\n{self.out[-2000:]}\n{self.err[-2000:]}"


def begin(*words, cwd=None, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, prefix=(), environment=None):
    return subprocess.Popen([*prefix, PROGRAM, *map(str, words)], stdin=stdin, stdout=stdout,
                            stderr=subprocess.PIPE, cwd=cwd, env={**os.environ, **(environment or {})})


def has_ended(process):
    """Popen.poll() would take the process's resource usage, which finish() needs; so would Popen.kill(), which polls
    first."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def send_signal(process, number):
    os.kill(process.pid, number)


def finish(process, timeout=120):
    """Waits with wait4, which returns the resource usage of this process alone."""
    kept = {}

    def keep(name, stream):
        kept[name] = stream.read().decode(errors="replace") if stream else ""

    readers = [threading.Thread(target=keep, args=pair) for pair in (("out", process.stdout), ("err", process.stderr))]
    late = threading.Timer(timeout * PATIENCE, send_signal, (process, signal.SIGKILL))
    for thread in (*readers, late):
        thread.start()
    _, status, usage = os.wait4(process.pid, 0)
    late.cancel()
    process.returncode = os.waitstatus_to_exitcode(status)
    for thread in readers:
        thread.join()
    for stream in (process.stdout, process.stderr):
        if stream:
            stream.close()
    return Outcome(process.returncode, kept["out"], kept["err"], usage, process.args)


def run(*words, **how):
    timeout = how.pop("timeout", 120)
    return finish(begin(*words, **how), timeout)


def file_system_of(path):
    """The type of the file system that holds `path`, from /proc/self/mountinfo."""
    path, best, kind = os.path.realpath(path), "", ""
    for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
        before, after = line.split(" - ")
        point = before.split()[4]
        if (path == point or path.startswith(point.rstrip("/") + "/")) and len(point) >= len(best):
            best, kind = point, after.split()[0]
    return kind


class Run:
    """A finished run directory."""

    def __init__(self, path, outcome=None):
        self.path, self.outcome = pathlib.Path(path), outcome
        self.plan = json.loads((self.path / "plan.json").read_text())
        self.log = [json.loads(line) for line in (self.path / "log.jsonl").read_text().splitlines()]

    def curve(self):
        return [(record["step"], record["loss"], record["grad_norm"]) for record in self.log]

    def steps(self):
        return sorted(int(path.name) for path in (self.path / "checkpoints").iterdir())

    def state_file(self, step=None):
        return self.path / "checkpoints" / str(step if step is not None else self.steps()[-1]) / "state.safetensors"

    def state(self, step=None):
        return sha256(self.state_file(step))

    def result(self):
        """Everything that no placement may change."""
        return self.curve(), self.state()

    def choices(self):
        return self.plan["choices"]

    def micro_batch_size(self):
        return json.loads((self.path / "run.json").read_text())["micro-batch-size"]


class CommandTest(unittest.TestCase):
    maxDiff = 2000

    @classmethod
    def setUpClass(cls):
        space = os.environ.get("SPILLWAY_TEST_SPACE") or os.getcwd()
        cls.directory = pathlib.Path(tempfile.mkdtemp(prefix="command_", dir=space))
        cls.addClassCleanup(shutil.rmtree, cls.directory, ignore_errors=True)
        # The program measures a machine once and keeps the figures: here, not among the user's own files.
        os.environ["XDG_CACHE_HOME"] = str(cls.directory / "cache")
        cls.made = 0

    @classmethod
    def fresh(cls, name="run"):
        """A path at which nothing exists."""
        CommandTest.made = getattr(CommandTest, "made", 0) + 1
        return cls.directory / f"{name}{CommandTest.made}"

    @classmethod
    def fresh_directory(cls, name="dir"):
        path = cls.fresh(name)
        path.mkdir()
        return path

    def train(self, flags, **how):
        """Runs to the end and returns its Run; saves to a fresh directory unless the flags name one."""
        flags = {"save": self.fresh(), **flags}
        outcome = run("train", *arguments(flags), **how)
        self.assertEqual(outcome.code, 0, str(outcome))
        return Run(flags["save"], outcome)

    def plan(self, flags):
        """The plan as JSON and the outcome, even if the plan does not fit."""
        outcome = run("plan", *arguments({**flags, "format": "json"}))
        self.assertIn(outcome.code, (0, 3), str(outcome))
        return json.loads(outcome.out), outcome

    def fits(self, flags, budget):
        return self.plan({**flags, "device_memory": budget})[1].code == 0

    def smallest_budget(self, flags, granularity=4096):
        """The fewest bytes of device memory, in multiples of the granularity, with which a plan fits; found by asking
        the program.
        """
        low, high = 0, 64
        while not self.fits(flags, high * granularity):
            low, high = high, high * 2
            self.assertLess(high * granularity, 1 << 40, "nothing fits")
        while low + 1 < high:
            middle = (low + high) // 2
            if self.fits(flags, middle * granularity):
                high = middle
            else:
                low = middle
        return high * granularity

    def check_refusal(self, outcome, code, fragment):
        """The contract of errors: the code, one line that says what was wrong, and nothing raw."""
        self.assertEqual(outcome.code, code, str(outcome))
        lines = outcome.err.splitlines()
        self.assertEqual(sum(line.startswith("error: ") for line in lines), 1, str(outcome))
        errors = [line for line in lines if line.startswith("error: ")]
        self.assertIn(fragment.lower(), errors[0].lower(), str(outcome))
        self.assertLessEqual(len(lines) - lines.index(errors[0]), 6, "more than a few lines of help: " + str(outcome))
        for raw in ("terminate called", "std::", "what():", "bad_alloc", "Aborted", "json.exception",
                    "filesystem error", "unexpected:"):
            self.assertNotIn(raw, outcome.err + outcome.out, str(outcome))
        self.assertNotRegex(outcome.err, r"(?m)[^.]\.\.$", "a sentence that ends twice: " + str(outcome))

    def assert_finite_fall(self, run_):
        losses = [record["loss"] for record in run_.log]
        self.assertTrue(all(isinstance(loss, float) for loss in losses))
        self.assertLess(losses[-1], losses[0])


def wait_for_steps(path, steps, process, timeout=60):
    """Returns once log.jsonl has `steps` lines (or the process has ended)."""
    log, deadline = pathlib.Path(path) / "log.jsonl", time.monotonic() + timeout * PATIENCE
    while time.monotonic() < deadline and not has_ended(process):
        if log.exists() and log.read_bytes().count(b"\n") >= steps:
            return
        time.sleep(0.002)


def interrupt(process):
    if not has_ended(process):
        send_signal(process, signal.SIGINT)


# --- plans -----------------------------------------------------------------------------------------------------------

class Page(html.parser.HTMLParser):
    """The elements of a page, and the text of its scripts."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.scripts, self.open_script = [], [], False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self.open_script = tag == "script"
        if self.open_script:
            self.scripts.append("")

    def handle_endtag(self, tag):
        self.open_script = self.open_script and tag != "script"

    def handle_data(self, data):
        if self.open_script:
            self.scripts[-1] += data


def shape(value):
    """The keys of an object, at every depth; of a list, those of its first entry."""
    if isinstance(value, dict):
        return {key: shape(entry) for key, entry in value.items()}
    return [shape(entry) for entry in value[:1]] if isinstance(value, list) else None


class PlanTest(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.golden = Golden("qwen3", cls.directory)
        cls.nvme = cls.fresh_directory("nvme")

    def flags(self, **changes):
        return self.golden.flags(**{"nvme": f"{self.nvme}=64MiB", "device_memory": "4MiB", "global_batch_size": 8,
                                    "micro_batch_size": 2, "optimizer_tier": "nvme", **changes})
