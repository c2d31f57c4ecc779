"""Are the driver's kernel modules on disk as planned, and may they be loaded? Parts of the driver's judgement. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from provision.model.checks import Check, Subject
from provision.nvidia.driver_plan import Plan
from provision.nvidia.driver_state import installed_version, is_open

AGAIN = "clusterctl provision gpu: it drains the node, waits for its jobs, then reloads the module or reboots once"


def modules(subject: Subject, gpu: Mapping[str, Any], planned: Plan) -> list[Check]:
    """Judge the modules on disk: of each kernel that one is there, and of all that they are of the right flavour."""
    found = [_module(subject, gpu, kernel, planned) for kernel in planned.kernels]
    names = {check.id for check in found}
    if subject.name + ".module" not in names:
        found.append(subject.skip("module", "judged by its flavour"))
    if subject.name + ".flavour" not in names:
        described = any(gpu["module"]["on_disk"].get(kernel) for kernel in planned.kernels)
        found.append(
            subject.check("flavour", True, planned.flavour, planned.flavour, source="nvidia_driver_modules")
            if described
            else subject.skip("flavour", "no kernel that is asked for has a module", unproven=True)
        )
    return found


def _module(subject: Subject, gpu: Mapping[str, Any], kernel: str, planned: Plan) -> Check:
    """Judge the module on disk for one kernel: there, of the driver's version, of the right flavour."""
    module, name = gpu["module"]["on_disk"].get(kernel), "module"
    found = installed_version(gpu["packages"])
    expected = f"{found or planned.branch}, {planned.flavour}, for {kernel}"
    when = "is running" if kernel == gpu["kernel"]["running"] else "will boot next"
    if module is None and kernel in gpu["module"]["on_disk"]:
        return subject.unknown(
            name,
            f"modinfo cannot describe the module for {kernel}",
            cause="the file is damaged, or depmod has not seen it",
            fix=f"on the machine: depmod {kernel}; {AGAIN}",
        )
    if not module:
        others = [other for other, info in gpu["module"]["on_disk"].items() if info]
        lacking = gpu["kernel"]["headers"].get(kernel) is not True
        seen = f"{kernel} {when} and has no nvidia module" + (" (its headers are missing)" if lacking else "")
        seen += f"; the module exists for {', '.join(others)}" if others else "; no kernel has one"
        return subject.check(
            name,
            False,
            seen,
            expected,
            source="the kernels that run and boot next",
            cause="; ".join(gpu["dkms"]) or "DKMS has built nothing for it",
            fix=f"clusterctl provision gpu (installs linux-headers-{kernel}), or boot and hold the other kernel",
        )
    flavour = "open" if is_open(module) else "proprietary"
    version = module.get("version", "")
    good = (not found or version == found) and flavour == planned.flavour
    cause = f"{_products(gpu)} needs the {planned.flavour} kernel module"
    if flavour == planned.flavour:
        cause = "the module of an older driver was left, or the new one could not be built"
    return subject.check(
        "flavour" if flavour != planned.flavour else name,
        good,
        f"{version}, {flavour}, for {kernel}",
        expected,
        source="nvidia_driver_modules",
        cause=cause,
        fix=AGAIN,
    )


def _products(gpu: Mapping[str, Any]) -> str:
    return ", ".join(dict.fromkeys(str(item["product"] or item["id"]) for item in gpu["gpus"])) or "the machine"


def secure_boot(subject: Subject, gpu: Mapping[str, Any], planned: Plan) -> Iterator[Check]:
    """Judge whether the firmware lets the modules be loaded. Where it cannot be asked, the plan has warned."""
    if gpu["secure_boot"] is False:
        yield subject.skip("secure_boot", "Secure Boot is off")
    if gpu["secure_boot"] is not True:
        return
    there = {kernel: gpu["module"]["on_disk"].get(kernel) for kernel in planned.kernels}
    if not any(there.values()):
        yield subject.skip("secure_boot", "there is no module whose signature could be asked for", unproven=True)
    for kernel, module in there.items():
        if module:
            signer = module.get("signer", "")
            yield subject.check(
                "secure_boot",
                bool(signer),
                f"the module for {kernel} is signed by {signer or 'nobody'}",
                "a signer that the firmware knows",
                cause="Secure Boot is on, and the kernel refuses a module without a signature",
                fix="nvidia_driver_source: distribution on Ubuntu; or enrol DKMS's key (mokutil --import)",
            )
