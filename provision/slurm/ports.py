"""On which ports Slurm listens, and whether two of its programs would listen on one. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from provision.slurm.names import SRUN_PORTS
from provision.slurm.parameters import is_ports, number

#: Slurm's ports where nothing else is said, slurmdbd's among them.
PORTS = {"SlurmctldPort": "6817", "SlurmdPort": "6818", "AccountingStoragePort": "6819", "SrunPortRange": SRUN_PORTS}
#: Those of the controller, and those of nodes, which are other machines where the controller is none.
_ON_CONTROLLER, _ON_NODES = {"SlurmctldPort", "AccountingStoragePort"}, {"SlurmdPort", "MpiParams"}


def ports_of_mpi(value: str) -> str:
    """Return the range of ports that MpiParams reserves for steps; empty for none."""
    found = re.search(r"(?:^|,)ports=(\d{1,5}-\d{1,5})(?:,|$)", value)
    return found[1] if found else ""


def shared(given: Mapping[str, str | None], *, alone: bool, database: bool) -> tuple[str, str, str] | None:
    """Return a parameter whose ports another has, too, or that are none, with the sentence and what to do; else None.

    ``alone``: the controller is no compute node. ``database``: slurmdbd runs on it.
    """
    there = {name.lower(): value for name, value in given.items() if value is not None}
    said = {name: there.get(name.lower(), usual) for name, usual in PORTS.items()}
    if mpi := ports_of_mpi(there.get("mpiparams", "")):
        if not is_ports(mpi, 2):
            problem = f"MpiParams has ports={mpi}"
            return "MpiParams", problem, "write a range from 1024 to 65535, the lower one first"
        said["MpiParams"] = mpi
    named = list(said.items())
    for place, (name, value) in enumerate(named):
        for other, its in named[:place]:
            pair = {name, other}
            if not {one.lower() for one in pair} & there.keys() or ("AccountingStoragePort" in pair and not database):
                continue
            # One number for both is a mistake wherever they run.
            if alone and value != its and pair & _ON_CONTROLLER and pair & _ON_NODES:
                continue
            (low, high), (first, last) = _range(value), _range(its)
            if low <= last and first <= high:
                told = name if name.lower() in there else other
                return told, f"{other} {its} and {name} {value} are the same ports", "give each its own"
    return None


def _range(value: str) -> tuple[int, int]:
    low, _, high = value.partition("-")
    return number(low), number(high or low)
