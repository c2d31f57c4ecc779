"""What the module ``machine_facts`` reports, read as input: bounded, clean, and of the right types. Pure.

A machine can answer anything. :func:`facts_from` is the door: behind it nobody meets a wrong type, a number without a
bound, or a character that a terminal would obey. Keys that are not named here pass with the same bounds.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict  # pydantic reads those of typing only from Python 3.12 on

from provision.model.container_facts import EngineFacts, ImageFacts, JobImageFacts, RegistryFacts
from provision.model.fact_types import STRICT, Count, Limit, Memory, Seconds, Text, Word
from provision.model.state_facts import CommandAnswer, HostsFacts, KeyFacts, SlurmFacts, StateFacts
from provision.model.text import clean
from provision.model.user_facts import UserFacts

#: Bounds of a whole answer: how deep it is, how many values it has, and how long one text is (``ibstat`` prints pages).
MAX_DEPTH, MAX_VALUES, MAX_TEXT = 12, 200_000, 262_144
#: Parts of an answer that a module gathers as a whole, or not at all.
PARTS = ("hardware", "gpu", "rdma")
#: Counters of adapters and numbers of devices have 64 bits.
MAX_NUMBER = 2**64


@with_config(STRICT)
class BusGpu(TypedDict):
    """A GPU on the bus; ``product`` is empty where its PCI id is not known. ``cpus`` are those that are near it."""

    address: Word
    id: Word
    product: Text
    cpus: NotRequired[Text]


@with_config(STRICT)
class HardwareFacts(TypedDict):
    """What a machine is made of, in Slurm's terms. ``real_memory`` in MiB.

    ``socket_cpus`` are the CPUs of each socket, and of all together; ``gpu_products`` the driver's names of the GPUs.
    """

    cpus: Count
    sockets: Count
    cores_per_socket: Count
    threads_per_core: Count
    regular: NotRequired[bool]
    socket_cpus: NotRequired[list[Text]]
    real_memory: Memory
    cgroup_version: Annotated[int, Field(ge=1, le=2)]
    gres: Text
    gpu_products: NotRequired[list[Text]]
    gpu_count: Count
    gpu_source: Text
    gpu_addresses: list[Word]
    gpu_devices: NotRequired[list[Count]]
    gpus_on_bus: Count
    bus_gpus: list[BusGpu]
    bus_gres: Text
    rdma_ports: NotRequired[Count]


@with_config(STRICT)
class OperatingSystem(TypedDict):
    """What os-release says."""

    id: Text
    version: Text
    name: Text
    dgx: NotRequired[bool]


@with_config(STRICT)
class Holder(TypedDict):
    """The process that holds a lock."""

    pid: Annotated[int, Field(ge=0, le=2**32)]
    command: Text


@with_config(STRICT)
class Lock(TypedDict):
    """The package manager's lock; ``waited`` in seconds."""

    holder: Holder | None
    waited: Count


@with_config(STRICT)
class Memlock(TypedDict):
    """Limits of locked memory: the highest that can be set, and what a login printed, empty where nobody logged in."""

    login_highest: Limit
    service_highest: Limit
    login: Text


@with_config(STRICT)
class Disk(TypedDict):
    """Free MiB at a path, the number of its file system, and whether the path holds something."""

    free: Memory
    device: Annotated[int, Field(ge=0, le=MAX_NUMBER)]
    used: bool


@with_config(STRICT)
class ClockOffset(TypedDict):
    """Bounds in seconds between which the machine's clock is ahead of the control node's."""

    low: Seconds
    high: Seconds


@with_config(STRICT)
class RdmaPort(TypedDict):
    """A port of an adapter, in ibstat's words; ``rate`` in Gb/s."""

    number: Count
    state: Text
    physical_state: Text
    rate: Seconds | None
    link_layer: Text
    lid: Count
    sm_lid: Count
    netdev: Text
    counters: dict[Word, int]


@with_config(STRICT)
class RdmaDevice(TypedDict):
    """An RDMA device that a driver runs."""

    name: Word
    driver: Text
    software: bool
    node_type: Text
    firmware: Text
    board: Text
    address: Word
    ports: list[RdmaPort]


@with_config(STRICT)
class RdmaFacts(TypedDict):
    """Adapters of InfiniBand and RoCE; the rest is reported only where there is one."""

    devices: list[RdmaDevice]
    adapters: list[Word]
    on_bus: list[Word]
    gpus: list[Word]
    unloaded: list[Word]
    configured: dict[Word, dict[Text, Text]]
    lacking: list[Text]
    kernel: NotRequired[Word]
    device_files: NotRequired[dict[Text, Word]]
    memlock: NotRequired[dict[Word, Text]]
    login: NotRequired[Text]


@with_config(STRICT)
class StoppedWay(TypedDict):
    """What a machine's own firewall stops: the first address of a way into it, and where that is written."""

    program: Literal["firewalld", "iptables", "nftables", "ufw"]
    family: Word
    table: Text
    chain: Text
    port: Word
    protocol: Word
    purpose: Text
    source: Text


@with_config(STRICT)
class FirewallFacts(TypedDict):
    """Whether anything that comes in is filtered, and what of the cluster's is stopped; or why that is not known."""

    problem: Text
    filtered: bool
    stopped: list[StoppedWay]


@with_config(STRICT)
class ProxyFacts(TypedDict):
    """What the declared proxy says to a question: its status, 0 where there is none for the ``problem``."""

    status: Annotated[int, Field(ge=0, le=999)]
    problem: Text


@with_config(STRICT)
class LeaseFacts(TypedDict):
    """The cluster's lease as the controller has it, and the seconds since it was written."""

    text: Text
    age: Seconds


@with_config(STRICT)
class MachineFacts(TypedDict, total=False):
    """One answer, each part where it was asked for. ``system`` is all but ``hardware``, ``gpu`` and ``rdma``."""

    python: Word
    clock: dict[Word, Seconds]
    clock_offset: ClockOffset
    os: OperatingSystem
    kernel: Word
    systemd: bool
    container: Text
    architecture: Word
    uid: Annotated[int, Field(ge=0, le=2**32)]
    hostname: Text
    addresses: dict[Text, list[Word]]
    capabilities: dict[Word, bool]
    clock_synchronised: bool | None
    disks: dict[Text, Disk]
    lock: Lock
    packages_interrupted: list[Text]
    slurm_daemons: list[Text]
    time_daemons: list[Text]
    memlock: Memlock
    kernel_settings: dict[Word, Text]
    hardware: HardwareFacts
    gpu: dict[Word, Any]
    rdma: RdmaFacts
    state: StateFacts
    munge: KeyFacts
    monitoring: KeyFacts
    hosts: HostsFacts
    commands: dict[Word, CommandAnswer]
    engine: EngineFacts
    registry: RegistryFacts
    images: dict[Word, ImageFacts]
    job_images: JobImageFacts
    slurm: SlurmFacts
    firewall: FirewallFacts
    proxy: ProxyFacts
    people: UserFacts
    lease: LeaseFacts


_MACHINE = TypeAdapter(MachineFacts)


def facts_from(answer: object, asked: Collection[str] = ()) -> MachineFacts:
    """Read the ``machine`` of a module's result; its texts come back without control characters.

    ``asked`` are the parts that the module was to gather: one that did not come would be missed by others' judges.

    Raises:
        ValueError: what is wrong with it and where, in one line. It is that machine's failure.
    """
    try:
        facts = _MACHINE.validate_python(plain(answer))
    except ValidationError as refused:
        error = refused.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(clean(str(part), 40) for part in error["loc"])
        raise ValueError(f"the machine's answer cannot be used: {place or 'all of it'}: {error['msg']}") from None
    if silent := [part for part in PARTS if part in asked and part not in facts]:
        raise ValueError(f"the machine's answer cannot be used: it was asked for {', '.join(silent)} and says nothing")
    return facts


def answered(answer: Mapping[str, Any], asked: Collection[str], before: float, after: float) -> MachineFacts:
    """Read the result of the module ``machine_facts``, called between two readings of the control node's clock.

    Raises:
        ValueError: the module failed, or answered something else than facts; why, in one line.
    """
    if answer.get("failed") or "machine" not in answer:
        raise ValueError(_why(answer))
    try:
        machine = facts_from(answer["machine"], asked)
    except ValueError as error:
        raise ValueError(f"the machine answered something else than facts: {error}") from None
    if clock := machine.pop("clock", None):
        low, high = sorted((clock.get("ended", 0) - after, clock.get("begun", 0) - before))
        machine["clock_offset"] = {"low": round(low, 3), "high": round(high, 3)}
    return machine


def _why(answer: Mapping[str, Any]) -> str:
    """Return one line: the module's own words, or the last ones of what ran in its place."""
    said = answer.get("msg")
    words = [said] if isinstance(said, str) and said else ["the machine answered something else than facts"]
    for stream in ("module_stderr", "module_stdout"):
        lines = str(answer.get(stream) or "")[-500:].strip().splitlines()
        words += lines[-1:]
    return " ".join(clean("; ".join(dict.fromkeys(words)), 1000).split())


def plain(answer: object) -> Any:
    """Return a machine's answer as plain values within the bounds, its texts without control characters.

    A filter is handed containers whose parts Ansible makes when Python asks for them; pydantic reads around that.

    Raises:
        ValueError: what is wrong with it, in one line.
    """
    return _plain(answer, MAX_DEPTH, [MAX_VALUES])


def _plain(value: object, depth: int, left: list[int]) -> Any:
    """Return plain JSON values within the bounds; ``left`` counts down the values that may still come."""
    left[0] -= 1
    if depth < 0 or left[0] < 0:
        raise ValueError("the machine's answer cannot be used: it is too large")
    if isinstance(value, str):
        if len(value) > MAX_TEXT:
            raise ValueError(f"the machine's answer cannot be used: it has a text of {len(value)} characters")
        return clean(value, MAX_TEXT)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        # No number is shown: that of a huge one would be as long.
        if not (math.isfinite(value) if isinstance(value, float) else abs(value) <= MAX_NUMBER):
            raise ValueError("the machine's answer cannot be used: it has a number without measure")
        return value
    if isinstance(value, Mapping):
        return {_plain(str(key), depth - 1, left): _plain(item, depth - 1, left) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, depth - 1, left) for item in value]
    raise ValueError("the machine's answer cannot be used: it holds something other than plain values")
