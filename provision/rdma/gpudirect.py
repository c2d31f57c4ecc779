"""By which mechanism a machine's network adapters can reach its GPUs' memory, and what that takes. Pure.

Three exist: DMA-BUF, which needs the open kernel modules and nothing else; nvidia-peermem, which is part of the driver
and needs a kernel (or an OFED) that offers peer memory; and nv_peer_mem, its forerunner, for drivers before R470. The
rows of ``decide`` are in the order in which they are to be preferred; each has a test.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from provision.nvidia.releases import OPEN, PEERMEM, Version, version

#: NVIDIA's architectures of data-centre GPUs, oldest first.
ARCHITECTURES = ("kepler", "maxwell", "pascal", "volta", "turing", "ampere", "ada", "hopper", "blackwell")

#: Linux with DMA-BUF for peer-to-peer, and NCCL that uses it.
DMABUF_KERNEL: Version = (5, 12)
DMABUF_NCCL: Version = (2, 13)
#: OFED from which nv_peer_mem 1.2 and newer, and nvidia-peermem as it is, can register. 4.9 LTS is older.
NEW_OFED: Version = (5, 1)
#: Ubuntu's own kernels that carry peer memory: release -> versions of Linux, as Canonical says.
UBUNTU_PEER_MEMORY = {"20.04": ((5, 4),), "22.04": ((5, 15), (6, 5))}


class Mechanism(StrEnum):
    """What carries the data. ``NONE`` needs nothing because there is nothing to reach; ``IMPOSSIBLE`` is a failure."""

    NONE = "none"
    DMA_BUF = "DMA-BUF"
    NVIDIA_PEERMEM = "nvidia-peermem"
    NV_PEER_MEM = "nv_peer_mem"
    IMPOSSIBLE = "impossible"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Machine:
    """What decides. Empty texts and None mean: not known.

    ``consumer`` are GPUs made for desktops; ``kernel`` is ``uname -r``; ``peer_memory`` whether the kernel or its OFED
    exports ib_register_peer_memory_client; ``ofed`` is ``MLNX_OFED`` or ``DOCA-OFED``, empty for the distribution's own
    drivers; ``nccl`` is the version that jobs bring; ``release`` is Ubuntu's, empty for other systems.
    """

    adapters: int
    driver: str = ""
    open_modules: bool | None = None
    architectures: tuple[str, ...] = ()
    consumer: tuple[str, ...] = ()
    kernel: str = ""
    peer_memory: bool | None = None
    ofed: str = ""
    ofed_version: str = ""
    nccl: str = ""
    release: str = ""


@dataclass(frozen=True)
class Decision:
    """The mechanism, why, and what it takes.

    ``remedies`` are for what is impossible, ``offer`` for what could be better. ``remove`` are modules and packages
    that stand in the way; ``options`` belong into modprobe.d.
    """

    mechanism: Mechanism
    reason: str
    load: str = ""
    options: str = ""
    remove: tuple[str, ...] = ()
    legacy: bool = False
    offer: str = ""
    remedies: tuple[str, ...] = ()


#: Packages of nv_peer_mem.
OLD_PACKAGES = ("nvidia-peer-memory", "nvidia-peer-memory-dkms")
_TO_OPEN = "change to the open kernel modules (nvidia_driver_modules: open; one reboot): DMA-BUF needs nothing else"


def decide(machine: Machine, *, allow_legacy: bool = False) -> Decision:
    """Return the first mechanism that the machine can have.

    ``allow_legacy`` permits nv_peer_mem, which must be built against an OFED and is no longer maintained.
    """
    if machine.adapters == 0:
        return Decision(Mechanism.NONE, "there is no RDMA adapter")
    if machine.consumer:
        return Decision(
            Mechanism.IMPOSSIBLE,
            f"NVIDIA gives GeForce and Titan no GPUDirect RDMA, whatever the modules ({', '.join(machine.consumer)})",
            remedies=(
                "use data-centre or professional GPUs",
                "gpudirect_rdma_required: false; jobs work, through memory",
            ),
        )
    missing = _missing(machine)
    if missing:
        return Decision(Mechanism.UNKNOWN, f"not known: {', '.join(missing)}")
    driver, ofed = version(machine.driver), version(machine.ofed_version)
    fit_for_dmabuf = _fit_for_dmabuf(machine)
    if fit_for_dmabuf and machine.open_modules:
        assumed = "" if machine.nccl else f"; jobs are taken to bring NCCL {_text(DMABUF_NCCL)} or newer"
        return Decision(Mechanism.DMA_BUF, f"open modules on Linux {machine.kernel}{assumed}", remove=OLD_PACKAGES)
    offer = _TO_OPEN if fit_for_dmabuf else ""
    if driver >= (PEERMEM,) and machine.ofed == "MLNX_OFED" and ofed < NEW_OFED:
        return Decision(
            Mechanism.NVIDIA_PEERMEM,
            f"MLNX_OFED {machine.ofed_version} wants the driver's module in its old manner",
            load="nvidia-peermem",
            options="options nvidia-peermem peerdirect_support=1",
            remove=OLD_PACKAGES,
            legacy=True,
            offer=offer,
        )
    if driver >= (PEERMEM,) and _peer_memory(machine):
        return Decision(
            Mechanism.NVIDIA_PEERMEM, _whose(machine), load="nvidia-peermem", remove=OLD_PACKAGES, offer=offer
        )
    if driver < (PEERMEM,) and machine.ofed:
        return _nv_peer_mem(machine, ofed, allow_legacy)
    return Decision(
        Mechanism.IMPOSSIBLE,
        f"Linux {machine.kernel} offers no peer memory, and these modules cannot do DMA-BUF",
        remedies=_remedies(machine),
    )


def _missing(machine: Machine) -> list[str]:
    known = {
        "the driver's version": bool(version(machine.driver)),
        "the kernel's version": bool(version(machine.kernel)),
        "whether the modules are open": machine.open_modules is not None,
        "the GPUs' architecture": bool(machine.architectures)
        and all(name.lower() in ARCHITECTURES for name in machine.architectures),
        "the OFED's version": not machine.ofed or bool(version(machine.ofed_version)) or machine.ofed == "DOCA-OFED",
    }
    return [name for name, is_known in known.items() if not is_known]


def _since_turing(machine: Machine) -> bool:
    oldest = min(ARCHITECTURES.index(name.lower()) for name in machine.architectures)
    return oldest >= ARCHITECTURES.index("turing")


def _fit_for_dmabuf(machine: Machine) -> bool:
    """Tell whether only the modules' flavour stands between the machine and DMA-BUF."""
    return (
        _since_turing(machine)
        and version(machine.driver) >= (OPEN,)
        and version(machine.kernel) >= DMABUF_KERNEL
        and (not machine.nccl or version(machine.nccl) >= DMABUF_NCCL)
    )


def _peer_memory(machine: Machine) -> bool:
    """Tell whether the kernel offers peer memory: what was found there, else what is known of its kind."""
    if machine.peer_memory is not None:
        return machine.peer_memory
    return bool(machine.ofed) or _of_ubuntu(machine)


def _of_ubuntu(machine: Machine) -> bool:
    if not machine.release:
        return False
    carried = UBUNTU_PEER_MEMORY.get(machine.release, ())
    return machine.kernel.endswith("-nvidia") or (
        machine.kernel.endswith("-generic") and version(machine.kernel)[:2] in carried
    )


def _whose(machine: Machine) -> str:
    if machine.ofed:
        return (
            f"{machine.ofed} {machine.ofed_version}".strip()
            + " offers peer memory; build the driver's modules after it"
        )
    return f"Linux {machine.kernel} offers peer memory"


def _nv_peer_mem(machine: Machine, ofed: Version, allowed: bool) -> Decision:
    release = "1.3" if machine.ofed == "DOCA-OFED" or ofed >= NEW_OFED else "1.1"
    newer = f"install a driver of branch {PEERMEM} or newer, which brings nvidia-peermem"
    if not allowed:
        return Decision(
            Mechanism.IMPOSSIBLE,
            f"driver {machine.driver} knows nv_peer_mem only, which is not maintained any more",
            remedies=(newer, "allow it: gpudirect_rdma_legacy_allowed: true"),
        )
    return Decision(
        Mechanism.NV_PEER_MEM,
        f"driver {machine.driver} is older than nvidia-peermem; nv_peer_mem {release} fits {machine.ofed}",
        load="nv_peer_mem",
        legacy=True,
        offer=newer,
    )


def _remedies(machine: Machine) -> tuple[str, ...]:
    remedies = []
    if _since_turing(machine) and version(machine.kernel) >= DMABUF_KERNEL:
        newer = "" if version(machine.driver) >= (OPEN,) else f" of a driver of branch {OPEN} or newer"
        remedies.append(f"change to the open kernel modules{newer} (nvidia_driver_modules: open; one reboot)")
    if machine.nccl and version(machine.nccl) < DMABUF_NCCL:
        remedies.append(f"give jobs NCCL {_text(DMABUF_NCCL)} or newer (they bring {machine.nccl})")
    stack = f"reboot into {machine.ofed}'s own modules, which do not run" if machine.ofed else "install DOCA-OFED"
    remedies.append(f"{stack}, then build the driver's modules again")
    if machine.release:
        remedies.append("boot Ubuntu's linux-nvidia kernel")
    return tuple(remedies)


def _text(number: Version) -> str:
    return ".".join(str(part) for part in number)
