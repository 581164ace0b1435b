#!/usr/bin/env python3
"""State on NVMe, bf16: tokens a second of spillway and of DeepSpeed ZeRO-3 with parameters and optimizer offloaded to
NVMe.

    tools/bench/deepspeed.py [--shapes MODEL:BATCHxSEQUENCE ...] [--state exact compact] [--nvme DIR] [--python PYTHON]

Ours runs with --device-memory 1GiB; DeepSpeed takes as much memory as it likes. Same shape, random weights and tokens,
one process, no clipping on either side; the two take turns and medians are compared. DeepSpeed's step takes tens of
seconds and, at 1.2 G parameters, 40 GB of disk.
Needs torch, transformers and deepspeed in PYTHON (this interpreter by default) and, for DeepSpeed's own extensions, a
compiler and libaio's header (Debian: libaio-dev); the first run compiles them, which takes minutes.
"""

import argparse
import json
import os
import pathlib
import socket
import sys
import time

import common

# Wanted ratio to DeepSpeed's tokens a second, by state; for batches of 8 and more, whatever the state.
AIMS, LARGE_BATCH_AIM = {"exact": 2.5, "compact": 3.5}, 2.0
MALLOC = "glibc.malloc.hugetlb=1:glibc.malloc.trim_threshold=1099511627776:glibc.malloc.top_pad=67108864"


def deepspeed_configuration(arguments, config, directory):
    batch = arguments.worker_shape[1]
    micro_batch = min(batch, arguments.micro_batch)
    elements = max(config["vocab_size"], config.get("intermediate_size", 0)) * config["hidden_size"]
    # Buffers hold the largest parameter in fp32. Reading and writing beside the update takes twelve of them, otherwise
    # five.
    pipelines = 12 * 4 * elements < common.machine()["memory_bytes"] / 4
    return {
        "train_micro_batch_size_per_gpu": micro_batch,
        "gradient_accumulation_steps": batch // micro_batch,
        "bf16": {"enabled": True},
        "gradient_clipping": 0.0,
        "optimizer": {"type": "AdamW", "params": {"lr": 3e-4, "weight_decay": 0.01}},
        "zero_optimization": {
            "stage": 3,
            "sub_group_size": 100_000_000,
            # Parameters that are fetched ahead, or kept because they are needed again soon, take a buffer each: large
            # buffers are few.
            "stage3_prefetch_bucket_size": 50_000_000 if pipelines else 10_000_000,
            **({} if pipelines else {"stage3_max_live_parameters": 300_000_000, "stage3_max_reuse_distance": 0}),
            "offload_param": {"device": "nvme", "nvme_path": str(directory), "buffer_count": 12,
                              "buffer_size": elements + 4096, "pin_memory": False},
            "offload_optimizer": {"device": "nvme", "nvme_path": str(directory), "buffer_count": 12 if pipelines else 5,
                                  "pin_memory": False, "pipeline_read": pipelines, "pipeline_write": pipelines},
        },
        "aio": {"block_size": 1 << 20, "queue_depth": 32, "intra_op_parallelism": 1, "single_submit": False,
                "overlap_events": True},
        "wall_clock_breakdown": False,
        "steps_per_print": 1 << 30,
    }


def worker(arguments):
    """Runs in PYTHON: trains and writes one line for each step."""
    # This file's own name would hide the library.
    sys.path = [path for path in sys.path
                if pathlib.Path(path or ".").resolve() != pathlib.Path(__file__).resolve().parent]
    import deepspeed
    import torch
    import transformers

    model_name, batch, sequence = arguments.worker_shape
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    shape_config = common.model_config(model_name)
    config = transformers.AutoConfig.for_model(**shape_config)
    config.use_cache = False
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation="sdpa")
    model.train()
    if arguments.checkpointing:
        model.gradient_checkpointing_enable()
    settings = deepspeed_configuration(arguments, shape_config, arguments.worker_directory)
    deepspeed.init_distributed(dist_backend="gloo")
    engine = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=settings)[0]
    rows = [json.loads(line)["input_ids"] for line in open(arguments.worker_data, encoding="ascii")]
    micro_batch = settings["train_micro_batch_size_per_gpu"]
    taken = 0
    with open(arguments.worker_log, "w", encoding="ascii", buffering=1) as log:
        ended = time.perf_counter()
        for step in range(1 << 30):
            total = 0.0
            for _ in range(settings["gradient_accumulation_steps"]):
                tokens = torch.tensor([rows[(taken + i) % len(rows)] for i in range(micro_batch)])[:, :sequence]
                taken += micro_batch
                loss = engine(input_ids=tokens, labels=tokens).loss
                engine.backward(loss)
                engine.step()
                total += loss.item()
            began, ended = ended, time.perf_counter()
            log.write(json.dumps({"step": step + 1, "loss": total / settings["gradient_accumulation_steps"],
                                  "step_s": ended - began}) + "\n")


def train_deepspeed(arguments, shape_text, data, directory, nvme):
    log = directory / "deepspeed.jsonl"
    log.unlink(missing_ok=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with common.temporary_directory(nvme) as swap:
        command = [arguments.python, pathlib.Path(__file__).resolve(), "--worker-shape", shape_text, "--worker-data",
                   data, "--worker-log", log, "--worker-directory", swap, "--threads", arguments.threads,
                   "--micro-batch", arguments.micro_batch]
        if arguments.checkpointing:
            command.append("--checkpointing")
        environment = common.environment_with(directory, GLIBC_TUNABLES=MALLOC, OMP_NUM_THREADS=str(arguments.threads),
                                              HF_HUB_OFFLINE="1", DS_ACCELERATOR="cpu", RANK="0", LOCAL_RANK="0",
                                              WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        environment["XDG_CACHE_HOME"] = os.environ.get("XDG_CACHE_HOME", "")
        if not environment["XDG_CACHE_HOME"]:
            del environment["XDG_CACHE_HOME"]  # keeps the compiled extensions for the next time
        # The interpreter of a virtual environment has its compiler helper (ninja) beside it.
        environment["PATH"] = f"{pathlib.Path(arguments.python).absolute().parent}:{environment['PATH']}"
        return common.follow(command, environment, directory, common.lines_of(log), arguments.deepspeed_steps, 1,
                             arguments.timeout, arguments.threads)


def compare(arguments, shape_text, directory):
    model, batch, sequence = common.shape(shape_text)
    config = common.model_config(model)
    data = directory / f"tokens-{model}.jsonl"
    common.write_tokens(data, config, sequence, 8 * batch)
    nvme = arguments.nvme or directory
    theirs, ours, why = common.Run(), {state: common.Run() for state in arguments.state}, None
    micro_batch = min(batch, arguments.our_micro_batch)
    for _ in range(arguments.rounds):
        if why is None:
            try:
                theirs.join(train_deepspeed(arguments, shape_text, data, directory, nvme))
                print(f"{shape_text} DeepSpeed: {', '.join(f'{seconds:.1f}' for seconds in theirs.step_s)} s; load "
                      f"{os.getloadavg()[0]:.1f}", flush=True)
            except RuntimeError as error:
                why = str(error)
                print(f"{shape_text}: DeepSpeed does not run here: {why}", flush=True)
        for state in arguments.state:
            with common.temporary_directory(nvme) as store:
                flags = common.spillway_flags(model, data, micro_batch, batch, sequence, "--clip-grad", 0,
                                              "--device-memory", arguments.device_memory, "--nvme",
                                              store, "--state", state, "--durability", "checkpoint")  # like DeepSpeed
                ours[state].join(common.train(arguments.spillway, flags, directory, arguments.steps, arguments.warm_up,
                                              arguments.timeout, arguments.threads))
                print(f"{shape_text} spillway {state}: {', '.join(f'{seconds:.1f}' for seconds in ours[state].step_s)} "
                      f"s; load {os.getloadavg()[0]:.1f}", flush=True)
    tokens = batch * sequence
    result = {"shape": shape_text, "why_no_deepspeed": why}
    for name, run in (("deepspeed", theirs), *ours.items()):
        if run.step_s:
            result[name] = {"tokens_per_s": tokens / run.median_s(), "step_s": run.step_s, "cpu_s": run.cpu_s,
                            "peak_resident_bytes": run.peak_resident_bytes,
                            "read_bytes": run.read_bytes, "written_bytes": run.written_bytes, "loss": run.loss}
    return result


def main():
    parser = common.parser_of(__doc__)
    parser.add_argument("--shapes", nargs="+",
                        default=["smollm2-135m:4x512", "llama-3.2-1b:1x512", "llama-3.2-1b:8x512"],
                        metavar="MODEL:BATCHxSEQUENCE")
    parser.add_argument("--state", nargs="+", choices=("exact", "compact"), default=["exact", "compact"])
    common.add_nvme_flag(parser)
    parser.add_argument("--device-memory", default="1GiB", help="of ours (1GiB)")
    parser.add_argument("--our-micro-batch", type=int, default=4, help="sequences of a micro-batch, ours, at most (4)")
    parser.add_argument("--micro-batch", type=int, default=4, help="the same, of DeepSpeed (4)")
    parser.add_argument("--checkpointing", action="store_true", help="DeepSpeed: recompute layers in the backward pass")
    parser.add_argument("--steps", type=int, default=4, help="measured steps of ours, a round (4)")
    parser.add_argument("--warm-up", type=int, default=2, help="steps before them (2)")
    parser.add_argument("--deepspeed-steps", type=int, default=2,
                        help="measured steps of DeepSpeed after one to warm up (2)")
    parser.add_argument("--rounds", type=int, default=1, help="turns of each (1)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--python", default=sys.executable,
                        help="an interpreter that has torch, transformers and deepspeed (this one)")
    parser.add_argument("--timeout", type=float, default=7200, help="seconds that one run may take (7200)")
    common.add_worker_flags(parser)
    parser.add_argument("--worker-directory", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker_shape:
        return worker(arguments)
    common.check_program(arguments)
    with common.temporary_directory(arguments.directory) as directory:
        results = [compare(arguments, shape_text, directory) for shape_text in arguments.shapes]
    rows = [("shape", "program", "tokens/s", "over DeepSpeed", "of CPU seconds", "aim", "resident", "read a step",
             "written")]
    for result in results:
        large = common.shape(result["shape"])[1] >= 8
        for name in ("deepspeed", *arguments.state):
            if name not in result:
                continue
            run, ratio, verdict, cpu = result[name], "", "", ""
            if name != "deepspeed" and "deepspeed" in result:
                aim = LARGE_BATCH_AIM if large else AIMS[name]
                result[name]["ratio"] = run["tokens_per_s"] / result["deepspeed"]["tokens_per_s"]
                ratio, verdict = f"{result[name]['ratio']:.2f}", f"{aim} {common.verdict(result[name]['ratio'], aim)}"
                theirs, ours = (common.statistics.median(one["cpu_s"]) for one in (result["deepspeed"], run))
                cpu = f"{theirs / ours:.2f}"
            rows.append((result["shape"], "DeepSpeed" if name == "deepspeed" else f"spillway {name}",
                         f"{run['tokens_per_s']:.1f}", ratio, cpu, verdict,
                         f"{run['peak_resident_bytes'] / common.GIB:.1f} GiB", f"{run['read_bytes'] / 1e9:.1f} GB",
                         f"{run['written_bytes'] / 1e9:.1f} GB"))
    common.print_table(rows)
    common.save_result("deepspeed", {"results": results})
    return 0


if __name__ == "__main__":
    sys.exit(main())
