"""Images that users' jobs are started from, as a site declares them. Pure."""

from __future__ import annotations

import hashlib
import re
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

Kind = Literal["containerfile", "archive", "reference"]
KINDS: tuple[Kind, ...] = ("containerfile", "archive", "reference")

# The grammar of names: github.com/distribution/reference, without its exotic separators.
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_HOST = r"[a-zA-Z0-9-]+(?:\.[a-zA-Z0-9-]+)+(?::[0-9]+)?|[a-zA-Z0-9-]+:[0-9]+|localhost"
_TAG = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"
_NAME = re.compile(rf"(?:(?P<host>{_HOST})/)?(?P<path>{_PART}(?:/{_PART})*)(?::(?P<tag>{_TAG}))?")
_REFERENCE = re.compile(rf"(?P<host>{_HOST})/{_PART}(?:/{_PART})*(?::{_TAG})?(?:@sha256:[0-9a-f]{{64}})?")

#: The first name in an archive of a machine's files, as ``docker export`` makes; archives of images begin otherwise.
_ROOT = re.compile(
    rb"(?:\./)?(?:\.dockerenv|bin|boot|dev|etc|home|lib\d*|media|mnt|opt|proc|root|run|sbin|srv|sys|tmp|usr|var)(?:/|\0)"
)

#: How many bytes of a file :func:`archive_problem` looks at: a tar's first header.
HEAD = 512


class JobImage(BaseModel):
    """One image: what users call it, and from what it is made.

    ``source`` is a path or a reference. A path that begins with / is the controller's; another one belongs to the
    inventory, on the computer that runs clusterctl. ``revision`` is raised to have it made again from the same.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    kind: Kind
    source: str
    revision: int = 1

    @property
    def stored(self) -> str:
        """Its name in the nodes' stores, with a tag: Podman finds it where a user writes the short one."""
        return full_name(self.name)

    @property
    def key(self) -> str:
        """One word for it, as the controller's answers name it."""
        return "job." + self.stored.removeprefix("localhost/").replace("/", "%")

    @property
    def place(self) -> str:
        """Where it is carried to, one word: skopeo ends an archive's path at the first colon, and the key has one."""
        return hashlib.sha256(self.key.encode()).hexdigest()[:16]

    @property
    def repository(self) -> str:
        """Where it is in the registry, below what is the cluster's there; a host's port is no part of a path."""
        return self.stored.removeprefix("localhost/").rpartition(":")[0].replace(":", "-").lower()

    @property
    def given(self) -> bool:
        """Whether its source is a path of the inventory's."""
        return self.kind != "reference" and not self.source.startswith("/")

    def as_dict(self) -> dict[str, Any]:
        """Return it as roles read it."""
        properties = {name: getattr(self, name) for name in ("stored", "key", "place", "repository", "given")}
        return {**self.model_dump(), **properties}


def full_name(name: str) -> str:
    """Return an image's name as a store has it: with a tag, and of what has no registry, as Podman's own."""
    found = _NAME.fullmatch(name)
    if not found:
        raise ValueError(name_problem(name))
    return f"{found['host'] or 'localhost'}/{found['path']}:{found['tag'] or 'latest'}"


def name_problem(name: object) -> str:
    """Return why users could not call an image by this name, nothing where they can."""
    if not isinstance(name, str) or not name:
        return "it must be a text"
    if name != name.strip() or " " in name:
        return "a name has no blanks"
    if "@" in name:
        return "a name has no digest: give that to reference"
    if not _NAME.fullmatch(name) and _NAME.fullmatch(name.lower()):
        return "a name is in lower case; only its tag may have capitals"
    if not _NAME.fullmatch(name) or len(name) > 200:
        return "it is no name of an image, as pytorch-dist:1.0: lower-case letters, digits and . _ - between them"
    found = _NAME.fullmatch(name)
    return _port_problem(found["host"] or "" if found else "")


def _port_problem(host: str) -> str:
    """Return why the port of a host that may have one is none, nothing where it is one. A password may stand there."""
    port = host.partition(":")[2]
    return "its port is not from 1 to 65535" if port and (len(port) > 5 or not 1 <= int(port) <= 65535) else ""


def registry_problem(text: object) -> str:
    """Return why this is no registry, and no project in one, nothing where it is; what is not so is not repeated."""
    if not isinstance(text, str) or not text:
        return "it must be a text"
    if "://" in text:
        return "it is written without https://"
    if not re.fullmatch(rf"(?:{_HOST})(?:/{_PART})*", text):
        return "it must be one such as harbor.site.example, head:5000 or harbor.site.example/project"
    return _port_problem(registry_of(text))


def reference_problem(text: object) -> str:
    """Return why this names no image in a registry, nothing where it does."""
    if not isinstance(text, str) or not text:
        return "it must be a text"
    if "#" in text:
        return "# is enroot's way of writing: write REGISTRY/IMAGE:TAG"
    if "://" in text:
        return "it begins with the registry's name, without ://"
    if not _REFERENCE.fullmatch(text):
        named = re.fullmatch(rf"{_PART}(?:/{_PART})*(?::{_TAG})?", text)
        return (
            "it names no registry: docker.io/library/debian:12 is Docker's" if named else "it is no REGISTRY/IMAGE:TAG"
        )
    return _port_problem(registry_of(text))


def registry_of(reference: str) -> str:
    """Return the registry's host, with its port, of a reference that has no problem."""
    return reference.partition("/")[0]


def is_below(reference: str, place: str) -> bool:
    """Return whether a reference is in a registry, or in a project of one, which a login is for."""
    name, _, last = reference.partition("@")[0].rpartition("/")
    return f"{name}/{last.partition(':')[0]}/".startswith(f"{place}/")


def archive_problem(size: int, head: bytes) -> tuple[str, str]:
    """Return why a file, by size and first bytes, is no archive of an image, and what to do; nothing where it may be.

    Whether the image in it is whole shows when it is read.
    """
    again = "make it again: docker save --output FILE IMAGE, or podman save"
    if size == 0:
        return "it is empty", again
    if head.startswith(b"hsqs"):
        return (
            "it is a squashfs (.sqsh) of enroot's, which only enroot can mount",
            f"{again}; or enroot's own source by reference",
        )
    if head.startswith((b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ", b"BZh")):
        return "", ""
    if head[257:262] != b"ustar":
        return "it is no archive (tar) of an image", again
    if _ROOT.match(head):
        return "it is an archive of files (docker export), and no image: an image knows its layers and variables", again
    return "", ""
