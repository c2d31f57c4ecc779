"""What NVIDIA's driver on a machine should be, what stands in the way, and what there is to do. Pure.

``machine`` is what the module ``machine_facts`` reports with ``gather: [gpu]``. ``wants`` are the role's variables by
their names without ``nvidia_driver_``. A refusal names the place, the value and the way out, and comes before anything
is downloaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from provision.nvidia import driver_packages as packages
from provision.nvidia import driver_refusals
from provision.nvidia import driver_rules as rules
from provision.nvidia.driver_plan import Plan
from provision.nvidia.driver_state import difference, installed_version
from provision.nvidia.releases import version as numbers

#: What running jobs do not notice.
_HARMLESS = ("hold ", "write ", "remove /", "install kernel headers", "start ")


def plan(machine: Mapping[str, Any], wants: Mapping[str, Any]) -> Plan:
    """Decide. A plan with refusals has nothing else that counts."""
    gpu = machine["gpu"]
    if misspelt := rules.misspelt(wants):
        return Plan(refusals=tuple(misspelt))
    install = str(wants["install"]).lower()
    if install == "false":
        return Plan(skip="nvidia_driver_install is false")
    if install == "auto" and machine["container"]:
        return Plan(skip=f"a container ({machine['container']}) runs on the driver of its computer")
    if install == "auto" and not gpu["gpus"]:
        return Plan(skip="there is no NVIDIA GPU on the bus")
    branch, version = int(wants["branch"]), str(wants["version"])
    system = packages.system(str(machine["os"]["id"]), str(machine["os"]["version"]))
    if system is None:
        return Plan(refusals=(rules.unknown_system(machine["os"]),))
    source = rules.source(wants, system, gpu["secure_boot"])
    prefer = packages.flavour_kept_up(system, source)
    flavour, flavour_refusals = rules.flavour(str(wants["modules"]), gpu["gpus"], branch, prefer=prefer)
    manager, manager_refusals = rules.fabric_manager(wants, gpu, system, source, branch)
    refusals = [
        *flavour_refusals,
        *manager_refusals,
        *driver_refusals.refusals(machine, wants, system, source, branch),
    ]
    warnings = driver_refusals.warnings(machine, wants, branch)
    if refusals:
        return Plan(refusals=tuple(refusals), warnings=tuple(warnings), source=source, branch=branch)

    # Signed modules come ready-made for a kernel; elsewhere DKMS builds them.
    signed = source == "distribution" and system.id == "ubuntu" and gpu["secure_boot"] is True
    kernels = tuple(str(kernel) for kernel in wants["kernels"]) or tuple(
        dict.fromkeys(filter(None, (gpu["kernel"]["running"], gpu["kernel"]["newest"])))
    )
    url = str(wants["repository"]) or packages.folder(system, str(machine["architecture"]))
    # Where Fabric Manager runs, the driver cannot move without it: what is installed counts as the version asked for.
    there = installed_version(gpu["packages"])
    pinned = version or (there if manager and there.startswith(f"{branch}.") else "")
    files = packages.module_files(system)
    if system.family == "Debian":
        files |= packages.apt_files(system, source, branch, pinned, url, gpu["apt"])
    else:
        files |= packages.dnf_files(url)
    made = Plan(
        warnings=tuple(warnings),
        source=source,
        branch=branch,
        version=pinned,
        flavour=flavour,
        family=system.family,
        kernels=kernels,
        key=_key(system, source, url, wants),
        files=files,
        stream=packages.stream(system, branch, flavour),
        install=_install(system, source, branch, flavour, kernels, signed, wants),
        fabric_manager=manager,
        needless=rules.needless(gpu, manager, wants),
        hold_kernels=bool(wants["hold_kernels"]),
        obsolete=tuple(path for path in packages.FILES if path not in files and gpu["files"].get(path) is not None),
    )
    pending = tuple(difference(gpu, made))
    return replace(made, pending=pending, disruptive=any(not entry.startswith(_HARMLESS) for entry in pending))


def newest_common(madison: str, driver: str, manager: str, wanted: str) -> str:
    """Return the newest version that both packages are offered in, from ``apt-cache madison``; empty for none.

    Fabric Manager's can lag behind the driver's, and refuses to run with another one. ``wanted`` is what the version
    has to begin with.
    """
    offered: dict[str, set[str]] = {driver: set(), manager: set()}
    for line in madison.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) == 3 and cells[0] in offered:
            offered[cells[0]].add(cells[1].split(":", 1)[-1].rsplit("-", 1)[0])
    both = [version for version in offered[driver] & offered[manager] if f"{version}.".startswith(f"{wanted}.")]
    return max(both, key=numbers, default="")


def _key(system: packages.System, source: str, url: str, wants: Mapping[str, Any]) -> dict[str, Any]:
    if source == "distribution":
        return {}
    path = packages.APT_KEY if system.family == "Debian" else packages.RPM_KEY
    return {
        "path": path,
        "url": str(wants["keyring"]) or f"{url.rstrip('/')}/{system.key}",
        "fingerprints": [str(wants["fingerprint"]) or system.fingerprint],
    }


def _install(
    system: packages.System,
    source: str,
    branch: int,
    flavour: str,
    kernels: tuple[str, ...],
    signed: bool,
    wants: Mapping[str, Any],
) -> tuple[tuple[str, ...], ...]:
    named = [str(name) for name in wants["packages"]]
    driver = named or packages.driver(system, source, branch, flavour, kernels, signed=signed)
    steps = (
        packages.pinning(system, source, branch),
        packages.headers(system, kernels, signed=signed),
        driver,
    )
    return tuple(tuple(step) for step in steps if step)
