"""Slurm's commands as a user has them on the controller, beside the same commands in the daemon's own container."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from bench.recorded import ad_hoc

from provision.inventory import loader
from provision.inventory.declared_proof import name_of

#: What is run on the controller: both sides in turn, each timed by a clock beside its own loop, so that entering the
#: container is not counted. Prints nanoseconds a call, the median of five turns, and removes what it has submitted.
SCRIPT = r"""
set -eu
own() { (cd / && runuser -u "$1" -- sh -c "$2"); }
daemons() { docker exec --user "$(id -u "$1"):$(id -g "$1")" --workdir / slurmctld sh -c "$2"; }
loop() {
  printf 'b=$(date +%%s%%N)\nfor i in $(seq %s); do %s >/dev/null; done\n' "$1" "$2"
  echo "echo \$(((\$(date +%s%N) - b) / $1))"
}
median() { sort -n | sed -n 3p; }
for name in squeue sbatch; do
  case $name in
    squeue) calls=40 command=squeue ;;
    sbatch) calls=100 command='sbatch --hold --wrap=true --output=/dev/null --job-name=bench' ;;
  esac
  : >/run/bench.own; : >/run/bench.daemons
  for turn in 1 2 3 4 5; do
    own "$1" "$(loop $calls "$command")" >>/run/bench.own
    daemons "$1" "$(loop $calls "$command")" >>/run/bench.daemons
  done
  scancel --user="$1" --name=bench
  echo "$name $(median </run/bench.own) $(median </run/bench.daemons)"
done
rm -f /run/bench.own /run/bench.daemons
"""


def beside_the_daemon(inventory: Path) -> dict[str, Any]:
    """Return what ``squeue`` takes and each of 100 ``sbatch`` in a row, as a user's own process and in it."""
    loaded = loader.load(inventory)
    controller = loaded.groups["slurm_controller"][0]
    user = name_of(loaded.hostvars[controller])
    told = ad_hoc(inventory, "shell", f"bash -s {user} <<'BENCH'\n{SCRIPT}\nBENCH", controller)
    figures: dict[str, Any] = {}
    for name, own, daemons in re.findall(r"^(squeue|sbatch) ([0-9]+) ([0-9]+)$", told, re.MULTILINE):
        figures[f"{name}, ms a call"] = int(own) / 1e6
        figures[f"  {name} in the daemon's container"] = int(daemons) / 1e6
        figures[f"  {name}: ratio"] = int(own) / int(daemons)
    return figures | {"aim": "ratios of 1.2 or less"}
