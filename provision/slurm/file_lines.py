"""What is wrong with a line of a file that slurmctld hands to the nodes beside slurm.conf. Pure.

Keys, types and releases: :mod:`provision.slurm.parameter_table`. Another key stops the daemon that reads the file,
and so does a switch or a node that there is not: src/plugins/topology/tree/switch_record.c.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterator

from provision import hostlist
from provision.errors import ClusterctlError, did_you_mean
from provision.slurm.file_wholes import Lines, Wrong, fabric, namespaces
from provision.slurm.file_yaml import wrong_yaml
from provision.slurm.parameter_table import NEWEST
from provision.slurm.parameters import known, misfit, unknown

#: Where a key begins a line that is about one thing, which the other keys tell of.
_ENTRIES = {"topology.conf": ("SwitchName", "BlockName", "RingName", "BlockSizes", "BlockLevels")}
#: Keys with names of nodes.
_NODES = {("topology.conf", "nodes"), ("job_container.conf", "nodename"), ("helpers.conf", "nodename")}
#: Keys with names of switches, which are written like those of nodes.
_SWITCHES = {("topology.conf", key) for key in ("switchname", "switches", "blockname", "ringname")}
_PLUGSTACK = ("required", "optional", "include")
#: key=value as src/common/parse_config.c reads it, with the value in quotes or up to a blank.
_PAIR = re.compile(r"""(\w+)[ \t]*[-+*/]?=[ \t]*("[^"]*"|[^\s"]*)(?=\s|$)""")


def wrong_line(
    name: str,
    text: str,
    release: str,
    nodes: Collection[str],
    plugin: str = "",
    writable: Collection[str] | None = None,
) -> Wrong | None:
    """Return what is wrong with the first such line; None where nothing is found, or nothing is known of the file.

    ``nodes`` are the names of the cluster's compute nodes, ``plugin`` the value of TopologyPlugin, ``writable`` the
    directories in which slurmd can write, None where they are not known.
    """
    if name.endswith(".yaml"):
        return wrong_yaml(name, text, release, nodes)
    if name == "plugstack.conf":
        return next(_plugins(text), None)
    if not known(name) or release > NEWEST:
        return None
    lines = []
    for row, line in _lines(text):
        pairs, rest = [(key, value.strip('"')) for key, value in _PAIR.findall(line)], _PAIR.sub("", line).strip()
        if re.match(r"include\s", line, re.IGNORECASE):
            fix = f"write the lines of that file here; slurm_conf_files gives {name} to the daemons alone"
            return Wrong(row, f"{line[:70]!r}: the daemons that read {name} have no other file beside it", fix)
        if rest:
            return Wrong(row, f"{rest.split()[0][:40]!r} is no parameter with a value", f"write KEY=VALUE; {name}(5)")
        keys = [key.lower() for key, _ in pairs]
        if twice := next((key for key in keys if keys.count(key) > 1), ""):
            return Wrong(row, f"{twice} is there twice: Slurm takes the last", "leave one of them")
        for key, value in pairs:
            if wrong := _pair(name, key, value, release, nodes):
                return Wrong(row, *wrong)
        entries = [key for key in _ENTRIES.get(name, ()) if any(key.lower() == one.lower() for one, _ in pairs)]
        if pairs and name in _ENTRIES and not entries:
            return Wrong(row, f"{pairs[0][0]} stands without a SwitchName or BlockName", "begin the line with its name")
        lines.append((row, {key.lower(): value for key, value in pairs}))
    if name == "topology.conf":
        return _kind(lines, plugin) or _switches(lines) or fabric(lines, release, nodes)
    return namespaces(lines, writable) if name == "job_container.conf" else None


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield each line that says something, without its comment, one that goes on together with the next."""
    held, begun = "", 0
    for row, line in enumerate(text.splitlines(), start=1):
        begun = begun or row
        held += re.sub(r"(?<!\\)#.*", "", line)
        if held.endswith("\\"):
            held = held[:-1] + " "
            continue
        if held.strip():
            yield begun, held.strip()
        held, begun = "", 0
    if held.strip():
        yield begun, held.strip()


def _pair(name: str, key: str, value: str, release: str, nodes: Collection[str]) -> tuple[str, str] | None:
    if wrong := unknown(name, key, release):
        return wrong
    spelt = known(name)[key.lower()].name
    if not value:
        return f"{spelt} has no value", f"give it one, or remove it; {name}(5)"
    if why := misfit(name, key, value, release):
        return f"{spelt} is {value[:70]!r}: {why}", f"correct {spelt}; {name}(5)"
    if (name, key.lower()) not in _NODES | _SWITCHES:
        return None
    if key.lower().endswith("name") and "[" in value and (name, key.lower()) in _SWITCHES:
        return f"{spelt} is {value[:70]!r}: Slurm takes it for one name", "give each its own line"
    try:
        there = set(hostlist.expand(value))
    except ClusterctlError as error:
        return f"{spelt}: {error.problem}", error.fix
    missing = sorted(there - set(nodes)) if (name, key.lower()) in _NODES else ()
    if missing:
        near = difflib.get_close_matches(missing[0], nodes, n=1) if len(missing) == 1 else []
        problem = (
            f"{spelt} names {hostlist.fold(missing)}, which the inventory's compute nodes ({hostlist.fold(nodes)})"
        )
        return f"{problem} do not include", f"did you mean {near[0]}?" if near else f"correct {spelt}"
    return None


def _kind(lines: Lines, plugin: str) -> Wrong | None:
    """Refuse lines that another plugin reads: with a key that it does not know slurmctld does not start."""
    first = {"topology/tree": "switchname", "topology/block": "blockname", "topology/ring": "ringname"}.get(plugin)
    own = {first, "blocksizes"} if first == "blockname" else {first}
    for row, line in lines if first else ():
        if others := {"switchname", "blockname", "blocksizes", "ringname"} & line.keys() - own:
            other = sorted(others)[0]
            named = {"switchname": "tree", "ringname": "ring"}.get(other, "block")
            problem = f"{known('topology.conf')[other].name} is not read by TopologyPlugin {plugin}"
            return Wrong(row, problem, f"set TopologyPlugin: topology/{named}, or describe the other kind here")
    return None


def _switches(lines: Lines) -> Wrong | None:
    """Judge switches beside each other: each is there once, and has nodes or switches that there are below it."""
    kinds = ("switchname", "blockname", "ringname")
    rows: dict[str, int] = {}
    for row, line in lines:
        for name in (name for kind in kinds if line.get(kind) for name in hostlist.expand(line[kind])):
            if name in rows:
                return Wrong(row, f"{name} is there twice, in line {rows[name]}, too", "leave one of them")
            rows[name] = row
    for row, line in lines:
        if "switchname" not in line:
            continue
        if ("switches" in line) == ("nodes" in line):
            problem = f"{line['switchname']} has {'both' if 'nodes' in line else 'neither'} Switches and Nodes"
            return Wrong(row, problem.replace("neither Switches and", "neither Switches nor"), "give it one of the two")
        for below in hostlist.expand(line.get("switches", "")) if "switches" in line else ():
            if below not in rows or below == line["switchname"]:
                fix = did_you_mean(
                    below, rows.keys() - {line["switchname"]}, f"add a line SwitchName={below}, or take it out"
                )
                return Wrong(row, f"Switches names {below}, which is no other switch of the file", fix)
    return None


def _plugins(text: str) -> Iterator[Wrong]:
    """Yield what is wrong with lines of plugstack.conf: _plugin_stack_parse_line() in src/common/spank.c."""
    for row, line in _lines(text):
        word, *path = line.split(maxsplit=2)
        if word not in _PLUGSTACK:
            fix = did_you_mean(word.lower(), _PLUGSTACK, "write 'required /opt/site/plugin.so'")
            yield Wrong(row, f"a line begins with {word[:40]!r}: it must be one of {', '.join(_PLUGSTACK)}", fix)
        elif not path:
            yield Wrong(row, f"{word} has no path", f"write '{word} /opt/site/plugin.so'")
        elif word == "include" and not path[0].startswith("/"):
            yield Wrong(
                row, f"include is {path[0][:70]!r}: it must be a whole path", "give the whole path, on the nodes"
            )
