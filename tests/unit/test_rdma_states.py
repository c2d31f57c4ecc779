"""Every state in which RDMA machines are found, from the kernel's files to the verdict and what it tells."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from machines import as_declared, tree
from rdma_machines import INFINIBAND, ROCE, SOFT, capabilities, device, found, pci

from provision.judge import gpudirect as judge_gpudirect
from provision.judge import rdma as judge_rdma
from provision.rdma import gpudirect_machine
from provision.rdma.expected import Expected

FIXTURES = Path(__file__).parent / "fixtures"
STATES = {path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in (FIXTURES / "rdma").glob("*.yml")}
KINDS = {"infiniband": INFINIBAND, "roce": ROCE, "soft": SOFT}
KERNEL = "6.8.0-31-generic"
NO_OFED = {"kind": "none", "version": "", "fingerprints": []}
LIMITS = "Limit Soft Hard Units\nMax locked memory         {0} {0} bytes\n"


def machine(root: Path, state: dict[str, Any]) -> dict[str, Any]:
    """Build the machine that a fixture describes, and ask it."""
    files = {
        "proc/sys/kernel/osrelease": f"{KERNEL}\n",
        "proc/41/comm": "slurmd\n",
        "proc/41/limits": LIMITS.format(state.get("slurmd_memlock", "unlimited")),
        "etc/modules-load.d/clusterctl-rdma.conf": "ib_umad\n",
        "sys/class/infiniband_verbs/abi_version": "6\n",
        "sys/class/misc/rdma_cm/abi_version": "4\n",
        "dev/infiniband/uverbs0": "",
        **({"sys/class/infiniband_mad/abi_version": "5\n"} if state.get("umad", True) else {}),
        **state.get("files", {}),
    }
    tree(root, files)
    (root / "dev/infiniband/uverbs0").chmod(int(state.get("device_mode", "0666"), 8))
    for path, age in state.get("ages", {}).items():
        os.utime(root / path, (time.time() - age, time.time() - age))
    for one in state["devices"]:
        given = dict(one)
        name, kind, above, acs = given.pop("name"), given.pop("kind"), given.pop("below", ""), given.pop("acs", None)
        if above:
            pci(root, above, config=capabilities(acs))
            pci(root, above, given["address"], vendor="0x15b3", kind="0x020700")
        device(root, name, KINDS[kind], **given)
    for address in state.get("idle", ()):
        pci(root, address, vendor="0x15b3", kind="0x020700")
    said = {"ibstat": ibstat(state), "ofed_info": state.get("ofed", ""), **state.get("commands", {})}
    rdma = found(root, run=lambda command: said.get(command[0]))
    told = {"gpu": gpu(state), "rdma": {**rdma, "login": state.get("login", "unlimited")}}
    chosen = gpudirect_machine.decision(told, mechanisms(state))
    told["gpu"]["files"] = as_declared(gpudirect_machine.managed(chosen, told))
    return told


def mechanisms(state: dict[str, Any]) -> dict[str, Any]:
    """Return the role's settings."""
    return {"nccl": "", "release": state.get("release", ""), "legacy_allowed": False, "required": True}


def ibstat(state: dict[str, Any]) -> str:
    """Return what ibstat prints: a sample, or what agrees with the kernel's files."""
    if "ibstat" in state:
        return (FIXTURES / "ibstat" / f"{state['ibstat']}.txt").read_text(encoding="utf-8")
    text = ""
    for one in state["devices"]:
        port = {"state": "4: ACTIVE", "phys_state": "5: LinkUp", **KINDS[one["kind"]], **one}
        logical = {"ACTIVE": "Active", "DOWN": "Down", "INIT": "Initializing"}[port["state"].split()[1]]
        text += f"CA '{one['name']}'\n\tNumber of ports: 1\n\tPort 1:\n\t\tState: {logical}\n"
        text += f"\t\tPhysical state: {port['phys_state'].split()[1]}\n\t\tRate: {port['rate'].split()[0]}\n"
    return text


def gpu(state: dict[str, Any]) -> dict[str, Any]:
    """Return what the driver's part of the facts says of a machine with one H100, unless the fixture has none."""
    return {
        "gpus": state.get("gpus", [{"address": "0000:1b:00.0", "architecture": "hopper"}]),
        "kernel": {"running": KERNEL},
        "module": {"loaded": "580.95.05", "open": state.get("open_modules", True), "on_disk": {}},
        "dkms": [],
    }


def judged(root: Path, state: dict[str, Any]) -> dict[str, dict[str, Any]]:
    asked = machine(root, state)
    declared = {"ports": None, "rate": None, "link_layer": None, **state.get("declared", {})}
    settings = {"wanted": "auto", "declared": declared, "memlock": "unlimited", "simulated": False, "ofed": NO_OFED}
    group = Expected(**state.get("group", {}), source="most machines of the group")
    checks = [check.as_dict() for check in judge_rdma.checks(asked["rdma"], group, settings)]
    checks += [check.as_dict() for check in judge_gpudirect.checks(asked, mechanisms(state))]
    return {check["id"]: check for check in checks}


@pytest.mark.parametrize("name", sorted(STATES))
def test_a_state_is_judged_as_it_should_be(name: str, tmp_path: Path) -> None:
    found = judged(tmp_path, STATES[name])

    for check, (verdict, *words) in STATES[name]["expected"].items():
        assert found[check]["verdict"] == verdict, found[check]
        told = " | ".join(str(found[check][key]) for key in ("observed", "expected", "source", "cause", "fix"))
        assert [word for word in words if word not in told] == [], told
    for one in found.values():
        assert one["verdict"] in ("pass", "skip") or (one["cause"] and one["fix"]), one


@pytest.mark.parametrize("name", ["healthy_infiniband", "healthy_soft_roce"])
def test_a_healthy_machine_has_no_complaint(name: str, tmp_path: Path) -> None:
    assert {check["verdict"] for check in judged(tmp_path, STATES[name]).values()} <= {"pass", "skip"}


def test_software_adapters_are_never_counted_as_proven_hardware(tmp_path: Path) -> None:
    checks = judged(tmp_path, STATES["healthy_soft_roce"])

    assert all(check["simulated"] for name, check in checks.items() if name.startswith("rdma."))


def test_a_machine_without_adapters_is_left_in_peace(tmp_path: Path) -> None:
    assert {check["verdict"] for check in judged(tmp_path, {"devices": [], "gpus": []}).values()} == {"skip"}
