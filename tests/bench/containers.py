"""Containers of jobs and torchrun-slurm, each beside the same work without them: an ordinary user's job on one node."""

from __future__ import annotations

import re
from pathlib import Path
from statistics import median
from typing import Any

from bench.recorded import ad_hoc

from provision.inventory import loader
from provision.inventory.declared_proof import name_of

#: The user's job: one allocation, so that no waiting for one is measured. Each line is a name and nanoseconds; the
#: sides of a comparison take turns. A first turn is not counted: the image's files are then in memory for all.
SCRIPT = r"""
set -eu
image=$(srun --quiet podman --log-level error images | awk '$1 ~ "/ddp$" {print $3; exit}')
step="srun --quiet --overlap --nodes=1 --ntasks=1"
once() { # NAME COMMAND...
  name=$1; shift
  begin=$(date +%s%N)
  "$@" >/dev/null 2>bench.err || { cat bench.err >&2; exit 1; }
  echo "$name $(($(date +%s%N) - begin))"
}
many() { # COUNT: as many steps with a container each, begun at once
  pids= bad=0
  for number in $(seq "$1"); do $step --container-image="$image" true & pids="$pids $!"; done
  for pid in $pids; do wait "$pid" || bad=1; done
  return $bad
}
printf 'pass\n' >bench_train.py
plain="python3 -m torch.distributed.run --nnodes 1 --node_rank 0 --nproc_per_node 2 --master_addr 127.0.0.1"
plain="$plain --master_port 29411 bench_train.py"
for turn in 0 1 2 3 4 5; do
  [ $turn -gt 0 ] || exec 3>&1 >/dev/null
  once none $step true
  once container $step --container-image="$image" true
  once podman $step podman --log-level error run --rm "$image" true
  [ $turn -gt 0 ] || exec >&3
done
for turn in 0 1 2 3; do
  [ $turn -gt 0 ] || exec 3>&1 >/dev/null
  once torchrun $step --container-image="$image" --container-mounts="$PWD" --container-workdir="$PWD" $plain
  once torchrun-slurm $step --container-image="$image" --container-mounts="$PWD" --container-workdir="$PWD" \
    torchrun-slurm --nproc-per-node 2 bench_train.py
  [ $turn -gt 0 ] || exec >&3
done
for turn in 1 2 3; do
  once one many 1
  once at-once many 32
done
rm -f bench_train.py bench.err
"""


def in_jobs(inventory: Path) -> dict[str, Any]:
    """Return what a task in a container takes, what torchrun-slurm does, and 32 containers at once, in seconds."""
    loaded = loader.load(inventory)
    controller = loaded.groups["slurm_controller"][0]
    user = name_of(loaded.hostvars[controller])
    start = f"runuser -u {user} -- env HOME=$PWD salloc --quiet --exclusive --nodes=1 bash bench.sh </dev/null"
    script = f"cd ~{user}; cat >bench.sh <<'BENCH'\n{SCRIPT}\nBENCH\n{start}; code=$?; rm bench.sh; exit $code"
    told = ad_hoc(inventory, "shell", script, controller)
    return compared(told)


def compared(told: str) -> dict[str, Any]:
    """Return medians and their ratios and differences, of lines of a name and nanoseconds."""
    found: dict[str, list[float]] = {}
    for name, taken in re.findall(r"^([a-z-]+) ([0-9]+)$", told, re.MULTILINE):
        found.setdefault(name, []).append(int(taken) / 1e9)
    seconds = {name: median(values) for name, values in found.items()}
    container, many = seconds["container"], seconds["at-once"]
    return {
        "a task without a container, s": seconds["none"],
        "  with --container-image": container,
        "  by podman run": seconds["podman"],
        "  --container-image beside podman run: ratio (aim: 1.1 or less)": container / seconds["podman"],
        "  beside none: s more (aim: 1.5 or less)": container - seconds["none"],
        "torchrun in a container, s": seconds["torchrun"],
        "  by torchrun-slurm": seconds["torchrun-slurm"],
        "  s more (aim: 1.0 or less)": seconds["torchrun-slurm"] - seconds["torchrun"],
        "32 containers at once on a node, s": many,
        "  one": seconds["one"],
        "  ratio": many / seconds["one"],
        "  each of the 32": many / 32,
    }
