"""Slurm's files as text, the same bytes that the role ``slurm_conf`` installs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from provision.content import ROOT
from provision.model.cluster import Cluster
from provision.slurm.conf import slurm_values

_TEMPLATES = ROOT / "roles" / "slurm_conf" / "templates"
#: Programs of ours that nodes fetch with their configuration.
#: After which line of job_task the variables of all jobs stand.
_ENVIRONMENT = "<<'JOB_ENVIRONMENT'\n"
_PROGRAMS = ROOT / "roles" / "slurm_conf" / "files"


def render(cluster: Cluster) -> dict[str, str]:
    """Return each file's name with its text, for example ``{"slurm.conf": "...", ...}``.

    Raises:
        ClusterctlError: a node's hardware is neither declared nor discovered.
    """
    return render_values(slurm_values(cluster))


def render_values(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the files made from what :func:`provision.slurm.conf.slurm_values` returns."""
    environment = Environment(  # noqa: S701 - these are configuration files, not web pages
        loader=FileSystemLoader(_TEMPLATES),
        # As Ansible's template action sets them.
        trim_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
    )
    templates = sorted(environment.list_templates(extensions=["j2"]))
    ours = {
        name.removesuffix(".j2"): environment.get_template(name).render(slurm_conf_values=values) for name in templates
    }
    programs = {name: (_PROGRAMS / name).read_text(encoding="utf-8") for name in values["programs"]}
    if "job_task" in programs:
        lines = "".join(f"{line}\n" for line in values["environment"])
        programs["job_task"] = programs["job_task"].replace(_ENVIRONMENT, f"{_ENVIRONMENT}{lines}", 1)
    return {**ours, **programs, **values["files"]}
