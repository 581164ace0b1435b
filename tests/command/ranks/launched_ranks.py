"""Ranks that are processes: begun as a launcher begins them, compared with threads, and killed until they have done
their steps. Not here: the expectations (the tests that use it)."""
import os
import random
import signal
import time

from durable_runs import STEPS, DurableTest
from harness import Run, arguments, begin, finish, has_ended, read_safetensors, send_signal, wait_for_steps
from ranks.small_ranks import SmallRanks, free_port, variables


def launch(flags_of, ranks, launcher="torchrun", prefix_of=None, folder_of=None, **environment):
    """Begins the ranks, rank 0 last: who comes early waits. flags_of: flags, or a function of the rank; prefix_of: the
    words before the command of some ranks; folder_of: where they begin."""
    port = free_port()
    started = {}
    for rank in reversed(range(ranks)):
        flags = flags_of(rank) if callable(flags_of) else flags_of
        started[rank] = begin("train", *arguments(flags), prefix=(prefix_of or {}).get(rank, ()),
                              cwd=(folder_of or {}).get(rank),
                              environment={**variables(rank, ranks, port, launcher), **environment})
    return [started[rank] for rank in range(ranks)]


def finish_all(processes, timeout=120):
    return [finish(process, timeout) for process in processes]


class LaunchedTest(SmallRanks):
    COMMON = {"train_iters": 5}

    def launched(self, ranks, launcher="torchrun", **changes):
        flags = {"save": self.fresh(), **self.flags(**changes)}
        outcomes = finish_all(launch(flags, ranks, launcher))
        for outcome in outcomes:
            self.assertEqual(outcome.code, 0, str(outcome))
        for outcome in outcomes[1:]:
            self.assertEqual((outcome.out, outcome.err), ("", ""), "only rank 0 prints")
        return Run(flags["save"], outcomes[0])

    def check_same(self, ours, theirs):
        self.assertEqual(ours.curve(), theirs.curve())
        self.assertEqual(read_safetensors(ours.state_file()), read_safetensors(theirs.state_file()))


class Processes:
    """Ranks that tests start themselves, as torchrun does."""

    def __init__(self, flags, ranks):
        self.processes = launch(flags, ranks)

    @property
    def first(self):
        return self.processes[0]

    def kill(self, rank):
        send_signal(self.processes[rank], signal.SIGKILL)

    def finish(self):
        """How rank 0 ended, once all have; `left`: processes that are still there."""
        outcome = finish_all(self.processes)[0]
        outcome.left = []
        return outcome


class KilledTest(DurableTest):
    START = Processes  # or a class like it

    def kill_ranks(self, kills, ranks_of):
        """So many kills of a random rank: up to three in a run, at instants from its very start on. Each run then goes
        on to its end."""
        chance, done, number = random.Random(11), 0, 0
        while done < kills:
            ranks = ranks_of(number)
            (nvme,) = self.nvme()
            # A rank that is killed before it has met the others is waited for.
            flags = self.flags(save=self.fresh(), nvme=nvme, zero_stage=(0, 2, 3)[number % 3], parameter_tier="nvme",
                               optimizer_tier="nvme", rendezvous_timeout=5, global_batch_size=ranks)
            words, number = flags, number + 1
            for attempt in range(8):
                started = self.START(words, ranks)
                if attempt < 3:
                    wait_for_steps(flags["save"], chance.randrange(0, STEPS), started.first)
                    time.sleep(chance.random() * 0.05)
                    done += not has_ended(started.first)
                    started.kill(chance.randrange(ranks))
                outcome = started.finish()
                self.assertEqual(outcome.left, [], str(outcome))
                if outcome.code == 0:
                    break
                if (flags["save"] / "run.json").exists():
                    words = {"load": flags["save"], "save": flags["save"]}
            self.assertEqual(outcome.code, 0, str(outcome))
            on, whole = Run(flags["save"]), self.whole(ranks=ranks, global_batch_size=ranks)
            self.assertEqual(on.curve(), whole.curve())
            self.assertEqual(read_safetensors(on.state_file()), read_safetensors(whole.state_file()))
            self.assertEqual(os.listdir(nvme), [])
        print(f"{done} kills over {number} runs")
