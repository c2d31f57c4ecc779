"""The record of runs and the lock."""

from __future__ import annotations

import errno
import io
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from provision.errors import ClusterctlError, ExitCode
from provision.runner import journal, journal_files


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return journal.prepare(tmp_path / journal.NAME)


def test_the_state_is_beside_an_inventory_file_and_inside_an_inventory_directory(tmp_path: Path) -> None:
    (tmp_path / "inventory.ini").touch()

    assert journal.state_directory(tmp_path / "inventory.ini") == tmp_path / ".clusterctl"
    assert journal.state_directory(tmp_path) == tmp_path / ".clusterctl"


def test_an_inventory_has_one_state_by_whatever_name_it_is_called(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "inventory.ini").touch()
    (tmp_path / "link.ini").symlink_to("real/inventory.ini")

    assert journal.state_directory(tmp_path / "link.ini") == tmp_path / "real" / ".clusterctl"


def test_everything_is_private_under_any_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        state = journal.prepare(tmp_path / journal.NAME)
        run = journal.begin(state, "provision")
        with journal.lock(state, run):
            run.record({"event": "x"})
            run.write_report({"a": 1})
            run.finish("done")
    finally:
        os.umask(before)

    found = {path: stat.S_IMODE(path.lstat().st_mode) for path in [state, *state.rglob("*")]}
    assert len(found) == 7
    assert {mode for path, mode in found.items() if path.is_dir()} == {0o700}
    assert {mode for path, mode in found.items() if path.is_file()} == {0o600}


def plant_link(path: Path) -> None:
    path.with_name("elsewhere").mkdir(mode=0o700)
    path.symlink_to("elsewhere")


def plant_loose(path: Path) -> None:
    path.mkdir()
    path.chmod(0o770)


def plant_file(path: Path) -> None:
    path.touch()


def plant_foreign(path: Path) -> None:
    path.mkdir(mode=0o700)
    os.chown(path, 12345, 12345)


@pytest.mark.parametrize("plant", [plant_link, plant_loose, plant_file, plant_foreign])
@pytest.mark.parametrize("name", [".clusterctl", ".clusterctl/runs"])
def test_a_planted_directory_is_refused(tmp_path: Path, plant: object, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(mode=0o700, exist_ok=True)
    assert callable(plant)
    plant(path)

    with pytest.raises(ClusterctlError) as caught:
        journal.prepare(tmp_path / ".clusterctl")

    assert caught.value.exit_code is ExitCode.BAD_REQUEST
    assert str(path) in caught.value.problem


def test_a_full_disk_is_told_before_anything_else_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_files, "NEEDED_BYTES", 2**62)

    with pytest.raises(ClusterctlError, match="no space left") as caught:
        journal.prepare(tmp_path / ".clusterctl")

    assert caught.value.exit_code is ExitCode.PREFLIGHT_REFUSED


def test_a_directory_that_cannot_be_written_is_the_operators_to_mend() -> None:
    with pytest.raises(ClusterctlError, match="cannot be written") as caught:
        journal.prepare(Path("/proc/1/nowhere/.clusterctl"))

    assert caught.value.exit_code is ExitCode.BAD_REQUEST


def test_a_journal_that_runs_out_of_disk_does_not_end_the_run(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = journal.begin(state, "provision")

    class Full(io.StringIO):
        def flush(self) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(journal, "open_private", lambda *_: Full())

    run.record({"event": "x"}, sync=True)
    run.record({"event": "y"})

    assert "No space left" in run.broken


def test_the_second_run_is_told_who_holds_the_lock_and_how_to_stop_them(state: Path) -> None:
    first, second = journal.begin(state, "provision"), journal.begin(state, "provision")

    with journal.lock(state, first), pytest.raises(ClusterctlError) as caught, journal.lock(state, second):
        pass

    assert caught.value.exit_code is ExitCode.LOCKED
    for part in (first.id, first.facts["user"], first.facts["host"], str(os.getpid())):
        assert part in caught.value.problem
    assert f"kill -INT {os.getpid()}" in caught.value.fix


def test_a_lock_is_free_again_after_its_holder_was_killed(state: Path) -> None:
    script = (
        "import sys,os,signal;from pathlib import Path;from provision.runner import journal\n"
        "state=Path(sys.argv[1]);run=journal.begin(state,'x')\n"
        "with journal.lock(state,run): os.kill(os.getpid(),signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", script, str(state)], check=False)

    with journal.lock(state, journal.begin(state, "provision")):
        pass

    assert [run.ended for run in journal.unfinished(state)] == [False]


def test_a_run_that_is_going_on_or_has_ended_is_not_unfinished(state: Path) -> None:
    journal.begin(state, "provision")
    journal.begin(state, "verify").finish("done")

    assert journal.unfinished(state) == []
    assert len(journal.runs(state)) == 2


def test_a_process_number_that_was_given_to_another_does_not_look_alive(state: Path) -> None:
    run = journal.begin(state, "provision")
    run.facts["process"] = "1"

    assert not run.alive


def test_a_torn_last_line_is_left_out_and_all_before_it_is_read(state: Path) -> None:
    run = journal.begin(state, "provision")
    run.record({"event": "result", "task": "ä"})
    run.finish("done")
    with (run.directory / "journal.jsonl").open("a", encoding="utf-8") as handle:
        handle.write('{"event": "resu')

    assert [entry["event"] for entry in journal.entries(run.directory)] == ["result", "end"]


def test_thirty_runs_are_kept_and_nothing_else_is_removed(state: Path) -> None:
    (state / "runs" / "notes").mkdir()
    for number in range(35):
        (state / "runs" / f"20260101-0000{number:02d}-abcd").mkdir()

    run = journal.begin(state, "provision")

    left = sorted(path.name for path in (state / "runs").iterdir())
    assert len(left) == journal.KEPT_RUNS + 1
    assert run.id in left
    assert "notes" in left
    assert "20260101-000004-abcd" not in left


def test_the_record_says_who_and_when_and_with_what(state: Path) -> None:
    run = journal.begin(state, "provision", options={"limit": "node2"})
    run.finish("done", exit_code=0)

    facts = json.loads((run.directory / "run.json").read_text())
    assert facts["schema"] == "clusterctl/run/1"
    assert facts["options"] == {"limit": "node2"}
    assert facts["versions"]["ansible-core"]
    assert {"user", "host", "pid", "started", "ended", "outcome", "exit_code"} <= facts.keys()
