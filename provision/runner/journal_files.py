"""Files that only their owner may touch, whatever the umask, and what to say when the system refuses one."""

from __future__ import annotations

import errno
import getpass
import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from provision.errors import ClusterctlError, ExitCode

#: Room that a run may need for its record, in bytes; a journal of 64 machines and 60 tasks is about 1 MB.
NEEDED_BYTES = 16 * 2**20


def prepare(directory: Path) -> Path:
    """Make sure that ``directory`` exists, is ours alone, and has room; return it.

    Raises:
        ClusterctlError: it is a link, someone else's or writable by others, or cannot be made (exit code 2); or
            the disk is full (3).
    """
    for path in (directory, directory / "runs", directory / "looks"):
        with told(path):
            path.mkdir(mode=0o700, exist_ok=True)
            _require_private(path)
    # Inventories are kept in git; what ran on one computer is no part of them.
    ignore = directory / ".gitignore"
    with told(ignore), suppress(FileExistsError), open_private(ignore, os.O_EXCL) as handle:
        handle.write("*\n")
    free = os.statvfs(directory)
    if free.f_bavail * free.f_frsize < NEEDED_BYTES:
        raise _no_space(directory)
    return directory


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Write a document so that a reader sees the old one or the new one, never half of it.

    Raises:
        OSError: the file cannot be written.
    """
    new = path.with_name(f".{path.name}.new")
    with open_private(new, os.O_TRUNC) as handle:
        json.dump(document, handle, indent=1, ensure_ascii=False, default=str)
        handle.write("\n")
        handle.flush()
        os.fsync(handle.fileno())
    new.replace(path)


def write_text(path: Path, text: str) -> None:
    """Write a text that only its owner may read.

    Raises:
        OSError: the file cannot be written.
    """
    with open_private(path, os.O_TRUNC) as handle:
        handle.write(text)


def open_private(path: Path, flags: int) -> TextIOWrapper:
    """Open a file for writing by its owner alone; never through a link, never kept open by a child process."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | flags, 0o600)
    os.fchmod(descriptor, 0o600)
    return os.fdopen(descriptor, "w", encoding="utf-8")


@cache
def boot() -> str:
    """Return what tells this start of this kernel from all others, the same in all of its containers."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return "unknown"


def user() -> str:
    """Return who runs this: the login name, or its number where it has none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.geteuid())


@cache
def computer() -> str:
    """Return what tells this computer from others, whatever its name is today.

    Hashed: systemd asks that a machine-id is shown to nobody. Without one it is this start of the kernel.
    """
    with suppress(OSError):
        if found := Path("/etc/machine-id").read_text(encoding="ascii").strip():
            return hashlib.sha256(f"clusterctl:{found}".encode()).hexdigest()[:32]
    return boot()


def _require_private(path: Path) -> None:
    found = path.lstat()
    if stat.S_ISLNK(found.st_mode) or not stat.S_ISDIR(found.st_mode):
        raise ClusterctlError(
            f"{path} is not a directory of our own", fix=f"look at it, then remove it: ls -ld '{path}'"
        )
    if found.st_uid != os.geteuid():
        raise ClusterctlError(
            f"{path} belongs to user id {found.st_uid}, not to you ({os.geteuid()})",
            fix="run as that user, or keep the inventory in a directory of your own",
        )
    if found.st_mode & 0o022:
        raise ClusterctlError(
            f"{path} can be written by others (mode {stat.S_IMODE(found.st_mode):04o})",
            fix=f"look at what is in it, then: chmod 700 '{path}'",
        )


@contextmanager
def told(path: Path) -> Iterator[None]:
    """Turn what the operating system refuses into what the operator can fix."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise _no_space(path) from error
        raise ClusterctlError(
            f"the record of the run cannot be written: {path}: {error.strerror}",
            fix=f"make '{path.parent}' writable for you, or copy the inventory to a directory that is",
        ) from error


def _no_space(path: Path) -> ClusterctlError:
    return ClusterctlError(
        f"no space left on the disk of {path}: a run needs {NEEDED_BYTES // 2**20} MiB for its record",
        fix=f"free some space: df -h '{path.parent}'",
        exit_code=ExitCode.PREFLIGHT_REFUSED,
    )
