#!/usr/bin/env python3
"""In core, bf16: tokens a second of spillway and of PyTorch on the same shapes, random weights and random tokens.

    tools/bench/pytorch.py [--shapes smollm2-135m:4x512 ...] [--steps N] [--rounds N] [--python PYTHON]

PyTorch is at its best here: transformers in eager mode with SDPA, weights and moments in bf16 (no fp32 master), fused
AdamW, huge pages, and memory that malloc keeps from step to step. Ours has the exact state (fp32 masters and moments),
planned without a budget. No clipping on either side. The two take turns; medians of all measured steps are compared. On
a busy machine compare with --threads 1, by the CPU seconds: OpenMP's threads wait for each other by spinning, and lose
far more than ours when they share processors.
Needs torch and transformers in PYTHON (this interpreter by default).
"""

import json
import os
import pathlib
import sys
import time

import common

AIMS = {"smollm2-135m": 1.5, "llama-3.2-1b": 1.2, "tinyllama-1.1b": 1.2}
# Makes malloc keep freed memory and back it with huge pages; without this PyTorch is up to 1.7 times slower.
MALLOC = ("glibc.malloc.hugetlb=1:glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=1099511627776"
          ":glibc.malloc.top_pad=67108864")


def worker(arguments):
    """Runs in PYTHON: trains and writes one line for each step."""
    import torch
    import transformers

    (model_name, batch, sequence), threads = arguments.worker_shape, arguments.threads
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    config = transformers.AutoConfig.for_model(**common.model_config(model_name))
    config.use_cache = False
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation="sdpa")
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.01, fused=True)
    rows = [json.loads(line)["input_ids"] for line in open(arguments.worker_data, encoding="ascii")]
    with open(arguments.worker_log, "w", encoding="ascii", buffering=1) as log:
        ended = time.perf_counter()
        for step in range(1 << 30):
            picked = [rows[(step * batch + i) % len(rows)] for i in range(batch)]
            tokens = torch.tensor(picked)[:, :sequence]
            loss = model(input_ids=tokens, labels=tokens).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            value, began, ended = loss.item(), ended, time.perf_counter()
            log.write(json.dumps({"step": step + 1, "loss": value, "step_s": ended - began}) + "\n")


def train_pytorch(arguments, shape_text, data, directory):
    log = directory / "pytorch.jsonl"
    log.unlink(missing_ok=True)
    command = [arguments.python, pathlib.Path(__file__).resolve(), "--worker-shape", shape_text, "--worker-data", data,
               "--worker-log", log, "--threads", arguments.threads]
    environment = common.environment_with(directory, GLIBC_TUNABLES=MALLOC, OMP_NUM_THREADS=str(arguments.threads),
                                          HF_HUB_OFFLINE="1")
    return common.follow(command, environment, directory, common.lines_of(log), arguments.steps, arguments.warm_up,
                         arguments.timeout, arguments.threads)


def compare(arguments, shape_text, directory):
    model, batch, sequence = common.shape(shape_text)
    config = common.model_config(model)
    data = directory / "tokens.jsonl"
    common.write_tokens(data, config, sequence, 8 * batch)
    flags = common.spillway_flags(model, data, batch, batch, sequence, "--clip-grad", 0, "--dtype", "bf16")
    ours, theirs, loads = common.Run(), common.Run(), []
    for _ in range(arguments.rounds):
        loads.append(os.getloadavg()[0])
        theirs.join(train_pytorch(arguments, shape_text, data, directory))
        ours.join(common.train(arguments.spillway, flags, directory, arguments.steps, arguments.warm_up,
                               arguments.timeout, arguments.threads))
    tokens = batch * sequence
    ratio = theirs.median_s() / ours.median_s()
    result = {"shape": shape_text, "ratio": ratio, "ratio_of_best": min(theirs.step_s) / min(ours.step_s),
              "ratio_of_cpu_seconds": theirs.median_cpu_s() / ours.median_cpu_s(), "aim": AIMS.get(model),
              "load_average": max(loads)}
    for name, run in (("spillway", ours), ("pytorch", theirs)):
        result[name] = {"tokens_per_s": tokens / run.median_s(), "step_s": run.step_s, "cpu_s": run.cpu_s,
                        "peak_resident_bytes": run.peak_resident_bytes,
                        "loss": run.loss}
    return result


def main():
    parser = common.parser_of(__doc__)
    common.add_comparison_flags(parser, shapes=["smollm2-135m:4x512", "llama-3.2-1b:1x512"])
    arguments = parser.parse_args()
    if arguments.worker_shape:
        return worker(arguments)
    common.check_program(arguments)
    results = []
    with common.temporary_directory(arguments.directory) as directory:
        for shape_text in arguments.shapes:
            results.append(compare(arguments, shape_text, directory))
            print(f"{shape_text}: done", flush=True)
    rows = [("shape", "spillway", "PyTorch", "ratio", "of best steps", "of CPU seconds", "aim", "resident", "theirs",
             "load")]
    for result in results:
        rows.append((result["shape"], f"{result['spillway']['tokens_per_s']:.0f} tokens/s",
                     f"{result['pytorch']['tokens_per_s']:.0f}", f"{result['ratio']:.2f}",
                     f"{result['ratio_of_best']:.2f}", f"{result['ratio_of_cpu_seconds']:.2f}",
                     f"{result['aim']} {common.verdict(result['ratio'], result['aim'])}" if result["aim"] else "",
                     f"{result['spillway']['peak_resident_bytes'] / common.GIB:.1f} GiB",
                     f"{result['pytorch']['peak_resident_bytes'] / common.GIB:.1f} GiB",
                     f"{result['load_average']:.1f}"))
    common.print_table(rows)
    common.save_result("pytorch", {"results": results})
    return 0


if __name__ == "__main__":
    sys.exit(main())
