#!/usr/bin/env python3
"""Trains on a GPU: in core beside PyTorch, and out of core beside the plan.

    tools/bench/gpu/training.py [--parts bits speed offload nvme kill] [--nvme DIR] [--profile FILE] [--python PYTHON]
                                [--out FILE.json]

bits     a small model in core and over three tiers: losses and norms must be the same in all
speed    models that fit the GPU: tokens a second, and PyTorch's (transformers, bf16 weights, SDPA, fused AdamW)
offload  a slice of a 7 B model in a part of the GPU's memory, with the host's: the step beside its plan
nvme     a model with all its state on a drive
kill     a run that is killed and goes on: its final state must be that of a run that never stopped

tools/gpu_check train runs it. The program is --spillway, built for the GPU of this machine. PYTHON needs torch and
transformers for the comparison with PyTorch, which is skipped without them.
"""

import csv
import hashlib
import json
import pathlib
import statistics
import subprocess
import sys
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))
import common  # noqa: E402: beside the other benchmarks

# model, micro-batch, sequence, global batch
SPEED = [("smollm2-135m", 16, 1024, 16), ("qwen2.5-0.5b", 8, 1024, 8), ("qwen2.5-1.5b", 8, 1024, 8)]


def worker(arguments):
    """Runs in PYTHON: trains on the GPU and prints the seconds of each step."""
    import torch
    import transformers

    model_name, batch, sequence = arguments.worker_shape
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    config = transformers.AutoConfig.for_model(**common.model_config(model_name))
    config.use_cache = False
    with torch.device("cuda"):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation="sdpa")
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.01, fused=True)
    tokens = torch.randint(0, config.vocab_size, (batch, sequence), device="cuda")
    seconds = []
    for _ in range(arguments.steps):
        began = time.perf_counter()
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
        seconds.append(time.perf_counter() - began)
    print(json.dumps({"step_s": seconds, "peak_bytes": torch.cuda.max_memory_allocated()}))


class Runs:
    def __init__(self, arguments, directory):
        self.arguments, self.directory, self.count = arguments, directory, 0

    def data(self, model, sequence, rows):
        path = self.directory / f"{model}-{sequence}.jsonl"
        if not path.exists():
            common.write_tokens(path, common.model_config(model), sequence, rows)
        return path

    def flags(self, model, micro, sequence, total, *more):
        rows = self.data(model, sequence, 2 * total)
        profile = ["--profile", self.arguments.profile] if self.arguments.profile else []
        return [*common.spillway_flags(model, rows, micro, total, sequence, device="cuda"), *profile, *more]

    def plan(self, flags):
        ran = self.run([self.arguments.spillway.resolve(), "plan", *flags, "--format", "json"])
        return json.loads(ran.stdout) if ran.returncode == 0 else {"error": ran.stderr[-800:]}

    def train(self, flags, steps):
        self.count += 1
        log = self.directory / f"run{self.count}.csv"
        began = time.monotonic()
        ran = self.run([self.arguments.spillway.resolve(), "train", *flags, "--train-iters", steps, "--lr", "1e-4",
                        "--lr-decay-style", "constant", "--csv", log])
        result = {"seconds": time.monotonic() - began}
        if ran.returncode != 0:
            return {**result, "error": f"exit {ran.returncode}: {ran.stderr[-800:]}"}
        with open(log, encoding="ascii") as file:
            rows = list(csv.DictReader(file))
        for key in ("loss", "grad_norm", "step_s"):
            result[key] = [float(row[key]) for row in rows]
        result["median_s"] = statistics.median(result["step_s"][len(rows) // 3:])
        return result

    def run(self, command):
        environment = common.environment_with(self.directory)
        return subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False,
                              env=environment, cwd=self.directory, timeout=self.arguments.timeout)


def bits(runs):
    """Compares losses and norms over tiers with those in core: all must be the same."""
    rows, first = [], None
    cases = {"in core": [],
             "host": ["--device-memory", "1200MiB", "--host-memory", "8GiB"],
             "update on device": ["--device-memory", "1200MiB", "--host-memory", "8GiB", "--update-on", "device"],
             "vertical": ["--device-memory", "1200MiB", "--host-memory", "8GiB", "--order", "vertical"],
             "nvme": ["--device-memory", "1200MiB", "--host-memory", "1GiB", "--nvme", runs.arguments.nvme,
                      "--optimizer-tier", "nvme"]}
    for name, more in cases.items():
        ran = runs.train(runs.flags("smollm2-135m", 4, 512, 16, *more), 6)
        first = first or ran
        same = "error" not in ran and all(ran[key] == first[key] for key in ("loss", "grad_norm"))
        rows.append({"case": name, **ran, "same_bits": same})
        print(f"bits      {name:18} {ran.get('error') or ('same' if same else 'DIFFER ' + str(ran['loss']))} "
              f"{ran.get('median_s', 0):.3f} s a step", flush=True)
    return rows


def speed(runs):
    rows = []
    for model, micro, sequence, total in SPEED:
        flags = runs.flags(model, micro, sequence, total)
        planned = runs.plan(flags)
        ran = runs.train(flags, runs.arguments.steps)
        row = {"model": model, "tokens": total * sequence, **ran,
               "planned_s": planned.get("predicted", {}).get("step_s")}
        torch = runs.run([runs.arguments.python, pathlib.Path(__file__).resolve(), "--worker-shape",
                          f"{model}:{micro}x{sequence}", "--steps", runs.arguments.steps])
        if torch.returncode == 0:
            theirs = json.loads(torch.stdout.splitlines()[-1])
            row["pytorch_s"] = statistics.median(theirs["step_s"][len(theirs["step_s"]) // 3:])
            row["pytorch_peak_bytes"] = theirs["peak_bytes"]
        else:
            print(f"PyTorch left out: {torch.stderr[-600:]}")
        if "error" in ran:
            print(f"speed     {model}: {ran['error']}", flush=True)
        else:
            row["ratio"] = row["pytorch_s"] / ran["median_s"] if "pytorch_s" in row else None
            print(f"speed     {model:14} {ran['median_s'] * 1e3:8.1f} ms  "
                  f"{row['tokens'] / ran['median_s']:9.0f} tokens/s  "
                  f"planned {(row['planned_s'] or 0) * 1e3:8.1f} ms  PyTorch {row.get('pytorch_s', 0) * 1e3:8.1f} ms  "
                  f"{row['ratio'] or 0:.2f} x", flush=True)
        rows.append(row)
    return rows


def beside_plan(runs, name, flags, steps):
    planned = runs.plan(flags)
    ran = runs.train(flags, steps)
    predicted = planned.get("predicted", {})
    row = {"case": name, "planned_s": predicted.get("step_s"), "bound_s": predicted.get("bound_s"),
           "lane": predicted.get("binding_lane"), **ran}
    if "error" in ran or "error" in planned:
        print(f"{name}: {ran.get('error')} {planned.get('error')}", flush=True)
    else:
        print(f"{name:24} {ran['median_s']:.3f} s  planned {row['planned_s']:.3f}  bound {row['bound_s']:.3f} "
              f"({row['lane']})  set up in {ran['seconds'] - sum(ran['step_s']):.1f} s", flush=True)
    return row


def slice_of_7b(runs):
    """The file of a model with the shape of a 7 B model, but only 8 of its 28 layers."""
    config = dict(common.model_config("qwen2.5-7b"))
    config["num_hidden_layers"] = 8
    config.pop("layer_types", None)
    path = runs.directory / "slice"
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps(config))
    return path / "config.json"


def offload(runs):
    model = slice_of_7b(runs)
    rows = runs.directory / "slice.jsonl"
    common.write_tokens(rows, common.model_config(str(model)), 2048, 64)
    profile = ["--profile", runs.arguments.profile] if runs.arguments.profile else []
    flags = [*common.spillway_flags(model, rows, 4, 32, 2048, device="cuda"), *profile, "--device-memory", "16GiB",
             "--host-memory", "72GiB"]
    return [beside_plan(runs, "7 B's shape, 8 layers", flags, 4)]


def nvme(runs):
    flags = runs.flags("qwen2.5-1.5b", 8, 1024, 32, "--device-memory", "10GiB", "--host-memory", "8GiB", "--nvme",
                       runs.arguments.nvme, "--durability", "checkpoint")
    return [beside_plan(runs, "1.5 B from NVMe", flags, 4)]


def kill(runs):
    """Checks that a run with durable steps that is killed and goes on ends with the state of a run that never
    stopped."""
    steps, states = 14, []
    for killed in (False, True):
        save = runs.directory / f"killed{killed}"
        flags = runs.flags("smollm2-135m", 4, 512, 8, "--device-memory", "1200MiB", "--host-memory", "2GiB", "--nvme",
                           runs.arguments.nvme, "--optimizer-tier", "nvme", "--durability", "step", "--lr-decay-style",
                           "constant", "--train-iters", steps, "--save", save)
        command = [str(part) for part in (runs.arguments.spillway.resolve(), "train", *flags)]
        if killed:
            log = save / "log.jsonl"
            with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                  env=common.environment_with(runs.directory), cwd=runs.directory) as process:
                until = time.monotonic() + runs.arguments.timeout
                while process.poll() is None and time.monotonic() < until:
                    if log.exists() and log.read_bytes().count(b"\n") >= steps // 2:
                        process.kill()
                    time.sleep(0.02)
            command = [command[0], "train", "--load", str(save)]
        ran = runs.run(command)
        if ran.returncode != 0:
            print(f"kill: {ran.stderr[-600:]}", flush=True)
            return [{"error": f"exit {ran.returncode}: {ran.stderr[-600:]}"}]
        state = save / "checkpoints" / str(steps) / "state.safetensors"
        states.append(hashlib.sha256(state.read_bytes()).hexdigest())
    same = states[0] == states[1]
    print(f"kill      the state after a kill and the rest of the steps: {'same' if same else 'DIFFERS'}", flush=True)
    return [{"case": "kill", "same_bits": same}]


PARTS = {"bits": bits, "speed": speed, "offload": offload, "nvme": nvme, "kill": kill}


def main():
    parser = common.parser_of(__doc__)
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--profile", type=pathlib.Path, help="of this machine (measured by the program)")
    parser.add_argument("--nvme", default="/tmp/spillway-nvme", help="a directory on a drive")
    parser.add_argument("--python", default=sys.executable, help="an interpreter with torch and transformers")
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--timeout", type=float, default=240, help="seconds that a run may take (240)")
    parser.add_argument("--out", type=pathlib.Path)
    common.add_worker_flags(parser)
    arguments = parser.parse_args()
    if arguments.worker_shape:
        return worker(arguments)
    if arguments.profile:
        arguments.profile = arguments.profile.resolve()
    pathlib.Path(arguments.nvme).mkdir(parents=True, exist_ok=True)
    results = {}
    with common.temporary_directory(arguments.directory) as directory:
        runs = Runs(arguments, directory)
        for part in arguments.parts:
            try:
                results[part] = PARTS[part](runs)
            except subprocess.TimeoutExpired as late:
                print(f"{part}: {late}", flush=True)
                results[part] = [{"error": str(late)}]
            if arguments.out:
                arguments.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    rows = [row for part in results.values() for row in part]
    return 0 if all("error" not in row and row.get("same_bits", True) for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
