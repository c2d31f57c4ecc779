# SPDX-License-Identifier: Apache-2.0
"""What this computer has for virtual machines, and which it runs. As a program it says why it cannot run some."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
from pathlib import Path
from typing import Any

from provision.lab import vm

#: Ends the program where the computer is not fit; other codes mean that it could not tell.
UNFIT = 2


def unfit(lab: str, directory: Path, machines: int, memory: int) -> tuple[str, str] | None:
    """Return why this computer cannot run the lab, and what to do; None if it can.

    ``directory`` is where its disks will be, and need not exist. Machines that run already need nothing more.
    """
    return vm.unfit(look(directory), max(0, machines - len(running(lab))), memory)


def look(disk: Path) -> dict[str, Any]:
    """Return what ``provision.lab.vm.unfit`` asks for; ``disk`` is where the lab's disks will be."""
    available = re.search(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(encoding="utf-8"), re.M)
    while not disk.exists():
        disk = disk.parent
    # Those of the system's administrator are not on everybody's path.
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    return {
        "architecture": platform.machine(),
        "missing": [name for name in vm.PROGRAMS if shutil.which(name, path=path) is None],
        "tap": _opens("/dev/net/tun"),
        "available": int(available[1]) // 1024 if available else 0,
        "free": shutil.disk_usage(disk).free // 2**20,
    }


def running(lab: str, processes: Path = Path("/proc")) -> dict[str, int]:
    """Return the process number of each virtual machine of the lab that runs, by the machine's name.

    Asked of the processes themselves: a recorded number may be another program's by now, and a record may be lost.
    """
    found = {}
    for process in processes.iterdir():
        if not process.name.isdigit():
            continue
        try:
            words = (process / "cmdline").read_text(encoding="utf-8", errors="replace").split("\0")
        except OSError:
            continue
        name = vm.machine_of(lab, words)
        if name:
            found[name] = int(process.name)
    return found


def _opens(device: str) -> bool:
    try:
        os.close(os.open(device, os.O_RDWR))
    except OSError:
        return False
    return True


def main(words: list[str]) -> int:
    """Take a lab's name and directory, its number of machines and their MiB; print what is wrong and what to do."""
    wrong = unfit(words[0], Path(words[1]), int(words[2]), int(words[3]))
    if wrong is None:
        return 0
    print(f"{wrong[0]}. Fix: {wrong[1]}")
    return UNFIT


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
