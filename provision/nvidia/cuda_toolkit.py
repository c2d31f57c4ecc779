"""Which CUDA toolkits fit a driver, from which packages or installers they come, and what must not come along. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Version = tuple[int, ...]

#: The driver that each toolkit was released with, and needs for all of its features: table 3 of CUDA's release notes,
#: general availability of each release.
RELEASED_WITH: Mapping[str, str] = {
    **{"13.2": "595.45.04", "13.1": "590.44.01", "13.0": "580.65.06", "12.9": "575.51.03", "12.8": "570.26"},
    **{"12.6": "560.28.03", "12.5": "555.42.02", "12.4": "550.54.14", "12.3": "545.23.06", "12.2": "535.54.03"},
    **{"12.1": "530.30.02", "12.0": "525.60.13", "11.8": "520.61.05", "11.7": "515.43.04"},
}
#: The oldest driver that can run a major version at all ("minor-version compatibility"): table 2 of the same.
OLDEST_DRIVER: Mapping[int, Version] = {13: (580,), 12: (525, 60, 13), 11: (450, 80, 2)}

#: Installers whose checksums are on record. The recipes of EasyBuild and Spack, which compare them with NVIDIA's files
#: at each build, and the driver installer of Google's compute-gpu-installation have the same.
INSTALLERS: Mapping[str, str] = {
    "cuda_12.2.2_535.104.05_linux.run": "2b39aae3e7618d9f59a3c8fa1f1bc61f29c0b0e0df75fb05076badb352952ef2",
}
_ADDRESS = "https://developer.download.nvidia.com/compute/cuda/{release}/local_installers/{name}"
_INSTALLER = re.compile(r"cuda_(?P<release>(?P<version>\d+\.\d+)\.\d+)_(?P<driver>[\d.]+)_linux(_sbsa)?\.run")

#: Branches of the driver that NVIDIA no longer maintains, and what an installer of their time should give way to.
ENDED_DRIVERS = ("515", "520", "525", "530", "535", "545", "550", "555", "560", "565", "570", "575")

#: What belongs to a driver or a kernel. A toolkit that brings one of these would replace the node's driver.
_DRIVER = re.compile(
    r"(lib)?nvidia-(?!cuda-toolkit|container).*|cuda-drivers.*|cuda|cuda-\d+-\d+|cuda-runtime-.*|cuda-demo-suite-.*"
    r"|libcuda1(:.*)?|kmod-nvidia.*|dkms|xserver-xorg-video-nvidia.*|linux-(image|headers|modules|objects)-.*|kernel(-.*)?"
)


@dataclass(frozen=True)
class Plan:
    """What to install, and why not. With refusals, nothing else counts."""

    packages: tuple[str, ...] = ()
    installers: tuple[Mapping[str, str], ...] = ()
    default: str = ""
    refusals: tuple[str, ...] = ()
    warnings: tuple[str, ...] = field(default=())


def numbers(text: str) -> Version:
    """Return a version as numbers that compare; nothing where there are none."""
    return tuple(int(part) for part in re.findall(r"\d+", text))


def plan(versions: Sequence[str], installers: Iterable[Mapping[str, str]], driver: str, default: str) -> Plan:
    """Return what to do for toolkits of these versions (``12.8``) beside a driver (a branch or a version).

    ``installers`` are NVIDIA's self-extracting files for machines without a repository, each with ``path`` (a file or
    an address) and, unless it is on record here, ``sha256``. ``default`` is the version that /usr/local/cuda means.
    """
    refusals, warnings, packages, files = [], [], [], []
    for version in versions:
        if not re.fullmatch(r"\d{2}\.\d", version):
            refusals.append(f"cuda_toolkit_versions: {version!r} must be a release of CUDA, as 12.8")
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
    chosen = default or max(all_versions, key=numbers, default="")
    return Plan(tuple(packages), tuple(files), chosen, tuple(refusals), tuple(warnings))


def _refused(version: str, driver: str) -> list[str]:
    """Return why a driver cannot run a toolkit's programs at all."""
    major = numbers(version)[0]
    oldest = OLDEST_DRIVER.get(major)
    if oldest is None:
        known = ", ".join(str(number) for number in sorted(OLDEST_DRIVER))
        return [f"CUDA {version}: no driver is known for its major version; known are {known}"]
    # A branch stands for its newest driver.
    have = numbers(driver)
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
    have = numbers(driver)
    if not needs or not have or have[0] >= numbers(needs)[0] or _refused(version, driver):
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
        return {}, f"cuda_toolkit_installers: {path!r} is no installer of CUDA, as cuda_12.2.2_535.104.05_linux.run"
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
    branch = found["driver"].partition(".")[0]
    if branch not in ENDED_DRIVERS:
        return []
    return [
        f"{found['name']} carries driver {found['driver']}, of a branch that is past its end of life, and is installed "
        "without it; the node's own driver, branch 580, runs it. For new work use CUDA 12.9, or no toolkit on nodes: "
        "containers and wheels bring their own"
    ]


def simulated(text: str) -> tuple[str, ...]:
    """Return the packages that a rehearsal of apt or dnf says would be installed."""
    found = re.findall(r"(?m)^Inst (\S+)", text)
    # dnf: " name  x86_64  1:2.3-4  repository  5 M" in a table.
    found += re.findall(r"(?m)^ (\S+) +(?:x86_64|aarch64|noarch) +\S+ +\S+ +[\d.]+ [kMG]", text)
    return tuple(dict.fromkeys(found))


def intruders(packages: Iterable[str]) -> tuple[str, ...]:
    """Return those packages that would change the node's driver or kernel."""
    return tuple(name for name in packages if _DRIVER.fullmatch(name))


def asked(plan: Plan, versions: Sequence[str]) -> list[dict[str, Any]]:
    """Return the checks of what was asked for, before anything is downloaded."""
    told = [
        _check("versions", "fail", text, "correct the inventory, then clusterctl provision gpu")
        for text in plan.refusals
    ]
    if not told:
        told = [
            _check("versions", "warn", text, "none is needed if programs on the node want it") for text in plan.warnings
        ]
    wanted = ", ".join([*versions, *(found["name"] for found in plan.installers)])
    return told or [{**_check("versions", "pass", "", ""), "observed": wanted}]


def rehearsed(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the check of what a package manager's rehearsal, as a finished command, would bring along."""
    if answer.get("rc"):
        told = str(answer.get("stderr") or answer.get("stdout") or "").strip().splitlines()
        fix = "name a repository that has them: cuda_toolkit_repository, or with NVIDIA's driver nvidia_driver_source"
        return [_check("packages", "fail", told[-1] if told else "the package manager did not answer", fix)]
    found = intruders(simulated(str(answer.get("stdout") or "")))
    cause = f"{', '.join(found)} would come along and replace the node's driver or kernel"
    fix = "name packages of a toolkit only; if a repository's toolkit depends on a driver, use cuda_toolkit_installers"
    return [_check("driver_untouched", "fail" if found else "pass", cause, fix)]


def judge(plan: Plan, versions: Sequence[str], answer: str) -> list[dict[str, Any]]:
    """Return a check of each toolkit.

    ``answer`` has a line ``directory release`` for each toolkit that is there, as its compiler says, and a line
    ``default directory`` for what /usr/local/cuda leads to.
    """
    rows = dict(line.split(None, 1) for line in answer.splitlines() if len(line.split(None, 1)) == 2)
    checks = []
    for version in [*versions, *(found["version"] for found in plan.installers)]:
        seen = rows.get(f"/usr/local/cuda-{version}", "nothing")
        cause = f"/usr/local/cuda-{version} holds {seen}: it was removed, or not installed completely"
        checks.append(_check("toolkit", "pass" if seen == version else "fail", cause, "clusterctl provision gpu"))
        checks[-1].update(observed=f"CUDA {seen}", expected=f"CUDA {version}")
    target = rows.get("default", "nothing")
    right = target == f"/usr/local/cuda-{plan.default}"
    check = _check("default", "pass" if right else "fail", "something else changed it", "clusterctl provision gpu")
    return [*checks, {**check, "observed": target, "expected": f"/usr/local/cuda-{plan.default}"}]


def _check(name: str, verdict: str, cause: str, fix: str) -> dict[str, Any]:
    passed = verdict == "pass"
    return {
        "id": f"cuda_toolkit.{name}",
        "host": "",
        "level": "host",
        "verdict": verdict,
        "observed": "" if passed else cause,
        "expected": "",
        "source": "cuda_toolkit_versions and cuda_toolkit_installers",
        "cause": "" if passed else cause,
        "fix": "" if passed else fix,
    }
