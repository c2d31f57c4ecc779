"""How long a run may take: a limit for each stage, and for a run that of its stages together.

They end what nothing else has ended: each question to a machine has a limit of its own, far below these.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

#: Seconds for a stage, and more for each of its machines: Ansible goes through them in batches of its forks.
STAGES: dict[str, tuple[int, int]] = {
    "discover": (600, 5),  # one question to each machine
    "preflight": (1200, 5),  # the same, and a wait for other package managers
    "base": (3600, 20),  # packages, after a wait of ten minutes for another package manager
    "containers": (3600, 20),  # the engine, the registry, the base image from a mirror
    "gpu": (7200, 60),  # a driver: packages of a GiB, modules built for each kernel, a reboot
    "rdma": (7200, 60),  # the same, where modules are built again
    "munge": (900, 10),
    "slurm": (7200, 30),  # images with Slurm and PyTorch are built, pushed, and pulled by every machine
    "monitoring": (3600, 20),  # packages
    "verify": (2400, 20),  # jobs that may wait for minutes, the training job's own limit of ten among them
    "status": (180, 0),  # one question to the controller
    "job": (600, 0),  # some questions to the controller, and forty to Prometheus
    "node": (300, 0),  # the same, after a drain
    "verdict": (60, 0),  # one file on the controller
    "release": (60, 0),  # one call to the controller
}

#: For playbooks that are no stage: machines of a lab are made, and their disks built.
OTHER = (14400, 120)

#: Until the first stage begins: Ansible starts, and reads an inventory that may ask for its machines elsewhere.
START = 600

#: Emulated processors are no reason to wait for a month.
_HIGHEST_FACTOR = 100


def seconds_for(stage: str, machines: int, factor: int = 1) -> int:
    """Return the limit of one stage; ``factor`` is ``cluster_time_factor``."""
    fixed, each = STAGES.get(stage, OTHER)
    return (fixed + each * machines) * max(1, min(factor, _HIGHEST_FACTOR))


def longest(machines: int, factor: int = 1) -> int:
    """Return the seconds that no stage on this many machines may exceed."""
    return max(seconds_for(stage, machines, factor) for stage in STAGES)


class Deadline:
    """Watches a run of these stages on this many machines."""

    def __init__(
        self, stages: Iterable[str], machines: int, factor: int = 1, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limits = {stage: seconds_for(stage, machines, factor) for stage in stages}
        self._run = START + sum(self._limits.values())
        self._clock = clock
        self._begun = self._stage_begun = clock()
        self._stage = ""

    def reached(self, stage: str) -> str:
        """Say which limit has been reached while ``stage`` runs; empty while there is time left."""
        now = self._clock()
        if stage != self._stage:
            self._stage, self._stage_begun = stage, now
        limit = self._limits.get(stage)
        if limit is not None and now - self._stage_begun > limit:
            return f"the limit of {limit} s for the stage {stage} was reached, so the run was stopped"
        if now - self._begun > self._run:
            return f"the run's limit of {self._run} s was reached, so it was stopped"
        return ""
