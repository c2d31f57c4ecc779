"""What the inventory says of the nodes' hardware, checked before it may stand in Slurm's files."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from provision import hostlist
from provision.errors import ClusterctlError
from provision.inventory.declared_gres import require_devices
from provision.inventory.declared_slurm import node_parameters_from
from provision.inventory.plain import refuse_templates
from provision.model.cluster import LEAST_MEMORY, Hardware

#: Variables of hosts, and the fields that they are; those of which Slurm's release decides are read with it.
NAMES = {f"node_{field}": field for field in Hardware.model_fields}
_PARAMETERS = "node_parameters"
AGAIN = "correct the inventory, then run 'clusterctl check' again"


def hardware_of(compute: Sequence[str], hostvars: Mapping[str, Mapping[str, Any]], release: str) -> dict[str, Hardware]:
    """Return each node's hardware; nodes that declare the same share one object, validated once."""
    kinds: dict[str, list[str]] = {}
    for node in compute:
        variables = hostvars.get(node, {})
        # repr, because 1, "1", 1.0 and true are the same to a dictionary and must not be here.
        kinds.setdefault(repr([variables.get(name) for name in NAMES]), []).append(node)
    result: dict[str, Hardware] = {}
    for nodes in kinds.values():
        where, variables = hostlist.fold(nodes), hostvars.get(nodes[0], {})
        hardware = hardware_from(where, variables)
        if (given := variables.get(_PARAMETERS)) is not None:
            refuse_templates(where, _PARAMETERS, given)
            hardware = hardware.model_copy(update={"parameters": node_parameters_from(given, release)})
        result.update(dict.fromkeys(nodes, hardware))
    return result


def hardware_from(where: str, variables: Mapping[str, Any]) -> Hardware:
    """Return the hardware that variables declare for the machines named ``where``; others than ours are passed over.

    Raises:
        ClusterctlError: a value is a template, is none that Slurm reads, or contradicts another.
    """
    names = (name for name in NAMES if name != _PARAMETERS)
    declared = {name: variables[name] for name in names if variables.get(name) is not None}
    for name, value in declared.items():
        refuse_templates(where, name, value)
    try:
        hardware = Hardware(**{NAMES[name]: _plain(value) for name, value in declared.items()})
    except ValidationError as error:
        raise _sentence(error, where, declared) from None
    if hardware.real_memory is not None and hardware.real_memory < LEAST_MEMORY:
        value = declared["node_real_memory"]
        raise ClusterctlError(
            f"{where}: node_real_memory is {value}: it is in MB, and slurmd needs more itself",
            fix="write it as slurmd -C prints RealMemory, as 192000 for 192 GB",
            said=("node_real_memory", value if isinstance(value, str) else ""),
        )
    # Of hardware that is still to be discovered nobody knows what it leaves.
    if hardware.real_memory is not None and hardware.real_memory - (hardware.mem_spec_limit or 0) < LEAST_MEMORY:
        raise ClusterctlError(
            f"{where}: node_mem_spec_limit leaves jobs less than {LEAST_MEMORY} MB",
            fix="lower node_mem_spec_limit; it is in MB",
            said=("node_mem_spec_limit", ""),
        )
    require_devices(where, hardware)
    return hardware


def _plain(value: Any) -> Any:
    """Return the value without Ansible's tags, which are subclasses that a strict comparison of types refuses."""
    if isinstance(value, str):
        return str(value)
    return value


def _sentence(error: ValidationError, where: str, declared: Mapping[str, Any]) -> ClusterctlError:
    """Turn pydantic's first complaint into one in the operator's words."""
    first = error.errors(include_url=False)[0]
    context = first.get("ctx", {})
    phrases = {
        "greater_than_equal": f"it must be {context.get('ge')} or more",
        "less_than_equal": f"it must be {context.get('le')} or less",
        "bool_parsing": "it must be true or false",
        "bool_type": "it must be true or false",
        "string_pattern_mismatch": "it has characters or a form that Slurm would not read",
    }
    reason = phrases.get(first["type"], str(context.get("error", first["msg"])))
    if not first["loc"]:
        told = next((name for name in re.findall(r"node_[a-z_]+", reason) if name in declared), "")
        value = declared.get(told)
        return ClusterctlError(f"{where}: {reason}", fix=AGAIN, said=(told, "" if value is None else str(value)))
    variable = f"node_{first['loc'][0]}"
    value = declared[variable]
    said = (variable, value if isinstance(value, str) else "")
    return ClusterctlError(f"{where}: {variable} is {value!r}: {reason}", fix=AGAIN, said=said)
