"""What is wrong in topology.yaml and namespace.yaml. Pure.

Keys are those of topology.yaml(5) and namespace.yaml(5). Slurm ignores another one with a warning, and then has no
topology of that name, or a job its /tmp in common with all others; of a value that is none it does not start.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import yaml

from provision import hostlist
from provision.errors import ClusterctlError, did_you_mean
from provision.slurm.file_wholes import Wrong
from provision.slurm.parameter_table import NEWEST

#: Kinds of values; a mapping stands for one, and a list of one item for a list of it.
_ANY, _BOOL, _NODES = "any", "true or false", "nodes"
#: The first release with a key, where not all releases that read the file have it.
_SINCE = {"ring": "26.05", "torus3d": "26.05", "dir_confs": "26.05"}
_SIZES = {"x": _ANY, "y": _ANY, "z": _ANY}
_TORUS = {
    **{"name": _ANY, "nodes": _NODES, "dims": _SIZES},
    "placements": [{"dims": _SIZES, "anchor_seed": _SIZES, "anchor_spacing": _SIZES}],
    "regions": [{"anchor": _SIZES, "dims": _SIZES, "nodes": _NODES}],
}
_KINDS: dict[str, Any] = {
    "tree": {"switches": [{"switch": _ANY, "children": _ANY, "nodes": _NODES}]},
    "block": {"block_sizes": [_ANY], "blocks": [{"block": _ANY, "nodes": _NODES}]},
    "flat": _ANY,
    "ring": {"rings": [{"ring": _ANY, "nodes": _NODES}]},
    "torus3d": {"toruses": [_TORUS]},
}
_NAMESPACE: dict[str, Any] = {
    **dict.fromkeys(("auto_base_path", "disable_bpf_token", "shared"), _BOOL),
    **dict.fromkeys(
        ("base_path", "clone_ns_epilog", "clone_ns_epilog_wait", "clone_ns_flags", "clone_ns_script"), _ANY
    ),
    **dict.fromkeys(("clone_ns_script_wait", "dirs", "init_script", "user_ns_script"), _ANY),
    "dir_confs": [{"path": _ANY, "base_path": _ANY, "options": _ANY, "tmpfs": _BOOL}],
}
_FILES: dict[str, Any] = {
    "topology.yaml": [{"topology": _ANY, "cluster_default": _BOOL, **_KINDS}],
    "namespace.yaml": {"defaults": _NAMESPACE, "node_confs": [{"nodes": _ANY, "options": _NAMESPACE}]},
}
#: What data_convert_type() in src/common/data.c makes true or false of.
_TRUTHS = ("true", "false", "yes", "no", "on", "off", "y", "n", "t", "f", "1", "0")


def wrong_yaml(name: str, text: str, release: str, nodes: Collection[str]) -> Wrong | None:
    """Return what is wrong with such a file; of a release that is newer than all known ones only what is no YAML."""
    try:
        root = yaml.compose(text, Loader=yaml.CSafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        return Wrong(mark.line + 1 if mark else 1, "this is no YAML", f"correct it: {getattr(error, 'problem', error)}")
    if not isinstance(root, yaml.SequenceNode | yaml.MappingNode):
        return Wrong(1, "this is neither a list nor a mapping", f"write it as {name}(5) shows")
    if release > NEWEST or name not in _FILES:
        return None
    return next(_wrong(name, root, _FILES[name], release, nodes, name), None) or (
        _topologies(root) if name == "topology.yaml" else None
    )


def _wrong(name: str, node: yaml.Node, form: Any, release: str, nodes: Collection[str], key: str) -> Iterator[Wrong]:
    row = node.start_mark.line + 1
    if isinstance(form, Mapping | list) and key != name and node.tag.endswith(":null"):
        return
    if isinstance(form, Mapping):
        here = [one for one in form if _SINCE.get(one, "") <= release]
        if not isinstance(node, yaml.MappingNode):
            problem = f"{key or 'each item'} must be a mapping, with one of {', '.join(here)}"
            yield Wrong(row, problem, f"see {name}(5)")
            return
        for told, value in node.value:
            word, line = _text(told), told.start_mark.line + 1
            if word not in form:
                fix = did_you_mean(word, here, f"it is one of {', '.join(here)}")
                if word in _NAMESPACE and "defaults" in form:
                    fix = "write it below defaults"
                yield Wrong(line, f"there is no {word[:40]!r} {f'in {key}' if key else 'here'}", fix)
            elif release < _SINCE.get(word, ""):
                yield Wrong(line, f"{word} is not in Slurm {release}: it came with {_SINCE[word]}", f"remove {word}")
            else:
                yield from _wrong(name, value, form[word], release, nodes, word)
    elif isinstance(form, list):
        if not isinstance(node, yaml.SequenceNode):
            yield Wrong(row, f"{key} must be a list", f"begin each item with '- '; {name}(5)")
            return
        for item in node.value:
            yield from _wrong(name, item, form[0], release, nodes, "" if key == name else key)
    elif form == _BOOL and not (isinstance(node, yaml.ScalarNode) and node.value.lower() in _TRUTHS):
        yield Wrong(row, f"{key} is {_text(node)[:40]!r}: it must be true or false", f"write {key}: true")
    elif form == _NODES:
        yield from _unknown(node, nodes)


def _text(node: yaml.Node) -> str:
    """Return a scalar's text; of a list or a mapping the word for it, which is no name of a node."""
    return node.value if isinstance(node, yaml.ScalarNode) else "(a list or a mapping)"


def _unknown(node: yaml.Node, nodes: Collection[str]) -> Iterator[Wrong]:
    for one in node.value if isinstance(node, yaml.SequenceNode) else [node]:
        row = one.start_mark.line + 1
        try:
            missing = sorted(set(hostlist.expand(_text(one))) - set(nodes))
        except ClusterctlError as error:
            yield Wrong(row, f"nodes: {error.problem}", error.fix)
            continue
        if missing:
            near = difflib.get_close_matches(missing[0], nodes, n=1) if len(missing) == 1 else []
            problem = f"nodes names {hostlist.fold(missing)}, which the inventory's compute nodes"
            fix = f"did you mean {near[0]}?" if near else "correct nodes"
            yield Wrong(row, f"{problem} ({hostlist.fold(nodes)}) do not include", fix)


def _topologies(root: yaml.Node) -> Wrong | None:
    """Refuse a topology without a name, or without one kind: _process_conf() in src/interfaces/topology.c."""
    if not root.value:
        return Wrong(
            1, "there is no topology: slurmctld would not start", "write '- topology: NAME', or remove the file"
        )
    names: list[str] = []
    for item in root.value:
        row, said = item.start_mark.line + 1, {str(key.value): value for key, value in item.value}
        kinds = [kind for kind in _KINDS if kind in said]
        if "topology" not in said or _text(said["topology"]) in names:
            return Wrong(row, "a topology has no name of its own", "write '- topology: NAME', each another one")
        names.append(_text(said["topology"]))
        if len(kinds) != 1:
            told = f"is {' and '.join(kinds)}" if kinds else "is of no kind"
            return Wrong(row, f"topology {names[-1]} {told}", f"give it one of {', '.join(_KINDS)}")
    return None
