# SPDX-License-Identifier: Apache-2.0
"""Virtual machines of a lab: what QEMU is told about each, and whether a computer can run them. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Network
from typing import Any

#: What making and running them takes, and the package that has it.
PROGRAMS = {
    "qemu-system-x86_64": "qemu-system-x86",
    "qemu-img": "qemu-utils",
    "mke2fs": "e2fsprogs",
    "ssh": "openssh-client",
}

#: What the names of the cluster's own images begin with, in each registry.
PROJECT = "clusterctl"

#: MiB of the disks' cache, per machine: packages, images and what a run writes. They grow only as they are filled.
DISK_MIB = 6000

#: MiB that an emulated machine takes beside its memory: QEMU itself and the code that it has translated.
EMULATOR_MIB = 700


def unfit(computer: Mapping[str, Any], machines: int, memory: int) -> tuple[str, str] | None:
    """Return why this computer cannot run so many machines of ``memory`` MiB each, and what to do; None if it can.

    ``computer`` has ``architecture``, ``missing`` (of ``PROGRAMS``), ``tap`` (whether /dev/net/tun can be opened),
    ``available`` and ``free`` (MiB of memory and of the labs' disk).
    """
    if computer["architecture"] != "x86_64":
        return f"virtual machines are made for x86_64, and this is {computer['architecture']}", "use --kind container"
    if computer["missing"]:
        packages = sorted({PROGRAMS[name] for name in computer["missing"]})
        return (
            f"virtual machines need {', '.join(computer['missing'])}",
            f"apt-get install --no-install-recommends {' '.join(packages)}",
        )
    if not computer["tap"]:
        return (
            "virtual machines are connected through /dev/net/tun, which cannot be opened here",
            "modprobe tun; in a container, give it --device /dev/net/tun and --cap-add NET_ADMIN",
        )
    needed = machines * (memory + EMULATOR_MIB)
    if computer["available"] < needed:
        return (
            f"{machines} machines with {memory} MiB each need {needed} MiB of memory, free: {computer['available']}",
            "use fewer --nodes, set lab_machines_vm_memory lower, or end what uses the memory",
        )
    if computer["free"] < machines * DISK_MIB:
        return (
            f"{machines} machines need {machines * DISK_MIB} MiB of disk, free: {computer['free']}",
            "free some, or set XDG_STATE_HOME and XDG_CACHE_HOME to a larger disk",
        )
    return None


def machines(names: Sequence[str], settings: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return for each machine its ``shape``, ``address`` and ``base``, and the ``command`` that starts it.

    ``settings`` has ``lab``; ``directory``, the lab's; ``base``, what the paths of the disk to start from and of its
    kernel begin with; ``accelerator``, kvm or tcg; ``cpus``, ``memory`` (MiB) and ``gpus`` of each; ``subnets``, one
    for each network card; ``password``, whether sudo asks for one. A machine of another shape is another machine: what
    is fixed when it is made.
    """
    return {name: _machine(name, settings) for name in names}


def _machine(name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    addresses = [address(subnet, name) for subnet in settings["subnets"]]
    fixed = {
        "addresses": addresses,
        "cpus": int(settings["cpus"]),
        "memory": int(settings["memory"]),
        "gpus": int(settings["gpus"]) if name.startswith("node") else 0,
        "password": bool(settings["password"]),
    }
    return {
        "shape": hashlib.sha256(json.dumps(fixed, sort_keys=True).encode()).hexdigest()[:12],
        "address": addresses[0],
        "base": str(settings["base"]),
        "command": _command(name, fixed, settings),
    }


def _command(name: str, fixed: Mapping[str, Any], settings: Mapping[str, Any]) -> list[str]:
    lab, home = str(settings["lab"]), f"{settings['directory']}/vm"
    kernel = f"{home}/{str(settings['base']).rsplit('/', 1)[-1]}"
    emulated = settings["accelerator"] == "tcg"
    command = ["qemu-system-x86_64", "-name", identity(lab, name), "-daemonize", "-no-user-config", "-nodefaults"]
    command += ["-display", "none", "-machine", "q35", "-smp", str(fixed["cpus"]), "-m", f"{fixed['memory']}M"]
    # Without a limit, each emulator keeps a GiB of translated code. A processor that has AVX is slower to emulate by a
    # sixth, as libraries use it where it is there; this one has what x86-64-v2 is, without which NumPy does not start.
    command += ["-accel", "tcg,thread=multi,tb-size=512"] if emulated else ["-accel", "kvm"]
    command += ["-cpu", "Nehalem" if emulated else "host"]
    command += [
        "-kernel",
        f"{kernel}.vmlinuz",
        "-initrd",
        f"{kernel}.initrd",
        "-append",
        _kernel_words(name, fixed, settings),
    ]
    # What is lost when this computer stops is a lab; waiting for its disk at every step would cost minutes.
    command += ["-drive", f"file={home}/{name}/disk,format=qcow2,if=virtio,cache=unsafe,discard=unmap"]
    for card, _subnet in enumerate(settings["subnets"]):
        # Its end at this computer goes when QEMU ends, by whatever cause.
        command += ["-netdev", f"tap,id=eth{card},script={home}/attach-eth{card},downscript=no"]
        command += ["-device", f"virtio-net-pci,netdev=eth{card},mac={mac(lab, name, card)},romfile="]
    # Of the lab's keys, those that its machines may see.
    given = f"path={settings['directory']}/given,mount_tag=given,security_model=none,readonly=on"
    command += ["-virtfs", f"local,{given}"]
    command += ["-device", "virtio-rng-pci", "-device", "virtio-balloon-pci,free-page-reporting=on"]
    command += ["-chardev", f"file,id=console,path={home}/{name}/console.log,append=on", "-serial", "chardev:console"]
    return command


def _kernel_words(name: str, fixed: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    words = ["root=/dev/vda", "rw", "console=ttyS0", "mitigations=off", "net.ifnames=0", f"systemd.hostname={name}"]
    for card, (subnet, own) in enumerate(zip(settings["subnets"], fixed["addresses"], strict=True)):
        network = IPv4Network(subnet)
        # Docker's own end is the first address. Only the first card leads out.
        gateway = str(network[1]) if card == 0 else ""
        words.append(f"ip={own}::{gateway}:{network.netmask}::eth{card}:off")
    words.append(f"lab.gpus={fixed['gpus']}")
    return " ".join(words)


def images(tags: Mapping[str, Mapping[str, str]], ours: Mapping[str, str]) -> list[str]:
    """Return, as name@digest, what the labs' registry keeps that machines are to have from the start.

    ``tags`` are the digests by name and tag, the newest tag last, and ``ours`` the tag of what is built from this tree,
    by name: trees share a cache. Without that one it is the newest, of which most layers are the same.

    Slurm's image is the first, because its podman puts the others into their store; without it there are none.
    """
    names = sorted(tags, key=lambda name: (name != "slurm", name)) if "slurm" in tags else []
    return [f"{name}@{tags[name].get(ours.get(name, ''), list(tags[name].values())[-1])}" for name in names]


def address(subnet: str, name: str) -> str:
    """Return the address of a lab's machine: its name alone says it, so that a lab that grows moves nobody.

    The controller is .10 of the first 256, compute machine n .10+n, login machine n .100+n, the depot .2, and a site's
    gate .3.
    """
    kind, number = name.rstrip("0123456789"), name.lstrip("abcdefghijklmnopqrstuvwxyz")
    return str(IPv4Network(subnet)[{"depot": 2, "gate": 3, "login": 100}.get(kind, 10) + int(number or 0)])


def identity(lab: str, machine: str) -> str:
    """Return the name that QEMU is given: by it, and by nothing that could be lost, its process is known again."""
    return f"clusterctl/{lab}/{machine}"


def machine_of(lab: str, command: Sequence[str]) -> str:
    """Return which machine of the lab a process is, by the words that it was started with; empty for none."""
    if not command or not command[0].rsplit("/", 1)[-1].startswith("qemu-system-") or "-name" not in command:
        return ""
    name = command[command.index("-name") + 1]
    return name.removeprefix(identity(lab, "")) if name.startswith(identity(lab, "")) else ""


def mac(lab: str, machine: str, card: int) -> str:
    """Return the address of a network card, in QEMU's range: always the same, and another one on every machine."""
    digest = hashlib.sha256(f"{lab}/{machine}/{card}".encode()).digest()
    return ":".join(f"{byte:02x}" for byte in (0x52, 0x54, 0x00, *digest[:3]))
