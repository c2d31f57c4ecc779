"""An inventory's files: what one must be before anything reads it (readable, text, data), and how one is replaced."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from provision import hostlist
from provision.errors import ClusterctlError

# What Ansible itself passes over in an inventory directory (INVENTORY_IGNORE_EXTS), and where variables are.
_IGNORED_ENDINGS = (".pyc", ".pyo", ".swp", ".bak", "~", ".rpm", ".md", ".txt", ".rst", ".orig", ".cfg", ".retry")
_NO_SOURCES = frozenset({"group_vars", "host_vars", "vars_plugins"})
#: 10,000 nodes with all their hardware are 2 MB; more than this is some other kind of file.
_LARGEST = 64 * 1024 * 1024


def require_plain(path: Path) -> None:
    """Refuse what cannot be, or must not be, an inventory. Opens no device and runs no program.

    Raises:
        ClusterctlError: ``path`` is missing, unreadable, empty, no file of text, or executable.
    """
    sources = 0
    for source in _sources(path):
        _require_text(source)
        sources += 1
    if not sources:
        raise ClusterctlError(
            f"directory {path} holds no inventory", fix=f"write one there, for example {path / 'inventory.ini'}"
        )


def replace(path: Path, text: str) -> None:
    """Put a text in a file's place in one step, so that readers see the old one or the new one.

    Mode and owner stay as they are; a new file has mode 0644. A link's target is replaced, not the link.

    Raises:
        OSError: the directory cannot be written.
    """
    path = path.resolve()
    handle, name = tempfile.mkstemp(prefix=".clusterctl-", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            before = path.stat() if path.exists() else None
            os.fchmod(file.fileno(), stat.S_IMODE(before.st_mode) if before else 0o644)
            if before:
                with suppress(PermissionError):  # only root gives files away
                    os.fchown(file.fileno(), before.st_uid, before.st_gid)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _sources(path: Path) -> Iterator[Path]:
    """Yield the files that Ansible would parse for ``path``, which may be a directory."""
    try:
        mode = path.stat().st_mode
        if not stat.S_ISDIR(mode):
            yield path
            return
        inside = sorted(path.iterdir())
    except FileNotFoundError:
        raise ClusterctlError(
            f"inventory {path} does not exist", fix="name an existing one: clusterctl check inventory.ini"
        ) from None
    except OSError as error:
        raise _unreadable(path, error) from None
    for entry in inside:
        if entry.name.startswith(".") or entry.name.endswith(_IGNORED_ENDINGS) or entry.name in _NO_SOURCES:
            continue
        yield from _sources(entry)


def _require_text(path: Path) -> None:
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise ClusterctlError(
                f"inventory {path} is no regular file", fix="give a file in INI or YAML, or a directory of such files"
            )
        if found.st_mode & (stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH):
            raise ClusterctlError(
                f"inventory {path} is executable; inventories are read here, never run",
                fix=f"chmod a-x {path}, if it is data; else save what it prints as a file of its own",
            )
        if found.st_size > _LARGEST:
            raise ClusterctlError(f"inventory {path} is larger than 64 MiB", fix="give the inventory, not another file")
        # Non-blocking, so that even a FIFO put there in this very moment cannot hang us.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            content = file.read()
    except OSError as error:
        raise _unreadable(path, error) from None
    try:
        text = content.decode()
    except UnicodeDecodeError:
        encoding = "UTF-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "not UTF-8"
        raise ClusterctlError(f"inventory {path} is encoded as {encoding}", fix="save it as UTF-8") from None
    if text.startswith("\ufeff"):
        # Ansible would take it for a part of the first line.
        raise ClusterctlError(
            f"inventory {path} begins with a byte order mark", fix="save it as UTF-8 without byte order mark"
        )
    if "\0" in text:
        raise ClusterctlError(f"inventory {path} contains zero bytes", fix="give a file of text, saved as UTF-8")
    for number, line in enumerate(text.splitlines(), 1):
        if "[" in line and line.lstrip()[:1] not in ("#", ";", "["):
            hostlist.require_possible(line, f"{path}, line {number}")
    if not any(line.strip() and line.lstrip()[0] not in "#;" for line in text.splitlines() if line.strip() != "---"):
        raise ClusterctlError(
            f"inventory {path} is empty",
            fix="name a controller under [slurm_controller] and the compute nodes under [slurm_compute]",
        )


def _unreadable(path: Path, error: OSError) -> ClusterctlError:
    return ClusterctlError(
        f"inventory {path} cannot be read: {error.strerror}", fix=f"ls -ld {path}, then correct its owner or mode"
    )
