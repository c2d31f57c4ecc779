"""Slurm's Prolog: a job's user sees the shared images by the numbers that they have now, whatever is mounted."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from waiting import PATIENCE

from provision import content

PROGRAM = content.ROOT / "roles/slurm_conf/files/job_begin"

#: What mounts and gives files to others is noted: the last word is the place, and another line has it all.
STUBS = {
    "mount": 'for place; do :; done; echo "$place" >>"$MOUNTED"; echo "$*" >>"$MOUNTS"',
    "mountpoint": 'for place; do :; done; grep -qxF "$place" "$MOUNTED"',
    "umount": "true",
    "install": 'd=$1; echo "$*" >>"$MOUNTED.given"; for one; do case $d$one in -d/*) mkdir -p "$one" ;; esac; done',
}

Begin = Callable[[str, str], tuple[str, list[str]]]


@pytest.fixture
def begin(tmp_path: Path) -> Begin:
    """Begin a job of user 2001 with these subordinate numbers; return its view, and what has been mounted until now."""
    for name, text in STUBS.items():
        stub = tmp_path / "bin" / name
        stub.parent.mkdir(exist_ok=True)
        stub.write_text(f"#!/bin/sh\n{text}\n")
        stub.chmod(0o755)
    for name in ("lib/images/overlay-images", "etc"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("mounted", "mounts"):
        (tmp_path / name).touch()
    script = PROGRAM.read_text(encoding="utf-8")
    places = {"/run/clusterctl": "run", "/var/lib/clusterctl": "lib", "/run/machine-etc": "machine", "/etc": "etc"}
    for place, here in places.items():
        script = script.replace(place, str(tmp_path / here))
    script = script.replace("PATH=/usr/local/sbin", f"PATH={tmp_path}/bin:/usr/local/sbin")

    def begun(users: str, groups: str) -> tuple[str, list[str]]:
        (tmp_path / "etc/subuid").write_text(users)
        (tmp_path / "etc/subgid").write_text(groups)
        told = {"SLURM_JOB_ID": "7", "SLURM_JOB_UID": "2001", "SLURM_JOB_GID": "3001", "SLURM_JOB_USER": "ada"}
        told |= {"SLURM_JOB_GPUS": "1,3"}
        told |= {"MOUNTED": str(tmp_path / "mounted"), "MOUNTS": str(tmp_path / "mounts")}
        subprocess.run(["sh", "-c", script], env=told, check=True, timeout=PATIENCE)
        (line,) = (
            line
            for line in (tmp_path / "run/jobs/7/storage.conf").read_text().splitlines()
            if line.startswith("additionalimagestores")
        )
        return line.split('"')[1], (tmp_path / "mounts").read_text().splitlines()

    return begun


def test_a_view_is_mounted_once_and_shown_to_all_jobs_of_the_user(begin: Begin) -> None:
    first, _ = begin("ada:200000:65536\n", "ada:200000:65536\n")
    again, mounts = begin("ada:200000:65536\n", "ada:200000:65536\n")

    assert first == again
    (mounted,) = mounts
    assert "X-mount.idmap=u:0:2001:1 u:1:200000:65536 g:0:3001:1 g:1:200000:65536 " in mounted
    assert mounted.endswith(first)


@pytest.mark.parametrize(
    ("users", "groups"),
    [
        ("ada:300000:65536", "ada:200000:65536"),
        ("ada:200000:131072", "ada:200000:65536"),
        ("ada:200000:65536", "ada:300000:65536"),
        ("ada:200000:65536", "ada:200000:131072"),
        ("ben:200000:65536", "ada:200000:65536"),
    ],
)
def test_other_numbers_are_another_view_while_the_one_of_before_is_mounted(
    begin: Begin, users: str, groups: str
) -> None:
    before, _ = begin("ada:200000:65536\n", "ada:200000:65536\n")
    now, mounts = begin(f"{users}\n", f"{groups}\n")

    assert now != before
    assert len(mounts) == 2
    assert mounts[-1].endswith(now)


def test_a_jobs_gpus_on_this_node_are_written_down(begin: Begin, tmp_path: Path) -> None:
    begin("", "")

    assert (tmp_path / "run/jobs/7/gpus").read_text() == "1,3\n"


def test_the_file_of_a_training_is_its_users_in_a_directory_that_is_not(begin: Begin, tmp_path: Path) -> None:
    begin("", "")

    given = (tmp_path / "mounted.given").read_text().splitlines()
    assert f"-m 0644 -o 2001 -g 3001 /dev/null {tmp_path}/run/jobs/7/training" in given
    assert not [line for line in given if line.endswith("/run/jobs/7")]
