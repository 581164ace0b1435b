"""Checks README.md against the program: its commands, its flags, and the figures of its recipes.

Not here: its first two scripts, except the last words of the first one; benchmarks (tools/bench/README.md).
"""
import pathlib
import re
import shlex
import subprocess
import sys
import unittest

from harness import CommandTest, Golden, run

ROOT = pathlib.Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
# Figures are rounded there, and a plan that becomes a little better need not change README.
NEAR = 0.03
MODELS = {"path/to/Qwen2.5-0.5B": "qwen2.5-0.5b", "path/to/Llama-3.1-8B": "llama-3.1-8b"}
LAPTOP, DESKTOP = ["--profile", "laptop"], ["--profile", "rtx-4090-desktop"]


def recipes():
    """The words of each `spillway train` with a model in README, after the command."""
    text = README.replace("\\\n", " ")
    commands = re.findall(r"(?m)^    build/release/spillway train .*$", text)
    return [shlex.split(line)[2:] for line in commands if "--model" in line]


def number(pattern, text):
    found = re.search(pattern, re.sub(r"\s+", " ", text))
    assert found, f"{pattern} is not in {text}"
    return float(found.group(1).replace(",", ""))


class Readme(CommandTest):
    def plan_of(self, machine, words, *more):
        """What `plan` says of a recipe on README's machine."""
        data = words.index("--data")
        words = [MODELS.get(word, word) for word in words[:data] + words[data + 2:]]
        words[words.index("--nvme") + 1] = "/not/there=4TiB"
        outcome = run("plan", *words, *machine, *more)
        self.assertEqual(outcome.code, 0, outcome.err)
        return outcome.out

    def planned(self, machine, words, *more):
        """Its step in s, GiB in --nvme, GiB of a checkpoint, TB in 1,000 steps."""
        said = self.plan_of(machine, words, *more)
        patterns = (r"step ([\d.]+) s,", r"disk ([\d.]+) GiB in --nvme", r"([\d.]+) GiB in --save for a checkpoint",
                    r"wear ([\d.]+) TB")
        return [number(pattern, said) for pattern in patterns]

    def check(self, planned, *said):
        for is_so, figure in zip(planned, said, strict=True):
            self.assertLessEqual(abs(figure - is_so), NEAR * is_so, (planned, said))

    def test_the_figures_of_the_recipes(self):
        laptop, server, desktop, sockets, adapters, gpus = recipes()
        for machine, recipe in ((LAPTOP, sockets), (LAPTOP, adapters), (["--profile", "h100-node-8"], gpus)):
            self.assertIn("step ", self.plan_of(machine, recipe))
        figures = re.findall(r"(?s)By its plan, with .*?\n\n", README)
        step, disk = r": ([\d.]+) s a step", r"([\d.]+) GiB in `--nvme`"
        durable, wear = r"durable, ([\d.]+) GiB for a checkpoint", r"([\d.]+) TB in 1,000 steps"
        for machine, recipe, text, checkpoint, written in (
                (LAPTOP, laptop, figures[0], r"and ([\d.]+) GiB for a checkpoint",
                 r"([\d.]+) TB written in 1,000 steps"),
                (LAPTOP, server, figures[1], durable, wear), (DESKTOP, desktop, figures[2], durable, wear)):
            said = (number(pattern, text) for pattern in (step, disk, checkpoint, written))
            self.check(self.planned(machine, recipe), *said)
        for machine, recipe, text in ((LAPTOP, server, figures[1]), (DESKTOP, desktop, figures[2])):
            compact = re.search(r"With `(--state compact --durability checkpoint)`: "
                                r"([\d.]+) s, ([\d.]+) GiB, ([\d.]+) GiB, ([\d.]+) TB", re.sub(r"\s+", " ", text))
            self.check(self.planned(machine, recipe, *compact.group(1).split()), *map(float, compact.groups()[1:]))

    def test_the_summary_that_quickstart_ends_with(self):
        golden = Golden("llama3_rope", self.directory)
        # Several turns of the program, and one turn; the picture shows traffic to NVMe.
        for micro_batches in (4, 1):
            flags = golden.flags(train_iters=3, micro_batch_size=1, global_batch_size=micro_batches, order="horizontal",
                                 optimizer_tier="nvme", nvme=self.fresh_directory())
            run_ = self.train(flags)
            script = [sys.executable, ROOT / "tools/run_summary", run_.path]
            told = subprocess.run(script, capture_output=True, text=True)
            self.assertEqual(told.returncode, 0, told.stderr)
            self.assertIn("What happened in 3 steps", told.stdout)
            for title in ("as planned, ", "as it ran \\(step 3\\), "):
                rows = re.search(rf"(?s){title}[\d.]+ s\n(.*?)\n\S", told.stdout).group(1)
                for lane, letters in (("compute", "fb"), ("nvme_read", "r"), ("nvme_write", "w"), ("update", "u")):
                    row = re.search(rf"(?m)^  {lane} +\d+ %  (.*)$", rows).group(1)
                    self.assertTrue(any(letter in row for letter in letters), rows)

    def test_its_commands_and_flags_are_there(self):
        table = README.split("| command |")[1].split("\n\n")[0]
        rows = re.findall(r"(?m)^\| ((?:`\w+`(?:, )?)+) \|", table)
        commands = {word for row in rows for word in re.findall(r"\w+", row)}
        self.assertEqual(commands, set(re.findall(r"(?m)^  ([a-z]+)  ", run("--help").out)))
        helped = "".join(run(command, "--help").out for command in commands)
        of_scripts = {"slow", "preset", "match", "python", "no-install", "write", "build"}
        of_launchers = {"no-python", "nproc-per-node", "bind-to", "nnodes", "rdzv-backend", "rdzv-endpoint"}
        for flag in set(re.findall(r"--([a-z][a-z0-9-]+)", README)) - of_scripts - of_launchers:
            self.assertRegex(helped, rf"(?m)^  --{flag}\b")


if __name__ == "__main__":
    unittest.main()
