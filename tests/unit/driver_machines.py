"""Machines with NVIDIA's hardware and driver, made from fixtures that say what they replay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from machines import OURS, as_declared, gpu, system, tree

from provision.nvidia import driver as nvidia_driver
from provision.nvidia import driver_packages as nvidia_driver_packages

FIXTURES = Path(__file__).parent / "fixtures/nvidia_driver"

#: The role's defaults, without the role's name.
WANTS: dict[str, Any] = yaml.safe_load(
    (Path(__file__).parents[2] / "roles/nvidia_driver/defaults/main.yml").read_text(encoding="utf-8")
)
WANTS = {name.removeprefix("nvidia_driver_"): value for name, value in WANTS.items()} | {"cuda": []}


def names() -> list[str]:
    return sorted(path.stem for path in FIXTURES.glob("*.yml"))


def load(name: str) -> dict[str, Any]:
    """Return a fixture over the one that it is like; null takes away."""
    case = yaml.safe_load((FIXTURES / f"{name}.yml").read_text(encoding="utf-8"))
    if "like" not in case:
        return dict(case)
    base = load(case.pop("like"))
    for key in ("pci", "files", "links", "packages", "commands"):
        both = {**base.get(key, {}), **case.pop(key, {})}
        base[key] = {name: value for name, value in both.items() if value is not None}
    return {**base, **case}


def machine(name: str, root: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Make a fixture's machine below ``root``; return its facts, and the fixture."""
    case = load(name)
    files = dict(case.get("files", {}))
    files["etc/os-release"] = "".join(f'{key}="{value}"\n' for key, value in case["os"].items())
    for address, device in case.get("pci", {}).items():
        vendor, number = device["id"].split(":")
        place = f"sys/bus/pci/devices/{address}"
        files |= {f"{place}/vendor": f"0x{vendor}\n", f"{place}/device": f"0x{number}\n"}
        files |= {f"{place}/class": f"0x{device['class']}\n", f"{place}/subsystem_device": "0x0000\n"}
    tree(root, files)
    links = dict(case.get("links", {}))
    for address, device in case.get("pci", {}).items():
        if device.get("driver"):
            links[f"sys/bus/pci/devices/{address}/driver"] = f"../../../../bus/pci/drivers/{device['driver']}"
    for path, target in links.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).symlink_to(target)

    found = facts(root, case)
    if case.get("written", True):
        # As a run leaves it: the files of ours are those of the plan.
        planned = nvidia_driver.plan(found, wants(case))
        tree(root, {path.lstrip("/"): text for path, text in planned.files.items()})
        found = facts(root, case)
        if planned.key:
            # Nobody has the keys of all repositories that the fixtures have.
            place = planned.key["path"]
            there = as_declared(planned.managed())
            found["gpu"]["files"] |= {path: there[path] for path in (place, place.rpartition("/")[0])}
    return found, case


def facts(root: Path, case: dict[str, Any]) -> dict[str, Any]:
    found = {
        **system.identity(root),
        "architecture": "x86_64",
        "container": "",
        "lock": {"holder": case.get("lock"), "waited": 0},
    }
    found["gpu"] = gpu.collect(root, lambda command: answer(case, command), files=nvidia_driver_packages.PLACES)
    for state in found["gpu"]["files"].values():
        # They are those of whoever runs the tests.
        if state["kind"] != "absent":
            state.update(OURS, mode="0755" if state["kind"] == "directory" else "0644")
    return found


def wants(case: dict[str, Any]) -> dict[str, Any]:
    return {**WANTS, **case.get("settings", {})}


def answer(case: dict[str, Any], command: list[str]) -> tuple[int | None, str]:
    """Replay what a program prints; a key of ``commands`` fits when all of its words are in the command."""
    if command[0] == "dpkg-query" and "*nvidia*" in command:
        want, broken = "hold" if case.get("held") else "install", case.get("incomplete", [])
        rows = [
            "\t".join(
                (name, version, want, "half-configured" if name in broken else "installed", case.get("maker", ""))
            )
            + "\n"
            for name, version in case.get("packages", {}).items()
        ]
        return 0, "".join(rows)
    for key, told in case.get("commands", {}).items():
        if all(word in command for word in key.split()):
            return (told[0], told[1]) if isinstance(told, list) else (0, told)
    return None, ""
