#!/usr/bin/env python3
"""Compiles every CUDA kernel for the chips that Spillway is for, and compares what ptxas says of each with a committed
table.

    compile_gate.py [--chips 80,90] [--nvcc PROGRAM] [--write]

A kernel that spills, or keeps anything in local memory, is an error. So is one that needs more registers than the table
says, or of which fewer blocks fit an SM: speed that no machine at hand can show is held by what can be counted. --write
makes the table anew; what it changed is for the reader of the change. Exit code 77 where there is no nvcc.
"""

import argparse
import concurrent.futures
import json
import math
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
TABLE = ROOT / "tests" / "cuda" / "kernels.json"
# tests/cuda/ names every instance of the kernels of offload/cuda/, which are templates.
SOURCES = sorted([*ROOT.glob("models/cuda/*.cu"), *ROOT.glob("tests/cuda/*.cu")])
# Limits of an SM, from the CUDA programming guide's table of compute capabilities: threads, blocks, bytes of shared
# memory.
CHIPS = {80: (2048, 32, 164 << 10), 86: (1536, 16, 100 << 10), 89: (1536, 24, 100 << 10), 90: (2048, 32, 228 << 10),
         120: (1536, 24, 100 << 10)}
REGISTERS_OF_SM, REGISTERS_OF_WARP = 64 << 10, 256  # a warp's are rounded up to multiples of the latter
SHARED_OF_SYSTEM = 1 << 10  # of each block
NOT_HERE = 77


def architecture(chip):
    """nvcc's option for it; products of warpgroups are in Hopper's own dialect alone."""
    return "-gencode=arch=compute_90a,code=sm_90a" if chip == 90 else f"-arch=sm_{chip}"


def compiled(nvcc, source, chip):
    """{kernel: (registers, threads, static shared bytes)} of a source; what is wrong with it ends the program."""
    with tempfile.TemporaryDirectory() as space:
        command = [nvcc, "-std=c++20", architecture(chip), "--expt-relaxed-constexpr", f"-I{ROOT}", "-DFMT_SHARED",
                   "-DFMT_CONSTEVAL=", "-cubin", "-Xptxas", "-v,--warn-on-spills,--warn-on-local-memory-usage",
                   "--keep", "--keep-dir", space, "-o", f"{space}/out.cubin", str(source)]
        ran = subprocess.run(command, capture_output=True, text=True, cwd=space, check=False)
        if ran.returncode != 0:
            sys.exit(f"{source.relative_to(ROOT)} does not compile for sm_{chip}:\n{ran.stderr}")
        ptx = next(pathlib.Path(space).glob("*.ptx")).read_text(encoding="utf-8")
    threads = dict(re.findall(r"\.entry (\w+)\([^)]*\)\s*\.maxntid (\d+)", ptx))
    found, entry = {}, None
    for line in ran.stderr.splitlines():
        if match := re.search(r"Compiling entry function '(\w+)'", line):
            entry = match.group(1)
        elif match := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line):
            if any(int(count) for count in match.groups()):
                sys.exit(f"{readable([entry])[entry]} on sm_{chip}: {line.strip()}")
        elif match := re.search(r"Used (\d+) registers", line):
            shared = re.search(r"(\d+) bytes smem", line)
            found[entry] = (int(match.group(1)), int(threads[entry]), int(shared.group(1)) if shared else 0)
    return found


def readable(names):
    """Mangled to "NormForward<BFloat16, 8, false>"."""
    text = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout
    kernels = (re.search(r"run_kernel<(.*)>\(", line).group(1) for line in text.splitlines())
    return dict(zip(names, (re.sub(r"spillway::(cuda::)?|\((?:spillway::)?\w+\)", "", kernel).replace(" >", ">").strip()
                            for kernel in kernels)))


def blocks_of_sm(chip, registers, threads, shared):
    most_threads, most_blocks, most_shared = CHIPS[chip]
    warps = threads // 32
    of_warp = math.ceil(registers * 32 / REGISTERS_OF_WARP) * REGISTERS_OF_WARP
    by_registers = REGISTERS_OF_SM // of_warp // warps
    return min(most_threads // threads, most_blocks, by_registers, most_shared // (shared + SHARED_OF_SYSTEM))


def measured(nvcc, chips, dynamic_shared):
    """{chip: {kernel: [registers, threads, bytes of shared memory, blocks of an SM]}}"""
    table = {}
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        jobs = {(chip, source): pool.submit(compiled, nvcc, source, chip) for chip in chips for source in SOURCES}
        for (chip, _), job in jobs.items():
            found = job.result()
            names = readable(list(found))
            for mangled, (registers, threads, static) in found.items():
                name = names[mangled]
                if "Hopper" in name and chip != 90:
                    continue  # there is none of it for other chips
                shared = static + dynamic_shared.get(name, dynamic_shared.get(name.split("<")[0], 0))
                row = [registers, threads, shared, blocks_of_sm(chip, registers, threads, shared)]
                table.setdefault(f"sm_{chip}", {})[name] = row
    return {chip: dict(sorted(kernels.items())) for chip, kernels in sorted(table.items())}


def complaints(before, now):
    for chip, kernels in now.items():
        for name, (registers, _, shared, blocks) in kernels.items():
            held = before.get(chip, {}).get(name)
            if held is None:
                yield f"{chip} {name}: not in the table: run compile_gate.py --write, and look at what it says"
            elif registers > held[0] or blocks < held[3] or shared > held[2]:
                yield (f"{chip} {name}: {registers} registers, {shared} bytes of shared memory, {blocks} blocks of an "
                       "SM, "
                       f"where the table has {held[0]}, {held[2]} and {held[3]}")


def text_of(table):
    """JSON with a kernel a line."""
    chips = []
    for chip, kernels in table.items():
        rows = ",\n".join(f"    {json.dumps(name)}: {json.dumps(row)}" for name, row in kernels.items())
        chips.append(f"  {json.dumps(chip)}: {{\n{rows}\n  }}")
    return "{\n" + ",\n".join(chips) + "\n}\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chips", default="80,90", help="compute capabilities (80,90)")
    parser.add_argument("--nvcc", default=shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc")
    parser.add_argument("--write", action="store_true", help="make the table anew")
    arguments = parser.parse_args()
    if not shutil.which(arguments.nvcc):
        print("no nvcc here: CUDA's kernels are not compiled")
        return NOT_HERE
    before = json.loads(TABLE.read_text(encoding="utf-8")) if TABLE.exists() else {}
    chips = [int(chip) for chip in arguments.chips.split(",")]
    # The shared memory that a launch gives each block at run time is in no cubin. This maps a kernel, or one of its
    # instances, to the most bytes of its launches.
    dynamic_shared = before.pop("dynamic_shared_bytes", {})
    now = measured(arguments.nvcc, chips, dynamic_shared)
    if arguments.write:
        TABLE.write_text(text_of({"dynamic_shared_bytes": dynamic_shared, **before, **now}), encoding="utf-8")
        return 0
    found = list(complaints(before, now))
    print("\n".join(found) or f"{sum(map(len, now.values()))} kernels: no spills, no local memory, none worse than the "
                              "table")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
