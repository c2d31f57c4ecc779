# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""What a node looks at before a training starts on it, and what of it is wrong.

``look`` asks, ``wrong`` decides: so each rule is tested without a machine.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

#: Bytes. A container of Docker's has 64 MiB where nobody says more; NCCL and DataLoader end with "bus error" there.
LEAST_SHM = 256 << 20

#: Seconds by which clocks may differ: file times and logs of several nodes can be compared.
CLOCKS = 5.0

#: Seconds. Drivers that hang do so in here, in a process of its own. Well ones answer in one or two; eight GPUs without
#: persistence mode are set up anew by whoever asks first, which takes longer and is no fault: then it is said.
CUDA_LIMIT = 4.0

#: What Docker, Podman and Apptainer leave in a container, below its root.
CONTAINER = (".dockerenv", "run/.containerenv", ".singularity.d")

#: cuda.h: both return 0 where all is well. No PyTorch: to import it takes longer than all of this.
CUDA = """
import ctypes
cuda, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
code = cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count))
print(code, count.value)
"""


class Gpus:
    """Asks the driver how many GPUs answer, while other things are looked at. ``limit``: seconds from now on."""

    def __init__(
        self, granted: int, driver: Path = Path("/proc/driver/nvidia/version"), limit: float = CUDA_LIMIT
    ) -> None:
        self.granted, self.limit = granted, limit
        self._end = time.monotonic() + limit
        self._told: dict[str, Any] = {}
        self._asked: subprocess.Popen[str] | None = None
        # Without NVIDIA's driver there is nobody to ask: GPUs are simulated, or those of another maker.
        if granted and driver.exists():
            words = [sys.executable, "-c", CUDA]
            self._asked = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def told(self) -> dict[str, Any]:
        """Return ``granted``, ``answering`` (None where nobody was asked), ``problem``; ``slow``: no answer in time."""
        self._told = self._told or self._heard()
        return self._told

    def _heard(self) -> dict[str, Any]:
        if self._asked is None:
            return {"granted": self.granted, "answering": None, "problem": ""}
        try:
            # What it has said is read also where its time is over.
            out, err = self._asked.communicate(timeout=max(0.1, self._end - time.monotonic()))
            code, count = map(int, out.split())
        except subprocess.TimeoutExpired:
            self._asked.kill()
            slow = f"CUDA did not answer in {self.limit:g} s: --gpu-wait SECONDS gives it longer"
            slow += ", and nvidia-persistenced has it answer at once"
            return {"granted": self.granted, "answering": 0, "problem": slow, "slow": True}
        except ValueError:
            last = (err.strip().splitlines() or ["nothing"])[-1]
            return {"granted": self.granted, "answering": 0, "problem": f"CUDA cannot be asked: {last[:200]}"}
        return {"granted": self.granted, "answering": count, "problem": f"cuInit returned {code}" if code else ""}


def mark(directory: str, job: int, step: int, task: int) -> Path:
    """Return the file by which a task shows that it can write to the output directory."""
    return Path(directory) / f".torchrun-slurm.{job}.{step}.{task}"


def in_layer(path: Path, root: Path = Path("/")) -> bool:
    """Tell whether a path is on a container's own root, which goes with it. ``root``: where to look."""
    if not any((root / mark).exists() for mark in CONTAINER):
        return False
    try:
        lines = (root / "proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return False
    # The fifth is where it is mounted, blanks as in C: Documentation/filesystems/proc.rst.
    told = (line.split()[4] for line in lines)
    mounted = {re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), one) for one in told}
    real = Path(os.path.realpath(path))
    return next((str(one) for one in (real, *real.parents) if str(one) in mounted), "") == "/"


def written(path: Path, text: str, lasts: bool = False) -> str:
    """Write a task's file, and return what hindered it.

    The directory is made, and none above it: a path that is mistyped, or not mounted, is not there.

    Args:
        path: the file.
        text: what is in it.
        lasts: the directory is to be there after the container.
    """
    place = path.parent
    mounted = f"a container sees what is mounted: --container-mounts={place}, or docker run --volume {place}:{place}"
    try:
        if lasts and in_layer(place):
            return f"{place} is in the container alone, and goes with it; {mounted}"
        place.mkdir(exist_ok=True)
        path.write_text(text, encoding="ascii")
    except FileNotFoundError:
        return f"there is no {place.parent}. mkdir -p {place}, where all nodes see it; {mounted}"
    except OSError as problem:
        return f"{place} cannot be written: {problem.strerror}"
    return ""


def not_seen(path: Path, text: str) -> str:
    """Return why another task's file is not what it wrote, nothing where it is."""
    try:
        if path.read_text(encoding="ascii", errors="replace") == text:
            return ""
    except OSError:
        pass
    return f"{path.parent} is not the first node's: what is written there is not seen there"


def look(gpus: Gpus, directory: str = "", network: str = "") -> dict[str, Any]:
    """Return what a node finds of itself. ``shm``: free bytes, None where there is no /dev/shm.

    ``directory``, ``network``: what is wrong with the output directory and with the way to other nodes.
    """
    try:
        room = os.statvfs("/dev/shm")  # noqa: S108 - the place itself
        shm: int | None = room.f_bavail * room.f_frsize
    except OSError:
        shm = None
    return {"gpus": gpus.told(), "shm": shm, "directory": directory, "network": network}


def blames(found: dict[str, Any], said: list[str]) -> bool:
    """Tell whether what is said to be wrong is the node's fault: a driver that is late alone may be a well one."""
    return len(said) > bool(found["gpus"].get("slow"))


def wrong(found: dict[str, Any], ahead: float = 0.0) -> list[str]:
    """Return what is wrong with a node, each with its cause or its mending.

    ``ahead``: seconds by which its clock is before the first node's.
    """
    said = []
    gpus = found["gpus"]
    if gpus["problem"]:
        said.append(f"{gpus['problem']}. nvidia-smi there; is the container started with its GPUs?")
    elif gpus["answering"] is not None and gpus["answering"] < gpus["granted"]:
        said.append(f"{gpus['answering']} of {gpus['granted']} granted GPUs answer. nvidia-smi there; dmesg for Xid")
    if found["shm"] is None:
        said.append("there is no /dev/shm")
    elif found["shm"] < LEAST_SHM:
        free = f"{found['shm'] >> 20} MiB are free in /dev/shm, {LEAST_SHM >> 20} are needed"
        said.append(f"{free}. --ipc=host or --shm-size=8g for a container; rm what others left in it")
    said += [found[of] for of in ("network", "directory") if found.get(of)]
    if abs(ahead) > CLOCKS:
        told = f"its clock is {abs(ahead):.0f} s {'before' if ahead > 0 else 'behind'} the first node's"
        said.append(f"{told}. timedatectl there")
    return said
