"""Labs with virtual machines that the tests in this directory share. They need root, Docker and QEMU."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import labs
import pytest
import vms

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first test waits until machines are made and provisioned, at the speed of emulation."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.timeout(3600))


@pytest.fixture(scope="session")
def vm_lab() -> Iterator[vms.VmLab]:
    """One controller and two compute machines, provisioned. Tests that use it leave it provisioned.

    Where ``CLUSTERCTL_VM_LAB`` names a lab that is up and provisioned, that one is used, and left as it is.
    """
    if name := os.environ.get("CLUSTERCTL_VM_LAB"):
        yield vms.VmLab(name, 2)
        return
    vms.have_images()
    with vms.made("t-vm", nodes=2) as made:
        labs.clusterctl("provision", made.inventory, timeout=vms.LIMIT)
        yield made


@pytest.fixture(scope="session")
def node_lab() -> Iterator[vms.VmLab]:
    """A container controller and one virtual compute machine, provisioned: for what only its kernel shows."""
    if name := os.environ.get("CLUSTERCTL_NODE_LAB"):
        yield vms.VmLab(name, 1)
        return
    with vms.provisioned_node("t-node") as made:
        yield made
