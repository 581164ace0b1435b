"""Ranks on two hosts, which are network namespaces of one."""
import os
import shutil
import subprocess
import unittest

from harness import MIB, SANITIZED, Run, arguments, begin, finish, read_safetensors
from ranks.launched_ranks import LaunchedTest
from ranks.small_ranks import variables

HOSTS = [f"spillway-{os.getpid()}-{host}" for host in (0, 1)]
ADDRESSES = ("10.213.77.1", "10.213.77.2")


def ip(*words):
    return subprocess.run(["ip", *words], capture_output=True, text=True, check=False)


def make_hosts():
    """Two namespaces and a cable between them. Returns why there are none; None: there are."""
    if shutil.which("ip") is None:
        return "there is no ip (iproute2)"
    cable = [f"spw{os.getpid() % 100000}{end}" for end in "ab"]
    commands = [("netns", "add", host) for host in HOSTS]
    commands.append(("link", "add", cable[0], "netns", HOSTS[0], "type", "veth", "peer", "name", cable[1], "netns",
                     HOSTS[1]))
    for host, end, address in zip(HOSTS, cable, ADDRESSES):
        commands += [("-n", host, "address", "add", f"{address}/24", "dev", end),
                     ("-n", host, "link", "set", end, "up"), ("-n", host, "link", "set", "lo", "up")]
    for command in commands:
        done = ip(*command)
        if done.returncode != 0:
            return f"ip {' '.join(command)}: {done.stderr.strip()}"
    return None


class Hosts(LaunchedTest):
    """Two hosts are two network namespaces: rank 0 is found by its address, and the bits are those of threads."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for host in HOSTS:
            cls.addClassCleanup(ip, "netns", "delete", host)
        why_not = make_hosts()
        if why_not:
            raise unittest.SkipTest(why_not)

    def by_hosts(self, flags, prefix_of=None):
        started = {}
        for rank, host in reversed(list(enumerate(HOSTS))):
            environment = {**variables(rank, 2, 29501), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1",
                           "MASTER_ADDR": ADDRESSES[0]}
            prefix = ("ip", "netns", "exec", host, *(prefix_of or {}).get(rank, ()))
            started[rank] = begin("train", *arguments(flags), prefix=prefix, environment=environment)
        return [finish(started[rank]) for rank in (0, 1)]

    def test_the_bits_of_threads(self):
        for stage in (0, 3):
            with self.subTest(stage=stage):
                save = self.fresh()
                for outcome in self.by_hosts(self.flags(save=save, zero_stage=stage)):
                    self.assertEqual(outcome.code, 0, str(outcome))
                ours, threads = Run(save), self.train(self.flags(ranks=2, zero_stage=stage))
                self.assertEqual(ours.curve(), threads.curve())
                self.assertEqual(read_safetensors(ours.state_file()), read_safetensors(threads.state_file()))

    @unittest.skipIf(SANITIZED, "sanitizers take terabytes of address space")
    def test_the_host_with_less_memory(self):
        save = self.fresh()
        limited = ("sh", "-c", 'ulimit -v 2000000; exec "$@"', "sh")
        for outcome in self.by_hosts(self.flags(save=save), prefix_of={1: limited}):
            self.assertEqual(outcome.code, 0, str(outcome))
            if outcome.out:
                self.assertIn(f"note: rank 1 ({ADDRESSES[1]}) has", outcome.out)
        self.assertLess(Run(save).plan["tiers"]["device"]["budget_bytes"], 2048 * MIB)

    def test_durable_steps_are_refused(self):
        """Rank 0 cannot read the other host's --nvme."""
        for outcome in self.by_hosts(self.flags(durability="step", nvme=self.fresh_directory("nvme"))):
            self.check_refusal(outcome, 2, "--durability: found step with ranks on several hosts")


if __name__ == "__main__":
    unittest.main()
