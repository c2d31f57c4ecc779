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
from provision.runner.journal_lock import lock


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
        with lock(state, run):
            run.record({"event": "x"})
            run.write_report({"a": 1})
            run.finish("done")
    finally:
        os.umask(before)

    found = {path: stat.S_IMODE(path.lstat().st_mode) for path in [state, *state.rglob("*")]}
    assert len(found) == 9
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

    with lock(state, first), pytest.raises(ClusterctlError) as caught, lock(state, second):
        pass

    assert caught.value.exit_code is ExitCode.LOCKED
    for part in (first.id, first.facts["user"], first.facts["host"], str(os.getpid())):
        assert part in caught.value.problem
    assert f"kill -INT {os.getpid()}" in caught.value.fix


DIES = """
import os, signal, sys
from pathlib import Path
from provision.runner import journal, journal_lock
state = Path(sys.argv[1])
run = journal.begin(state, sys.argv[2], hosts=["node1", "node2"], room=sys.argv[3])
with journal_lock.lock(state, run):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def die(state: Path, command: str = "provision", room: str = journal.RUNS) -> None:
    """Begin a run under the lock in a process of its own, and kill it."""
    subprocess.run([sys.executable, "-c", DIES, str(state), command, room], check=False)


def test_a_lock_is_free_again_after_its_holder_was_killed(state: Path) -> None:
    die(state)

    with lock(state, journal.begin(state, "provision")):
        pass

    assert [run.ended for run in journal.unfinished(state)] == [False]


def test_one_that_has_died_is_never_named_as_the_holder(state: Path) -> None:
    die(state)
    [dead] = journal.runs(state)
    now, second = journal.begin(state, "verify"), journal.begin(state, "provision")

    with lock(state, now, "shared"):
        now.facts.pop("lock")
        now.note()  # the moment between taking the lock and saying so
        with pytest.raises(ClusterctlError) as caught, lock(state, second):
            pass

    assert dead.id not in caught.value.problem
    assert "just beginning" in caught.value.problem


def test_runs_that_judge_share_the_lock_and_each_is_named_to_one_that_changes(state: Path) -> None:
    first, second = journal.begin(state, "verify"), journal.begin(state, "verify")

    with lock(state, first, "shared"), lock(state, second, "shared"):
        with pytest.raises(ClusterctlError) as caught, lock(state, journal.begin(state, "provision")):
            pass

        assert caught.value.exit_code is ExitCode.LOCKED
        assert first.id in caught.value.problem
        assert second.id in caught.value.problem
    with lock(state, journal.begin(state, "provision")):
        pass


def test_a_run_that_is_going_on_or_has_ended_is_not_unfinished(state: Path) -> None:
    going = journal.begin(state, "provision")
    journal.begin(state, "verify").finish("done")

    assert journal.unfinished(state) == []
    assert [run.id for run in journal.runs(state) if run.alive] == [going.id]


def test_a_run_is_alive_by_its_lock_whatever_host_and_process_its_record_names(state: Path) -> None:
    run = journal.begin(state, "provision")
    run.note(host="a-clone-of-the-same-name", pid=1)
    die(state)

    assert [found.id for found in journal.runs(state) if found.alive] == [run.id]
    assert run.id not in [found.id for found in journal.unfinished(state)]
    assert len(journal.unfinished(state)) == 1


def test_a_run_of_another_computer_is_not_ours_to_end(state: Path) -> None:
    die(state)
    [dead] = journal.runs(state)
    dead.note(computer="another", boot="another")

    assert journal.unfinished(state) == []


def test_a_run_is_alive_from_the_moment_that_it_can_be_seen(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    rename = Path.rename
    monkeypatch.setattr(Path, "rename", lambda old, new: (seen.append(journal.runs(state)), rename(old, new))[1])

    journal.begin(state, "provision")

    assert seen == [[]]
    assert [run.alive for run in journal.runs(state)] == [True]


def test_what_could_not_be_asked_when_a_run_ended_stays_on_record(state: Path) -> None:
    run = journal.begin(state, "provision", hosts=["node1", "node2"])
    run.finish("interrupted", to_sweep=["node2"])

    [left] = journal.unfinished(state)
    assert left.to_sweep == ["node2"]
    left.note(to_sweep=[])
    assert journal.unfinished(state) == []


def test_a_torn_last_line_is_left_out_and_all_before_it_is_read(state: Path) -> None:
    run = journal.begin(state, "provision")
    run.record({"event": "result", "task": "ä"})
    run.finish("done")
    with (run.directory / "journal.jsonl").open("a", encoding="utf-8") as handle:
        handle.write('{"event": "resu')

    assert [entry["event"] for entry in journal.entries(run.directory)] == ["result", "end"]


def test_thirty_runs_of_a_command_are_kept_and_nothing_else_is_removed(state: Path) -> None:
    (state / "runs" / "notes").mkdir()
    old = [journal.begin(state, "provision") for _ in range(35)]
    for run in old[:-1]:
        run.finish("done")
    first = journal.begin(state, "verify")
    first.write_report({"verdict": "pass"})
    first.finish("done")
    for _ in range(35):
        limited = journal.begin(state, "verify", options={"limit": "node1"})
        limited.finish("done")

    journal.begin(state, "provision")

    left = {path.name for path in (state / "runs").iterdir()}
    commands = [run.facts["command"] for run in journal.runs(state)]
    assert "notes" in left
    assert first.id in left, "the last verdict on the whole cluster went"
    assert old[-1].id in left, "a run that goes on went"
    assert commands.count("provision") == journal.KEPT_RUNS + 2
    assert commands.count("verify") in (journal.KEPT_RUNS, journal.KEPT_RUNS + 1)


def test_runs_of_long_ago_are_removed_but_not_the_last_verdict(state: Path) -> None:
    verdict, change = journal.begin(state, "verify"), journal.begin(state, "provision")
    verdict.write_report({"verdict": "pass"})
    for run in (verdict, change):
        run.finish("done")
        run.note(ended="2001-01-01T00:00:00+00:00")

    journal.begin(state, "provision")

    assert {run.facts["command"]: run.ended for run in journal.runs(state)} == {"verify": True, "provision": False}


def test_any_number_of_looks_pushes_no_run_out_and_no_look_that_goes_on(state: Path) -> None:
    run = journal.begin(state, "provision")
    going = journal.begin(state, "plan", room=journal.LOOKS)
    for _ in range(40):
        journal.begin(state, "status", room=journal.LOOKS).finish("done")

    assert run.alive
    assert run.directory.is_dir()
    looks = journal.runs(state, journal.LOOKS)
    assert going.id in [look.id for look in looks]
    assert len(looks) <= journal.KEPT_LOOKS + 2


def test_git_sees_nothing_of_the_record(state: Path) -> None:
    assert (state / ".gitignore").read_text() == "*\n"


def test_the_record_says_who_and_when_and_with_what(state: Path) -> None:
    run = journal.begin(state, "provision", options={"limit": "node2"})
    run.finish("done", exit_code=0)

    facts = json.loads((run.directory / "run.json").read_text())
    assert facts["schema"] == "clusterctl/run/1"
    assert facts["options"] == {"limit": "node2"}
    assert facts["versions"]["ansible-core"]
    assert {"user", "host", "pid", "started", "ended", "outcome", "exit_code"} <= facts.keys()
