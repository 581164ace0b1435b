"""Control groups that limit the memory of a command. Not here: the expectations (the tests that use them)."""
import os
import pathlib
import time


class ControlGroup:
    """A group with a memory limit, by the first or second version of the interface; `error` says why there is none."""

    made = 0

    def __init__(self, limit):
        ControlGroup.made += 1
        self.error, self.path = "no control groups with a memory controller", None
        for root, file in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
            path = pathlib.Path(root) / f"spillway_test_{os.getpid()}_{ControlGroup.made}"
            try:
                path.mkdir()
            except OSError as error:
                self.error = str(error)
                continue
            self.path = path
            try:
                (path / file).write_text(str(limit))
                for swap in ("memory.memsw.limit_in_bytes", "memory.swap.max"):
                    if (path / swap).exists():
                        (path / swap).write_text(str(limit) if "memsw" in swap else "0")
                self.error = None
                return
            except OSError as error:
                self.error = str(error)
                self.close()

    def close(self):
        for _ in range(100):  # the kernel may take a moment to release the process that was inside
            try:
                self.path.rmdir()
                break
            except OSError:
                time.sleep(0.02)

    def prefix(self):
        """The words before the command that run it inside."""
        return ["sh", "-c", f'echo $$ > {self.path}/cgroup.procs && exec "$@"', "sh"]
