"""What the inventory says of the images of jobs, checked before anything is built, loaded or pulled."""

from __future__ import annotations

import errno
import hashlib
import posixpath
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from provision.errors import ClusterctlError, did_you_mean
from provision.model.job_images import (
    HEAD,
    KINDS,
    JobImage,
    archive_problem,
    name_problem,
    reference_problem,
)

_KEYS = ("name", *KINDS, "revision")
_EXAMPLE = "{name: 'pytorch-dist:1.0', archive: /data/images/pytorch-dist.tar}"
_PATH = re.compile(r"[A-Za-z0-9._+@/~-]{1,255}")
#: Bytes and files of a directory that is carried to the controller with the inventory.
_LARGEST, _MOST = 100_000_000, 2000
_RECIPES = ("Containerfile", "Dockerfile")


def images_from(value: Any) -> tuple[JobImage, ...]:
    """Return the images that the inventory declares.

    Raises:
        ClusterctlError: one has no source or several, or a name or source that nobody could use; two have one name.
    """
    if value is None:
        return ()
    if not isinstance(value, list | tuple) or not all(isinstance(item, Mapping) for item in value):
        raise ClusterctlError(
            f"job_images is {value!r}: it must be a list of mappings, one for each image",
            fix=f"write it in group_vars/all.yml, as - {_EXAMPLE}",
            said=("job_images", ""),
        )
    images = tuple(_image(number, item) for number, item in enumerate(value))
    for number, one in enumerate(images):
        if any(one.stored == other.stored for other in images[:number]):
            raise _refusal(number, "name", f"{one.name} is declared twice", "give one of them another tag")
    return images


def for_nobody(images: tuple[JobImage, ...], runtime: Any, docker: Any) -> str:
    """Return that no job can use images, where neither ``job_container_runtime`` nor ``job_docker`` is there."""
    if images and runtime == docker == "none":
        return "job_images: no job can use them: job_container_runtime and job_docker are none"
    return ""


def _refusal(number: int, key: str, problem: str, fix: str) -> ClusterctlError:
    return ClusterctlError(f"job_images: {problem}", fix=fix, entry=("job_images", number, key))


def _image(number: int, item: Mapping[str, Any]) -> JobImage:
    name = item.get("name")
    for key in item:
        if key not in _KEYS:
            fix = did_you_mean(str(key).lower(), _KEYS, f"an image has {', '.join(_KEYS)}")
            raise _refusal(number, str(key), f"{'' if name is None else f'{name}: '}an image has no {key}", fix)
    if name is None:
        raise _refusal(number, "name", f"image {number + 1} of the list has no name", f"write it as - {_EXAMPLE}")
    if problem := name_problem(name):
        raise _refusal(number, "name", f"name is {name!r}: {problem}", f"write it as - {_EXAMPLE}")
    given = [kind for kind in KINDS if item.get(kind) is not None]
    if len(given) != 1:
        said = f"both {' and '.join(given)}" if given else f"no source: {', '.join(KINDS[:-1])} or {KINDS[-1]}"
        raise _refusal(number, given[-1] if given else "name", f"{name} has {said}", "give exactly one of them")
    kind, source = given[0], item[given[0]]
    if kind == "reference":
        if problem := reference_problem(source):
            raise _refusal(
                number, kind, f"{name}: reference is {source!r}: {problem}", "write it as harbor.site/project/image:1.0"
            )
    else:
        _require_path(number, str(name), kind, source)
    revision = item.get("revision", 1)
    if not isinstance(revision, int) or isinstance(revision, bool) or not 1 <= revision < 2**31:
        why = "a number is written without quotes" if isinstance(revision, str) else "it must be a number from 1 on"
        raise _refusal(
            number,
            "revision",
            f"{name}: revision is {revision!r}: {why}",
            "raise it by one to have the image made again",
        )
    return JobImage(name=str(name), kind=kind, source=str(source), revision=int(revision))


def _require_path(number: int, name: str, kind: str, source: Any) -> None:
    if not isinstance(source, str) or not _PATH.fullmatch(source) or posixpath.normpath(source) != source.rstrip("/"):
        raise _refusal(
            number, kind,
            f"{name}: {kind} is {source!r}: it must be a path, written plainly: letters, digits and . _ + @ -",
            "begin it with / where it is on the controller or a shared disk, else it is one beside the inventory",
        )  # fmt: skip
    if source.startswith(("~", "..")):
        raise _refusal(
            number, kind, f"{name}: {kind} is {source!r}, neither on the controller (/...) nor beside the inventory",
            "move it beside the inventory, or name it from / on where the controller has it",
        )  # fmt: skip
    if source.endswith(".sqsh"):
        problem, fix = archive_problem(1, b"hsqs")
        raise _refusal(number, kind, f"{name}: {source}: {problem}", fix)


def require_sources(images: tuple[JobImage, ...], home: Path) -> None:
    """Refuse what is to come from beside the inventory and cannot. What is on the controller, ``preflight`` looks at.

    Raises:
        ClusterctlError: a path is missing, has no recipe, is too large to be carried along, or is no image's archive.
    """
    for number, image in enumerate(images):
        if not image.given:
            continue
        path = home / image.source
        try:
            problem, fix = _containerfile(path) if image.kind == "containerfile" else _archive(path)
        except OSError as error:
            problem, fix = f"{error.strerror}", "write the path of what is there, from the inventory's directory on"
        if problem:
            raise _refusal(number, image.kind, f"{image.name}: {path}: {problem}", fix)


def _archive(path: Path) -> tuple[str, str]:
    state = path.stat()
    # What is no file, a pipe for example, is never opened: nobody may be at its other end.
    if not stat.S_ISREG(state.st_mode):
        return "it is no file", "name the file that docker save, or podman save, has written"
    with path.open("rb") as stream:
        return archive_problem(state.st_size, stream.read(HEAD))


def _containerfile(path: Path) -> tuple[str, str]:
    if not path.is_dir():
        state = path.stat()
        if not stat.S_ISREG(state.st_mode):
            return "it is no file", "name a Containerfile, or the directory that it is in"
        return ("it is empty", "write what it is built from") if state.st_size == 0 else ("", "")
    if not any((path / name).is_file() for name in _RECIPES):
        return f"there is no {' or '.join(_RECIPES)} in it", "write one there, or name the file itself"
    files = files_of(path)
    size = sum(file.stat().st_size for file in files)
    if size > _LARGEST or len(files) > _MOST:
        carried = f"{_MOST} with {_LARGEST / 1e6:.0f} MB are carried along at most"
        told = f"it has {len(files)} files with {size / 1e6:.0f} MB, and {carried}"
        return told, "keep large things on the shared disk, and name the directory there from / on"
    return "", ""


def files_of(path: Path) -> list[Path]:
    """Return the files of a directory; what git keeps of its history is no part of an image."""
    return sorted(file for file in path.rglob("*") if file.is_file() and ".git" not in file.relative_to(path).parts)


def recipe(image: JobImage, home: Path) -> str:
    """Return a word for what an image that comes with the inventory is made of: another one where that has changed.

    A directory counts by its files' contents, so that a fresh checkout builds nothing; an archive by size and time.

    Raises:
        OSError: it cannot be read, or is no file.
    """
    path = home / image.source
    if image.kind == "archive":
        state = path.stat()
        return f"{state.st_size}-{state.st_mtime_ns}"
    whole = hashlib.sha256()
    if not path.is_dir() and not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "it is no file", str(path))
    for file in files_of(path) if path.is_dir() else [path]:
        name = file.relative_to(path) if path.is_dir() else Path("Containerfile")
        data = file.read_bytes()
        whole.update(f"{name}\0{bool(file.stat().st_mode & 0o100)}\0{len(data)}\0".encode() + data)
    return whole.hexdigest()


def told(images: tuple[JobImage, ...], home: Path) -> list[dict[str, Any]]:
    """Return images as roles read them; of those that come with the inventory, from ``home``, with what is in them.

    ``content`` is their :func:`recipe`, ``text`` that of a Containerfile, ``path`` where it is.

    Raises:
        OSError: something of it cannot be read.
    """
    found = []
    for image in images:
        path, content, text = home / image.source, "", ""
        if image.given:
            content = recipe(image, home)
        if image.given and image.kind == "containerfile":
            file = next((path / name for name in _RECIPES if (path / name).is_file()), path)
            text = file.read_text(encoding="utf-8", errors="replace")
        of_inventory = {"content": content, "text": text, "path": str(path) if image.given else ""}
        found.append({**image.as_dict(), **of_inventory, "directory": image.given and path.is_dir()})
    return found
