"""The system's requests to a run, by signals, and its limits: of files, memory, threads, locks."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
import unittest

from harness import (
    PATIENCE,
    SANITIZED,
    CommandTest,
    Golden,
    Run,
    arguments,
    begin,
    finish,
    has_ended,
    run,
    send_signal,
    wait_for_steps,
)

LIMITED = ("import os, resource, sys; resource.setrlimit(getattr(resource, sys.argv[1]), (int(sys.argv[2]),) * 2);"
           "os.execv(sys.argv[3], sys.argv[3:])")
WITHOUT_LOCKS = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
int flock(int fd, int operation) { (void)fd, (void)operation; errno = ENOSYS; return -1; }
static int locked(int fd, int command, void* argument) {
  int (*next)(int, int, ...) = (int (*)(int, int, ...))dlsym(RTLD_NEXT, "fcntl64");
  if (command == F_OFD_SETLK) { errno = ENOLCK; return -1; }
  return next(fd, command, argument);
}
#define PASS(name) \\
  int name(int fd, int command, ...) { \\
    va_list rest; \\
    va_start(rest, command); \\
    void* argument = va_arg(rest, void*); \\
    va_end(rest); \\
    return locked(fd, command, argument); \\
  }
PASS(fcntl)
PASS(fcntl64)
"""


def limited(name, value):
    return (sys.executable, "-c", LIMITED, name, str(value))


class Signals(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.golden = Golden("gpt2", cls.directory)

    def ended(self, process, within):
        began = time.monotonic()
        outcome = finish(process)
        self.assertEqual(outcome.code, 130, str(outcome))
        self.assertNotIn("error:", outcome.err)
        self.assertLess(time.monotonic() - began, within * PATIENCE, str(outcome))
        return outcome

    def test_a_closed_terminal_and_a_warning_save(self):
        for number in (signal.SIGHUP, signal.SIGUSR1):
            with self.subTest(number.name):
                flags = self.golden.flags(save=self.fresh(), train_iters=100000, lr_decay_iters=100000)
                process = begin("train", *arguments(flags))
                wait_for_steps(flags["save"], 3, process)
                send_signal(process, number)
                self.ended(process, 10)
                stopped = Run(flags["save"])
                self.assertEqual(stopped.steps(), [stopped.log[-1]["step"]])

    def test_within_an_evaluation(self):
        lines = self.golden.data.read_text()
        long = self.fresh("long").with_suffix(".jsonl")
        long.write_text(lines * 4000)
        flags = self.golden.flags(save=self.fresh(), train_iters=50, eval_data=long, eval_interval=2)
        process = begin("train", *arguments(flags))
        wait_for_steps(flags["save"], 1, process)
        time.sleep(1)
        send_signal(process, signal.SIGTERM)
        self.ended(process, 10)
        stopped = Run(flags["save"])
        self.assertEqual(stopped.steps(), [2])
        self.assertNotIn("eval_loss", stopped.log[-1])

    def test_while_data_are_read(self):
        long = self.fresh("long").with_suffix(".jsonl")
        long.write_text(self.golden.data.read_text() * 20000)
        flags = self.golden.flags(save=self.fresh(), data=long)
        process = begin("train", *arguments(flags))
        time.sleep(1)
        self.assertFalse(has_ended(process))
        send_signal(process, signal.SIGTERM)
        self.ended(process, 5)
        self.assertFalse(flags["save"].exists())

    def test_while_the_machine_is_measured(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            with self.subTest(number.name):
                nvme = self.fresh_directory("nvme")
                cache = self.fresh("cache")
                flags = self.golden.flags(profile=None, nvme=nvme, save=self.fresh())
                process = begin("train", *arguments(flags), environment={"XDG_CACHE_HOME": str(cache)})
                time.sleep(2 * PATIENCE)
                self.assertFalse(has_ended(process))
                self.assertFalse((nvme / "spillway-store.bin").exists(), "what is measured has no name")
                send_signal(process, number)
                if number == signal.SIGKILL:
                    finish(process)
                else:
                    outcome = self.ended(process, 5)
                    self.assertIn("was not measured to its end", outcome.err)
                    self.assertEqual(os.listdir(nvme), [])
                self.assertFalse((nvme / "spillway-store.bin").exists())


class Limits(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.golden = Golden("gpt2", cls.directory)

    def refused(self, prefix, codes, word, **changes):
        outcome = run("train", *arguments(self.golden.flags(save=self.fresh(), **changes)), prefix=prefix)
        self.assertIn(outcome.code, codes, str(outcome))
        self.check_refusal(outcome, outcome.code, "")
        self.assertIn(word, outcome.err)
        self.assertNotIn("bug", outcome.err)

    def test_of_files(self):
        self.refused(limited("RLIMIT_FSIZE", 60000), (4,), "ulimit -f")
        self.refused(limited("RLIMIT_FSIZE", 60000), (4,), "ulimit -f", nvme=self.fresh_directory("nvme"),
                     parameter_tier="nvme", optimizer_tier="nvme")

    @unittest.skipIf(SANITIZED, "sanitizers take terabytes of address space")
    def test_of_memory(self):
        for mebibytes in (150, 200, 300, 400, 600):
            outcome = run("train", *arguments(self.golden.flags(save=self.fresh())),
                          prefix=limited("RLIMIT_AS", mebibytes << 20))
            self.assertIn(outcome.code, (0, 3, 4, 127), str(outcome))
            self.assertNotIn("bug", outcome.err)
            if outcome.code in (3, 4):
                self.assertIn("ulimit -v", outcome.err)

    def test_of_threads(self):
        if os.getuid() == 0:
            prefix = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups",
                      *limited("RLIMIT_NPROC", 3))
            if shutil.which("setpriv") is None:
                self.skipTest("no setpriv")
            os.chmod(self.directory, 0o777)
            place = self.fresh_directory("open")
            os.chmod(place, 0o777)
        else:
            prefix, place = limited("RLIMIT_NPROC", 3), self.fresh_directory("open")
        outcome = run("train", *arguments(self.golden.flags(save=place / "run")), prefix=prefix,
                      environment={"XDG_CACHE_HOME": str(place)})
        if "Permission denied" in outcome.err:
            self.skipTest("another user cannot get here")
        self.check_refusal(outcome, 3, "ulimit -u")

    def test_threads_may_be_asked_for(self):
        alone = self.train(self.golden.flags(train_iters=2, threads=1))
        several = self.train(self.golden.flags(train_iters=2, threads=3))
        self.assertEqual(alone.curve(), several.curve())
        self.check_refusal(run("train", *arguments(self.golden.flags(threads=0))), 2, "--threads")

    @unittest.skipIf(SANITIZED or shutil.which("cc") is None, "needs a compiler, and no sanitizer before it")
    def test_a_file_system_without_locks(self):
        place = self.fresh_directory("shim")
        (place / "shim.c").write_text(WITHOUT_LOCKS)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", place / "shim.so", place / "shim.c", "-ldl"], check=True)
        environment = {"LD_PRELOAD": str(place / "shim.so")}
        flags = self.golden.flags(save=self.fresh(), train_iters=100000, lr_decay_iters=100000, save_interval=1,
                                  keep_last=2)
        process = begin("train", *arguments(flags), environment=environment)
        wait_for_steps(flags["save"], 4, process)
        second = run("train", *arguments({"load": flags["save"], "save": flags["save"]}), environment=environment)
        send_signal(process, signal.SIGTERM)
        first = finish(process)
        self.assertEqual(first.code, 130, str(first))
        self.assertIn("has no locks", first.out)
        self.check_refusal(second, 2, "another run is using")
        done = Run(flags["save"]).log[-1]["step"]
        on = run("train", *arguments({"load": flags["save"], "save": flags["save"], "train_iters": done + 1}),
                 environment=environment)
        self.assertEqual(on.code, 0, str(on))

    def test_a_directory_is_named_as_a_size_is(self):
        for name in ("lr=0.001,seed=3", "nv=1", "n=2GiB"):
            with self.subTest(name):
                nvme = self.fresh_directory("nvme") / name
                nvme.mkdir()
                tiers = {"parameter_tier": "nvme", "optimizer_tier": "nvme", "durability": "checkpoint"}
                run_ = self.train(self.golden.flags(nvme=nvme, train_iters=2, **tiers))
                self.assertGreater(run_.plan["tiers"]["nvme"]["peak_bytes"], 0)
                self.assertEqual(self.train({"load": run_.path, "train_iters": 3}).steps(), [3])
                self.assertEqual(sorted(path.name for path in pathlib.Path(nvme).parent.iterdir()), [name])
                sized = self.train(self.golden.flags(nvme=f"{nvme}=64MiB", train_iters=1, **tiers))
                self.assertEqual(json.loads((sized.path / "run.json").read_text())["nvme"], [f"{nvme}=64MiB"])


if __name__ == "__main__":
    unittest.main()
