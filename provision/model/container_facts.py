"""What ``machine_facts`` reports of the container engine, the images' registry, and what was built. Pure."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired

from pydantic import Field, StringConstraints, with_config
from typing_extensions import TypedDict  # pydantic reads those of typing only from Python 3.12 on

from provision.model.fact_types import STRICT, Count, Text

Hexadecimal = Annotated[str, StringConstraints(max_length=128, pattern=r"^[0-9a-f]*$")]
RegistryName = Annotated[str, StringConstraints(max_length=260, pattern=r"^[A-Za-z0-9][A-Za-z0-9.-]*:[0-9]{1,5}$")]
Reference = Annotated[str, StringConstraints(max_length=512, pattern=r"^[A-Za-z0-9._:/@+-]*$")]
#: A certificate, which is public, or nothing.
Pem = Annotated[str, StringConstraints(max_length=16384, pattern=r"^[A-Za-z0-9+/=\n -]*$")]


@with_config(STRICT)
class EngineFacts(TypedDict):
    """The engine's program, and what ``docker info`` said within ``limit`` seconds.

    ``version`` is the program's, empty where it is not installed; ``server`` that of the engine that runs.
    ``live_restore`` is None where the engine did not say; ``problem`` says why there is no answer, ``late`` that there
    was none in time. ``raises_limits``: whether a container may have a limit above the machine's own.
    ``swarm``: whether it is in a swarm of Docker's, anybody's. ``kept``: how many containers and images it has, in
    ``data_root``, by ``driver``; ``images_at`` is where they are to be. ``flags`` are the names of its command line's
    options. ``daemon`` is what daemon.json says, ``daemon_problem`` why that cannot be read, ``secret`` that it has a
    password, so that nothing of it is told; ``formatted``: it is written as we would. ``keys`` are those of it that are
    ours, where we have said so.
    """

    version: Annotated[str, StringConstraints(max_length=64, pattern=r"^[0-9A-Za-z.+~:-]*$")]
    raises_limits: bool
    server: Text
    live_restore: bool | None
    swarm: NotRequired[bool]
    kept: NotRequired[Count]
    data_root: NotRequired[Text]
    images_at: NotRequired[Text]
    driver: NotRequired[Text]
    flags: NotRequired[list[Text]]
    daemon: NotRequired[dict[Text, Any]]
    daemon_problem: NotRequired[Text]
    secret: NotRequired[bool]
    formatted: NotRequired[bool]
    keys: NotRequired[list[Text] | None]
    problem: Text
    late: bool
    limit: Count


@with_config(STRICT)
class ImageFacts(TypedDict):
    """An image on the controller: its reference by digest, empty where it is to be built, and what is wrong with it.

    Where it is to be built, ``lacking`` is what the build is known to lack there, and ``base`` the image that it starts
    from, empty where that is made from packages.
    """

    reference: Reference
    problem: Text
    lacking: NotRequired[Text]
    base: NotRequired[Text]


@with_config(STRICT)
class CertificateFacts(TypedDict):
    """The registry's certificates: their authority's (public), and what is wrong; None where that was not answered.

    ``unjudged`` says why nobody could be asked how long they are good.
    """

    authority: Pem
    problem: Text | None
    unjudged: NotRequired[Text]


@with_config(STRICT)
class LoginFacts(TypedDict, total=False):
    """With what the engine logs in to a registry: its user, and a salted hash of all of it; ``absent`` says why not."""

    absent: Text
    user: Text
    salt: Hexadecimal
    fingerprint: Hexadecimal


@with_config(STRICT)
class MirrorFacts(TypedDict, total=False):
    """A mirror of the registry as this machine sees it: its HTTP status, or why there is none."""

    status: Annotated[int, Field(ge=0, le=999)]
    error: Text


@with_config(STRICT)
class RegistryFacts(TypedDict, total=False):
    """A registry as this machine sees it: its HTTP status, or why there is none; and the mirror of it.

    ``former``: names under which the machine trusts it, and nobody knows it any more.
    """

    status: Annotated[int, Field(ge=0, le=999)]
    error: Text
    certificates: CertificateFacts
    former: list[RegistryName]
    mirror: MirrorFacts
    mirror_certificate: CertificateFacts
    login: LoginFacts


@with_config(STRICT)
class SourceFacts(TypedDict, total=False):
    """A path on the controller from which an image of jobs is made; ``error`` says why it cannot be read.

    ``size`` in bytes; ``head`` are its first bytes, in hexadecimal digits; ``recipe``: there is a Containerfile;
    ``unmounted``: below this path the inventory has a file system, which is not mounted.
    """

    error: Text
    unmounted: Text
    kind: Text
    size: Annotated[int, Field(ge=0, le=2**62)]
    head: Annotated[str, StringConstraints(max_length=1024, pattern=r"^[0-9a-f]*$")]
    recipe: bool


@with_config(STRICT)
class StoredFacts(TypedDict):
    """An image of jobs in a node's store.

    ``untag`` are names of it that are not wanted; ``remove``: nothing of it is, and nobody uses it; ``used`` says who.
    """

    id: Hexadecimal
    names: list[Reference]
    untag: list[Reference]
    remove: bool
    used: list[Text]


@with_config(STRICT)
class JobImageFacts(TypedDict, total=False):
    """Of the controller the ``sources`` of images, and what its registry has ``kept``; of a node what is ``stored``.

    ``garbage``: the registry has forgotten images whose layers may still take room.
    """

    sources: dict[Text, SourceFacts]
    garbage: bool
    kept: list[Reference]
    stored: list[StoredFacts]
