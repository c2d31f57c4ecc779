"""Which drivers go with which GPUs, systems and settings. Pure: each function is one rule, or one list of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from provision.nvidia import driver_packages as packages
from provision.nvidia.driver_plan import Finding
from provision.nvidia.releases import BLACKWELL, NO_VOLTA, OPEN

#: Architectures that the open modules cannot drive.
_BEFORE_TURING = ("kepler", "maxwell", "pascal", "volta")

#: What these settings may say.
CHOICES = {
    "install": ("auto", "true", "false"),
    "modules": ("auto", "open", "proprietary"),
    "source": ("auto", "nvidia", "distribution", "mirror"),
    "fabric_manager": ("auto", "true", "false"),
}


def misspelt(wants: Mapping[str, Any]) -> list[Finding]:
    """Return the settings whose word is none of those that are known."""
    found = [
        Finding(
            "settings",
            f"nvidia_driver_{name} is {wants[name]}",
            "no such word is known",
            f"nvidia_driver_{name}: {', '.join(words[:-1])} or {words[-1]}",
        )
        for name, words in CHOICES.items()
        if str(wants[name]).lower() not in words
    ]
    if not str(wants["branch"]).isdigit():
        found.append(
            Finding("settings", f"nvidia_driver_branch is {wants['branch']}", "a branch is a number", "such as 580")
        )
    return found


def unknown_system(system: Mapping[str, Any]) -> Finding:
    """Return the refusal of a system that the tables do not know."""
    return Finding(
        "system",
        str(system.get("name") or system.get("id") or "an unknown system"),
        "package names are known for Ubuntu 22.04 and 24.04, Debian 12 and 13",
        "install the driver by hand and set nvidia_driver_install: false",
    )


def source(wants: Mapping[str, Any], system: packages.System, secure_boot: bool | None) -> str:
    """Return where packages come from: as asked, else a mirror that is named, else what the machine can load."""
    if wants["source"] != "auto":
        return str(wants["source"])
    if wants["repository"]:
        return "mirror"
    signed = secure_boot and not wants["signing_key_enrolled"] and system.id == "ubuntu"
    return "distribution" if signed else "nvidia"


def flavour(
    asked: str, gpus: Sequence[Mapping[str, Any]], branch: int, *, prefer: str = "open"
) -> tuple[str, list[Finding]]:
    """Return ``open`` or ``proprietary``, and why that is impossible where it is.

    ``prefer`` is for GPUs that work with both: open, because DMA-BUF needs it, unless the source is behind with it.
    """
    old = _names(gpu for gpu in gpus if gpu["architecture"] in _BEFORE_TURING)
    new = _names(gpu for gpu in gpus if gpu["architecture"] == "blackwell" or gpu["grace"])
    refusals = []
    if old and new:
        refusals.append(
            Finding(
                "flavour",
                f"{old} and {new}",
                "one needs the proprietary kernel modules, the other the open ones",
                "put them into different machines",
            )
        )
    if old and branch >= NO_VOLTA:
        refusals.append(
            Finding(
                "branch",
                f"{old} with branch {branch}",
                f"branch {NO_VOLTA} and newer do not drive it any more",
                "nvidia_driver_branch: 580, the last one for it",
            )
        )
    if any(gpu["architecture"] == "blackwell" for gpu in gpus) and branch < BLACKWELL:
        refusals.append(
            Finding(
                "branch",
                f"{new} with branch {branch}",
                f"its first branch is {BLACKWELL}",
                "nvidia_driver_branch: 580",
            )
        )
    if asked == "open" and old:
        refusals.append(
            Finding(
                "flavour",
                f"{old}; nvidia_driver_modules is open",
                "it needs the proprietary kernel modules",
                "nvidia_driver_modules: proprietary, or auto",
            )
        )
    if asked == "proprietary" and new:
        refusals.append(
            Finding(
                "flavour",
                f"{new}; nvidia_driver_modules is proprietary",
                "it needs the open kernel modules",
                "nvidia_driver_modules: open, or auto",
            )
        )
    if asked == "open" and branch < OPEN:
        refusals.append(
            Finding(
                "flavour",
                f"branch {branch} with open modules",
                f"its first branch with open modules is {OPEN}",
                "nvidia_driver_branch: 580",
            )
        )
    if asked != "auto":
        return asked, refusals
    return "proprietary" if old else "open" if new else prefer, refusals


def fabric_manager(
    wants: Mapping[str, Any], gpu: Mapping[str, Any], system: packages.System, source: str, branch: int
) -> tuple[str, list[Finding]]:
    """Return Fabric Manager's package where there are NVSwitches, and why there is none where there should be one."""
    asked = str(wants["fabric_manager"]).lower()
    if asked == "false" or (asked == "auto" and not gpu["nvswitches"]):
        return "", []
    name = packages.fabric_manager(system, source, branch)
    if name:
        return name, []
    seen = f"{len(gpu['nvswitches'])} NVSwitches; {system.id} {system.version}'s archive has no Fabric Manager"
    return "", [
        Finding("fabric_manager", seen, "without it CUDA ends with error 802", "nvidia_driver_source: nvidia or mirror")
    ]


def needless(gpu: Mapping[str, Any], manager: str, wants: Mapping[str, Any]) -> tuple[str, ...]:
    """Return Fabric Manager's packages where there is no NVSwitch: its service fails there, and looks like a fault."""
    if manager or str(wants["fabric_manager"]).lower() != "auto" or gpu["unread_bridges"]:
        return ()  # an adapter that does not say what it is may stand for NVSwitches
    return tuple(sorted(name for name in gpu["packages"] if name.startswith("nvidia-fabric")))


def _names(gpus: Any) -> str:
    return ", ".join(dict.fromkeys(str(gpu["product"] or gpu["id"]) for gpu in gpus))
