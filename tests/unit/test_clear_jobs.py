"""What jobs have left on a node that crashed goes when slurmd starts again, and nothing else does."""

from __future__ import annotations

import os
import runpy
from pathlib import Path

import pytest

from provision import content

CLEAR_JOBS = runpy.run_path(str(content.ROOT / "roles/slurm_image/files/image/clear_jobs"))
alive, clear, scratch = (CLEAR_JOBS[name] for name in ("alive", "clear", "scratch"))


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A node on which jobs 7 and 8 have begun; jobs 9 and 10 of its file systems are others'."""
    for name in ("jobs/7/storage", "jobs/8/storage", "disk/.jobs/job-7/data", "disk/.jobs/job-8", "disk/.jobs/job-9"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "jobs/10.old").mkdir()
    return tmp_path


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if path.name != ".ended")


def test_only_jobs_that_began_here_and_have_no_slurmstepd_any_more_are_cleared(node: Path) -> None:
    ended, asides = clear(str(node / "jobs"), str(node / "disk/.jobs"), {"8"}, 1)

    assert ended == ["7"]
    assert names(node / "jobs") == ["10.old", "8"]
    assert names(node / "disk/.jobs") == ["job-8", "job-9"]
    assert asides == [str(node / "disk/.jobs/.ended"), str(node / "jobs/.ended")]
    assert (node / "disk/.jobs/.ended/job-7.1/data").is_dir(), "put aside, not deleted while slurmd waits"


def test_what_an_earlier_start_did_not_come_to_delete_is_deleted_by_the_next(node: Path) -> None:
    clear(str(node / "jobs"), str(node / "disk/.jobs"), {"8"}, 1)

    ended, asides = clear(str(node / "jobs"), str(node / "disk/.jobs"), {"8"}, 2)

    assert ended == []
    assert asides == [str(node / "disk/.jobs/.ended"), str(node / "jobs/.ended")]


def test_a_job_whose_number_comes_again_is_put_aside_again(node: Path) -> None:
    for stamp in (1, 2):
        (node / "jobs/7").mkdir(exist_ok=True)
        assert clear(str(node / "jobs"), None, {"8"}, stamp)[0] == ["7"]

    assert names(node / "jobs/.ended") == ["7.1", "7.2"]


def test_a_node_without_a_scratch_directory_has_its_containers_storage_cleared(node: Path) -> None:
    assert clear(str(node / "jobs"), None, set(), 1) == (["7", "8"], [str(node / "jobs/.ended")])


def test_every_slurmstepd_counts_for_its_job_whatever_its_program_is_called(tmp_path: Path) -> None:
    for pid, title in {
        "20": b"slurmstepd: [7.extern]\0\0",
        "21": b"slurmstepd: [8.batch]\0",
        "22": b"slurmstepd: [9.4294967290]",
        "23": b"/usr/sbin/slurmstepd infinity\0",
        "24": b"bash\0-c\0slurmstepd: [10.0]\0",
    }.items():
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "cmdline").write_bytes(title)
    (tmp_path / "25").mkdir()

    assert alive(str(tmp_path)) == {"7", "8", "9"}


def test_a_directory_that_is_not_roots_own_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "disk/.jobs").mkdir(parents=True)
    (tmp_path / "scratch").symlink_to(tmp_path / "disk")

    (tmp_path / "disk/.jobs").chmod(0o777)
    assert scratch(str(tmp_path / "scratch")) is None
    (tmp_path / "disk/.jobs").chmod(0o711)
    assert scratch(str(tmp_path / "scratch")) == (str(tmp_path / "disk/.jobs") if os.getuid() == 0 else None)
    assert scratch(str(tmp_path / "nothing")) is None
