"""Jobs that outlive slurmd's container keep their own /tmp: new steps of theirs find it after the replacement."""

from __future__ import annotations

import os
import runpy
from pathlib import Path

import pytest

from provision import content

PROGRAM = content.ROOT / "roles/slurm_image/files/image/keep_jobs"


KEEP_JOBS = runpy.run_path(str(PROGRAM))
steps, keep = KEEP_JOBS["steps"], KEEP_JOBS["keep"]


def process(proc: Path, pid: int, title: str, program: str = "slurmstepd-wlm", real: int | None = None) -> None:
    own = proc / str(pid)
    own.mkdir(parents=True)
    (own / "cmdline").write_bytes(title.encode() + b"\0")
    (own / "exe").symlink_to(f"/usr/sbin/{program}")
    uid = os.getuid()
    (own / "status").write_text(f"Name:\tx\nUid:\t{uid if real is None else real}\t{uid}\t{uid}\t{uid}\n")


def covered(directory: str) -> None:
    """An empty file system over a directory."""
    path = Path(directory)
    path.rename(f"{directory}.below")
    path.mkdir()


def test_a_jobs_extern_step_is_known_by_its_name_and_by_nobodys_lie(tmp_path: Path) -> None:
    process(tmp_path, 20, "slurmstepd: [7.batch]")
    process(tmp_path, 21, "slurmstepd: [7.extern]")
    process(tmp_path, 22, "slurmstepd: [7.0]")
    # By Slurm's own packages; all others by Debian's.
    process(tmp_path, 30, "slurmstepd: [8.batch]", program="slurmstepd")
    process(tmp_path, 40, "/usr/sbin/slurmstepd infinity")
    process(tmp_path, 50, "slurmstepd: [7.extern]", program="newuidmap")
    process(tmp_path, 51, "slurmstepd: [7.extern]", real=1000)
    process(tmp_path, 52, "slurmstepd: [9.extern]", program="slurmstepd-wlm (deleted)")
    (tmp_path / "self").mkdir()

    assert steps(str(tmp_path), os.getuid()) == {"7": (21, True), "8": (30, False), "9": (52, True)}
    assert steps(str(tmp_path), os.getuid() + 1) == {}, "a user's process may call itself so"


def mounted(proc: Path, pid: int, *places: str) -> str:
    """Where a process sees mounts."""
    (proc / str(pid)).mkdir(parents=True)
    lines = [f"{number} 1 0:4 mnt:[4026532001] {place} rw - nsfs nsfs rw" for number, place in enumerate(places)]
    (proc / str(pid) / "mountinfo").write_text("\n".join(["30 1 0:31 / / rw - overlay overlay rw", *lines, ""]))
    return str(proc)


# The site's own, too.
@pytest.mark.parametrize("base", ["jobtmp", "scratch/of jobs"])
def test_a_link_leads_to_the_namespace_as_the_jobs_own_slurmstepd_has_it(tmp_path: Path, base: str) -> None:
    job = tmp_path / base / "node1" / "7"
    job.mkdir(parents=True)
    (job / ".ns").touch()
    told = str(job).replace(" ", "\\040")
    proc = mounted(tmp_path / "proc", 21, told.replace("/7", "/17") + "/.ns", f"{told}/.ns")

    done = keep("node1", {"7": (21, True)}, proc, str(tmp_path / "jobtmp"), covered)

    assert (job / ".ns").readlink() == Path(f"/proc/21/root{job}/.ns")
    assert (job.parent / "7.below" / ".ns").is_file(), "to remove it would end the mount there"
    assert done == ["keep_jobs: job 7 by process 21"]


def test_a_job_from_before_its_tmp_was_its_own_has_its_steps_where_it_is(tmp_path: Path) -> None:
    proc, base = mounted(tmp_path / "proc", 30), tmp_path / "jobtmp"
    keep("node1", {"8": (30, False)}, proc, str(base), covered)

    assert (base / "node1" / "8" / ".ns").readlink() == Path("/proc/30/ns/mnt")
    assert keep("node1", {"8": (30, False)}, proc, str(base), covered) == [], "a second time nothing is done"


def test_a_job_whose_namespace_is_another_plugins_is_left_alone(tmp_path: Path) -> None:
    proc, base = mounted(tmp_path / "proc", 41), tmp_path / "jobtmp"

    assert keep("node1", {"9": (41, True), "10": (42, False)}, proc, str(base), covered) == [], "the other has ended"
    assert not base.exists()
