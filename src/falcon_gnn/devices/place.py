"""Which of several processes this is, as a launcher says: torchrun, or our own, which is torchrun's too."""

import os
from dataclasses import dataclass

from falcon_gnn.checks import check_flag, check_whole
from falcon_gnn.errors import OptionError

STOP_FILE_VARIABLE = "FALCON_GNN_STOP_FILE"
"""Environment variable of our launcher: a file whose appearance asks the training to stop after the epoch."""


@dataclass(frozen=True)
class DeviceOptions:
    """On what a model is trained.

    Attributes:
        devices: Processes of one device each, on this machine; more than 1 for the SIGN models and ``cluster-gcn``.
        synchronize_batch_norm: Take batch norm's moments over the global batch, not over each device's share.
    """

    devices: int = 1
    synchronize_batch_norm: bool = False

    def __post_init__(self) -> None:
        """Check the number.

        Raises:
            OptionError: If it is below 1.
        """
        check_whole("devices", self.devices, 1)
        check_flag("synchronize_batch_norm", self.synchronize_batch_norm)


@dataclass(frozen=True)
class Place:
    """Which of several devices a process trains on.

    Attributes:
        rank: Its number among all processes, from 0.
        num_devices: W, processes in all.
        local_rank: Its number among those of its machine, which is its device's number too.
    """

    rank: int
    num_devices: int
    local_rank: int


def is_launched() -> bool:
    """Whether a launcher of torch started this process as one of a group."""
    return "TORCHELASTIC_RUN_ID" in os.environ and "RANK" in os.environ


def read_place() -> Place:
    """Return which process the launcher says this is.

    Raises:
        OptionError: If no launcher started it.
    """
    try:
        rank, num_devices, local_rank = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    except KeyError as error:
        msg = (
            f"a launcher must start a training on several devices, got no {error} in the environment. Run: torchrun "
            "--nproc-per-node 2 -m falcon_gnn train ..., or falcon-gnn train --devices 2 ..."
        )
        raise OptionError(msg) from error
    return Place(rank, num_devices, local_rank)
