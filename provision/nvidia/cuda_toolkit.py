"""Which CUDA toolkits fit a driver, from which packages or installers they come, and what must not come along. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from provision.nvidia.releases import OLDEST_DRIVER, RELEASED_WITH, ended
from provision.nvidia.releases import version as version_of

#: Installers whose checksums are on record. The recipes of EasyBuild and Spack, which compare them with NVIDIA's files
#: at each build, and the driver installer of Google's compute-gpu-installation have the same.
INSTALLERS: Mapping[str, str] = {
    "cuda_12.2.2_535.104.05_linux.run": "2b39aae3e7618d9f59a3c8fa1f1bc61f29c0b0e0df75fb05076badb352952ef2",
}
_ADDRESS = "https://developer.download.nvidia.com/compute/cuda/{release}/local_installers/{name}"
_INSTALLER = re.compile(r"cuda_(?P<release>(?P<version>\d+\.\d+)\.\d+)_(?P<driver>[\d.]+)_linux(_sbsa)?\.run")

#: What belongs to a driver or a kernel. A toolkit that brings one of these would replace the node's driver.
_DRIVER = re.compile(
    r"(lib)?nvidia-(?!cuda-toolkit|container).*|cuda-drivers.*|cuda|cuda-\d+-\d+|cuda-runtime-.*|cuda-demo-suite-.*"
    r"|libcuda1(:.*)?|dkms|xserver-xorg-video-nvidia.*|linux-(image|headers|modules|objects)-.*"
)


@dataclass(frozen=True)
class Plan:
    """What to install, and why not. With refusals, nothing else counts."""

    packages: tuple[str, ...] = ()
    installers: tuple[Mapping[str, str], ...] = ()
    default: str = ""
    refusals: tuple[str, ...] = ()
    warnings: tuple[str, ...] = field(default=())


def plan(versions: Sequence[str], installers: Iterable[Mapping[str, str]], driver: str, default: str) -> Plan:
    """Return what to do for toolkits of these versions (``12.8``) beside a driver (a branch or a version).

    ``installers`` are NVIDIA's self-extracting files for machines without a repository, each with ``path`` (a file or
    an address) and, unless it is on record here, ``sha256``. ``default`` is the version that /usr/local/cuda means.
    """
    refusals, warnings, packages, files = [], [], [], []
    for version in versions:
        if not re.fullmatch(r"\d{2}\.\d", version):
            refusals.append(f"cuda_toolkit_versions: {version!r} must be a release of CUDA, for example 12.8")
            continue
        refusals += _refused(version, driver)
        warnings += _limited(version, driver)
        packages.append(f"cuda-toolkit-{version.replace('.', '-')}")
    for given in installers:
        found, problem = _installer(given)
        if problem:
            refusals.append(problem)
            continue
        refusals += _refused(found["version"], driver)
        warnings += [*_limited(found["version"], driver), *_ended(found)]
        files.append(found)
    all_versions = [*versions, *(str(found["version"]) for found in files)]
    for version in dict.fromkeys(all_versions):
        if all_versions.count(version) > 1:
            refusals.append(f"CUDA {version} is asked for twice; remove it from one place")
    if default and default not in all_versions:
        refusals.append(f"cuda_toolkit_default is {default}, which is not among {', '.join(all_versions) or 'any'}")
    chosen = default or max(all_versions, key=version_of, default="")
    return Plan(tuple(packages), tuple(files), chosen, tuple(refusals), tuple(warnings))


def places(versions: Sequence[str], installers: Iterable[Mapping[str, str]], default: str) -> dict[str, str]:
    """Return each toolkit's directory by the path under which programs look for it: /usr/local/cuda is one of them."""
    planned = plan(versions, installers, "", default)
    of_files = (file["directory"] for file in planned.installers)
    found = [*(f"/usr/local/cuda-{version}" for version in versions), *of_files]
    meant = {"/usr/local/cuda": f"/usr/local/cuda-{planned.default}"} if found else {}
    return {path: path for path in found} | meant


def _refused(version: str, driver: str) -> list[str]:
    """Return why a driver cannot run a toolkit's programs at all."""
    major = version_of(version)[0]
    oldest = OLDEST_DRIVER.get(major)
    if oldest is None:
        known = ", ".join(str(number) for number in sorted(OLDEST_DRIVER))
        return [f"CUDA {version}: no driver is known for its major version; known are {known}"]
    # A branch stands for its newest driver.
    have = version_of(driver)
    if not have:
        return []
    if have[0] < oldest[0] or (len(have) > 1 and have < oldest):
        runs = max((number for number, needs in OLDEST_DRIVER.items() if needs[0] <= have[0]), default=0)
        older = f", or use CUDA {runs}.x" if runs and runs != major else ""
        return [
            f"CUDA {version} needs driver {'.'.join(map(str, oldest))} or newer, and this one is {driver}. "
            f"Use a newer driver (nvidia_driver_branch){older}"
        ]
    return []


def _limited(version: str, driver: str) -> list[str]:
    """Return what a toolkit cannot do with a driver older than the one that it was released with."""
    needs = RELEASED_WITH.get(version)
    have = version_of(driver)
    if not needs or not have or have[0] >= version_of(needs)[0] or _refused(version, driver):
        return []
    return [
        f"CUDA {version} was released with driver {needs}; with {driver}, what it compiles must name the GPU's "
        "architecture (no PTX), and features of the newer driver are missing"
    ]


def _installer(given: Mapping[str, str]) -> tuple[dict[str, str], str]:
    """Return an installer with its version, address and checksum, or what is wrong with it."""
    path = str(given.get("path") or "")
    name = path.rsplit("/", 1)[-1]
    found = _INSTALLER.fullmatch(name)
    if not found:
        return (
            {},
            f"cuda_toolkit_installers: {path!r} is no installer of CUDA, for example cuda_12.2.2_535.104.05_linux.run",
        )
    checksum = str(given.get("sha256") or INSTALLERS.get(name, "")).lower()
    if not re.fullmatch(r"[0-9a-f]{64}", checksum):
        return {}, f"cuda_toolkit_installers: {name} has no sha256 on record; give it, from NVIDIA's list of checksums"
    if name in INSTALLERS and checksum != INSTALLERS[name]:
        return {}, f"cuda_toolkit_installers: {name} is on record with sha256 {INSTALLERS[name]}, and another was given"
    address = path if "/" in path else _ADDRESS.format(release=found["release"], name=name)
    return {
        "name": name,
        "version": found["version"],
        "driver": found["driver"],
        "address": address,
        "sha256": checksum,
        "directory": f"/usr/local/cuda-{found['version']}",
    }, ""


def _ended(found: Mapping[str, str]) -> list[str]:
    if not ended(version_of(found["driver"])[0]):
        return []
    return [
        f"{found['name']} carries driver {found['driver']}, of a branch that is past its end of life, and is installed "
        "without it; the node's own driver, branch 580, runs it. For new work use CUDA 12.9, or no toolkit on nodes: "
        "containers and wheels bring their own"
    ]


def simulated(text: str) -> tuple[str, ...]:
    """Return the packages that a simulation of apt says would be installed."""
    return tuple(dict.fromkeys(re.findall(r"(?m)^Inst (\S+)", text)))


def intruders(packages: Iterable[str]) -> tuple[str, ...]:
    """Return those packages that would change the node's driver or kernel."""
    return tuple(name for name in packages if _DRIVER.fullmatch(name))
