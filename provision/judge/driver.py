"""Whether a machine's NVIDIA driver is as planned, whole, and run by the kernel: judgements of the GPU facts. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from provision.judge import managed
from provision.judge.driver_modules import AGAIN, modules, secure_boot
from provision.model import gpu_facts
from provision.model.checks import Check, Subject, Verdict
from provision.model.text import brief
from provision.nvidia.driver import plan
from provision.nvidia.driver_plan import Finding, Plan
from provision.nvidia.driver_state import Activation, activation, installed_version, unheld

#: What is asked for, against what the tables know and what is installed; then the driver itself.
_ASKED = (
    "settings", "system", "virtual", "branch", "version", "source", "cuda", "branches", "runfile", "flavour",
    "secure_boot",
)  # fmt: skip
_THERE = ("loaded", "module", "packages", "hold", "files", "lock", "fabric_manager", "nouveau", "gpus", "kernel")
SUBJECT = Subject("nvidia_driver", names=(*_ASKED, *_THERE), fix="clusterctl provision gpu")
#: What is judged before a driver is changed, and only then.
BEFORE = Subject("nvidia_driver", names=("processes",), before=True)
#: Processes that are shown.
_SHOWN = 10


def checks(machine: object, wants: Mapping[str, Any]) -> list[Check]:
    """Return every check of a machine. ``machine`` is what ``machine_facts`` answered, whatever that is."""
    try:
        told = gpu_facts.read(machine)
    except ValueError as error:
        return SUBJECT.all_unknown(str(error), cause="the machine's Python or one of its programs gives wrong answers")
    planned = plan(told, wants)
    if planned.skip:
        return SUBJECT.all_skipped(planned.skip)
    gpu = told["gpu"]
    if planned.refusals:
        found = [*refused(planned), *_machine(gpu)]
        judged = {check.id for check in found}
        why = "not judged, because the request is refused"
        return found + [
            SUBJECT.skip(name, why, unproven=True)
            for name, check_id in zip(SUBJECT.names, SUBJECT.ids, strict=True)
            if check_id not in judged
        ]
    state = activation(gpu, planned.flavour)
    return [
        *_asked(planned),
        *_version(gpu, planned, state),
        *modules(SUBJECT, gpu, planned),
        *secure_boot(SUBJECT, gpu, planned),
        *_packages(told, planned),
        _fabric_manager(gpu, planned),
        _kernel(gpu, planned),
        *_machine(gpu),
    ]


def preflight(machine: Mapping[str, Any], planned: Plan, wants: Mapping[str, Any]) -> list[Check]:
    """Return what keeps a machine's driver from being changed, before anything is."""
    refusals = [replace(check, before=True) for check in refused(planned) if check.verdict is Verdict.FAIL]
    return [*refusals, *in_the_way(machine["gpu"], planned, wants)]


def in_the_way(gpu: Mapping[str, Any], planned: Plan, wants: Mapping[str, Any]) -> list[Check]:
    """Return what is judged before a driver is changed: whether processes that Slurm does not know hold GPUs.

    They would lose their libraries, and then the machine: a drain waits for Slurm's jobs alone.
    """
    if planned.refusals or not planned.disruptive:
        return [BEFORE.skip("processes", planned.skip or "the driver is not changed")]
    there = [one for one in gpu["holders"] if not one["slurm"]]
    told = [
        f"pid {one['pid']} of {one['user'][:40]}{' in container ' + one['container'] if one['container'] else ''}: "
        f"{one['command'][:120]}"
        for one in there
    ]
    allowed = str(wants["processes_allowed"]).lower() in ("true", "yes", "1")
    return [
        BEFORE.check(
            "processes",
            Verdict.PASS if not there else Verdict.WARN if allowed else Verdict.FAIL,
            brief(told, _SHOWN) or "none",
            "no process on a GPU that Slurm does not know",
            source="/proc/*/fd",
            cause="they would lose their GPUs when the driver is changed, and the machine may be rebooted. "
            "Nothing was changed",
            fix="end them, or let them end; or, to change the driver under them, nvidia_driver_processes_allowed: true",
        )
    ]


def refused(planned: Plan) -> list[Check]:
    """Return the checks of what a plan refuses and warns of."""
    return [
        *(_finding(item, Verdict.FAIL) for item in planned.refusals),
        *(_finding(item, Verdict.WARN) for item in planned.warnings),
    ]


def _finding(item: Finding, verdict: Verdict) -> Check:
    return SUBJECT.check(item.id, verdict, item.observed, cause=item.cause, fix=item.fix)


def _asked(planned: Plan) -> Iterator[Check]:
    """Yield a plan's warnings, and what nothing is to be said of. What the machine decides is judged further down."""
    yield from refused(planned)
    warned = {item.id for item in planned.warnings}
    good = {
        "settings": "known words",
        "system": "one that the tables know",
        "virtual": "GPUs of this machine's own, and no others",
        "branch": f"branch {planned.branch}, which drives these GPUs",
        "source": planned.source,
        "cuda": "no toolkit that is too new for the branch",
        "branches": "one branch",
        "runfile": "no driver from a .run file",
    }
    yield from (SUBJECT.check(name, True, seen) for name, seen in good.items() if name not in warned)


def _kernel(gpu: Mapping[str, Any], planned: Plan) -> Check:
    running, newest = str(gpu["kernel"]["running"]), str(gpu["kernel"]["newest"])
    if not planned.newest_kernel:
        return SUBJECT.skip("kernel", "no newer kernel was asked for")
    if not gpu["kernel_packages"]:
        why = "no package that brings new kernels is installed (linux-image-amd64, linux-generic)"
        return SUBJECT.check("kernel", Verdict.WARN, why, fix="install the kernel of your choice, then provision gpu")
    return SUBJECT.check(
        "kernel",
        not newest or newest == running,
        running,
        newest or running,
        source="nvidia_driver_newest_kernel",
        cause="the machine has not booted the newest kernel that is installed",
        fix="clusterctl provision gpu --kernel; if it stays, see what the boot loader chooses (GRUB_DEFAULT)",
    )


def _version(gpu: Mapping[str, Any], planned: Plan, state: Activation) -> Iterator[Check]:
    """Compare packages, libraries and the loaded module: peers in one version, or nothing works."""
    wanted = planned.version or f"{planned.branch}.x"
    found = installed_version(gpu["packages"])
    good = f"{found}.".startswith(f"{planned.version or planned.branch}.")
    yield SUBJECT.check(
        "version",
        bool(found) and good,
        found or "no driver package",
        wanted,
        source="nvidia_driver_version" if planned.version else "nvidia_driver_branch",
        cause="another driver is installed, or none",
    )
    loaded, library = str(gpu["module"]["loaded"]), str(gpu["library"])
    if not loaded:
        if not gpu["gpus"]:
            yield SUBJECT.skip("loaded", f"not proven: {state.reason}", unproven=True)
            return
        yield SUBJECT.check(
            "loaded",
            False,
            f"no nvidia module is loaded: {state.reason}",
            "the module loaded and every GPU seen",
            cause="jobs cannot use the GPUs",
            fix=AGAIN,
        )
        return
    parts = [f"module {loaded} is loaded", f"libraries are {library or 'missing'}", *_on_disk(gpu)]
    yield SUBJECT.check(
        "loaded",
        loaded == library and state.action in ("none", "unknown"),
        ", ".join(parts),
        "one version everywhere",
        cause="the packages were replaced while the old module stayed loaded" if loaded != library else state.reason,
        fix=AGAIN,
    )


def _on_disk(gpu: Mapping[str, Any]) -> list[str]:
    module = gpu["module"]["on_disk"].get(gpu["kernel"]["running"])
    return [f"{module.get('version', '')} is on disk"] if module else []


def _packages(machine: Mapping[str, Any], planned: Plan) -> Iterator[Check]:
    gpu = machine["gpu"]
    broken = sorted({name for name, info in gpu["packages"].items() if not info["complete"]})
    yield SUBJECT.check(
        "packages",
        not broken,
        ", ".join(broken) or "all complete",
        "all complete",
        cause="an installation was stopped half-way",
        fix="clusterctl provision base gpu",
    )
    moving = unheld(gpu, kernels=planned.hold_kernels)
    yield SUBJECT.check(
        "hold",
        not moving,
        f"free to move: {', '.join(moving)}" if moving else "all held",
        "every package of the driver held",
        cause="the next upgrade would replace libraries under running jobs",
    )
    yield managed.files(SUBJECT, planned.managed(), gpu["files"], {})
    holder = machine["lock"]["holder"]
    yield SUBJECT.check(
        "lock",
        Verdict.WARN if holder else Verdict.PASS,
        f"held by pid {holder['pid']}: {str(holder['command'])[:120]}" if holder else "free",
        "free",
        cause="another package manager is at work, often unattended-upgrades",
        fix="wait for it to end",
    )


def _fabric_manager(gpu: Mapping[str, Any], planned: Plan) -> Check:
    """Judge Fabric Manager: exactly the driver's version where there are NVSwitches, and nowhere else."""
    name, manager = "fabric_manager", gpu["fabric_manager"]
    if planned.needless:
        return SUBJECT.check(
            name,
            Verdict.WARN,
            f"{', '.join(planned.needless)} is installed, and there is no NVSwitch",
            "none",
            cause="its service fails without one, and looks like a fault",
            fix="clusterctl provision gpu removes it",
        )
    if not planned.fabric_manager:
        return SUBJECT.skip(name, "there is no NVSwitch")
    driver = str(gpu["module"]["loaded"]) or installed_version(gpu["packages"])
    state = "running" if manager["active"] else "not running"
    seen = f"fabricmanager {manager['version']}, {state}" if manager["version"] else "no fabricmanager"
    same = manager["version"] == driver
    seen = f"{len(gpu['nvswitches'])} NVSwitches, driver {driver}, {seen}"
    if same and not gpu["gpus"]:
        return SUBJECT.skip(name, f"not proven: {seen}", unproven=True)
    return SUBJECT.check(
        name,
        same and bool(manager["active"]),
        seen,
        f"fabricmanager {driver}, running",
        source="the NVSwitches on the bus",
        cause="CUDA ends with error 802 (system not yet initialized)",
        fix="clusterctl provision gpu installs the driver's own version; journalctl -u nvidia-fabricmanager",
    )


def _machine(gpu: Mapping[str, Any]) -> Iterator[Check]:
    """Judge what does not depend on a plan: nouveau, and GPUs that are gone."""
    bound = gpu["nouveau"]["bound"]
    told = "" if gpu["nouveau"]["blacklisted"] else ", and is not blacklisted"
    yield SUBJECT.check(
        "nouveau",
        not bound,
        f"nouveau holds {len(bound)} GPUs ({', '.join(bound)}){told}" if bound else "no GPU held by nouveau",
        "no GPU held by nouveau",
        cause="it was loaded before the blacklist was in the initramfs",
        fix="clusterctl provision gpu: blacklist, new initramfs, one reboot",
    )
    if gpu["module"]["loaded"]:
        yield _gpus(gpu)
    else:
        yield SUBJECT.skip("gpus", "no driver is loaded to ask", unproven=True)


def _gpus(gpu: Mapping[str, Any]) -> Check:
    name, smi, source = "gpus", gpu["smi"], "the PCI bus"
    here = [item["address"] for item in gpu["gpus"]]
    if smi["silent"]:
        fix = "on the machine: dmesg | grep -i -e nvrm -e xid; a reboot if it stays so"
        return SUBJECT.unknown(name, smi["error"], cause="the driver waits for a GPU, or the program is none", fix=fix)
    listed = {item["address"] for item in smi["gpus"]}
    missing = [address for address in here if address not in listed]
    strange = sorted(listed - {*here, *gpu["passed_through"]})
    if smi["error"] and not (listed and missing):
        mismatch = "mismatch" in smi["error"]
        return SUBJECT.check(
            name,
            False,
            f"nvidia-smi: {smi['error']}",
            f"{len(here)} GPUs",
            source=source,
            cause="the libraries do not fit the loaded module" if mismatch else "the driver does not answer",
            fix=AGAIN if mismatch else "on the machine: dmesg | grep -i -e nvrm -e xid",
        )
    seen = f"lspci sees {len(here)}, nvidia-smi {len(listed)}"
    if strange and not missing:
        cause, fix = "the program nvidia-smi is not NVIDIA's", "on the machine: command -v nvidia-smi"
        seen += f": {', '.join(strange[:8])} are not on the bus"
        return SUBJECT.check(name, False, seen, f"{len(here)} GPUs", source=source, cause=cause, fix=fix)
    guests = f"; {', '.join(gpu['passed_through'])} given to virtual machines" if gpu["passed_through"] else ""
    return SUBJECT.check(
        name,
        not missing,
        seen + (f": {', '.join(missing)} fell off the bus" if missing else guests),
        f"{len(here)} GPUs",
        source=source,
        cause="hardware, not configuration (Xid 79)",
        fix="on the machine: dmesg | grep -i xid; power it off and on, reseat or replace the GPU",
    )
