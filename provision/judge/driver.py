"""Whether a machine's NVIDIA driver is as planned, whole, and run by the kernel: judgements of the GPU facts. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from provision.judge.preflight import check
from provision.nvidia.driver import Plan, plan
from provision.nvidia.driver_rules import Finding
from provision.nvidia.driver_state import Activation, activation, installed_version, is_open, unheld

_AGAIN = "clusterctl provision gpu: it drains the node, waits for its jobs, then reloads the module or reboots once"


def checks(machine: Mapping[str, Any], wants: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return every check of a machine. One that gets no driver has one check, which says why."""
    planned = plan(machine, wants)
    if planned.skip:
        return [check("nvidia_driver.version", "skip", planned.skip, source="nvidia_driver_install")]
    if planned.refusals:
        return [*refused(planned), *_machine(machine["gpu"])]
    gpu = machine["gpu"]
    state = activation(gpu, planned.flavour)
    return [
        *(_finding(item, "warn") for item in planned.warnings),
        *_version(gpu, planned, state),
        *(_module(gpu, kernel, planned) for kernel in planned.kernels),
        *_secure_boot(gpu, planned),
        *_packages(machine, planned),
        *_fabric_manager(gpu, planned),
        *_machine(gpu),
    ]


def refused(planned: Plan) -> list[dict[str, Any]]:
    """Return the checks of what a plan refuses and warns of."""
    return [
        *(_finding(item, "fail") for item in planned.refusals),
        *(_finding(item, "warn") for item in planned.warnings),
    ]


def _finding(item: Finding, verdict: str) -> dict[str, Any]:
    return check(f"nvidia_driver.{item.id}", verdict, item.observed, cause=item.cause, fix=item.fix)


def _version(gpu: Mapping[str, Any], planned: Plan, state: Activation) -> Iterator[dict[str, Any]]:
    """Compare packages, libraries and the loaded module: peers in one version, or nothing works."""
    wanted = planned.version or f"{planned.branch}.x"
    found = installed_version(gpu["packages"])
    good = f"{found}.".startswith(f"{planned.version or planned.branch}.")
    yield check(
        "nvidia_driver.version",
        bool(found) and good,
        found or "no driver package",
        wanted,
        source="nvidia_driver_version" if planned.version else "nvidia_driver_branch",
        cause="another driver is installed, or none",
        fix="clusterctl provision gpu",
    )
    loaded, library = str(gpu["module"]["loaded"]), str(gpu["library"])
    if not loaded:
        yield check(
            "nvidia_driver.loaded",
            "skip" if not gpu["gpus"] else "fail",
            f"not proven: {state.reason}" if not gpu["gpus"] else f"no nvidia module is loaded: {state.reason}",
            "the module loaded and every GPU seen",
            cause="" if not gpu["gpus"] else "jobs cannot use the GPUs",
            fix="" if not gpu["gpus"] else _AGAIN,
        )
        return
    parts = [f"module {loaded} is loaded", f"libraries are {library or 'missing'}", *_on_disk(gpu)]
    yield check(
        "nvidia_driver.loaded",
        loaded == library and state.action in ("none", "unknown"),
        ", ".join(parts),
        "one version everywhere",
        cause="the packages were replaced while the old module stayed loaded" if loaded != library else state.reason,
        fix=_AGAIN,
    )


def _on_disk(gpu: Mapping[str, Any]) -> list[str]:
    module = gpu["module"]["on_disk"].get(gpu["kernel"]["running"])
    return [f"{module['version']} is on disk"] if module else []


def _module(gpu: Mapping[str, Any], kernel: str, planned: Plan) -> dict[str, Any]:
    """Judge the module on disk for one kernel: there, of the driver's version, of the right flavour."""
    module, name = gpu["module"]["on_disk"].get(kernel), "nvidia_driver.module"
    found = installed_version(gpu["packages"])
    expected = f"{found or planned.branch}, {planned.flavour}, for {kernel}"
    when = "is running" if kernel == gpu["kernel"]["running"] else "will boot next"
    if module is None and kernel in gpu["module"]["on_disk"]:
        return check(
            name,
            "unknown",
            f"modinfo cannot describe the module for {kernel}",
            expected,
            cause="the file is damaged, or depmod has not seen it",
            fix=f"on the machine: depmod {kernel}; {_AGAIN}",
        )
    if not module:
        others = [other for other, info in gpu["module"]["on_disk"].items() if info]
        lacking = gpu["kernel"]["headers"].get(kernel) is not True
        seen = f"{kernel} {when} and has no nvidia module" + (" (its headers are missing)" if lacking else "")
        seen += f"; the module exists for {', '.join(others)}" if others else "; no kernel has one"
        package = f"kernel-devel-{kernel}" if planned.family == "RedHat" else f"linux-headers-{kernel}"
        return check(
            name,
            False,
            seen,
            expected,
            source="the kernels that run and boot next",
            cause="; ".join(gpu["dkms"]) or "DKMS has built nothing for it",
            fix=f"clusterctl provision gpu (installs {package}), or boot and hold the other kernel",
        )
    flavour = "open" if is_open(module) else "proprietary"
    good = (not found or module["version"] == found) and flavour == planned.flavour
    cause = f"{_products(gpu)} needs the {planned.flavour} kernel module"
    if flavour == planned.flavour:
        cause = "the module of an older driver was left, or the new one could not be built"
    return check(
        "nvidia_driver.flavour" if flavour != planned.flavour else name,
        good,
        f"{module['version']}, {flavour}, for {kernel}",
        expected,
        source="nvidia_driver_modules",
        cause=cause,
        fix=_AGAIN,
    )


def _products(gpu: Mapping[str, Any]) -> str:
    return ", ".join(dict.fromkeys(str(item["product"] or item["id"]) for item in gpu["gpus"])) or "the machine"


def _secure_boot(gpu: Mapping[str, Any], planned: Plan) -> Iterator[dict[str, Any]]:
    if gpu["secure_boot"] is not True:
        return
    for kernel in planned.kernels:
        module = gpu["module"]["on_disk"].get(kernel)
        if module:
            yield check(
                "nvidia_driver.secure_boot",
                bool(module["signer"]),
                f"the module for {kernel} is signed by {module['signer'] or 'nobody'}",
                "a signer that the firmware knows",
                cause="Secure Boot is on, and the kernel refuses a module without a signature",
                fix="nvidia_driver_source: distribution on Ubuntu; or enrol DKMS's key (mokutil --import)",
            )


def _packages(machine: Mapping[str, Any], planned: Plan) -> Iterator[dict[str, Any]]:
    gpu = machine["gpu"]
    broken = sorted({name for name, info in gpu["packages"].items() if not info["complete"]})
    yield check(
        "nvidia_driver.packages",
        not broken,
        ", ".join(broken) or "all complete",
        "all complete",
        cause="an installation was stopped half-way",
        fix="clusterctl provision base gpu",
    )
    moving = unheld(gpu, kernels=planned.hold_kernels)
    yield check(
        "nvidia_driver.hold",
        not moving,
        f"free to move: {', '.join(moving)}" if moving else "all held",
        "every package of the driver held",
        cause="the next upgrade would replace libraries under running jobs",
        fix="clusterctl provision gpu",
    )
    differ = [path for path, text in planned.files.items() if gpu["files"].get(path) != text]
    yield check(
        "nvidia_driver.files",
        not differ,
        ", ".join(differ) or "as written",
        "as written",
        cause="somebody changed or removed what keeps the driver where it is",
        fix="clusterctl provision gpu",
    )
    holder = machine["lock"]["holder"]
    if holder:
        yield check(
            "nvidia_driver.lock",
            "warn",
            f"held by pid {holder['pid']}: {str(holder['command'])[:120]}",
            "free",
            cause="another package manager is at work, often unattended-upgrades",
            fix="wait for it to end",
        )


def _fabric_manager(gpu: Mapping[str, Any], planned: Plan) -> Iterator[dict[str, Any]]:
    """Judge Fabric Manager: exactly the driver's version where there are NVSwitches, and nowhere else."""
    name, manager = "nvidia_driver.fabric_manager", gpu["fabric_manager"]
    if not planned.fabric_manager:
        if planned.needless:
            yield check(
                name,
                "warn",
                f"{', '.join(planned.needless)} is installed, and there is no NVSwitch",
                "none",
                cause="its service fails without one, and looks like a fault",
                fix="clusterctl provision gpu removes it",
            )
        else:
            yield check(name, "skip", "there is no NVSwitch")
        return
    driver = str(gpu["module"]["loaded"]) or installed_version(gpu["packages"])
    state = "running" if manager["active"] else "not running"
    seen = f"fabricmanager {manager['version']}, {state}" if manager["version"] else "no fabricmanager"
    same, proven = manager["version"] == driver, bool(gpu["gpus"])
    yield check(
        name,
        "skip" if same and not proven else same and manager["active"],
        f"{'' if proven or not same else 'not proven: '}{len(gpu['nvswitches'])} NVSwitches, driver {driver}, {seen}",
        f"fabricmanager {driver}, running",
        source="the NVSwitches on the bus",
        cause="CUDA ends with error 802 (system not yet initialized)",
        fix="clusterctl provision gpu installs the driver's own version; journalctl -u nvidia-fabricmanager",
    )


def _machine(gpu: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Judge what does not depend on a plan: nouveau, and GPUs that are gone."""
    bound = gpu["nouveau"]["bound"]
    if bound:
        told = "" if gpu["nouveau"]["blacklisted"] else ", and is not blacklisted"
        yield check(
            "nvidia_driver.nouveau",
            False,
            f"nouveau holds {len(bound)} GPUs ({', '.join(bound)}){told}",
            "no GPU held by nouveau",
            cause="it was loaded before the blacklist was in the initramfs",
            fix="clusterctl provision gpu: blacklist, new initramfs, one reboot",
        )
    if gpu["module"]["loaded"]:
        yield _gpus(gpu)


def _gpus(gpu: Mapping[str, Any]) -> dict[str, Any]:
    name, smi = "nvidia_driver.gpus", gpu["smi"]
    here = [item["address"] for item in gpu["gpus"] if item["driver"] != "vfio-pci"]
    listed = {item["address"] for item in smi["gpus"]}
    missing = [address for address in here if address not in listed]
    if smi["error"] and not listed:
        mismatch = "mismatch" in smi["error"]
        return check(
            name,
            False,
            f"nvidia-smi: {smi['error']}",
            f"{len(here)} GPUs",
            source="the PCI bus",
            cause="the libraries do not fit the loaded module" if mismatch else "the driver does not answer",
            fix=_AGAIN if mismatch else "on the machine: dmesg | grep -i -e nvrm -e xid",
        )
    return check(
        name,
        not missing,
        f"lspci sees {len(here)}, nvidia-smi {len(listed)}"
        + (f": {', '.join(missing)} fell off the bus" if missing else ""),
        f"{len(here)} GPUs",
        source="the PCI bus",
        cause="hardware, not configuration (Xid 79)",
        fix="on the machine: dmesg | grep -i xid; power it off and on, reseat or replace the GPU",
    )
