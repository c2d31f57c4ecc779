"""The cluster as its operator declared it: validated once, then only read."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, model_validator

from provision.model.gres import Gres, parse
from provision.model.job_images import JobImage
from provision.model.mounts import Mount
from provision.model.numbers import whole
from provision.model.users import Users
from provision.model.versions import SLURM_VERSION

# slurm.conf(5): at most 40 characters, and upper case would be folded to lower case.
_CLUSTER_NAME = r"^[a-z0-9][a-z0-9_-]{0,39}$"
_FEATURES = r"^[A-Za-z0-9_.=-]+(,[A-Za-z0-9_.=-]+)*$"
_FILES = r"^/dev/[A-Za-z0-9_./\[\],-]+$"
#: Slurm's releases are named after the year and the month.
_OLDEST = "22.05"
_VERSION = re.compile(r"[0-9]{2}\.(02|05|08|11)")


def _text(value: object) -> str:
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise ValueError("it must be text")


def _listed(value: object) -> tuple[Any, ...]:
    if isinstance(value, str):
        return tuple(word.strip() for word in value.split(",") if word.strip())
    if isinstance(value, list | tuple):
        return tuple(value)
    raise ValueError("it must be a list, or its items separated by commas")


Whole = Annotated[int, BeforeValidator(whole)]
# Slurm's own types (slurmctld does not start with a file that goes beyond them): 16 bits for processors, 32 for disks
# and weights, whose highest two numbers mean "not set". Memory has 64; an exabyte is more than anybody can mean.
Processors = Annotated[Whole, Field(ge=1, le=65535)]
Megabytes = Annotated[Whole, Field(ge=1, le=2**40)]
#: MB that no machine with a container engine has less of.
LEAST_MEMORY = 256
Text = Annotated[str, BeforeValidator(_text)]


class _Declared(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class Hardware(_Declared):
    """What one kind of machine contains, in Slurm's words. None is "not declared": it is to be discovered.

    Memory and disk are in MB, as in slurm.conf. ``gres`` empty is a declared absence of such devices. ``private_tmp``
    is false where jobs share the node's /tmp: not every kernel can give each its own. ``parameters`` are what else the
    NodeName line has, in Slurm's words. ``gpu_affinity`` is numa where a GPU is near a part of a socket's cores.
    """

    cpus: Processors | None = None
    boards: Processors | None = None
    sockets: Processors | None = None
    cores_per_socket: Processors | None = None
    threads_per_core: Processors | None = None
    real_memory: Megabytes | None = None
    gres: Annotated[tuple[Gres, ...], BeforeValidator(parse)] | None = None
    gres_files: Annotated[Text, StringConstraints(pattern=_FILES)] | None = None
    gpu_affinity: Literal["socket", "numa"] | None = None
    mig: Annotated[tuple[Text, ...], BeforeValidator(_listed)] | None = None
    mig_devices: Annotated[tuple[Text, ...], BeforeValidator(_listed)] | None = None
    features: Annotated[Text, StringConstraints(pattern=_FEATURES)] | None = None
    weight: Annotated[Whole, Field(ge=1, le=2**32 - 3)] | None = None
    tmp_disk: Annotated[Whole, Field(ge=0, le=2**32 - 3)] | None = None
    mem_spec_limit: Megabytes | None = None
    cgroup_version: Annotated[Whole, Field(ge=1, le=2)] | None = None
    private_tmp: bool | None = None
    parameters: tuple[tuple[str, str], ...] = ()

    @model_validator(mode="after")
    def _gpus_of_a_node_are_all_typed_or_none_is(self) -> Self:
        kinds = [(gres.name, gres.type) for gres in self.gres or ()]
        for name, kind in kinds:
            if kind is None and any(other == name and typed for other, typed in kinds):
                raise ValueError(f"node_gres gives a type to some {name} and none to others; give it to all or to none")
        if len(set(kinds)) < len(kinds):
            raise ValueError("node_gres names the same kind twice; add the counts up")
        return self

    @model_validator(mode="after")
    def _processors_agree_with_their_topology(self) -> Self:
        parts = (self.sockets, self.cores_per_socket)
        if self.cpus is None or None in parts:
            return self
        cores = (self.sockets or 1) * (self.cores_per_socket or 1)
        if self.cpus not in (cores, cores * (self.threads_per_core or 1)):
            raise ValueError(
                f"node_cpus is {self.cpus}, but node_sockets x node_cores_per_socket x node_threads_per_core is "
                f"{cores * (self.threads_per_core or 1)}"
            )
        return self

    @model_validator(mode="after")
    def _boards_share_the_sockets_evenly(self) -> Self:
        if self.boards and self.boards > 1 and (self.sockets is None or self.sockets % self.boards):
            raise ValueError(f"node_boards is {self.boards}: node_sockets must be a multiple of it")
        return self

    @model_validator(mode="after")
    def _reserved_memory_leaves_some(self) -> Self:
        if self.mem_spec_limit and self.real_memory and self.mem_spec_limit >= self.real_memory:
            raise ValueError(f"node_mem_spec_limit ({self.mem_spec_limit}) must be below node_real_memory")
        return self

    @property
    def undeclared(self) -> tuple[str, ...]:
        """The variables without which a node cannot be written into slurm.conf, and which are missing."""
        needed = {"node_cpus": self.cpus, "node_real_memory": self.real_memory}
        return tuple(name for name, value in needed.items() if value is None)


class Node(_Declared):
    """A compute node. Nodes of one kind share one ``hardware``, and so one NodeName line."""

    name: str
    address: str
    hardware: Hardware


class Partition(_Declared):
    """A partition: ``parameters`` are Slurm's, in Slurm's words; ``nodes`` is None for all compute nodes."""

    name: str
    nodes: tuple[str, ...] | None = None
    parameters: tuple[tuple[str, str], ...] = ()


class JobVariable(_Declared):
    """A variable that every job has unless its user says otherwise, or has said something of ``unless``.

    A ``value`` that begins with ~/ is in the user's home. ``directory``: containers of jobs see it, too.
    """

    name: str
    value: str
    unless: str = ""
    directory: bool = False

    @property
    def line(self) -> str:
        """As job_task reads it."""
        return f"{self.unless or '-'} {'directory' if self.directory else '-'} {self.name}={self.value}"


_Kind = TypeVar("_Kind", bound=Hashable)


class Cluster(_Declared):
    """Everything that the configuration is made of."""

    name: Annotated[Text, StringConstraints(pattern=_CLUSTER_NAME)]
    controller: str
    nodes: tuple[Node, ...]
    partitions: tuple[Partition, ...]
    slurm_version: str = SLURM_VERSION
    #: A tuple is a line for each value.
    slurm_parameters: Mapping[str, str | tuple[str, ...] | None] = {}
    cgroup_parameters: Mapping[str, str | None] = {}
    #: Further files for Slurm's directory, by name.
    slurm_files: Mapping[str, str] = {}
    #: What every job has in its environment.
    job_environment: tuple[JobVariable, ...] = ()
    #: What runs containers of jobs: ours, or what the site has.
    container_runtime: Literal["podman", "pyxis", "apptainer", "none"] = "podman"
    gpu_detection: Literal["auto", "files", "nvidia", "nvml"] = "auto"
    cgroup_v1_allowed: bool = False
    simulated: tuple[str, ...] = ()
    people: Users = Users()
    mounts: tuple[Mount, ...] = ()
    #: What users start jobs from, and every node has before it takes jobs.
    job_images: tuple[JobImage, ...] = ()
    #: What machines had and are to have no longer: ``path`` and ``hosts`` of each.
    unmounted: tuple[Mapping[str, Any], ...] = ()
    #: The host of the accounting database, empty where there is none; whether only users with an account may submit.
    database: str = ""
    enforced: bool = False

    @property
    def cgroup_v1(self) -> tuple[str, ...]:
        """The nodes with the old control groups, which slurmd in a container cannot manage."""
        return tuple(node.name for node in self.nodes if node.hardware.cgroup_version == 1)

    def kinds(self, of: Callable[[Hardware], _Kind]) -> list[tuple[list[str], _Kind]]:
        """Return the nodes of each kind, as ``of`` their hardware says, in the order of the inventory."""
        kinds: dict[_Kind, list[str]] = {}
        seen: dict[int, list[str]] = {}
        for node in self.nodes:
            # Nodes of a kind mostly share one object; to find it by identity spares hashing it 10,000 times.
            names = seen.get(id(node.hardware))
            if names is None:
                names = seen[id(node.hardware)] = kinds.setdefault(of(node.hardware), [])
            names.append(node.name)
        return [(names, kind) for kind, names in kinds.items()]

    @property
    def undeclared(self) -> dict[str, tuple[str, ...]]:
        """The nodes whose hardware is still to be discovered, each with the missing variables."""
        return {node.name: node.hardware.undeclared for node in self.nodes if node.hardware.undeclared}


def version_from(value: object) -> str:
    """Return Slurm's version as text, also where YAML or INI has made a number of it (25.10 would be 25.1).

    Raises:
        ValueError: it is none of Slurm's release names.
    """
    text = f"{value:.2f}" if isinstance(value, float) else str(value).strip()
    if not _VERSION.fullmatch(text):
        raise ValueError("it must be one of Slurm's releases, for example 24.11")
    if text < _OLDEST:
        raise ValueError(f"it must be {_OLDEST} or newer")
    return text
