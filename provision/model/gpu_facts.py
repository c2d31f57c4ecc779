"""What ``machine_facts`` reports of NVIDIA's hardware and driver, read as input: bounded, typed, clean. Pure.

A machine can answer anything. What does not have the shape is refused as a whole, so that whoever judges never meets a
wrong type; names that end in commands (packages, kernels, addresses) consist of a name's characters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from provision.model.facts import plain
from provision.model.state_facts import PathState
from provision.model.text import clean

Text = Annotated[str, StringConstraints(max_length=4000), AfterValidator(clean)]
Word = Annotated[str, StringConstraints(max_length=200, pattern=r"^[A-Za-z0-9._:+~@-]*$")]
Some = Field(max_length=2048)


class _Answer(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", hide_input_in_errors=True)


class Device(_Answer):
    """A device on the bus."""

    address: Word
    id: Word
    driver: Word = ""


class Gpu(Device):
    """A GPU on the bus. ``product`` and ``architecture`` are empty, ``consumer`` is None, where the id is not known."""

    product: Text
    architecture: Word
    grace: bool = False
    consumer: bool | None = None


class Package(_Answer):
    """A package of the driver."""

    version: Word
    held: bool
    complete: bool
    origin: Word


class Kernel(_Answer):
    """The kernels of a machine, and which of them have headers."""

    running: Word
    installed: Annotated[list[Word], Some] = []
    newest: Word
    headers: Annotated[dict[Word, bool], Some]


class Module(_Answer):
    """The loaded module, and that of each kernel on disk: empty for none, None where it could not be described."""

    loaded: Word
    open: bool | None
    on_disk: Annotated[dict[Word, dict[Word, Text] | None], Some]


class Nouveau(_Answer):
    """The driver that comes with Linux."""

    loaded: bool
    bound: Annotated[list[Word], Some]
    blacklisted: bool
    loads_early: Annotated[list[Word], Some]


class FabricManager(_Answer):
    """Fabric Manager's package and service."""

    version: Word
    active: bool
    enabled: bool


class Service(_Answer):
    """A service that a driver brings."""

    active: bool
    enabled: bool
    outdated: bool


class Listed(_Answer):
    """A GPU as nvidia-smi lists it."""

    address: Word
    product: Text


class Smi(_Answer):
    """What nvidia-smi lists, and its complaint where it does not."""

    gpus: Annotated[list[Listed], Some]
    driver: Text
    error: Text
    silent: bool


class User(_Answer):
    """A process that holds a GPU open; ``slurm`` tells whether it is Slurm's."""

    pid: Annotated[int, Field(ge=1, le=2**32)]
    name: Text
    user: Text
    command: Text
    container: Word
    slurm: bool


class Archive(_Answer):
    """From where apt takes packages."""

    uri: Text
    suite: Text
    component: Text


class Facts(_Answer):
    """The part ``gpu`` of a machine's facts."""

    gpus: Annotated[list[Gpu], Some]
    nvswitches: Annotated[list[Device], Some]
    unread_bridges: Annotated[list[Word], Some]
    kernel: Kernel
    secure_boot: bool | None
    nouveau: Nouveau
    module: Module
    library: Word
    packages: Annotated[dict[Word, Package], Some]
    dkms: Annotated[list[Text], Some]
    runfile: bool
    fabric_manager: FabricManager
    services: Annotated[dict[Word, Service], Some]
    smi: Smi
    users: Annotated[list[Text], Some]
    holders: Annotated[list[User], Some]
    passed_through: Annotated[list[Word], Some]
    virtual: Annotated[list[Word], Some] = []
    vgpu_manager: bool = False
    kernel_packages: Annotated[dict[Word, bool], Some]
    apt: Annotated[list[Archive], Some]
    files: Annotated[dict[Text, PathState], Some]


class System(_Answer):
    """What os-release says."""

    id: Word
    version: Word
    name: Text = ""


class Holder(_Answer):
    """Who holds the package manager's lock."""

    pid: int
    command: Text


class Lock(_Answer):
    """The package manager's lock."""

    holder: Holder | None


class Machine(_Answer):
    """All that judgements of the driver read of a machine."""

    os: System
    architecture: Word
    container: Word
    packages_interrupted: Annotated[list[Text], Some]
    lock: Lock
    gpu: Facts


def read(machine: object) -> Mapping[str, Any]:
    """Return a machine's answer as plain values of the right types.

    Raises:
        ValueError: what is wrong with it, and where, in one line.
    """
    return read_as(Machine, machine)


def read_as(model: type[BaseModel], answer: object) -> dict[str, Any]:
    """Return an answer that fits a model as plain values, whatever containers Ansible has put it into.

    Raises:
        ValueError: the first thing that is wrong with it, and where, in one line.
    """
    try:
        return model.model_validate(plain(answer)).model_dump()
    except ValidationError as refused:
        error = refused.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(clean(str(part), 40) for part in error["loc"])
        problem = f"the machine's answer cannot be read: {place or 'all of it'}: {error['msg']}"
        raise ValueError(problem) from None
