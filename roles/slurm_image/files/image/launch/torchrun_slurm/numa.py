# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""Which processors are near a GPU: a worker that runs on them copies to it without crossing the machine."""

from __future__ import annotations

import os
import re
from pathlib import Path


def cpus(listed: str) -> set[int]:
    """Return the processors of the kernel's list: 0-3,8 -> 0, 1, 2, 3, 8."""
    found: set[int] = set()
    for first, last in re.findall(r"(\d+)(?:-(\d+))?", listed):
        found.update(range(int(first), int(last or first) + 1))
    return found


def near(
    visible: str | None, allowed: set[int], root: Path = Path("/"), reachable: set[int] | None = None
) -> list[set[int]]:
    """Return for each visible GPU those of the allowed processors that are near it, none where that cannot be told.

    NVIDIA's driver says which device file is which device of the bus (/proc/driver/nvidia/gpus/*/information), the
    kernel which processors are near that (local_cpulist). Of ``CUDA_VISIBLE_DEVICES``, numbers count the GPUs that the
    job may open in the order of the bus, as CUDA does where they are alike; anything else is not understood.
    """
    found = {}
    for information in sorted((root / "proc/driver/nvidia/gpus").glob("*/information")):
        minor = re.search(r"^Device Minor:\s*(\d+)", information.read_text(errors="replace"), re.MULTILINE)
        listed = root / "sys/bus/pci/devices" / information.parent.name / "local_cpulist"
        if minor and listed.is_file():
            found[int(minor[1])] = cpus(listed.read_text(encoding="ascii")) & allowed
    mine = [minor for minor in found if (opens(root, minor) if reachable is None else minor in reachable)]
    words = [word.strip() for word in visible.split(",")] if visible else [str(number) for number in range(len(mine))]
    if not all(word.isdecimal() and int(word) < len(mine) for word in words):
        return []
    chosen = [found[mine[int(word)]] for word in words]
    # Where all are near, as on a machine of one node, or none is, nothing is to be chosen.
    return chosen if all(chosen) and any(one != allowed for one in chosen) else []


def opens(root: Path, minor: int) -> bool:
    """Tell whether a GPU's device file can be opened: those of other jobs cannot."""
    try:
        os.close(os.open(root / f"dev/nvidia{minor}", os.O_RDWR | os.O_CLOEXEC))
    except OSError:
        return False
    return True
