"""The partitions that the inventory declares, in Slurm's words, against the release and the compute nodes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from provision import hostlist
from provision.errors import ClusterctlError
from provision.inventory.declared_slurm import Entry, parameter_value, require_known
from provision.model.cluster import Partition
from provision.slurm import parameters

_VARIABLE = "slurm_partitions"
_PARTITION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")


def partitions_from(value: Any, compute: Sequence[str], release: str) -> tuple[Partition, ...]:
    """Return the declared partitions; one over all nodes where there is none.

    Raises:
        ClusterctlError: one is not what this release of Slurm takes, names a node or a partition that there is not, or
            they leave open which is the default.
    """
    if value is None:
        return (Partition(name="batch", parameters=(("Default", "YES"),)),)
    if not isinstance(value, list | tuple) or not value or not all(isinstance(item, Mapping) for item in value):
        raise ClusterctlError(
            f"slurm_partitions is {value!r}: it must be a list of mappings, one for each partition",
            fix="write it in group_vars/all.yml, as '- {PartitionName: gpu, Nodes: ALL, Default: \"YES\"}'",
            said=(_VARIABLE, ""),
        )
    partitions = tuple(_partition(number, item, compute, release) for number, item in enumerate(value))
    _require_once(partitions)
    if len(partitions) == 1 and not _says(partitions[0], "Default"):
        # Slurm's own default is NO, and a job without --partition would be refused.
        only = partitions[0]
        return (only.model_copy(update={"parameters": (("Default", "YES"), *only.parameters)}),)
    _require_one_default(partitions)
    return partitions


def _require_once(partitions: Sequence[Partition]) -> None:
    seen: set[str] = set()
    for number, partition in enumerate(partitions):
        if partition.name.lower() in seen:
            raise ClusterctlError(
                f"slurm_partitions names {partition.name} twice: Slurm's names do not depend on case",
                fix="merge the two, or rename one",
                entry=(_VARIABLE, number, "PartitionName"),
            )
        seen.add(partition.name.lower())


def _require_one_default(partitions: Sequence[Partition]) -> None:
    """Refuse two defaults, and none unless every partition says so: sbatch without --partition would be refused."""
    defaults = [(number, one) for number, one in enumerate(partitions) if _says(one, "Default") == "YES"]
    if len(defaults) > 1:
        raise ClusterctlError(
            f"partitions {' and '.join(one.name for _, one in defaults)} are both Default=YES",
            fix="leave Default: YES at one of them",
            entry=(_VARIABLE, defaults[1][0], "Default"),
        )
    if not defaults and not all(_says(one, "Default") for one in partitions):
        raise ClusterctlError(
            f"none of the partitions {', '.join(one.name for one in partitions)} is Default=YES: a job that names no "
            "partition would be refused",
            fix='write Default: "YES" at one of them; or Default: "NO" at each, where every job is to name its own',
            said=(_VARIABLE, ""),
        )


def _says(partition: Partition, name: str) -> str:
    return dict(partition.parameters).get(name, "")


def _entry(number: int, declared: Mapping[str, Any], name: str) -> Entry:
    """Return where a parameter stands, as it is spelt there: Slurm's names do not depend on case."""
    return _VARIABLE, number, next((str(key) for key in declared if str(key).lower() == name.lower()), name)


def _partition(number: int, declared: Mapping[str, Any], compute: Sequence[str], release: str) -> Partition:
    canonical = {name: parameter.name for name, parameter in parameters.known("partition").items()}
    given: dict[str, Any] = {}
    for key, item in declared.items():
        entry = (_VARIABLE, number, str(key))
        if str(key).lower() != "partitionname":
            require_known("partition", _VARIABLE, str(key), release, entry)
        name = "PartitionName" if str(key).lower() == "partitionname" else canonical.get(str(key).lower(), str(key))
        if name in given:
            raise ClusterctlError(
                f"slurm_partitions sets {name} twice in one partition: Slurm's names do not depend on case",
                fix="leave one of them",
                entry=entry,
            )
        given[name] = item
    name = given.pop("PartitionName", None)
    # YAML makes a number of 2024.
    name = str(name) if type(name) is int else name
    if not isinstance(name, str) or not _PARTITION.fullmatch(name) or name.upper() == "DEFAULT":
        raise ClusterctlError(
            f"slurm_partitions: PartitionName is {name!r}: it must be a name of letters, digits, '-', '_' and '.'",
            fix="name each partition, as PartitionName: gpu",
            entry=_entry(number, declared, "PartitionName"),
        )
    nodes = _nodes(name, given.pop("Nodes", "ALL"), compute, _entry(number, declared, "Nodes"))
    texts = {
        key: parameter_value("partition", f"partition {name}", key, item, _entry(number, declared, key))
        for key, item in given.items()
        if item is not None
    }
    if texts.get("Default", "").lower() in parameters.ON:
        texts["Default"] = "YES"
    return Partition(name=name, nodes=nodes, parameters=tuple(texts.items()))


def _nodes(partition: str, value: Any, compute: Sequence[str], entry: Entry) -> tuple[str, ...] | None:
    text = ",".join(str(item) for item in value) if isinstance(value, list | tuple) else str(value)
    if text.strip().upper() == "ALL":
        return None
    try:
        wanted = set(hostlist.expand(text.strip()))
    except ClusterctlError as error:
        raise ClusterctlError(f"partition {partition}: {error.problem}", fix=error.fix, entry=entry) from None
    if unknown := wanted - set(compute):
        raise ClusterctlError(
            f"partition {partition} names {hostlist.fold(unknown)}, which the inventory's compute nodes "
            f"({hostlist.fold(compute)}) do not include",
            fix=f"take {hostlist.fold(unknown)} out of the partition's Nodes, or add it under [slurm_compute]",
            entry=entry,
        )
    return tuple(node for node in compute if node in wanted)
