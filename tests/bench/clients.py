"""Slurm's commands as a user has them on the controller, beside the same commands in the daemon's own container."""

from __future__ import annotations

import re
from pathlib import Path
from statistics import median
from typing import Any

from bench.recorded import ad_hoc

from provision.inventory import loader
from provision.inventory.declared_proof import name_of

#: What is run on the controller: both sides in turn, and each turn the other one first, so that what else processors do
#: falls on both; each is timed beside its own loop, so that entering the container is not counted. Prints for each turn
#: and side how many calls there were, and their seconds: by the clock, in the program, and in the kernel for it.
SCRIPT = r"""
set -eu
own() { (cd / && runuser -u "$1" -- bash -c "$2" 2>&1); }
daemons() { docker exec --user "$(id -u "$1"):$(id -g "$1")" --workdir / slurmctld bash -c "$2" 2>&1; }
for name in squeue sbatch; do
  case $name in
    squeue) calls=20 turns=11 command=squeue ;;
    sbatch) calls=100 turns=5 command='sbatch --hold --wrap=true --output=/dev/null --job-name=bench' ;;
  esac
  work="TIMEFORMAT='%3R %3U %3S'; time for i in {1..$calls}; do $command >/dev/null; done"
  for turn in $(seq $turns); do
    if [ $((turn % 2)) -eq 0 ]; then
      ours=$(own "$1" "$work"); theirs=$(daemons "$1" "$work")
    else
      theirs=$(daemons "$1" "$work"); ours=$(own "$1" "$work")
    fi
    echo "$name $calls $ours $theirs"
    # slurmctld answers more slowly the more jobs wait.
    scancel --user="$1" --name=bench
  done
done
"""

#: A turn as the script prints it: own side and the daemon's.
_TURN = re.compile(r"(?m)^(squeue|sbatch) (\d+)" + r" (\d+\.\d+)" * 6 + "$")


def beside_the_daemon(inventory: Path) -> dict[str, Any]:
    """Return what ``squeue`` takes and each of 100 ``sbatch`` in a row, as a user's own process and in it."""
    loaded = loader.load(inventory)
    controller = loaded.groups["slurm_controller"][0]
    user = name_of(loaded.hostvars[controller])
    told = ad_hoc(inventory, "shell", f"bash -s {user} <<'BENCH'\n{SCRIPT}\nBENCH", controller)
    return compared(told)


def compared(told: str) -> dict[str, Any]:
    """Return the figures of what the script printed: medians, the ratios those of each turn's two sides. Pure.

    Where others use the same processors, what a call waits for them is in its milliseconds, and not in the processor's.
    """
    turns: dict[str, list[list[float]]] = {}
    for name, *numbers in _TURN.findall(told):
        turns.setdefault(name, []).append([float(number) for number in numbers])
    figures: dict[str, Any] = {}
    for name, rows in turns.items():
        figures[f"{name}, ms a call"] = median(row[1] / row[0] for row in rows) * 1e3
        figures[f"  {name} in the daemon's container"] = median(row[4] / row[0] for row in rows) * 1e3
        figures[f"  {name}: ratio (aim: 1.2 or less)"] = median(row[1] / row[4] for row in rows)
        figures[f"  {name}: ratio of processor seconds"] = median((row[2] + row[3]) / (row[5] + row[6]) for row in rows)
    return figures
