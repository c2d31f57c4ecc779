"""What a machine says of how containers are given its GPUs. Pure.

Engines find GPUs in a description in CDI's format, which NVIDIA's container toolkit writes from the driver that is
loaded. A description of another driver hands out libraries that do not fit it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

KIND = "nvidia.com/gpu"
SPEC = "/var/run/cdi/nvidia.yaml"


class _Plain(yaml.SafeLoader):
    """Reads YAML without aliases: nvidia-ctk writes none, and a few lines of them grow without bounds."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Read one value."""
        if self.check_event(yaml.events.AliasEvent):
            raise yaml.YAMLError("an alias")
        return super().compose_node(parent, index)


def spec_in(text: str) -> Mapping[str, Any]:
    """Return a CDI description, empty where the text is none."""
    try:
        found = yaml.load(text, _Plain)  # noqa: S506 - a safe loader that knows less
    except (yaml.YAMLError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) and found.get("kind") == KIND else {}


def identities(spec: Mapping[str, Any]) -> list[str]:
    """Return the UUIDs by which a description names GPUs and MIG instances; each has an index besides."""
    names = [str(device.get("name")) for device in _listed(spec, "devices")]
    return [name for name in names if name.startswith(("GPU-", "MIG-"))]


def nodes(spec: Mapping[str, Any]) -> set[str]:
    """Return the device files that a description hands out for single GPUs."""
    edits = [_part(device, "containerEdits") for device in _listed(spec, "devices")]
    paths = {str(node.get("hostPath") or node.get("path")) for edit in edits for node in _listed(edit, "deviceNodes")}
    return {path for path in paths if re.fullmatch(r"/dev/nvidia[0-9]{1,3}", path)}


def driver_of(spec: Mapping[str, Any]) -> str:
    """Return the driver's version that a description is of, from the names of its libraries."""
    for mount in _listed(_part(spec, "containerEdits"), "mounts"):
        found = re.search(r"/lib(?:cuda|nvidia-ml)\.so\.([0-9]{1,5}\.[0-9.]{1,20})$", str(mount.get("hostPath")))
        if found:
            return found[1]
    return ""


def _part(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = value.get(key)
    return found if isinstance(found, dict) else {}


def _listed(value: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    found = value.get(key)
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []
