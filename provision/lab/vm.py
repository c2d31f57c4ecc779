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

#: Where the controllers of labs write the images that they build.
REGISTRY = "head:5001/clusterctl"

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
    kernel begin with, and ``carried``, the same of a machine that was a container, by its name; ``accelerator``, kvm or
    tcg; ``cpus``, ``memory`` (MiB) and ``gpus`` of each; ``cache``, the directory that the controller shares;
    ``subnets``, one for each network card; ``password``, whether sudo asks for one. The controller is the first name. A
    machine of another shape is another machine: what is fixed when it is made.
    """
    return {name: _machine(name, name == names[0], settings) for name in names}


def _machine(name: str, controller: bool, settings: Mapping[str, Any]) -> dict[str, Any]:
    addresses = [address(subnet, name) for subnet in settings["subnets"]]
    base = str(settings["carried"].get(name, settings["base"]))
    fixed = {
        "addresses": addresses,
        "cpus": int(settings["cpus"]),
        "memory": int(settings["memory"]),
        "gpus": int(settings["gpus"]) if name.startswith("node") else 0,
        "password": bool(settings["password"]),
        "cache": str(settings["cache"]) if controller else "",
    }
    return {
        "shape": hashlib.sha256(json.dumps(fixed, sort_keys=True).encode()).hexdigest()[:12],
        "address": addresses[0],
        "base": base,
        "command": _command(name, fixed, settings, base.rsplit("/", 1)[-1]),
    }


def _command(name: str, fixed: Mapping[str, Any], settings: Mapping[str, Any], base: str) -> list[str]:
    lab, home = str(settings["lab"]), f"{settings['directory']}/vm"
    kernel = f"{home}/{base}"
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
    # Of the lab's keys, those that its machines may see. The cache keeps owners and modes: all labs share it.
    shares = [("given", f"{settings['directory']}/given", "none,readonly=on")]
    shares += [("cache", fixed["cache"], "passthrough,multidevs=remap")] if fixed["cache"] else []
    for tag, path, model in shares:
        command += ["-virtfs", f"local,path={path},mount_tag={tag},security_model={model}"]
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
    if fixed["cache"]:
        words.append("lab.cache=/var/cache/clusterctl")
    return " ".join(words)


def images(records: Mapping[str, str], ours: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return, as name@digest, what the labs' own registry keeps that machines are to have from the start.

    Of several by one name it is the newest of those that are built from ``ours``, the hashes of this tree's files by
    the images' names: trees share a cache. Without one it is the newest of all, of which most layers are the same.

    ``records`` are the texts that the role container_images leaves in the cache, by their files' names. Slurm's image
    is the first, because its podman puts the others into their store; without it there are none. Images of jobs, which
    job_images leaves beside them, are each site's own.
    """
    found: dict[str, tuple[bool, str, str]] = {}
    for file, text in records.items():
        name, record = file.rsplit("/", 1)[-1].split("-", 1)[0], json.loads(text)
        if not name.startswith("jobs%") and record["registry"] == REGISTRY:
            own = name in ours and record.get("sums") == ours[name]
            found[name] = max(found.get(name, (False, "", "")), (own, record["built"], record["digest"]))
    names = ["slurm", *sorted(found.keys() - {"slurm"})] if "slurm" in found else []
    return [f"{name}@{found[name][2]}" for name in names]


def address(subnet: str, name: str) -> str:
    """Return the address of a lab's machine: its name alone says it, so that a lab that grows moves nobody.

    The controller is .10 of the first 256, compute machine n .10+n, login machine n .100+n, and a site's gate .3.
    """
    kind, number = name.rstrip("0123456789"), name.lstrip("abcdefghijklmnopqrstuvwxyz")
    return str(IPv4Network(subnet)[{"login": 100, "gate": 3}.get(kind, 10) + int(number or 0)])


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
