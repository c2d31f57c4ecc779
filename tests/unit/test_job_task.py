"""Slurm's TaskProlog: what a task is told of its job's directory, and what is copied there before it begins."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from provision import content

PROGRAM = content.ROOT / "roles/slurm_conf/files/job_task"


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    """Return the directory of job 7, as job_begin makes it."""
    own = tmp_path / "scratch/job-7"
    own.mkdir(parents=True)
    (tmp_path / "jobs/7").mkdir(parents=True)
    (tmp_path / "jobs/7/scratch").symlink_to(own)
    return own


def told(tmp_path: Path, stage_in: str = "") -> tuple[int, list[str]]:
    """Return how the program ended, and the lines by which it tells Slurm something."""
    script = PROGRAM.read_text(encoding="utf-8").replace("/run/clusterctl/jobs", str(tmp_path / "jobs"))
    environment = {"SLURM_JOB_ID": "7", "SLURMD_NODENAME": "node1", "STAGE_IN": stage_in}
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, env=environment, check=False)
    return done.returncode, done.stdout.splitlines()


def data(tmp_path: Path) -> Path:
    there = tmp_path / "data/set"
    (there / "below").mkdir(parents=True)
    (there / "below/one").write_text("1")
    return there


def test_a_task_is_told_its_jobs_own_directory_where_there_is_one(tmp_path: Path, scratch: Path) -> None:
    assert told(tmp_path) == (0, [f"export JOB_SCRATCH={scratch}"])
    (tmp_path / "jobs/7/scratch").unlink()
    assert told(tmp_path) == (0, [])


def test_a_training_is_told_where_it_may_write_its_figures(tmp_path: Path, scratch: Path) -> None:
    (tmp_path / "jobs/7/training").touch()

    assert f"export JOB_TRAINING={tmp_path}/jobs/7/training" in told(tmp_path)[1]


def test_what_the_job_asks_for_is_there_before_its_task_begins_and_copied_once(tmp_path: Path, scratch: Path) -> None:
    there = data(tmp_path)

    assert told(tmp_path, str(there))[0] == 0
    assert (scratch / "set/below/one").read_text() == "1"
    (scratch / "set/below/one").write_text("changed by the job")
    (there / "more").write_text("2")
    assert told(tmp_path, f"{there}:{there}/more")[0] == 0
    assert (scratch / "set/below/one").read_text() == "changed by the job"
    assert (scratch / "more").read_text() == "2"


def test_a_link_to_a_data_set_is_the_data_set(tmp_path: Path, scratch: Path) -> None:
    (tmp_path / "newest").symlink_to(data(tmp_path))

    assert told(tmp_path, str(tmp_path / "newest"))[0] == 0
    assert (scratch / "set/below/one").is_file()


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ("{data}/none", "data/set/none: no such file or directory"),
        ("{data}:{other}", "another set was staged before"),
        ("{data}:/", "/ is everything"),
        ("{data}/below/../../taken", "taken is there already"),
    ],
)
def test_what_cannot_be_copied_ends_the_task_with_words(tmp_path: Path, scratch: Path, asked: str, says: str) -> None:
    there = data(tmp_path)
    (tmp_path / "other/set").mkdir(parents=True)
    (tmp_path / "data/taken").write_text("")
    (scratch / "taken").write_text("")

    code, lines = told(tmp_path, asked.format(data=there, other=tmp_path / "other/set"))

    assert code == 1
    assert lines[-1].startswith("print stage-in: ")
    assert says in lines[-1]
    assert lines[-1].endswith("(node1, job 7)")


def test_without_a_directory_of_the_nodes_the_job_is_told_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "jobs/7").mkdir(parents=True)
    code, lines = told(tmp_path, str(data(tmp_path)))

    assert (code, "cluster_mounts declares none" in lines[-1]) == (1, True)


def test_what_does_not_fit_is_not_begun(tmp_path: Path, scratch: Path) -> None:
    large = data(tmp_path) / "large"
    with large.open("wb") as stream:
        stream.truncate(1 << 43)

    code, lines = told(tmp_path, str(large))

    assert (code, (scratch / "large").exists()) == (1, False)
    assert "has room for" in lines[-1]


def test_a_copy_that_was_cut_off_is_made_again(tmp_path: Path, scratch: Path) -> None:
    there = data(tmp_path)
    there.chmod(0o555)
    (scratch / ".part/below").mkdir(parents=True)
    (scratch / ".part/below/half").write_text("of one")

    assert told(tmp_path, str(there))[0] == 0

    assert sorted(path.name for path in (scratch / "set").rglob("*")) == ["below", "one"]
    assert not (scratch / ".part").exists()


def test_a_job_whose_prolog_knew_it_by_another_number_is_told_why(tmp_path: Path, scratch: Path) -> None:
    (tmp_path / "jobs/7/scratch").unlink()
    (tmp_path / "jobs/7").rmdir()

    code, lines = told(tmp_path, str(data(tmp_path)))

    assert code == 1
    assert "heterogeneous" in lines[0]
