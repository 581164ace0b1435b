"""Ranks that are processes, as launchers start them: torchrun's, Open MPI's, MPICH's and Slurm's variables, bytes over
TCP, the bits of ranks that are threads; one that is killed or otherwise minded ends all."""
import json
import os
import shutil
import signal
import socket
import time
import unittest

from harness import PATIENCE, Run, arguments, finish, has_ended, run, send_signal, wait_for_steps
from ranks.launched_ranks import KilledTest, LaunchedTest, finish_all, launch
from ranks.small_ranks import LAUNCHERS, free_port, variables


class Launched(LaunchedTest):
    def test_the_bits_of_threads(self):
        for ranks, stage, group, tier in ((2, 0, None, "device"), (2, 3, None, "nvme"), (4, 1, 2, "device"),
                                          (4, 3, 2, "nvme"), (4, 2, None, "nvme")):
            with self.subTest(ranks=ranks, stage=stage, group=group, tier=tier):
                flags = {"zero_stage": stage, "zero_group_size": group, "parameter_tier": tier, "optimizer_tier": tier,
                         "nvme": self.nvme}
                threads = self.train(self.flags(ranks=ranks, **flags))
                ours = self.launched(ranks, **flags)
                self.check_same(ours, threads)
                self.assertEqual([record["network_bytes"] for record in ours.log],
                                 [record["network_bytes"] for record in threads.log])
                self.assertIn("as the closed form has it", ours.outcome.out)
                self.assertEqual(os.listdir(self.nvme), [])

    def test_every_launcher(self):
        threads = self.train(self.flags(ranks=2))
        for launcher in LAUNCHERS:
            with self.subTest(launcher=launcher):
                self.check_same(self.launched(2, launcher), threads)

    def test_sums_of_the_textbooks(self):
        for changes in ({"collectives": "parameter-server"}, {"reduce_algorithm": "ring"}):
            self.check_same(self.launched(4, **changes), self.train(self.flags(ranks=4, **changes)))

    def test_goes_on_with_threads_and_back(self):
        first = self.launched(4, zero_stage=3, train_iters=2)
        self.train({"load": first.path, "save": first.path, "train_iters": 3})
        for outcome in finish_all(launch({"load": first.path, "save": first.path, "train_iters": 5}, 4)):
            self.assertEqual(outcome.code, 0, str(outcome))
        self.check_same(Run(first.path), self.train(self.flags(ranks=4)))

    def test_evaluates_and_samples(self):
        flags = {"eval_data": self.golden.data, "eval_interval": 2, "tokenizer": "bytes", "sample_interval": 2,
                 "sample_prompt": "a", "sample_tokens": 3, "zero_stage": 3}
        ours, threads = self.launched(2, **flags), self.train(self.flags(ranks=2, **flags))
        for key in ("eval_loss", "sample"):
            self.assertEqual([record.get(key) for record in ours.log], [record.get(key) for record in threads.log])

    def test_others_need_the_configuration_alone(self):
        folders = {rank: self.fresh_directory() for rank in (0, 1)}
        shutil.copytree(self.golden.model, folders[0] / "model")
        (folders[1] / "model").mkdir()
        shutil.copy(self.golden.model / "config.json", folders[1] / "model")
        save = self.fresh()
        for outcome in finish_all(launch(self.flags(model="model", save=save), 2, folder_of=folders)):
            self.assertEqual(outcome.code, 0, str(outcome))
        self.check_same(Run(save), self.train(self.flags(ranks=2)))

    def test_one_process_needs_no_others(self):
        outcome = run("train", *arguments(self.flags(train_iters=1)), environment=variables(0, 1, free_port()))
        self.assertEqual(outcome.code, 0, str(outcome))


class LaunchedEnds(LaunchedTest):
    """All end within seconds, and rank 0 says which rank and why."""

    def begun(self, ranks=2, **changes):
        flags = {"save": self.fresh(), **self.flags(train_iters=100000, **changes)}
        processes = launch(flags, ranks)
        wait_for_steps(flags["save"], 3, processes[0])
        self.assertFalse(any(map(has_ended, processes)))
        return flags, processes

    def test_a_rank_that_is_killed(self):
        for ranks, killed in ((2, 1), (4, 2)):
            flags, processes = self.begun(ranks, zero_stage=3)
            send_signal(processes[killed], signal.SIGKILL)
            began = time.monotonic()
            outcomes = finish_all(processes)
            self.assertLess(time.monotonic() - began, 10 * PATIENCE)
            self.check_refusal(outcomes[0], 4, f"rank {killed} (127.0.0.1)")
            for rank in range(1, ranks):
                if rank != killed:
                    self.assertEqual((outcomes[rank].code, outcomes[rank].err), (4, ""), str(outcomes[rank]))

    def test_rank_0_is_killed(self):
        _, processes = self.begun()
        send_signal(processes[0], signal.SIGKILL)
        outcomes = finish_all(processes)
        self.check_refusal(outcomes[1], 4, "rank 0 (127.0.0.1)")

    def test_slow_a_rank_that_does_not_answer(self):
        """A process that is stopped keeps its connections: 30 s of silence count as its end."""
        _, processes = self.begun()
        send_signal(processes[1], signal.SIGSTOP)
        outcome = finish(processes[0])
        send_signal(processes[1], signal.SIGCONT)
        self.check_refusal(outcome, 4, "rank 1 (127.0.0.1) has not answered for 30 s")
        self.assertEqual(finish(processes[1]).code, 4)

    def test_ended_by_the_launcher_after_a_death(self):
        """What a launcher does to the others starts no save of a state that is not whole."""
        flags, processes = self.begun(zero_stage=3)
        send_signal(processes[1], signal.SIGKILL)
        send_signal(processes[0], signal.SIGTERM)
        outcomes = finish_all(processes)
        self.check_refusal(outcomes[0], 4, "rank 1 (127.0.0.1)")
        checkpoints = flags["save"] / "checkpoints"
        self.assertEqual(os.listdir(checkpoints) if checkpoints.exists() else [], [])

    def test_interrupted(self):
        """A launcher sends its signals to all: rank 0 decides."""
        flags, processes = self.begun()
        for process in processes:
            send_signal(process, signal.SIGINT)
        for outcome in finish_all(processes):
            self.assertEqual(outcome.code, 130, str(outcome))
        stopped = Run(flags["save"])
        self.assertEqual(stopped.steps()[-1], stopped.log[-1]["step"])


class LaunchedDurably(KilledTest):
    def test_a_random_rank_is_killed(self):
        self.kill_ranks(kills=15, ranks_of=lambda run: 3)

    def test_slow_killed_two_hundred_times(self):
        self.kill_ranks(kills=200, ranks_of=lambda run: (2, 4)[run % 2])


class LaunchedRefused(LaunchedTest):
    def refused(self, flags_of, ranks, fragment):
        for outcome in finish_all(launch(flags_of, ranks)):
            self.check_refusal(outcome, 2, fragment)

    def test_ranks_that_disagree(self):
        self.refused(lambda rank: self.flags(lr=1e-3 * (1 + rank)), 2, "--lr: rank 1 has 0.002, and rank 0 has 0.001")

    def test_another_model_at_the_same_path(self):
        folders = {rank: self.fresh_directory() for rank in (0, 1)}
        for folder in folders.values():
            shutil.copytree(self.golden.model, folder / "model")
        file = folders[1] / "model" / "config.json"
        config = json.loads(file.read_text())
        for changes, difference in (({"rms_norm_eps": 1e-3}, "norm epsilon: rank 1 has 0.001, and rank 0 has 1e-06"),
                                    ({"vocab_size": 160}, "vocabulary: rank 1 has 160, and rank 0 has 320")):
            file.write_text(json.dumps({**config, **changes}))
            outcomes = finish_all(launch(self.flags(model="model"), 2, folder_of=folders))
            self.check_refusal(outcomes[0], 2, "--model: " + difference)
            self.assertEqual((outcomes[1].code, outcomes[1].err), (2, ""))
        file.unlink()
        self.check_refusal(finish_all(launch(self.flags(model="model"), 2, folder_of=folders))[0], 2,
                           "rank 1 (127.0.0.1): model: has no config.json")

    def test_a_rank_that_never_comes(self):
        outcome = run("train", *arguments(self.flags(rendezvous_timeout=1)), environment=variables(0, 2, free_port()))
        self.check_refusal(outcome, 2, "rank 1 did not come within 1 s")
        outcome = run("train", *arguments(self.flags(rendezvous_timeout=1)), environment=variables(1, 2, free_port()))
        self.check_refusal(outcome, 4, "cannot be reached")

    def test_no_launcher(self):
        outcome = run("train", *arguments(self.flags(ranks=2, collectives="tcp")))
        self.check_refusal(outcome, 2, "--collectives: found tcp")

    def test_a_port_in_use(self):
        with socket.socket() as taken:
            taken.bind(("0.0.0.0", 0))
            taken.listen()
            outcome = run("train", *arguments(self.flags()), environment=variables(0, 2, taken.getsockname()[1]))
        self.check_refusal(outcome, 2, "cannot be listened on")

    def test_what_cannot_be(self):
        for environment, fragment in (({"RANK": "2", "WORLD_SIZE": "2"}, "RANK"),
                                      ({"RANK": "x", "WORLD_SIZE": "2"}, "RANK"),
                                      ({"RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1"}, "MASTER_ADDR")):
            self.check_refusal(run("train", *arguments(self.flags()), environment=environment), 2, fragment)
        for changes, fragment in (({"ranks": 3}, "--ranks: found 3"), ({"collectives": "threads"}, "--collectives")):
            outcome = run("train", *arguments(self.flags(**changes)), environment=variables(0, 2, free_port()))
            self.check_refusal(outcome, 2, fragment)


if __name__ == "__main__":
    unittest.main()
