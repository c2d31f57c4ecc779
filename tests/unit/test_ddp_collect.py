"""The script that reads what a job left behind: whatever lies there, it ends, and gives away nothing of others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from waiting import PATIENCE

from provision import content
from provision.judge.ddp_evidence import Wants, evidence_from

#: Runs the program and says which user and groups it ended as.
GROUPS = """
import os, runpy, sys
program, runs, owner = sys.argv[1:]
main = runpy.run_path(program)["main"]
main(runs, "r1", "7", owner)
print(os.getuid(), os.getgid(), os.getgroups())
"""
PROGRAM = content.ROOT / "roles" / "ddp_validation" / "files" / "ddp_collect.py"
#: The job's user: another than root, who runs the program, where the tests are root's.
OWNER = 64031 if os.geteuid() == 0 else os.geteuid()


@pytest.fixture
def run(open_path: Path) -> Path:
    """The directory of one run, as a job has left it."""
    directory = open_path / "slurmtest" / "r1"
    directory.mkdir(parents=True)
    (directory / "rank-0.json").write_text(json.dumps({"run_id": "r1", "rank": 0}))
    (directory / "node.log").write_text("node node1\n")
    return directory


def hand_over(directory: Path) -> None:
    """Give everything that has no owner yet to the job's user."""
    if os.geteuid() == 0:
        for path in (directory.parent, directory, *directory.iterdir()):
            if path.lstat().st_uid == 0 and not path.name.startswith("root-"):
                os.chown(path, OWNER, OWNER, follow_symlinks=False)


def collect(directory: Path, run: str = "r1", number: str = "7") -> dict[str, Any]:
    hand_over(directory)
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(directory.parent), run, number, str(OWNER)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout) < 8 << 20
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def test_one_run_is_read_and_what_nobody_judges_is_left_where_it_is(run: Path) -> None:
    ways = [
        "gpu:1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eno1:10.0.0.1<0>",
        *("0[0] -> 2[0] [send] via NET/IB/0/GDRDMA", "DMA-BUF is available on GPU device 0"),
    ]
    (run / "rank-0.log").write_text("\n".join([*ways, *(f"line {number}" for number in range(100))]))
    (run / "node.log").write_bytes(b"caf\xe9\n")
    (run / "job.log").write_text("batch\n")
    (run / "result.json").write_text(json.dumps({"steps": {"identity": {"verdict": "pass", "ranks": ["long"] * 9}}}))

    found = collect(run)

    assert found["records"] == [{"run_id": "r1", "rank": 0}]
    assert found["result"] == {"steps": {"identity": {"verdict": "pass"}}}
    assert found["logs"] == {"0": [f"line {number}" for number in range(80, 100)]}
    assert found["nccl"] == ways
    assert found["job_log"] == ["batch"]
    assert found["problems"] == []


@pytest.mark.parametrize(
    ("result", "figures"),
    [
        ({"steps": {"learning": {"verdict": "pass", "losses": [4.5]}, "speed": 7}}, {"learning": {"losses": [4.5]}}),
        ({"steps": 7}, {}),
        (7, {}),
    ],
)
def test_what_a_report_draws_is_read_beside_what_is_judged(run: Path, result: Any, figures: Any) -> None:
    (run / "result.json").write_text(json.dumps(result))

    assert collect(run)["figures"] == {"learning": {}, "reference": {}, "gradients": {}, "speed": {}, **figures}


def test_the_log_of_a_job_that_never_came_to_its_script_is_found_where_slurm_put_it(run: Path) -> None:
    log = run.parent / "job-7.log"
    log.write_text("slurmstepd: error: no such user\n")
    if os.geteuid() == 0:
        os.chown(log, OWNER, OWNER)

    assert collect(run)["job_log"] == ["slurmstepd: error: no such user"]


@pytest.mark.parametrize(("name", "number"), [("", "7"), ("../r1", "7"), ("r1", "../7"), ("..", "7"), ("r9", "7")])
def test_nothing_outside_a_run_is_read(run: Path, name: str, number: str) -> None:
    assert collect(run, name, number) == {}


def test_a_node_on_which_nothing_ever_ran_has_nothing(tmp_path: Path) -> None:
    words = [str(tmp_path / "none"), "r1", "7", str(os.geteuid())]
    done = subprocess.run([sys.executable, str(PROGRAM), *words], capture_output=True, text=True, check=True)

    assert json.loads(done.stdout) == {}


def _secret(run: Path) -> Path:
    secret = run.parent.parent / "root-only"
    secret.write_text("TOP SECRET\n")
    secret.chmod(0o600)
    return secret


def _link(run: Path) -> None:
    (run / "node.log").unlink()
    (run / "node.log").symlink_to(_secret(run))


def _link_to_the_users_own(run: Path) -> None:
    # What the user may read, and the administrator's report is not to show: a key in the home directory, for example.
    own = run.parent.parent / "own"
    own.write_text("TOP SECRET\n")
    if os.geteuid() == 0:
        os.chown(own, OWNER, OWNER)
    (run / "node.log").unlink()
    (run / "node.log").symlink_to(own)


def _hard_link(run: Path) -> None:
    # The kernel refuses this to users for files of others; where it does not, the file's own owner still counts.
    (run / "node.log").unlink()
    (run / "root-node.log").hardlink_to(_secret(run))
    (run / "root-node.log").rename(run / "node.log")


def _pipe(run: Path) -> None:
    (run / "node.log").unlink()
    os.mkfifo(run / "node.log")


def _directory(run: Path) -> None:
    (run / "node.log").unlink()
    (run / "node.log").mkdir()


def _device(run: Path) -> None:
    (run / "node.log").unlink()
    (run / "node.log").symlink_to("/dev/zero")


@pytest.mark.parametrize("plant", [_link, _link_to_the_users_own, _pipe, _directory, _device])
def test_what_is_no_regular_file_of_the_jobs_user_is_named_and_not_read(
    run: Path, plant: Callable[[Path], None]
) -> None:
    plant(run)

    found = collect(run)

    assert found["node_log"] == []
    assert found["records"] == [{"run_id": "r1", "rank": 0}]
    assert any(problem.startswith("node.log: ") for problem in found["problems"])
    assert "SECRET" not in json.dumps(found)


@pytest.mark.skipif(os.geteuid() != 0, reason="makes files of another user")
def test_a_file_of_another_user_is_not_read_and_root_is_given_up_first(run: Path) -> None:
    hand_over(run)
    (run / "node.log").unlink()
    (run / "node.log").write_text("planted\n")
    os.chown(run / "node.log", OWNER + 1, OWNER + 1)
    (run / "job.log").write_text("TOP SECRET\n")
    (run / "job.log").chmod(0o600)

    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(run.parent), "r1", "7", str(OWNER)],
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)

    assert "node.log: belongs to somebody else" in found["problems"]
    assert "job.log: Permission denied" in found["problems"]
    assert found["node_log"] == found["job_log"] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="makes files of another group")
def test_roots_groups_are_given_up_too(run: Path) -> None:
    hand_over(run)
    command = [sys.executable, "-c", GROUPS, str(PROGRAM), str(run.parent), str(OWNER)]

    done = subprocess.run(command, capture_output=True, text=True, check=True, extra_groups=[4])

    assert done.stdout.splitlines()[-1] == f"{OWNER} {OWNER} []"


def test_a_run_that_is_a_link_is_not_followed(run: Path) -> None:
    elsewhere = run.parent / "elsewhere"
    run.rename(elsewhere)
    run.symlink_to(elsewhere)

    found = json.loads(
        subprocess.run(
            [sys.executable, str(PROGRAM), str(run.parent), "r1", "7", str(elsewhere.stat().st_uid)],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    )

    assert list(found) == ["problems"]


def test_nobody_but_the_proofs_user_can_put_anything_where_runs_are_collected() -> None:
    text = (content.ROOT / "roles/ddp_validation/vars/main.yml").read_text(encoding="utf-8")
    places = yaml.safe_load(text)["__ddp_validation_managed"]["directories"]

    assert {place["path"].split("/")[-1] for place in places} >= {"runs", "{{ __ddp_validation_runs }}"}
    for place in places:
        assert not int(place["mode"], 8) & 0o022, place


@pytest.mark.skipif(os.geteuid() != 0, reason="makes directories of another user")
def test_a_run_that_somebody_else_has_planted_is_not_read(run: Path) -> None:
    hand_over(run)
    os.chown(run, OWNER + 1, OWNER + 1)
    run.chmod(0o755)

    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(run.parent), "r1", "7", str(OWNER)],
        capture_output=True,
        text=True,
        check=True,
    )

    assert json.loads(done.stdout) == {"problems": ["r1: r1 is not the job's user's"]}


def test_huge_files_and_endless_lines_and_crowds_of_files_stay_small(run: Path) -> None:
    with (run / "node.log").open("wb") as stream:
        stream.truncate(1 << 40)
    with (run / "result.json").open("wb") as stream:
        stream.truncate(1 << 40)
    (run / "rank-0.log").write_text("via NET/" + "x" * 5_000_000 + "\nend\n")
    for number in range(1_200):
        (run / f"other-{number}").touch()

    found = collect(run)

    assert all(len(line) <= 500 for line in [*found["node_log"], *found["nccl"], *found["logs"].get("0", [])])
    assert found["result"] is None
    assert "more than 1000 files" in found["problems"]


@pytest.mark.parametrize("text", ["[" * 100_000, '{"steps": ' + "9" * 5_000 + "}", "{", "\x00\x00", "[NaN]"])
def test_a_document_that_is_none_never_ends_the_collector(run: Path, text: str) -> None:
    (run / "result.json").write_text(text)

    found = collect(run)

    assert found["records"] == [{"run_id": "r1", "rank": 0}]
    judged = evidence_from({"run_id": "r1", "id": "7"}, "", {"node1": json.dumps(found)}, Wants({"node1": 1}), {}, "/d")
    assert judged.nodes["node1"].result is None
    assert judged.nodes["node1"].problems
