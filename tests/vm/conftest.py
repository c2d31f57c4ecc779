"""Labs with virtual machines that the tests in this directory share. They need root, Docker and QEMU."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "lab"))

import labs  # noqa: E402
import vms  # noqa: E402


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this directory needs machines, and the first test waits until they are made and provisioned."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.vm)
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
