#!/usr/bin/env python3
"""Shows how near a step in core comes to the speed of light: the time of its matrix products alone, at oneDNN's rate,
divided by the time of the whole step.

    tools/bench/speed_of_light.py [--shapes MODEL:BATCHxSEQUENCE ...] [--steps N] [--rounds N]

The products are those of step_gemms_bench (tools/bench/run step_gemms builds it): each alone, the best of several
samples, with warm caches; in fp32 on processors that do not multiply bf16. The step is all of training: attention,
norms, loss, gradients and the optimizer, without clipping. The share of the clock counts (at least 0.70); the share of
CPU seconds, with products on one thread, says the same on a machine that others use.
"""

import json
import os
import pathlib
import re
import subprocess
import sys

import common

AIM = 0.70


def products_alone(arguments, model, batch, sequence, directory):
    """Seconds of a step's products, ours and the library's, by number of threads: clock time, but CPU seconds for one
    thread."""
    out = directory / "products.json"
    command = [arguments.program.resolve(), model, batch, sequence, arguments.threads, f"--benchmark_out={out}",
               "--benchmark_out_format=json"]
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        common.fail(f"{arguments.program.name} ended with exit code {done.returncode}:\n{done.stdout[-2000:]}")
    products = {}
    for row in json.loads(out.read_text())["benchmarks"]:
        found = re.match(r"(.*)/(ours|library)/threads:(\d+)/", row["name"])
        if row.get("aggregate_name") != "best" or not found:
            continue
        seconds = row["cpu_time" if found[3] == "1" else "real_time"] * 1e-3
        product = products.setdefault(found[1], {"calls": row["calls"], "gflop": row["GFLOP"]})
        product[f"{found[2]}_{found[3]}"] = seconds
    return products


def least(one, other):
    """The best times of two rounds."""
    return {name: {key: min(value, other[name][key]) for key, value in product.items()}
            for name, product in one.items()}


def total(products, *keys):
    return sum(product["calls"] * min(product[key] for key in keys) for product in products.values())


def measure(arguments, shape_text, directory):
    model, batch, sequence = common.shape(shape_text)
    data = directory / "tokens.jsonl"
    common.write_tokens(data, common.model_config(model), sequence, 8 * batch)
    flags = common.spillway_flags(model, data, batch, batch, sequence, "--clip-grad", 0)
    run, products, loads = common.Run(), None, []
    for _ in range(arguments.rounds):
        loads.append(os.getloadavg()[0])
        found = products_alone(arguments, model, batch, sequence, directory)
        products = found if products is None else least(products, found)
        run.join(common.train(arguments.spillway, flags, directory, arguments.steps, arguments.warm_up,
                              arguments.timeout, arguments.threads))
    threads = arguments.threads
    library, ours = total(products, f"library_{threads}"), total(products, f"ours_{threads}")
    gflop = sum(product["calls"] * product["gflop"] for product in products.values())
    step_s = run.median_s()
    return {"shape": shape_text, "gflop": gflop, "library_s": library, "ours_s": ours,
            "library_cpu_s": total(products, "library_1"),
            "ours_cpu_s": total(products, "ours_1"), "step_s": run.step_s, "cpu_s": run.cpu_s, "median_step_s": step_s,
            "share": library / step_s, "share_of_cpu_seconds": total(products, "library_1") / run.median_cpu_s(),
            "share_of_ours": ours / step_s,
            "fastest_share": total(products, f"library_{threads}", f"ours_{threads}") / step_s,
            "load_average": max(loads), "products": products}


def main():
    parser = common.parser_of(__doc__)
    parser.add_argument("--program", type=pathlib.Path, help="step_gemms_bench (in bench/ beside spillway)")
    parser.add_argument("--shapes", nargs="+", default=["smollm2-135m:4x512", "llama-3.2-1b:1x512"],
                        metavar="MODEL:BATCHxSEQUENCE")
    parser.add_argument("--steps", type=int, default=6, help="measured steps a round (6)")
    parser.add_argument("--warm-up", type=int, default=2, help="steps before them (2)")
    parser.add_argument("--rounds", type=int, default=2, help="turns of products and step (2)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--timeout", type=float, default=3600, help="seconds that one run may take (3600)")
    arguments = parser.parse_args()
    common.check_program(arguments)
    arguments.program = arguments.program or arguments.spillway.parent / "bench/step_gemms_bench"
    if not os.access(arguments.program, os.X_OK):
        common.fail(f"{arguments.program}: there is no such program; `tools/bench/run step_gemms` builds it")
    with common.temporary_directory(arguments.directory) as directory:
        results = [measure(arguments, shape_text, directory) for shape_text in arguments.shapes]
    rows = [("shape", "products by oneDNN", "by ours", "step", "share", "aim", "of CPU seconds", "step at", "load")]
    for result in results:
        rows.append((result["shape"], f"{result['library_s']:.3f} s", f"{result['ours_s']:.3f} s",
                     f"{result['median_step_s']:.3f} s", f"{result['share']:.2f}",
                     f"{AIM} {common.verdict(result['share'], AIM)}", f"{result['share_of_cpu_seconds']:.2f}",
                     f"{result['gflop'] / result['median_step_s']:.0f} GFLOP/s",
                     f"{result['load_average']:.1f}"))
    common.print_table(rows)
    common.save_result("speed_of_light", {"results": results})
    return 0


if __name__ == "__main__":
    sys.exit(main())
