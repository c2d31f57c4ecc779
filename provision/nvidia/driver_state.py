"""How a machine's driver differs from its plan, and what it takes to put the one on disk into the kernel. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from provision.model.consequences import Consequence, Kind
from provision.model.places import difference as differs
from provision.nvidia.driver_plan import Plan, Step, StepKind
from provision.nvidia.releases import version as numbers

#: Packages whose version is the driver's. Others (persistenced in Debian, settings) have versions of their own.
_CORE = re.compile(
    r"(nvidia-driver(-\d+)?(-server)?(-open)?|nvidia-driver-(bin|cuda|libs|cuda-libs)|nvidia-(open-)?kernel-(open-)?dkms"
    r"|nvidia-dkms(-.*)?|nvidia-kernel-source-.*|libnvidia-compute(-.*)?|libcuda1|libnvidia-ml1|nvidia-utils-.*|nvidia-smi"
    r"|linux-modules-nvidia-.*|nvidia-headless-.*|nvidia-open(-\d+)?|cuda-drivers(-\d+)?)"
)

#: What the facts would list if it were installed; dkms and headers are looked for by what they do.
_NAMED = re.compile(r"(lib)?nvidia|linux-modules-nvidia|cuda-drivers|libcuda1")


@dataclass(frozen=True)
class Activation:
    """What it takes for the kernel to run the driver on disk: nothing, a reload, a reboot; or why it is impossible."""

    action: str
    reason: str


def release_of(name: str, info: Mapping[str, Any]) -> int:
    """Return the branch that a package belongs to; 0 for a package whose version is not the driver's.

    The version comes first: a transitional package is named after the branch that it leaves. Modules for a kernel have
    the kernel's version, and the branch in their name.
    """
    if not _CORE.fullmatch(name):
        return 0
    match = re.match(r"(\d{3})\.", str(info["version"])) or re.search(r"-(\d{3})(-|$)", name)
    return int(match[1]) if match else 0


def branches_of(installed: Mapping[str, Mapping[str, Any]]) -> list[int]:
    """Return the branches of the packages that are installed, oldest first."""
    return sorted({release_of(name, info) for name, info in installed.items()} - {0})


def installed_version(installed: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the version of the driver by its packages, without the packager's suffix; empty for none."""
    found = [str(info["version"]).rsplit("-", 1)[0] for name, info in installed.items() if release_of(name, info)]
    return max((version for version in found if re.match(r"\d{3}\.", version)), key=numbers, default="")


def unheld(gpu: Mapping[str, Any], *, kernels: bool) -> list[str]:
    """Return the installed packages that could still move: the driver's whole set, and what brings new kernels."""
    held = {name: bool(info["held"]) for name, info in gpu["packages"].items()}
    if kernels and held:
        held |= gpu["kernel_packages"]
    return sorted(name for name, is_held in held.items() if not is_held)


def unbuilt(gpu: Mapping[str, Any], kernels: Iterable[str]) -> list[str]:
    """Return the kernels whose module is missing, or is of another version than the packages are."""
    found = installed_version(gpu["packages"])
    on_disk = {kernel: gpu["module"]["on_disk"].get(kernel, {}) for kernel in kernels}
    return [kernel for kernel, module in on_disk.items() if module is not None and module.get("version") != found]


def is_open(module: Mapping[str, Any]) -> bool:
    """Tell whether a module on disk is the open one, by its licence."""
    return "GPL" in str(module.get("license"))


def difference(gpu: Mapping[str, Any], plan: Plan) -> Iterator[Step]:
    """Yield what a run would change on disk and in the kernel."""
    found = installed_version(gpu["packages"])
    yield from _kernel_to_change(gpu, plan)
    yield from _packages_to_change(gpu, plan, found)
    yield from (Step(StepKind.WRITE, f"write {path}", disruptive=False) for path in _to_write(gpu, plan))
    yield from (Step(StepKind.REMOVE, f"remove {path}", disruptive=False) for path in plan.obsolete)
    if early := [kernel for kernel in plan.kernels if kernel in gpu["nouveau"]["loads_early"]]:
        told = f"rebuild the initial file system of {', '.join(early)}, which may load nouveau"
        yield Step(StepKind.INITRAMFS, told, disruptive=False)
    if moving := unheld(gpu, kernels=plan.hold_kernels):
        yield Step(StepKind.HOLD, f"hold {', '.join(moving)}", disruptive=False)
    missing = unbuilt(gpu, plan.kernels) if found else []
    for kernel in plan.kernels:
        module = gpu["module"]["on_disk"].get(kernel)
        if kernel in missing:
            yield Step(StepKind.BUILD, f"build the module for {kernel}", kernel)
        elif module and is_open(module) != (plan.flavour == "open"):
            yield Step(StepKind.FLAVOUR, f"replace the module for {kernel} by the {plan.flavour} one", kernel)
    state = activation(gpu, plan.flavour)
    if found and state.action in ("reload", "reboot"):
        yield Step(StepKind(state.action), f"{state.action}: {state.reason}")
    if found and gpu["gpus"] and state.action == "none":
        yield from _services_to_start(gpu, plan)


def _kernel_to_change(gpu: Mapping[str, Any], plan: Plan) -> Iterator[Step]:
    """Yield what brings the machine to the archive's newest kernel, where that was asked for."""
    running, newest = str(gpu["kernel"]["running"]), str(gpu["kernel"]["newest"])
    if not plan.newest_kernel:
        return
    if plan.kernels_offered:
        yield Step(StepKind.KERNEL, f"install kernel {', '.join(plan.kernels_offered)}, and reboot")
    elif newest and newest != running:
        yield Step(StepKind.KERNEL, f"reboot from kernel {running} to {newest}")
    elif plan.kernels_offered is None:
        yield Step(StepKind.KERNEL, f"look for a kernel newer than {running}, install it, and reboot")


def _packages_to_change(gpu: Mapping[str, Any], plan: Plan, found: str) -> Iterator[Step]:
    """Yield what is installed and removed; ``found`` is the driver's version, empty for none."""
    installed = gpu["packages"]
    for step in plan.install:
        missing = [name for name in step if _NAMED.match(name) and name not in installed]
        if missing:
            yield Step(StepKind.INSTALL, f"install {', '.join(missing)}")
    lacking = [kernel for kernel in plan.kernels if gpu["kernel"]["headers"].get(kernel) is not True]
    if lacking and any("dkms" in step for step in plan.install):
        yield Step(StepKind.INSTALL, f"install kernel headers for {', '.join(lacking)}", disruptive=False)
    wanted = plan.version or str(plan.branch)
    if found and not f"{found}.".startswith(f"{wanted}."):
        yield Step(StepKind.REPLACE, f"replace driver {found} by {wanted}")
    if plan.fabric_manager and found and gpu["fabric_manager"]["version"] != found:
        yield Step(StepKind.INSTALL, f"install {plan.fabric_manager} {found}")
    lacking_fabric = [name for name in plan.fabric if name != plan.fabric_manager and name not in installed]
    if lacking_fabric and found:
        # The library that DCGM asks by: jobs do without.
        yield Step(StepKind.INSTALL, f"install {', '.join(lacking_fabric)} {found}", disruptive=False)
    if plan.needless:
        yield Step(StepKind.REMOVE, f"remove {', '.join(plan.needless)}: there is no NVSwitch")


def _services_to_start(gpu: Mapping[str, Any], plan: Plan) -> Iterator[Step]:
    wanted = ["nvidia-persistenced", *(["nvidia-fabricmanager"] if plan.fabric_manager else [])]
    if stopped := [name for name in wanted if name in gpu["services"] and not gpu["services"][name]["active"]]:
        yield Step(StepKind.START, f"start {', '.join(stopped)}", disruptive=False)
    if older := [name for name in wanted if gpu["services"].get(name, {}).get("outdated")]:
        yield Step(StepKind.RESTART, f"restart {', '.join(older)}, older than its unit")


def _to_write(gpu: Mapping[str, Any], plan: Plan) -> Iterator[str]:
    """Yield the files that are not as planned, and directories of theirs: one that is absent comes with its file."""
    wanted, there = plan.managed(), gpu["files"]
    yield from (one.path for one in wanted.files if differs(one, "file", there.get(one.path)))
    made = [one for one in wanted.directories if there.get(one.path, {}).get("kind") == "directory"]
    yield from (one.path for one in made if differs(one, "directory", there[one.path]))


def activation(gpu: Mapping[str, Any], flavour: str) -> Activation:
    """Return what it takes for the running kernel to run the driver that is on disk for it."""
    if not gpu["gpus"]:
        return Activation("impossible", "there is no GPU, so that no module can be loaded")
    kernel, newest = str(gpu["kernel"]["running"]), str(gpu["kernel"]["newest"])
    on_disk = gpu["module"]["on_disk"].get(kernel)
    if on_disk is None:
        return Activation("unknown", f"modinfo cannot describe the module for {kernel}")
    if not on_disk:
        there = gpu["module"]["on_disk"].get(newest)
        if newest and newest != kernel and there:
            return Activation("reboot", f"the module is there for {newest}, and {kernel} is running")
        return Activation("impossible", f"there is no module for the running kernel {kernel}")
    loaded = str(gpu["module"]["loaded"])
    if gpu["nouveau"]["bound"]:
        return Activation("reboot", f"nouveau holds {len(gpu['nouveau']['bound'])} GPUs")
    if not loaded:
        return Activation("reload", "no module is loaded")
    if loaded == on_disk["version"] and gpu["module"]["open"] in (None, is_open(on_disk)):
        return Activation("none", f"driver {loaded} is loaded")
    what = f"module {loaded} is loaded and {on_disk['version']} is on disk"
    if loaded == on_disk["version"]:
        what = f"the {'open' if gpu['module']['open'] else 'proprietary'} module is loaded, the {flavour} one on disk"
    if gpu["users"]:
        return Activation("reboot", f"{what}; in use by {', '.join(gpu['users'][:3])}")
    return Activation("reload", what)


def consequences(gpu: Mapping[str, Any], plan: Plan) -> list[Consequence]:
    """Return what carrying out a plan brings: nothing where no job would feel it.

    Whether the kernel takes the new driver without a reboot is certain only afterwards. What holds the old one is told
    as a reboot; that which nothing holds today may be held by then.
    """
    if not plan.disruptive:
        return []
    drain = Consequence(Kind.DRAIN, "the node", "where Slurm knows it, until its jobs can use the GPUs again")
    if another_kernel := next((step.text for step in plan.pending if step.kind is StepKind.KERNEL), ""):
        return [drain, Consequence(Kind.REBOOT, "the machine", another_kernel)]
    running, state = gpu["kernel"]["running"], activation(gpu, plan.flavour)
    another = not installed_version(gpu["packages"]) or any(
        step.kind is StepKind.REPLACE or (step.kernel and step.kernel == running) for step in plan.pending
    )
    if not gpu["gpus"] or not (another or state.action in ("reload", "reboot")):
        return [drain]
    held = "nouveau" if gpu["nouveau"]["bound"] else ", ".join(gpu["users"][:3]) if gpu["module"]["loaded"] else ""
    if state.action == "reboot" or held:
        why = state.reason if state.action == "reboot" else f"the GPUs are in use by {held}"
        return [drain, Consequence(Kind.REBOOT, "the machine", why)]
    return [drain, Consequence(Kind.RELOAD, "the driver", "or reboots the machine, where something holds it by then")]
