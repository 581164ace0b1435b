#!/usr/bin/env python3
"""Starts a command as several ranks on this host, in torchrun's variables, and ends with the last of them.

    tools/bench/local_ranks.py --ranks N COMMAND...     N processes
    tools/bench/local_ranks.py COMMAND...               becomes COMMAND, which then ends with its parent

A rank is killed when its parent ends, so whoever measures ranks need only kill the parent.
"""

import ctypes
import os
import signal
import socket
import subprocess
import sys


def end_with_parent():
    set_death_signal = 1  # PR_SET_PDEATHSIG
    ctypes.CDLL(None).prctl(set_death_signal, signal.SIGKILL)


def free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


def main():
    if sys.argv[1] != "--ranks":
        end_with_parent()
        os.execv(sys.argv[1], sys.argv[1:])
    ranks, command = int(sys.argv[2]), sys.argv[3:]
    port = str(free_port() - 1)  # rank 0 listens on the next one
    processes = []
    for rank in range(ranks):
        variables = {"RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank),
                     "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        processes.append(subprocess.Popen(command, env={**os.environ, **variables}, preexec_fn=end_with_parent))
    return max([process.wait() for process in processes], key=abs)


if __name__ == "__main__":
    sys.exit(main())
