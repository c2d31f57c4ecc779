"""Virtual machines for tests: the same lab as of containers, entered over SSH, because there is no other way."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import labs
import yaml

#: Seconds that one command on emulated machines may take: a provision of bare ones with images from the cache takes a
#: third of it on two cores.
LIMIT = 2400


#: The stages without which a node runs no jobs. Those of GPU drivers and RDMA cost emulated machines minutes, and so do
#: further questions before anything is changed: tests of all stages are in test_vm_provision.
JOBS = ("discover", "base", "containers", "munge", "slurm")


@dataclass(frozen=True)
class VmLab(labs.Lab):
    """A lab of virtual machines that is up."""

    #: What the support matrix calls its machines.
    kind: ClassVar[str] = "vm"

    @property
    def description(self) -> dict[str, Any]:
        """What ``lab up`` wrote about it."""
        described: dict[str, Any] = yaml.safe_load((self.directory / "lab.yml").read_text(encoding="utf-8"))
        return described

    def address(self, machine: str) -> str:
        """Return the machine's address, as it was written down."""
        return str(self.description["machines"][machine])

    def fabric_address(self, machine: str) -> str:
        """Return the address of the machine's second network card, on which the RDMA adapter is."""
        words = json.loads((self.directory / "vm" / machine / "machine.json").read_text(encoding="utf-8"))["command"]
        own = [
            word for word in words[words.index("-append") + 1].split() if word.startswith("ip=") and ":eth1:" in word
        ]
        return own[0].removeprefix("ip=").split(":")[0]

    def root(self, machine: str, script: str, *, check: bool = True) -> str:
        """Run a shell script as root on the machine and return what it printed."""
        entering = self.entering(machine, "sudo -n sh -s")
        return labs.run(entering, input=script, check=check, timeout=LIMIT).stdout.strip()

    def console(self, machine: str) -> Path:
        """Return the log of the machine's console: every start of its kernel is in it."""
        return self.directory / "vm" / machine / "console.log"

    def boots(self, machine: str) -> int:
        """Return how often the machine has started since it was made."""
        return self.console(machine).read_text(encoding="utf-8", errors="replace").count("Linux version ")

    def boot_id(self, machine: str) -> str:
        """Return what the kernel makes up at each start."""
        return self.root(machine, "cat /proc/sys/kernel/random/boot_id")

    def job(self, script: str, *options: str) -> int:
        """Submit a batch script as the ordinary user and return the job's number."""
        words = " ".join(["sbatch", "--parsable", "--output=/dev/null", "--chdir=/", *options])
        # Who proves the lab: grace, and where homes are not shared one who is made for it.
        proves = "$(getent passwd slurmtest grace | head -n 1 | cut -d : -f 1)"
        return int(self.root("head", f"runuser -u {proves} -- {words} <<'END'\n#!/bin/sh\n{script}\nEND\n"))

    def wait_free(self, node: str) -> None:
        """Wait until a node takes jobs and has none; what Slurm says of it otherwise is the error."""
        asked = f"scontrol show node {node}; squeue"
        labs.until(lambda: self.node_is_free(node), lambda: self.root("head", asked))


@contextmanager
def made(name: str, *, nodes: int = 2, kind: str = "vm") -> Iterator[VmLab]:
    """Make a lab of virtual machines, and remove it in the end."""
    with labs.removed(name):
        labs.clusterctl("lab", "up", name, "--kind", kind, "--nodes", str(nodes), timeout=LIMIT)
        yield VmLab(name, nodes)


@contextmanager
def provisioned_node(
    name: str, nodes: int = 1, site: Callable[[Path], dict[str, Any]] | None = None
) -> Iterator[VmLab]:
    """Make a container controller and virtual compute machines, provisioned; remove them in the end.

    ``site`` returns further variables for an inventory.
    """
    have_images()
    with made(name, nodes=nodes, kind="mixed") as lab:
        if site:
            (lab.directory / "group_vars").mkdir(exist_ok=True)
            (lab.directory / "group_vars/all.yml").write_text(json.dumps(site(lab.inventory)), encoding="utf-8")
        labs.clusterctl("provision", lab.inventory, *JOBS, timeout=LIMIT)
        yield lab


def have_images() -> None:
    """Have the cache hold the images of this version, built at this computer's own speed: by a lab of containers.

    An emulated controller builds them too, in an hour.
    """
    with labs.made("t-images", nodes=1) as lab:
        labs.clusterctl("provision", lab.inventory)
