"""Small file systems, to fill. Not here: the expectations (the tests that use them)."""
import subprocess


class Mounted:
    """A small file system of its own, if the test may mount one."""

    def __init__(self, test, place, options):
        self.place = place
        made = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(place)], capture_output=True,
                              text=True)
        if made.returncode != 0:
            test.skipTest(f"no permission to mount a tmpfs: {made.stderr.strip()}")

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        subprocess.run(["umount", str(self.place)], check=True)
