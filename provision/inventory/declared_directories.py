"""Directories that the inventory names: where file systems are mounted, and what jobs are shown of a machine."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from typing import Any

from provision.errors import ClusterctlError
from provision.model.mounts import hides, hides_from_jobs

#: Directories of a machine that jobs see: variables of the role slurm_service.
_SHOWN = ("slurm_service_job_directories", "slurm_service_read_only_directories")

# No blank, quote, colon or comma: the path stands in unit files, exports and the container engine's words.
_PATH = re.compile(r"/[A-Za-z0-9._+@/-]{0,254}")


def require_directory(where: str, value: Any) -> str:
    """Return a directory's path that may be mounted on, on a machine and in a job.

    Raises:
        ClusterctlError: it is not absolute, is not written plainly, or hides what the system or a job needs.
    """
    path = _plain(where, value)
    if why := hides(path):
        name = where.rpartition(" ")[2]
        raise ClusterctlError(
            f"{where} is {path}: {why}", fix="choose another directory, as /home or /data", said=(name, path)
        )
    return path


def require_job_directories(hostvars: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse directories that jobs are to see and that would hide what a job or slurmd needs.

    Raises:
        ClusterctlError: one is no plain absolute path, or stands where Slurm's image has its own.
    """
    for name in _SHOWN:
        for value in {repr(one[name]): one[name] for one in hostvars.values() if name in one}.values():
            if value is None or "{{" in str(value):  # left out, or only Ansible knows what it becomes
                continue
            if not isinstance(value, str | list | tuple):
                raise ClusterctlError(
                    f"{name} is {value!r:.80}: it must be a list of directories",
                    fix=f"write it as {name}: [/apps]",
                    said=(name, ""),
                )
            words = value.split(",") if isinstance(value, str) else value
            for word in words:
                path = _plain(name, word.strip() if isinstance(word, str) else word)
                if reason := hides_from_jobs(path):
                    raise ClusterctlError(
                        f"{name}: {path} cannot be shown to jobs: {reason}",
                        fix="name a directory of the site's own; the image gets more by slurm_image_extra_packages",
                        said=(name, ""),
                    )


def _plain(where: str, value: Any) -> str:
    """Return an absolute path that is written plainly; refuse another."""
    name = where.rpartition(" ")[2]
    if not isinstance(value, str) or not _PATH.fullmatch(value) or "//" in value or posixpath.normpath(value) != value:
        raise ClusterctlError(
            f"{where} is {value!r}: it must be an absolute path, written plainly: letters, digits and . _ + @ -, "
            "no '..', no '/' twice or at its end",
            fix="write it as /home" if name == "path" else "write it as /apps",
            said=(name, "" if name in _SHOWN else str(value or "")),
        )
    return value
