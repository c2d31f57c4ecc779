"""What a machine answers about what roles manage there: files, packages, services, the key, the hosts file. Pure."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired

from pydantic import Field, StringConstraints, with_config
from typing_extensions import TypedDict  # pydantic reads those of typing only from Python 3.12 on

from provision.model.fact_types import STRICT, Seconds, Text, Word


@with_config(STRICT)
class PathState(TypedDict, total=False):
    """What is at a path, or why that is not known (``error``). ``age``: seconds since its content changed.

    ``fingerprints`` are those of the public keys in a file that is one of keys.
    """

    error: Text
    kind: Word
    mode: Annotated[str, StringConstraints(pattern=r"^[0-7]{4}$")]
    owner: Text
    group: Text
    uid: Annotated[int, Field(ge=0, le=2**32)]
    gid: Annotated[int, Field(ge=0, le=2**32)]
    age: Seconds
    target: Text
    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    text: str
    fingerprints: Annotated[list[Annotated[str, StringConstraints(pattern=r"^[0-9A-F]{40}$")]], Field(max_length=64)]


@with_config(STRICT)
class PackageState(TypedDict):
    """An installed package."""

    version: Text
    held: bool


@with_config(STRICT)
class ServiceState(TypedDict):
    """A service in systemd's words; ``age``: seconds since it was started, ``loaded_age``: since its unit was read."""

    load: Word
    active: Word
    sub: Word
    enabled: Word
    reload: bool
    age: Seconds
    loaded_age: Seconds


@with_config(STRICT)
class EngineContainers(TypedDict, total=False):
    """What the container engine says, nothing where nobody asked; ``problem``: why it says nothing of any container."""

    found: dict[Text, dict[Text, Any]]
    problem: Text
    raised: bool
    nvidia_driver: Text


@with_config(STRICT)
class UserState(TypedDict):
    """A user of the machine."""

    uid: Annotated[int, Field(ge=0, le=2**32)]
    gid: Annotated[int, Field(ge=0, le=2**32)]
    home: Text
    shell: Text


@with_config(STRICT)
class MountState(TypedDict):
    """What is mounted at a path; ``problem``: why it does not answer, ``late`` where it did not in time."""

    source: Text
    fstype: Word
    options: list[Text]
    problem: Text
    late: bool


@with_config(STRICT)
class OwnMount(TypedDict):
    """A mount for which clusterctl has left a unit, and some of the processes that use it, where that was asked."""

    path: Text
    unit: Text
    mounted: bool
    users: list[Text]


@with_config(STRICT)
class StateFacts(TypedDict):
    """How what roles manage stands, ``manager`` in systemd itself; None where the machine did not answer in time."""

    paths: dict[Text, PathState]
    packages: dict[Text, PackageState] | None
    services: dict[Text, ServiceState] | None
    manager: dict[Word, Text] | None
    containers: NotRequired[EngineContainers | None]
    users: NotRequired[dict[Text, UserState]]
    mounts: NotRequired[dict[Text, MountState]]
    own_mounts: NotRequired[list[OwnMount]]
    hidden: NotRequired[dict[Text, list[Text]]]
    stores: NotRequired[dict[Text, list[Text]]]


@with_config(STRICT)
class KeyFacts(TypedDict, total=False):
    """A key that machines share, by its salted hash, never its text; ``absent`` says why there is none."""

    absent: Text
    mode: Word
    owner: Text
    salt: Word
    fingerprint: Word


@with_config(STRICT)
class HostsFacts(TypedDict, total=False):
    """Whether the hosts file holds the cluster's names as wanted, or why that is not known."""

    current: bool
    error: Text


Sums = dict[Word, Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]]


@with_config(STRICT)
class SlurmctldFacts(TypedDict):
    """What slurmctld says, or why it says nothing, ``late`` where it did not in time."""

    answered: bool
    late: bool
    problem: Text
    current: NotRequired[bool]
    resume: NotRequired[list[Word]]


@with_config(STRICT)
class SlurmFacts(TypedDict, total=False):
    """With which configuration Slurm's daemons run: checksums of the controller's files, and of what slurmd fetched.

    ``taken_up``: slurmd has come up since it fetched that. ``saved`` is the cluster whose state is kept,
    ``cluster`` and ``controller`` those whose slurmd there was.
    """

    files: Sums
    start: Text
    slurmctld: SlurmctldFacts
    fetched: Sums
    taken_up: bool
    saved: Text
    cluster: Text
    controller: Text


@with_config(STRICT)
class CommandAnswer(TypedDict):
    """What a program printed and how it ended; ``rc`` is None where there was no answer, and ``text`` says why."""

    rc: int | None
    text: str
