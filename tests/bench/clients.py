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
#: falls on both; each is timed by a clock beside its own loop, so that entering the container is not counted. Prints
#: the nanoseconds a call of both for each turn, and removes what it has submitted.
SCRIPT = r"""
set -eu
own() { (cd / && runuser -u "$1" -- sh -c "$2"); }
daemons() { docker exec --user "$(id -u "$1"):$(id -g "$1")" --workdir / slurmctld sh -c "$2"; }
loop() {
  printf 'b=$(date +%%s%%N)\nfor i in $(seq %s); do %s >/dev/null; done\n' "$1" "$2"
  echo "echo \$(((\$(date +%s%N) - b) / $1))"
}
for name in squeue sbatch; do
  case $name in
    squeue) calls=20 turns=11 command=squeue ;;
    sbatch) calls=100 turns=5 command='sbatch --hold --wrap=true --output=/dev/null --job-name=bench' ;;
  esac
  work=$(loop $calls "$command")
  for turn in $(seq $turns); do
    if [ $((turn % 2)) -eq 0 ]; then
      ours=$(own "$1" "$work"); theirs=$(daemons "$1" "$work")
    else
      theirs=$(daemons "$1" "$work"); ours=$(own "$1" "$work")
    fi
    echo "$name $ours $theirs"
    # slurmctld answers more slowly the more jobs wait.
    scancel --user="$1" --name=bench
  done
done
"""


def beside_the_daemon(inventory: Path) -> dict[str, Any]:
    """Return what ``squeue`` takes and each of 100 ``sbatch`` in a row, as a user's own process and in it."""
    loaded = loader.load(inventory)
    controller = loaded.groups["slurm_controller"][0]
    user = name_of(loaded.hostvars[controller])
    told = ad_hoc(inventory, "shell", f"bash -s {user} <<'BENCH'\n{SCRIPT}\nBENCH", controller)
    return compared(told) | {"aim": "ratios of 1.2 or less"}


def compared(told: str) -> dict[str, Any]:
    """Return the figures of what the script printed: medians, the ratio that of each turn's two sides. Pure."""
    turns: dict[str, list[tuple[int, int]]] = {}
    for name, own, daemons in re.findall(r"^(squeue|sbatch) ([0-9]+) ([0-9]+)$", told, re.MULTILINE):
        turns.setdefault(name, []).append((int(own), int(daemons)))
    figures: dict[str, Any] = {}
    for name, pairs in turns.items():
        figures[f"{name}, ms a call"] = median(own for own, _ in pairs) / 1e6
        figures[f"  {name} in the daemon's container"] = median(daemons for _, daemons in pairs) / 1e6
        figures[f"  {name}: ratio"] = median(own / daemons for own, daemons in pairs)
    return figures
