"""What stands in the way of a driver on a machine, and what is allowed and worth a word. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from provision.nvidia import driver_packages as packages
from provision.nvidia.driver_plan import Finding
from provision.nvidia.driver_state import branches_of, release_of
from provision.nvidia.releases import ENDED, ended, max_cuda


def refusals(
    machine: Mapping[str, Any], wants: Mapping[str, Any], system: packages.System, source: str, branch: int
) -> list[Finding]:
    """Return what else stands in the way."""
    gpu = machine["gpu"]
    found = [
        *_of_virtual(gpu),
        *_of_version(wants, branch),
        *_of_source(wants, system, source, branch, str(machine["architecture"])),
        *_of_cuda(wants, branch),
        *_of_installed(gpu, source),
        *_of_secure_boot(gpu, wants, system, source),
    ]
    if machine["packages_interrupted"]:
        found.append(
            Finding(
                "packages",
                f"interrupted: {', '.join(machine['packages_interrupted'])}",
                "an earlier installation was stopped half-way",
                "clusterctl provision base finishes it",
            )
        )
    return found


def warnings(machine: Mapping[str, Any], wants: Mapping[str, Any], branch: int) -> list[Finding]:
    """Return what is allowed and worth a word."""
    found = []
    if ended(branch):
        when = f" since {ENDED[branch]}" if branch in ENDED else ""
        found.append(
            Finding(
                "branch",
                f"branch {branch}",
                f"it is past its end of life{when}: nobody maintains it any more",
                "nvidia_driver_branch: 580, which is maintained until 2028",
            )
        )
    if machine["gpu"]["secure_boot"] is None:
        found.append(
            Finding(
                "secure_boot",
                "it cannot be read whether Secure Boot is on",
                "efivars is not mounted",
                "on the machine: mokutil --sb-state; where it is on, set nvidia_driver_source: distribution",
            )
        )
    if any(str(switch["id"]).startswith("15b3:") for switch in machine["gpu"]["nvswitches"]):
        found.append(
            Finding(
                "fabric_manager",
                "NVSwitches that are managed through ConnectX-7 bridges",
                "this generation needs the NVLink Subnet Manager, too, which this role does not install",
                "on the machine: install nvlsm (its versions are its own) and infiniband-diags, and load ib_umad",
            )
        )
    unknown = [f"{gpu['address']} ({gpu['id']})" for gpu in machine["gpu"]["gpus"] if not gpu["architecture"]]
    if unknown and wants["modules"] == "auto":
        found.append(
            Finding(
                "flavour",
                f"unknown GPUs: {', '.join(unknown)}",
                "they are taken for new: open modules",
                "set nvidia_driver_modules",
            )
        )
    return found


def _of_version(wants: Mapping[str, Any], branch: int) -> list[Finding]:
    version = str(wants["version"])
    if not version or version.split(".")[0] == str(branch):
        return []
    return [
        Finding(
            "version",
            f"version {version} with branch {branch}",
            "a version belongs to its branch",
            f"nvidia_driver_branch: {version.split('.')[0]}, or another nvidia_driver_version",
        )
    ]


def _of_virtual(gpu: Mapping[str, Any]) -> list[Finding]:
    """Return what GPUs have to do with virtual machines, of which this one is the guest or the host."""
    if gpu["virtual"]:
        observed = f"{', '.join(gpu['virtual'])}: a virtual GPU (vGPU)"
        cause = "its driver comes with the host's vGPU manager and a licence, from no public repository"
    elif gpu["vgpu_manager"]:
        observed = "the vGPU manager gives parts of the GPUs to virtual machines (module nvidia_vgpu_vfio)"
        cause = "its driver is the manager's own, and runs no CUDA program on this machine"
    elif gpu["passed_through"]:
        observed = f"{', '.join(gpu['passed_through'])} given to virtual machines, beside GPUs of this machine's own"
        cause = "a change of the driver may reboot this machine, and its guests with it"
    else:
        return []
    by_hand = "install the driver by hand and set nvidia_driver_install: false for this machine"
    return [Finding("virtual", observed, cause, f"{by_hand}; or use its GPUs without virtual machines")]


def _of_source(
    wants: Mapping[str, Any], system: packages.System, source: str, branch: int, architecture: str
) -> list[Finding]:
    if source == "mirror" and not wants["repository"]:
        return [
            Finding(
                "source",
                "nvidia_driver_source is mirror",
                "no mirror is named",
                "nvidia_driver_repository: the address of the copy of NVIDIA's repository for this system",
            )
        ]
    only = packages.ARCHIVE.get((system.id, system.version))
    if source == "nvidia" and not wants["repository"] and system.id == "debian" and architecture == "aarch64":
        return [
            Finding(
                "source",
                f"Debian on {architecture}",
                "NVIDIA's repository has no driver for it",
                f"nvidia_driver_source: distribution and nvidia_driver_branch: {only}; or install Ubuntu",
            )
        ]
    if source != "distribution":
        return []
    if only and only != branch:
        return [
            Finding(
                "source",
                f"branch {branch} from {system.id} {system.version}'s archive",
                f"the archive has branch {only} and no other",
                f"nvidia_driver_source: nvidia, or nvidia_driver_branch: {only}",
            )
        ]
    return []


def _of_cuda(wants: Mapping[str, Any], branch: int) -> list[Finding]:
    newest = max_cuda(branch)
    return [
        Finding(
            "cuda",
            f"CUDA {version} with branch {branch}",
            f"that branch runs programs of CUDA {newest} and older",
            "nvidia_driver_branch: 580 or newer, or an older toolkit in cuda_toolkit_versions",
        )
        for version in map(str, wants["cuda"])
        if version.split(".")[0].isdigit() and int(version.split(".")[0]) > newest
    ]


def _of_installed(gpu: Mapping[str, Any], source: str) -> list[Finding]:
    found = []
    branches = branches_of(gpu["packages"])
    if len(branches) > 1:
        found.append(
            Finding(
                "branches",
                f"branches {' and '.join(map(str, branches))} are both installed",
                "their libraries and modules do not fit each other",
                f"on the machine, remove all but one: {_remove(gpu, branches[:-1])}",
            )
        )
    if gpu["runfile"]:
        found.append(
            Finding(
                "runfile",
                "a driver from a .run file is installed (/usr/bin/nvidia-uninstall)",
                "packages would be installed over files that no package owns",
                "on the machine, without jobs: nvidia-uninstall --silent; then again",
            )
        )
    origins = {str(info["origin"]) for name, info in gpu["packages"].items() if release_of(name, info)}
    wanted = "distribution" if source == "distribution" else "nvidia"
    if origins and origins != {wanted}:
        found.append(
            Finding(
                "source",
                f"the installed driver is from {' and '.join(sorted(origins))}, wanted: {source}",
                "the two families' packages overwrite each other's files",
                f"keep nvidia_driver_source: {min(origins)}; or, without jobs: {_remove(gpu, branches)}",
            )
        )
    return found


def _of_secure_boot(
    gpu: Mapping[str, Any], wants: Mapping[str, Any], system: packages.System, source: str
) -> list[Finding]:
    if gpu["secure_boot"] is not True or wants["signing_key_enrolled"]:
        return []
    if source == "distribution" and system.id == "ubuntu":
        return []
    signed = "nvidia_driver_source: distribution, whose modules are signed; " if system.id == "ubuntu" else ""
    return [
        Finding(
            "secure_boot",
            "Secure Boot is on; modules that DKMS builds are not signed by a key it knows",
            "the kernel would refuse to load them. Nothing was changed",
            f"{signed}switch Secure Boot off in the firmware; or enrol DKMS's key (mokutil --import, confirmed at "
            "the console at the next boot) and set nvidia_driver_signing_key_enrolled: true",
        )
    ]


def _remove(gpu: Mapping[str, Any], branches: Sequence[int]) -> str:
    gone = [name for name, info in gpu["packages"].items() if release_of(name, info) in branches]
    return f"apt-get purge --allow-change-held-packages {' '.join(sorted(gone))}"
