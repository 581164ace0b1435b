#!/usr/bin/env python3
"""Text to tokens on one thread: compares spillway tokenize with the `tokenizers` package, if it is installed.

usage: tokenizer_bench.py SPILLWAY TOKENIZER.json TEXT     (processor time, the best of three; loading is taken off
                                                           both)
"""
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
spillway, tokenizer, text = sys.argv[1:]


def processor_seconds(path):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([spillway, "tokenize", "--threads", "1", "--tokenizer", tokenizer, "--data", path, "--out",
                    f"{holder}/t.bin", "--end-of-text", "none"], check=True, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


size = pathlib.Path(text).stat().st_size
with tempfile.TemporaryDirectory() as holder:
    empty = pathlib.Path(holder, "empty.txt")
    empty.write_text("")
    load = min(processor_seconds(empty) for _ in range(3))
    ours = min(processor_seconds(text) for _ in range(3)) - load
print(f"spillway    {size / ours / 1e6:8.2f} MB/s   ({ours:.2f} s for {size / 1e6:.1f} MB; loading {load:.2f} s)")
try:
    from tokenizers import Tokenizer
except ImportError:
    sys.exit("tokenizers is not installed: nothing to compare with")
reference = Tokenizer.from_file(tokenizer)
content = open(text, newline="").read()
theirs = []
for _ in range(3):
    start = time.process_time()
    reference.encode(content, add_special_tokens=False)
    theirs.append(time.process_time() - start)
print(f"tokenizers  {size / min(theirs) / 1e6:8.2f} MB/s   ({min(theirs):.2f} s)")
print(f"ratio       {min(theirs) / ours:8.2f}")
