#!/usr/bin/env python3
"""Compares the NVMe store with fio: reads, writes, and both at once; the same file, direct I/O by io_uring, block and
depth.

    tools/bench/store_vs_fio.py --nvme DIR [--bytes N] [--rounds N]

The two take turns, because disks are noisy; medians are compared. Needs fio and a built store_bench (tools/bench/run
store).
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile

import common

AIM = 0.90


def ours(arguments, directory, load, queue):
    command = [arguments.program, f"--nvme={directory}", f"--bytes={arguments.bytes}",
               f"--block-bytes={arguments.block}", f"--depth={arguments.depth}",
               f"--memory-bytes={arguments.memory or arguments.block * arguments.depth}",
               f"--seconds={arguments.seconds}", "--keep=1", f"--benchmark_filter=^store/{queue}/{load}/",
               "--benchmark_format=json"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    row = json.loads(done.stdout)["benchmarks"][0]
    if row.get("error_occurred"):
        sys.exit(f"error: {row['error_message']}")
    return row["bytes_per_second"], row["cpu_us_per_MiB"]


def fio(arguments, directory, load):
    half = arguments.bytes // 2 // arguments.block * arguments.block
    # The mix is two jobs, as it is two lanes in the store: each has the full depth and half of the file.
    jobs = {
        "read": ["--name=read", "--rw=read", f"--size={arguments.bytes}"],
        "write": ["--name=write", "--rw=write", f"--size={arguments.bytes}"],
        "mix": ["--name=read", "--rw=read", f"--size={half}", "--name=write", "--rw=write", f"--offset={half}",
                f"--size={half}"],
    }[load]
    result = common.fio(f"{directory}/spillway-store.bin", arguments.block, arguments.depth, "--registerfiles=1",
                        "--fixedbufs=1", "--time_based", f"--runtime={arguments.seconds}", "--invalidate=0",
                        "--norandommap", *jobs)
    moved = sum(job[way]["io_bytes"] for job in result for way in ("read", "write"))
    elapsed = max(job[way]["runtime"] for job in result for way in ("read", "write")) / 1e3
    cpu = sum((job["usr_cpu"] + job["sys_cpu"]) / 100 * job["job_runtime"] / 1e3 for job in result)
    return moved / elapsed, cpu * 1e6 / (moved / 2**20)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nvme", default=str(common.ROOT / "build"), metavar="DIR")
    parser.add_argument("--bytes", type=int, default=4 << 30)
    parser.add_argument("--block", type=int, default=2 << 20)
    parser.add_argument("--depth", type=int, default=16)
    parser.add_argument("--memory", type=int, default=0,
                        help="bytes of memory that the store's lanes use in turn (block x depth, as fio: what stays in "
                             "caches is faster)")
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--queue", choices=["io_uring", "threads"], default="io_uring")
    parser.add_argument("--program", default=str(common.ROOT / "build/release/bench/store_bench"))
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.bytes, arguments.seconds, arguments.rounds = 1 << 30, 0.5, 3
    arguments.seconds = max(1, round(arguments.seconds))  # fio counts in whole seconds

    missed = []
    with tempfile.TemporaryDirectory(dir=arguments.nvme, prefix="store_vs_fio.") as directory:
        ours(arguments, directory, "read", arguments.queue)  # lays out the file that both use
        print(f"{'load':6} {'store':>12} {'fio':>12} {'ratio':>6}   CPU time a MiB: {'store':>8} {'fio':>8}")
        for load in ("read", "write", "mix"):
            pairs = []
            for _ in range(arguments.rounds):
                pairs.append((ours(arguments, directory, load, arguments.queue), fio(arguments, directory, load)))
            mine, other = (statistics.median(pair[who][0] for pair in pairs) for who in (0, 1))
            my_cpu, other_cpu = (statistics.median(pair[who][1] for pair in pairs) for who in (0, 1))
            print(f"{load:6} {mine / 1e9:7.2f} GB/s {other / 1e9:7.2f} GB/s {mine / other:6.2f}   {my_cpu:24.0f} us "
                  f"{other_cpu:5.0f} us",
                  flush=True)
            if mine < AIM * other:
                missed.append(load)
    if missed:
        print(f"below {AIM:.0%} of fio: {', '.join(missed)}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
