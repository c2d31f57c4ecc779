"""What runs containers of jobs, and what a site brings for it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from provision.errors import ClusterctlError

Runtime = Literal["podman", "pyxis", "apptainer", "none"]
#: What no distribution of Slurm's image has, with whose package it is.
_BROUGHT = {"apptainer": "https://packages.site.example/apptainer_1.4.2_amd64.deb"}
_PACKAGE = re.compile(r"https?://[A-Za-z0-9._~:/@%+-]+\.deb")


def packages_from(value: Any) -> tuple[tuple[str, str], ...]:
    """Return address and SHA-256 of the packages that a site brings for Slurm's image.

    Raises:
        ClusterctlError: an entry is not of that form.
    """
    found = []
    if value is not None and not isinstance(value, list | tuple):
        raise _no_package("it must be a list")
    for number, entry in enumerate(value or ()):
        if not isinstance(entry, Mapping) or set(entry) != {"url", "sha256"}:
            raise _no_package(f"{entry!r} must have url and sha256, and nothing else", number)
        url, checksum = str(entry["url"]), str(entry["sha256"])
        if not _PACKAGE.fullmatch(url):
            raise _no_package(f"{url[:200]!r} is no address of a Debian package", number, "url")
        if not re.fullmatch(r"[0-9a-f]{64}", checksum):
            raise _no_package(f"{checksum[:70]!r} is no SHA-256", number, "sha256")
        found.append((url, checksum))
    return tuple(found)


def _no_package(problem: str, number: int | None = None, key: str = "") -> ClusterctlError:
    return ClusterctlError(
        f"job_container_packages: {problem}",
        fix=f"write each as {{url: {_BROUGHT['apptainer']}, sha256: ...}}, of a server that the controller reaches; "
        "sha256sum FILE prints it",
        entry=("job_container_packages", number, key),
    )


def container_runtime_from(value: Any, files: Mapping[str, str], packages: Any = None) -> Runtime:
    """Return what runs containers of jobs: our plugin with rootless Podman, the site's pyxis, Apptainer, or nothing.

    ``packages`` are those of ``job_container_packages``.

    Raises:
        ClusterctlError: the site does not bring its package, or the site's plugstack.conf loads another.
    """
    brought = packages_from(packages)
    if value in _BROUGHT and not any(value in url.rpartition("/")[2] for url, _ in brought):
        raise ClusterctlError(
            f"job_container_runtime is {value}, and job_container_packages brings no package of it: neither Debian nor "
            "Ubuntu has one",
            fix=f"write job_container_packages: [{{url: {_BROUGHT[value]}, sha256: ...}}]",
            said=("job_container_runtime", ""),
        )
    runtime: Runtime = value or "podman"
    loads = re.findall(r"(?m)^\s*(?:required|optional|include)\s.*pyxis", files.get("plugstack.conf", ""))
    if loads and runtime == "podman":
        raise ClusterctlError(
            "slurm_conf_files: plugstack.conf loads pyxis, and the cluster's own plugin has the same options",
            fix="set job_container_runtime=pyxis under [all:vars], or take pyxis out of plugstack.conf",
            entry=("slurm_conf_files", None, "plugstack.conf"),
        )
    if runtime == "pyxis" and "plugstack.conf" not in files:
        raise ClusterctlError(
            "job_container_runtime is pyxis, and slurm_conf_files has no plugstack.conf that loads it",
            fix="write it there, as 'plugstack.conf: required /opt/pyxis/spank_pyxis.so'",
            said=("job_container_runtime", ""),
        )
    return runtime


def require_programs_of_images(runtime: Runtime, parameters: Mapping[str, Any]) -> None:
    """Refuse that srun looks for programs where it is called: a container's are others, and may be nowhere else.

    Slurm looks for the word anywhere in the value: _opt_args() in src/srun/opt.c.

    Raises:
        ClusterctlError: srun does so, and has --container-image.
    """
    given = {name.lower(): value for name, value in parameters.items()}
    if runtime in ("podman", "pyxis") and "test_exec" in str(given.get("launchparameters")):
        raise ClusterctlError(
            "slurm_conf_parameters: LaunchParameters has test_exec: srun then looks for a program where it is called, "
            "and refuses what only an image has (--container-image)",
            fix="take test_exec out; who wants it sets SLURM_TEST_EXEC=1",
            entry=("slurm_conf_parameters", None, "LaunchParameters"),
        )
