#!/usr/bin/env python3
"""In core, bf16: tokens a second of several ranks of spillway, as threads and as processes over TCP and MPI, of one
process with as many threads, and of PyTorch's DDP over gloo, on the same shapes, random weights and random tokens.

    tools/bench/ranks.py [--shapes smollm2-135m:2x512 ...] [--ranks N] [--steps N] [--rounds N] [--python PYTHON]

A shape is each rank's: MODEL:SEQUENCESxLENGTH. Each rank has the cores divided by the ranks, at least one; the one
process computes a micro-batch for each rank, one after the other. DDP is as PyTorch is in pytorch.py: SDPA, weights,
moments and gradients in bf16, fused AdamW, huge pages. Ours has fp32 masters and moments and adds gradients in fp32. No
clipping. All take turns; medians of all measured steps are compared, and our prediction with our median.
Without torch and transformers in PYTHON (this interpreter by default) DDP is left out, and without mpirun and the
module for it MPI is.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

import common
from local_ranks import end_with_parent
from pytorch import MALLOC

AIM_OF_ONE, AIM_OF_DDP = 0.9, 1.6


def worker(arguments):
    """Runs in PYTHON, as the parent of the ranks."""
    import torch.multiprocessing

    torch.multiprocessing.spawn(rank_of_ddp, args=(arguments,), nprocs=arguments.ranks)


def rank_of_ddp(rank, arguments):
    end_with_parent()
    import torch
    import torch.distributed
    import transformers
    from torch.nn.parallel import DistributedDataParallel

    model_name, batch, sequence = arguments.worker_shape
    torch.set_num_threads(max(1, arguments.threads // arguments.ranks))
    torch.manual_seed(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{arguments.worker_log}.group", rank=rank,
                                         world_size=arguments.ranks)
    config = transformers.AutoConfig.for_model(**common.model_config(model_name))
    config.use_cache = False
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation="sdpa")
    model = DistributedDataParallel(model.train())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.01, fused=True)
    rows = [json.loads(line)["input_ids"] for line in open(arguments.worker_data, encoding="ascii")]
    log = open(arguments.worker_log, "w", encoding="ascii", buffering=1) if rank == 0 else None
    ended = time.perf_counter()
    for step in range(1 << 30):
        first = (step * arguments.ranks + rank) * batch
        tokens = torch.tensor([rows[(first + i) % len(rows)] for i in range(batch)])[:, :sequence]
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        value, began, ended = loss.item(), ended, time.perf_counter()
        if log:
            log.write(json.dumps({"step": step + 1, "loss": value, "step_s": ended - began}) + "\n")


def has_torch(python):
    return subprocess.run([python, "-c", "import torch, transformers"], stdin=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL, check=False).returncode == 0


def train_ddp(arguments, shape_text, data, directory):
    log = directory / "ddp.jsonl"
    for path in (log, pathlib.Path(f"{log}.group")):
        path.unlink(missing_ok=True)
    command = [arguments.python, pathlib.Path(__file__).resolve(), "--worker-shape", shape_text, "--worker-data", data,
               "--worker-log", log, "--threads", arguments.threads, "--ranks", arguments.ranks]
    threads = max(1, arguments.threads // arguments.ranks)
    environment = common.environment_with(directory, GLIBC_TUNABLES=MALLOC, OMP_NUM_THREADS=str(threads),
                                          HF_HUB_OFFLINE="1")
    return common.follow(command, environment, directory, common.lines_of(log), arguments.steps, arguments.warm_up,
                         arguments.timeout, arguments.threads)


def launchers(arguments):
    """The words that start ranks as processes, for each transport."""
    local_ranks = [sys.executable, pathlib.Path(__file__).resolve().parent / "local_ranks.py"]
    words = {"TCP": [*local_ranks, "--ranks", arguments.ranks]}
    mpirun, module = shutil.which("mpirun"), arguments.spillway.resolve().parent / "spillway_mpi.so"
    if mpirun and module.exists():
        as_root = ["--allow-run-as-root"] if os.getuid() == 0 else []
        words["MPI"] = [mpirun, *as_root, "-n", arguments.ranks, "--oversubscribe", "--bind-to", "none", *local_ranks]
    return words


def programs_of(arguments, flags):
    """{name: (flags, launcher)}"""
    ranks = arguments.ranks
    programs = {"one process": (flags, ()), f"{ranks} ranks": ([*flags, "--ranks", ranks], ())}
    for transport, words in launchers(arguments).items():
        programs[f"{ranks} processes, {transport}"] = ([*flags, "--collectives", transport.lower()], words)
    return programs


def compare(arguments, shape_text, directory, with_ddp):
    model, batch, sequence = common.shape(shape_text)
    ranks = arguments.ranks
    data = directory / "tokens.jsonl"
    common.write_tokens(data, common.model_config(model), sequence, 8 * ranks * batch)
    flags = common.spillway_flags(model, data, batch, ranks * batch, sequence, "--clip-grad", 0, "--dtype", "bf16")
    programs = programs_of(arguments, flags)
    runs = {name: common.Run() for name in (*programs, *(["DDP"] if with_ddp else []))}
    plans = {}
    for _ in range(arguments.rounds):
        for name, (of_program, launcher) in programs.items():
            run = common.train(arguments.spillway, of_program, directory, arguments.steps, arguments.warm_up,
                               arguments.timeout, arguments.threads, prefix=launcher)
            plans[name] = run.plan
            runs[name].join(run)
        if with_ddp:
            runs["DDP"].join(train_ddp(arguments, shape_text, data, directory))
    tokens = ranks * batch * sequence
    result = {"shape": shape_text, "ranks": ranks, "stage": plans[f"{ranks} ranks"]["choices"]["zero_stage"]}
    for name, run in runs.items():
        result[name] = {"tokens_per_s": tokens / run.median_s(), "step_s": run.step_s, "loss": run.loss,
                        "peak_resident_bytes": run.peak_resident_bytes}
        if name in plans:
            result[name]["predicted_s"] = plans[name]["predicted"]["step_s"]
    return result


def rows_of(result):
    ours = f"{result['ranks']} ranks"
    for name, of in result.items():
        if not isinstance(of, dict):
            continue
        ratio = result[ours]["tokens_per_s"] / of["tokens_per_s"]
        aim = {"one process": AIM_OF_ONE, "DDP": AIM_OF_DDP}.get(name)
        compared = f"{ratio:.2f} {common.verdict(ratio, aim)}" if aim else f"{ratio:.2f}"
        median_s = sorted(of["step_s"])[len(of["step_s"]) // 2]
        yield (result["shape"], name if name != ours else f"{name}, stage {result['stage']}",
               f"{of['tokens_per_s']:.0f} tokens/s", compared,
               f"{aim}" if aim else "", f"{of['predicted_s'] / median_s:.2f}" if "predicted_s" in of else "",
               f"{of['peak_resident_bytes'] / common.GIB:.1f} GiB" if name in ("one process", ours) else "")


def main():
    parser = common.parser_of(__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    common.add_comparison_flags(parser, shapes=["smollm2-135m:2x512"])
    arguments = parser.parse_args()
    if arguments.worker_shape:
        return worker(arguments)
    common.check_program(arguments)
    with_ddp = has_torch(arguments.python)
    results = []
    with common.temporary_directory(arguments.directory) as directory:
        for shape_text in arguments.shapes:
            results.append(compare(arguments, shape_text, directory, with_ddp))
    rows = [("shape", "program", "speed", "ranks are faster by", "aim", "predicted / measured", "resident")]
    for result in results:
        rows.extend(rows_of(result))
    common.print_table(rows)
    if not with_ddp:
        print(f"{arguments.python} has no torch and transformers: DDP was left out")
    common.save_result("ranks", {"results": results})
    return 0


if __name__ == "__main__":
    sys.exit(main())
