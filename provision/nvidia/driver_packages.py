"""Where NVIDIA's driver comes from on each system, under which names, and the files that keep it from moving. Pure.

Two families of packages exist, the distribution's and NVIDIA's own; they share names and must never meet on a machine.
Only what computing needs is installed: no X, no GL. Run so far: Debian 12's own packages. All other names are taken
from NVIDIA's and the distributions' documentation and from other people's scripts; those marked "unverified" from less.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from provision.model.systems import known

REPOSITORIES = "https://developer.download.nvidia.com/compute/cuda/repos"

#: Since this branch, names of the driver's packages for Ubuntu have no branch in them; pinning alone keeps a branch.
UNSUFFIXED = 590
#: Since this branch, those of Fabric Manager and of what goes with it have none, for all systems.
FABRIC_UNSUFFIXED = 580
#: NVIDIA's repositories have pinning packages from this branch on,
PINNING = 580
#: and packages for Debian without X from this one.
COMPUTE_ONLY = 560

#: The branch that a distribution's own archive has; none where it has several.
ARCHIVE = {("debian", "12"): 535, ("debian", "13"): 550}

#: Which packages a rule of apt's preferences is about, in apt's patterns. Of those that begin with linux-, it is the
#: modules that Ubuntu has built for a kernel: a branch follows the name. linux-image-nvidia and the like are a kernel.
_GLOBS = (
    "nvidia-* [!l]*-nvidia* lib*nvidia* linux-modules-nvidia-[0-9]* "
    "cuda-drivers* libcuda1 libnvcuvid1 libnvsdm* libnvoptix1"
)

#: Files of ours on a machine; each is written whole.
LIST, PIN = "/etc/apt/sources.list.d/clusterctl-nvidia.list", "/etc/apt/preferences.d/clusterctl-nvidia"
UNATTENDED = "/etc/apt/apt.conf.d/52clusterctl-nvidia"
APT_KEY = "/usr/share/keyrings/clusterctl-nvidia.asc"
NOUVEAU = "/etc/modprobe.d/clusterctl-nouveau.conf"
PERSISTENCE = "/etc/systemd/system/nvidia-persistenced.service.d/clusterctl.conf"
FILES = (LIST, PIN, UNATTENDED, NOUVEAU, PERSISTENCE)
#: What is asked of a machine: those files, the key, and the directories of both.
PLACES = (*FILES, APT_KEY, *dict.fromkeys(path.rpartition("/")[0] for path in (*FILES, APT_KEY)))

_HEADER = "# Written by clusterctl.\n"


@dataclass(frozen=True)
class System:
    """An operating system that the tables know. ``folder`` is its name in NVIDIA's repositories."""

    id: str
    version: str
    folder: str
    key: str
    fingerprint: str


_OLD_KEY = ("3bf863cc.pub", "EB693B3035CD5710E231E123A4B469963BF863CC")
_TRIXIE_KEY = ("8793F200.pub", "02182E60104FCDC26EAE1B8597A5D4CB8793F200")

#: Keys that come with the role, by fingerprint, as Debian's extrepo-offline-data 1.0.7 has them.
KEYS = {_OLD_KEY[1]: "3bf863cc.asc", _TRIXIE_KEY[1]: "8793F200.asc"}


def system(name: str, version: str) -> System | None:
    """Return the entry for an operating system, by ``ID`` and ``VERSION_ID`` of os-release; None if there is none."""
    if known(name, version) is None:
        return None
    key = _TRIXIE_KEY if (name, version) == ("debian", "13") else _OLD_KEY
    return System(name, version, f"{name}{version.replace('.', '')}", *key)


def folder(machine: System, architecture: str) -> str:
    """Return the address of NVIDIA's repository for a system; 64-bit ARM servers are called sbsa there."""
    return f"{REPOSITORIES}/{machine.folder}/{'sbsa' if architecture == 'aarch64' else 'x86_64'}"


def flavour_kept_up(machine: System, source: str) -> str:
    """Return the flavour that a source keeps in step with its libraries.

    Debian's security updates leave the open modules behind: with the newest libraries they cannot be installed (seen:
    535.261.03 beside 535.309.01). Who wants them there sets nvidia_driver_version to the version that both have.
    """
    return "proprietary" if machine.id == "debian" and source == "distribution" else "open"


def pinning(source: str, branch: int) -> list[str]:
    """Return the package that keeps NVIDIA's repository to a branch, to be installed before all others.

    An exact version is kept by our own preferences alone: a mirror need not have that version's package.
    """
    named = source != "distribution" and branch >= PINNING
    return [f"nvidia-driver-pinning-{branch}"] if named else []


def headers(kernels: Sequence[str], *, signed: bool) -> list[str]:
    """Return the packages that building modules for these kernels takes; modules that are signed are built already."""
    if signed:
        return []
    return ["dkms", *(f"linux-headers-{kernel}" for kernel in kernels)]


def kernels_offered(simulated: str) -> tuple[str, ...]:
    """Return the releases of the kernels that ``apt-get --simulate install`` said it would install."""
    return tuple(dict.fromkeys(re.findall(r"(?m)^Inst linux-image-(?:unsigned-)?(\d\S*)", simulated)))


def driver(
    machine: System, source: str, branch: int, flavour: str, kernels: Sequence[str], *, signed: bool
) -> list[str]:
    """Return the driver's packages for computing: kernel modules, libraries, nvidia-smi, persistenced."""
    is_open = flavour == "open"
    if machine.id == "debian":
        return _debian(source, branch, is_open)
    if source == "distribution":
        kind = f"{branch}-server{'-open' if is_open else ''}"
        tools = [f"nvidia-utils-{branch}-server"]
        if signed:
            built = [f"linux-modules-nvidia-{kind}-{kernel}" for kernel in kernels]
            return [f"nvidia-headless-no-dkms-{kind}", *built, *tools]
        return [f"nvidia-headless-{kind}", *tools]
    if branch >= UNSUFFIXED:
        return ["libnvidia-compute", "nvidia-dkms-open" if is_open else "nvidia-dkms"]
    # nvidia-compute-utils brings persistenced (unverified for NVIDIA's repository, true of Ubuntu's archive).
    modules = f"nvidia-dkms-{branch}{'-open' if is_open else ''}"
    return [f"libnvidia-compute-{branch}", modules, f"nvidia-utils-{branch}", f"nvidia-compute-utils-{branch}"]


def _debian(source: str, branch: int, is_open: bool) -> list[str]:
    if source == "distribution":
        # The metapackage nvidia-driver would bring X; this is what it is made of, without.
        modules = "nvidia-open-kernel-dkms" if is_open else "nvidia-kernel-dkms"
        return [modules, "libcuda1", "nvidia-smi", "nvidia-persistenced", "nvidia-modprobe"]
    if branch >= COMPUTE_ONLY:
        return ["nvidia-driver-cuda", "nvidia-kernel-open-dkms" if is_open else "nvidia-kernel-dkms"]
    # Unverified: before the compute-only packages, only the whole driver could be asked for.
    return [f"cuda-drivers-{branch}", *(["nvidia-kernel-open-dkms"] if is_open else [])]


def fabric_manager(machine: System, source: str, branch: int) -> str:
    """Return Fabric Manager's package; empty where the source has none."""
    if source == "distribution":
        return f"nvidia-fabricmanager-{branch}" if machine.id == "ubuntu" else ""
    if branch >= FABRIC_UNSUFFIXED:
        return "nvidia-fabricmanager"
    return f"nvidia-fabricmanager-{branch}"


def fabric(machine: System, source: str, branch: int) -> list[str]:
    """Return what a machine with NVSwitches has in the driver's own version: Fabric Manager, and what DCGM asks by."""
    manager = fabric_manager(machine, source, branch)
    unsuffixed = source != "distribution" and branch >= FABRIC_UNSUFFIXED
    return [manager, "libnvidia-nscq" if unsuffixed else f"libnvidia-nscq-{branch}"] if manager else []


def apt_files(
    machine: System, source: str, branch: int, version: str, url: str, archives: Sequence[dict[str, str]]
) -> dict[str, str]:
    """Return apt's list, preferences, and what unattended upgrades must leave alone, by path."""
    files = {PIN: _preferences(source, branch, version), UNATTENDED: _unattended()}
    if source != "distribution":
        # A flat repository, as NVIDIA's are: the suite is a path and there are no components.
        files[LIST] = f"{_HEADER}deb [signed-by={APT_KEY}] {url.rstrip('/')}/ ./\n"
    elif machine.id == "debian":
        suites = dict.fromkeys((row["uri"], row["suite"]) for row in archives if row["component"] == "main")
        key = "signed-by=/usr/share/keyrings/debian-archive-keyring.gpg"
        lines = [f"deb [{key}] {uri} {suite} contrib non-free non-free-firmware\n" for uri, suite in suites]
        files[LIST] = _HEADER + "".join(lines)
    return files


def _preferences(source: str, branch: int, version: str) -> str:
    rules = []
    if source != "distribution":
        # The two families share names. The first rule that fits a version counts.
        rules += [
            f"# Never the distribution's packages beside NVIDIA's.\nPackage: {_GLOBS}\nPin: release o={origin}\n"
            "Pin-Priority: -1\n"
            for origin in ("Debian", "Ubuntu")
        ]
    why, wanted = ("This version", f"{version}*") if version else ("No other branch", f"{branch}.*")
    rules.append(f"# {why}, whatever is newer.\nPackage: {_GLOBS}\nPin: version {wanted}\nPin-Priority: 1001\n")
    return _HEADER + "\n" + "\n".join(rules)


def _unattended() -> str:
    names = ("nvidia", "libnvidia", "cuda-drivers", "libcuda1", "linux-modules-nvidia")
    kernels = ("linux-image", "linux-headers", "linux-modules", "linux-generic")
    lines = "".join(f'    "{name}";\n' for name in (*names, *kernels))
    return (
        "// Written by clusterctl. A new library beside the loaded module stops every GPU of the machine.\n"
        f"Unattended-Upgrade::Package-Blacklist {{\n{lines}}};\n"
    )


def module_files(machine: System) -> dict[str, str]:
    """Return what keeps nouveau away and the GPUs initialised, by path."""
    files = {NOUVEAU: f"{_HEADER}blacklist nouveau\noptions nouveau modeset=0\n"}
    if machine.id == "ubuntu":
        # Its unit says --no-persistence-mode, and every job would initialise the GPU anew. Others leave the default.
        start = "/usr/bin/nvidia-persistenced --user nvidia-persistenced --persistence-mode --verbose"
        files[PERSISTENCE] = f"{_HEADER}[Service]\nExecStart=\nExecStart={start}\n"
    return files
