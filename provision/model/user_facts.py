"""What a machine answers about users and groups. Pure."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, with_config
from typing_extensions import TypedDict  # pydantic reads those of typing only from Python 3.12 on

from provision.model.fact_types import STRICT, Text

Number = Annotated[int, Field(ge=-1, le=2**34)]


@with_config(STRICT)
class OwnUser(TypedDict):
    """A user of the machine's own files; ``groups`` list the user as a member, no password fits a ``locked`` one."""

    uid: Number
    gid: Number
    comment: Text
    home: Text
    shell: Text
    groups: list[Text]
    locked: bool


@with_config(STRICT)
class Home(TypedDict):
    """What is where a home has to be, in the words of stat(1)."""

    uid: Number
    kind: Text


@with_config(STRICT)
class Known(TypedDict):
    """A user or group that the name services have; ``own``: it is in the machine's own files."""

    name: Text
    number: Number
    own: bool


@with_config(STRICT)
class Range(TypedDict):
    """A line of ``/etc/subuid`` or ``/etc/subgid``."""

    owner: Text
    first: Number
    count: Number


@with_config(STRICT)
class UserFacts(TypedDict):
    """Who is known on the machine, None where it did not say in time; ``ordinary``: people's, of its own files."""

    users: dict[Text, OwnUser]
    known_users: list[Known] | None
    known_groups: list[Known] | None
    ordinary_users: dict[Text, Number]
    ordinary_groups: dict[Text, Number]
    homes: dict[Text, Home] | None
    subuid: list[Range]
    subgid: list[Range]
