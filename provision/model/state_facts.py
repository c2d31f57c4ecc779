"""What a machine answers about what roles manage there: files, packages, services, the key, the hosts file. Pure."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints, with_config
from typing_extensions import TypedDict  # pydantic reads those of typing only from Python 3.12 on

from provision.model.fact_types import STRICT, Seconds, Text, Word


@with_config(STRICT)
class PathState(TypedDict, total=False):
    """What is at a path, or why that is not known (``error``). ``age``: seconds since its content changed."""

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
class StateFacts(TypedDict):
    """How what roles manage stands, ``manager`` in systemd itself; None where the machine did not answer in time."""

    paths: dict[Text, PathState]
    packages: dict[Text, PackageState] | None
    services: dict[Text, ServiceState] | None
    manager: dict[Word, Text] | None


@with_config(STRICT)
class MungeFacts(TypedDict, total=False):
    """The key by its salted hash, never its text; ``absent`` says why there is none."""

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
