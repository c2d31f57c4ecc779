"""What is wrong with lines of topology.conf and job_container.conf beside each other. Pure.

src/plugins/topology/{tree,block} and src/plugins/job_container/tmpfs/read_jcconf.c; what Slurm only warns of there is
refused as well, as a node that no switch has is given to no job.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from itertools import pairwise
from typing import NamedTuple

from provision import hostlist
from provision.model.mounts import below
from provision.slurm.parameters import ON

#: Each line's row (from 1) and its keys, in lower case, with their values.
Lines = list[tuple[int, dict[str, str]]]
#: More levels of switches end slurmctld, as a circle does.
_LEVELS = 20
#: HOST_NAME_MAX, of a switch's name.
_LONGEST = 64
#: Since this release a block may have fewer nodes than BlockSizes begins with.
_INCOMPLETE = "25.05"
#: What no job can do without, of Dirs.
_NEEDED = ("/", "/bin", "/dev", "/etc", "/home", "/lib", "/opt", "/proc", "/run", "/sbin", "/sys", "/usr", "/var")
#: Where ours is, in a directory in which nothing makes another but slurmd, where AutoBasePath says so.
_STATE = "/var/lib/clusterctl"
_OURS = f"{_STATE}/jobtmp"
_MADE = f"AutoBasePath=true BasePath={_OURS}"


class Wrong(NamedTuple):
    """What is wrong in which line of the text (from 1), and what to do."""

    row: int
    problem: str
    fix: str


def fabric(lines: Lines, release: str, nodes: Collection[str]) -> Wrong | None:
    """Judge switches, or blocks, of which each by itself is right."""
    return _circle(lines) or _nodes(lines, nodes) or _blocks(lines, release)


def _circle(lines: Lines) -> Wrong | None:
    below_of: dict[str, list[str]] = {}
    rows: dict[str, int] = {}
    for row, line in lines:
        for name in hostlist.expand(line["switchname"]) if "switchname" in line else ():
            if len(name) > _LONGEST:
                return Wrong(
                    row, f"the switch's name {name[:70]} has {len(name)} characters", f"{_LONGEST} are the most"
                )
            below_of[name] = list(hostlist.expand(line["switches"])) if "switches" in line else []
            rows[name] = row
    levels: dict[str, int] = {}
    while left := [name for name in below_of if name not in levels]:
        found = {name: levels for name in left if all(one in levels for one in below_of[name])}
        if not found:
            return Wrong(max(rows[name] for name in _round(left, below_of)), *_circle_of(left, below_of))
        levels |= {name: 1 + max((levels[one] for one in below_of[name]), default=-1) for name in found}
    deep = max(levels, key=lambda name: levels[name], default="")
    if deep and levels[deep] > _LEVELS:
        return Wrong(rows[deep], f"{deep} is {levels[deep]} levels above its nodes", f"{_LEVELS} are the most")
    return None


def _round(left: list[str], below_of: dict[str, list[str]]) -> list[str]:
    """Return the switches of a circle: whoever is left without levels leads to one."""
    way = [left[0]]
    while (after := next(one for one in below_of[way[-1]] if one in left)) not in way:
        way.append(after)
    return way[way.index(after) :]


def _circle_of(left: list[str], below_of: dict[str, list[str]]) -> tuple[str, str]:
    way = _round(left, below_of)
    told = " -> ".join([*way, way[0]])
    return f"switches are below each other in a circle: {told}", "take one of them out of the other's Switches"


def _nodes(lines: Lines, nodes: Collection[str]) -> Wrong | None:
    """Refuse a node on two leaf switches or in two blocks, and one that no switch has."""
    where: dict[str, str] = {}
    for row, line in lines:
        for node in hostlist.expand(line["nodes"]) if "nodes" in line else ():
            name = line.get("switchname") or line.get("blockname") or line.get("ringname") or ""
            if (other := where.setdefault(node, name)) != name:
                return Wrong(row, f"{node} is in {other} and in {name}", "leave it in one of them")
    if left := sorted(set(nodes) - where.keys()) if any("switchname" in line for _, line in lines) else ():
        rows = [row for row, line in lines if "nodes" in line]
        problem = f"{hostlist.fold(left)}: no switch has {'it' if len(left) == 1 else 'them'}, so no job could use "
        return Wrong(rows[-1] if rows else 1, problem + ("it" if len(left) == 1 else "them"), "add a switch for it")
    return None


def _blocks(lines: Lines, release: str) -> Wrong | None:
    sizes: list[int] = []
    for row, line in lines:
        if "blockname" in line and "nodes" not in line:
            return Wrong(row, f"{line['blockname']} has no Nodes", "name the nodes of the block")
        if "blocksizes" in line:
            sizes = [int(word) for word in line["blocksizes"].split(",")]
            steps = [size / sizes[0] if sizes[0] else 0.0 for size in sizes]
            if 0 in sizes or any(not step.is_integer() or not math.log2(step).is_integer() for step in steps):
                fix = "double each, as 4,8,16"
                return Wrong(row, f"BlockSizes is {line['blocksizes']}: each must be the first times 2, 4, 8 ...", fix)
            if any(after <= before for before, after in pairwise(sizes)):
                return Wrong(row, f"BlockSizes is {line['blocksizes']}: they must rise", "write the smallest first")
    for row, line in lines if sizes and release < _INCOMPLETE else ():
        if "blockname" in line and (count := len(list(hostlist.expand(line["nodes"])))) < sizes[0]:
            problem = f"{line['blockname']} has {count} nodes, and BlockSizes begins with {sizes[0]}"
            return Wrong(row, problem, f"begin BlockSizes with {count}, or add nodes")
    return None


def namespaces(lines: Lines, writable: Collection[str] | None) -> Wrong | None:
    """Judge where a job's own directories are: nowhere, or where slurmd cannot write."""
    for row, line in lines:
        path = line.get("basepath", "")
        if needed := next((one for one in line.get("dirs", "").split(",") if one in _NEEDED), ""):
            return Wrong(row, f"Dirs has {needed}, which a job would see empty", "write Dirs=/tmp,/var/tmp,/dev/shm")
        if "nodename" in line and not path:
            return Wrong(row, f"{line['nodename']} has no BasePath", f"add {_MADE}, or BasePath=none")
        if not path or path.lower() == "none":
            continue
        if path in _dirs(lines, line):
            return Wrong(row, f"BasePath {path} is one of Dirs, too", f"write {_MADE}")
        if writable is not None and not any(below(path, one) for one in writable):
            problem = f"BasePath is {path}, where slurmd's container is read-only"
            return Wrong(row, problem, f"write {_MADE}, or a directory of cluster_mounts, as with fstype local")
        if path.startswith(f"{_STATE}/") and _auto(lines, line).lower() not in ON:
            problem = f"BasePath is {path}, which nothing makes: slurmd would not start"
            return Wrong(row, problem, f"add AutoBasePath=true, as in {_MADE}")
    if not any("basepath" in line for _, line in lines):
        fix = f"add {_MADE}; or let jobs share /tmp by 'JobContainerType: null', and remove the file"
        return Wrong(lines[0][0] if lines else 1, "there is no BasePath: jobs would share /tmp", fix)
    return None


def _auto(lines: Lines, line: dict[str, str]) -> str:
    of_all = next((one["autobasepath"] for _, one in lines if "autobasepath" in one and "nodename" not in one), "no")
    return line.get("autobasepath", of_all)


def _dirs(lines: Lines, line: dict[str, str]) -> Iterator[str]:
    of_all = next((one["dirs"] for _, one in lines if "dirs" in one and "nodename" not in one), "/tmp,/dev/shm")  # noqa: S108
    yield from line.get("dirs", of_all).split(",")
