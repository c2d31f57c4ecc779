"""Can containers be given a machine's GPUs? Pure judgement of what the machine answered.

Engines find GPUs in a description in CDI's format, which NVIDIA's container toolkit writes from the driver that is
loaded. A description of another driver hands out libraries that do not fit it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from provision.model.gres import gpus

KIND = "nvidia.com/gpu"
SPEC = "/var/run/cdi/nvidia.yaml"
_AGAIN = "clusterctl provision gpu"
_DESCRIBE = "systemctl restart clusterctl-gpus; if that fails: journalctl -u clusterctl-gpus"


def sections(text: str) -> dict[str, str]:
    """Return the parts of an answer whose headings are lines ``== name``."""
    parts = re.split(r"^== (\w+)\n", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def spec_in(text: str) -> Mapping[str, Any]:
    """Return a CDI description, empty where the text is none."""
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError:
        return {}
    return found if isinstance(found, dict) and found.get("kind") == KIND else {}


def identities(spec: Mapping[str, Any]) -> list[str]:
    """Return the UUIDs by which a description names GPUs and MIG instances; each has an index besides."""
    names = [str(device.get("name")) for device in spec.get("devices") or ()]
    return [name for name in names if name.startswith(("GPU-", "MIG-"))]


def nodes(spec: Mapping[str, Any]) -> set[str]:
    """Return the device files that a description hands out for single GPUs."""
    edits = [device.get("containerEdits") or {} for device in spec.get("devices") or ()]
    paths = {str(node.get("hostPath") or node.get("path")) for edit in edits for node in edit.get("deviceNodes") or ()}
    return {path for path in paths if re.fullmatch(r"/dev/nvidia\d+", path)}


def driver_of(spec: Mapping[str, Any]) -> str:
    """Return the driver's version that a description is of, from the names of its libraries."""
    for mount in (spec.get("containerEdits") or {}).get("mounts") or ():
        found = re.search(r"/lib(?:cuda|nvidia-ml)\.so\.(\d+\.[\d.]+)$", str(mount.get("hostPath")))
        if found:
            return found[1]
    return ""


def judge(text: str, *, version: str, packages: Sequence[str], gres: object) -> list[dict[str, Any]]:
    """Return the checks of one machine. ``text`` is what the role's program ``ask`` printed there."""
    told = sections(text)
    return [
        _toolkit(told.get("packages", ""), version, packages),
        _description(told, gpus(gres)),
        _engine(told.get("engine", "")),
        _order(told.get("order", "")),
    ]


def _toolkit(text: str, version: str, packages: Sequence[str]) -> dict[str, Any]:
    rows = [row.split() for row in text.splitlines() if len(row.split()) == 3]
    there = {name.partition(":")[0]: (found, held == "hold") for held, found, name in rows}
    wrong = [f"{name} {there[name][0]}" for name in packages if name in there and there[name][0] != version]
    wrong += [f"{name} is missing" for name in packages if name not in there]
    free = [name for name in packages if name in there and not there[name][1]]
    return _check(
        "toolkit",
        "fail" if wrong or free else "pass",
        observed="; ".join([*wrong, *(f"{name} is not held" for name in free)]) or f"{version}, held",
        expected=f"{', '.join(packages)} at {version}, held",
        source="nvidia_containers_version",
        cause="the four packages must be of one version, and an upgrade changes one of them under running containers",
        fix=_AGAIN,
    )


def _description(told: Mapping[str, str], wanted: int) -> dict[str, Any]:
    """Judge the description against the driver that is loaded, the device files that exist, and what is declared."""
    text, loaded = told.get("spec", ""), told.get("driver", "").strip()
    files = {f"/dev/{name}" for name in told.get("files", "").split() if re.fullmatch(r"nvidia\d+", name)}
    spec = spec_in(text)
    names, of = identities(spec), driver_of(spec)
    check = {
        "observed": f"{len(names)} GPUs, driver {of or 'unknown'}" if spec else "no description",
        "expected": f"{wanted} GPUs, driver {loaded or 'unknown'}",
        "source": f"node_gres, /sys/module/nvidia/version and {SPEC}",
    }
    if not spec:
        cause = f"{SPEC} is missing: containers cannot be given GPUs"
    elif not loaded:
        return _check("cdi", "unknown", **check, cause="no NVIDIA driver is loaded", fix=_AGAIN)
    elif of != loaded:
        cause = f"the driver changed from {of or 'an unknown one'} to {loaded}; containers would get the old libraries"
    elif lost := sorted(nodes(spec) - files):
        cause = f"it hands out {', '.join(lost)}, which are not there: a GPU fell off the bus, or the driver is not up"
    elif len(names) != wanted:
        cause = f"{len(names)} GPUs can be given to containers, node_gres says {wanted}"
    else:
        return _check("cdi", "pass", **check)
    return _check("cdi", "fail", **check, cause=cause, fix=_DESCRIBE)


def _engine(text: str) -> dict[str, Any]:
    try:
        info = json.loads(text or "{}")
    except ValueError:
        info = {}
    directories, runtimes = info.get("CDISpecDirs") or [], info.get("Runtimes") or {}
    check = {
        "expected": "Docker finds descriptions, and uses NVIDIA's runtime for nothing but them",
        "source": "docker info",
        "fix": "clusterctl provision containers",
    }
    if not info.get("ServerVersion"):
        return _check("engine", "unknown", observed="no answer", cause="Docker's engine does not answer", **check)
    if info.get("DefaultRuntime") == "nvidia":
        return _check(
            "engine",
            "fail",
            observed="NVIDIA's runtime is the default",
            cause="containers of its legacy hook lose their GPUs at every systemctl daemon-reload",
            **check,
        )
    by = ", ".join(directories) or ("NVIDIA's runtime" if "nvidia" in runtimes else "")
    return _check(
        "engine",
        "pass" if by else "fail",
        observed=f"Docker {info['ServerVersion']}, {by or 'without CDI and without the runtime that replaces it'}",
        cause="daemon.json does not name what this release of Docker needs",
        **check,
    )


def _order(text: str) -> dict[str, Any]:
    return _check(
        "boot_order",
        "pass" if "clusterctl-gpus.service" in text.split() else "fail",
        observed=f"Docker starts after {' '.join(word for word in text.split() if 'gpus' in word) or 'nothing of it'}",
        expected="Docker starts after clusterctl-gpus.service",
        source="systemctl show docker",
        cause="slurmd would start before the GPUs' device files exist",
        fix=_AGAIN + "; then systemctl daemon-reload",
    )


def _check(name: str, verdict: str, **more: Any) -> dict[str, Any]:
    if verdict == "pass":
        more.update(cause="", fix="")
    return {"id": f"nvidia_containers.{name}", "host": "", "level": "host", "verdict": verdict, **more}
