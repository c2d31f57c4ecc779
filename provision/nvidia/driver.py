"""What NVIDIA's driver on a machine should be, what stands in the way, and what there is to do. Pure.

``machine`` is what the module ``machine_facts`` reports with ``gather: [gpu]``. ``wants`` are the role's variables by
their names without ``nvidia_driver_``. A refusal names the place, the value and the way out, and comes before anything
is downloaded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from provision.nvidia import driver_packages as packages
from provision.nvidia import driver_refusals
from provision.nvidia import driver_rules as rules
from provision.nvidia.driver_plan import Plan
from provision.nvidia.driver_state import difference, installed_version
from provision.nvidia.releases import version as numbers


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
        guests = gpu.get("passed_through")
        given = (
            f"its GPUs are given to virtual machines ({', '.join(guests)}); none is this machine's" if guests else ""
        )
        return Plan(skip=given or "there is no NVIDIA GPU on the bus")
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
    offered = wants.get("kernels_offered")
    missing = None if offered is None else packages.kernels_offered(str(offered))
    newest = bool(wants["newest_kernel"])
    kernels = _kernels(gpu, wants, (gpu["kernel"]["newest"], *(missing or ())) if newest else ())
    url = str(wants["repository"]) or packages.folder(system, str(machine["architecture"]))
    # Where Fabric Manager runs, the driver cannot move without it: what is installed counts as the version asked for.
    there = installed_version(gpu["packages"])
    pinned = version or (there if manager and there.startswith(f"{branch}.") else "")
    files = packages.module_files(system) | packages.apt_files(system, source, branch, pinned, url, gpu["apt"])
    absent = tuple(path for path in packages.FILES if path not in files)
    made = Plan(
        warnings=tuple(warnings),
        source=source,
        branch=branch,
        version=pinned,
        flavour=flavour,
        kernels=kernels,
        key=_key(system, source, url, wants),
        files=files,
        install=_install(system, source, branch, flavour, kernels, signed, wants),
        fabric_manager=manager,
        fabric=tuple(packages.fabric(system, source, branch)) if manager else (),
        repository="" if source == "distribution" else url,
        needless=rules.needless(gpu, manager, wants),
        hold_kernels=bool(wants["hold_kernels"]),
        newest_kernel=newest,
        kernels_offered=missing,
        absent=absent,
        obsolete=tuple(path for path in absent if gpu["files"].get(path, {}).get("kind", "absent") != "absent"),
    )
    pending = tuple(difference(gpu, made))
    return replace(made, pending=pending, disruptive=any(step.disruptive for step in pending))


def newest_common(offered: str, planned: Plan) -> str:
    """Return the newest version in which the plan's source has the driver and all that must be of its version.

    ``offered`` are lines ``name | version | origin`` as ``apt-cache madison`` prints them; empty for no such version.
    Fabric Manager's can lag behind the driver's, and refuses to run with another one. What another source has under
    the same name does not count: Ubuntu's archive has packages of these names that conflict with NVIDIA's.
    """
    names = _versioned(planned)
    found: dict[str, set[str]] = {name: set() for name in names}
    for line in offered.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) == 3 and cells[0] in found and _same_source(cells[2], planned.repository):
            found[cells[0]].add(cells[1].split(":", 1)[-1].rsplit("-", 1)[0])
    wanted = planned.version or str(planned.branch)
    common = set.intersection(*found.values()) if found else set()
    return max((one for one in common if f"{one}.".startswith(f"{wanted}.")), key=numbers, default="")


def exactly(planned: Plan) -> tuple[str, ...]:
    """Return all packages of a plan as the package manager is asked for them together, with versions where known."""
    version = f"{planned.version}*" if planned.version else f"{planned.branch}.*"
    exact = _versioned(planned) if planned.version else planned.fabric
    return tuple(
        f"{name}={version}" if name in exact else name
        for name in dict.fromkeys([*(name for step in planned.install for name in step), *planned.fabric])
    )


def _versioned(planned: Plan) -> tuple[str, ...]:
    """Return the packages whose version is the driver's. Modules made for a kernel have the kernel's."""
    driver = planned.install[-1] if planned.install else ()
    return (*(name for name in driver if not name.startswith("linux-modules-")), *planned.fabric)


def _same_source(origin: str, repository: str) -> bool:
    if not repository:
        return packages.REPOSITORIES not in origin
    address = re.sub(r"^file:/+", "file:/", repository.rstrip("/"))
    return f"{origin} ".replace("/ ", " ").startswith(f"{address} ")


def _kernels(gpu: Mapping[str, Any], wants: Mapping[str, Any], newer: Iterable[str]) -> tuple[str, ...]:
    """Return the kernels that must have the module; ``newer`` are those that the machine is to boot."""
    declared = [str(kernel) for kernel in wants["kernels"]]
    found = declared or [gpu["kernel"]["running"], gpu["kernel"]["newest"]]
    return tuple(dict.fromkeys(filter(None, (*found, *newer))))


def _key(system: packages.System, source: str, url: str, wants: Mapping[str, Any]) -> dict[str, Any]:
    if source == "distribution":
        return {}
    ours = "" if wants["keyring"] or wants["fingerprint"] else packages.KEYS[system.fingerprint]
    return {
        "path": packages.APT_KEY,
        "file": ours,
        "url": "" if ours else str(wants["keyring"]) or f"{url.rstrip('/')}/{system.key}",
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
        packages.pinning(source, branch),
        packages.headers(kernels, signed=signed),
        driver,
    )
    return tuple(tuple(step) for step in steps if step)
