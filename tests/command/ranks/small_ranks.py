"""What tests of ranks share: a small model to train, and the variables by which launchers say who a rank is."""
import socket

from harness import CommandTest, Golden

LAUNCHERS = {
    "torchrun": ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    "Open MPI": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                 "OMPI_COMM_WORLD_LOCAL_SIZE"),
    "MPICH": ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    "Slurm": ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"),
}


def free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


def variables(rank, ranks, port, launcher="torchrun"):
    names = LAUNCHERS[launcher]
    values = dict(zip(names, (str(rank), str(ranks), str(rank), str(ranks))))
    return {**values, "MASTER_PORT": str(port - 1)}


class SmallRanks(CommandTest):
    COMMON = {}  # flags of all tests of a class

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.golden = Golden("qwen2", cls.directory)
        cls.nvme = cls.fresh_directory("nvme")

    def flags(self, **changes):
        return self.golden.flags(**{"dtype": "bf16", "micro_batch_size": 1, "global_batch_size": 4, **self.COMMON,
                                    **changes})
