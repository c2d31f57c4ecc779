"""Commands on a machine: whoever asked goes on in time, and leaves nothing behind that can be ended."""

from __future__ import annotations

import getpass
import os
import pwd
import signal
import stat
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from machines import commands, run_module
from waiting import PATIENCE, until

from provision import content
from provision.model.facts import answered


def script(folder: Path, text: str) -> list[str]:
    path = folder / "program"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return [str(path)]


def test_a_program_that_does_not_end_is_ended_and_so_are_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, why = commands.run(script(tmp_path, f"sleep 600 & echo $! >{tmp_path}/pid; exec sleep 600"), 3)

    assert (code, why) == (None, "did not answer in 3 s")
    child = Path("/proc", (tmp_path / "pid").read_text().strip(), "stat")

    def ended() -> bool:
        try:
            # Whoever collects the dead may not have come by yet.
            return child.read_text().rsplit(")", 1)[1].split()[0] == "Z"
        except OSError:
            return True

    until(ended, "the child's end")


def test_a_program_that_prints_for_ever_is_ended(tmp_path: Path) -> None:
    assert commands.run(script(tmp_path, "exec yes"), 600) == (None, f"printed more than {commands.BYTES} bytes")


def test_a_program_whose_output_has_ended_is_not_waited_for_beyond_its_time(tmp_path: Path) -> None:
    assert commands.run(script(tmp_path, "exec >&- 2>&-; sleep 600"), 1) == (None, "did not answer in 1 s")


def test_a_program_that_cannot_be_killed_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[int] = []
    monkeypatch.setattr(os, "killpg", lambda group, _: left.append(group))

    try:
        assert commands.run(script(tmp_path, "exec sleep 600"), 1) == (None, "did not answer in 1 s")
    finally:
        os.kill(left[0], signal.SIGKILL)


def test_an_answer_is_the_output_and_the_code_in_a_language_that_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    program = script(tmp_path, 'read word; echo "$word $LC_ALL $MORE"; echo wrong >&2; exit 7')

    assert commands.run(program, 60, stdin="given\n", environment={"MORE": "x"}) == (7, "given C x\nwrong\n")
    assert commands.run(program, 60, stdin="given\n", errors=False) == (7, "given C \n")
    assert commands.printed(program) == " C \n"


def test_what_is_no_text_and_what_is_not_there_are_answers_too(tmp_path: Path) -> None:
    assert commands.run(script(tmp_path, r"printf '\377\n'"), 60) == (0, "\N{REPLACEMENT CHARACTER}\n")
    assert commands.run([str(tmp_path / "absent")], 60) == (None, "")
    assert commands.printed([str(tmp_path / "absent")]) is None


def test_a_program_runs_in_a_session_of_its_own_as_the_user_who_was_asked_for(tmp_path: Path) -> None:
    user = pwd.getpwnam("nobody" if os.geteuid() == 0 else getpass.getuser())
    identity: dict[str, Any] = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}

    code, text = commands.run(["sh", "-c", "id -u; ps -o sid= -p $$"], 60, **(identity if os.geteuid() == 0 else {}))

    uid, session = text.split()
    assert (code, int(uid)) == (0, user.pw_uid)
    assert int(session) != os.getsid(0)


def test_a_bounded_command_is_asked_to_end_with_all_that_it_started(tmp_path: Path) -> None:
    word = tmp_path / "word"
    program = script(tmp_path, f"trap 'echo asked >{word}; exit 0' TERM; sleep 600 & wait")

    done = subprocess.run(commands.bounded(program, 1), check=False, stdin=subprocess.DEVNULL, timeout=PATIENCE)

    assert done.returncode == 124
    assert word.read_text() == "asked\n"


#: Those that start processes in their own way, and why.
OWN_WAY = {
    "machine_commands.py": "it is the way",
    "rdma_tools.py": "a tool that serves another machine while this one goes on",
    "shared_key.py": "a key is no text",
    "telling.py": "what it prints is read while it works",
    "cluster_image.py": "images are built from streams, one program into another",
    "slurm_candidate.py": "slurmctld is ended as soon as it says that it runs",
}


def test_processes_are_started_in_one_way() -> None:
    files = [*(content.ROOT / "plugins").rglob("*.py"), *content.ROOT.glob("roles/*/library/*.py")]

    assert {file.name for file in files if "import subprocess" in file.read_text("utf-8")} == OWN_WAY.keys()


def test_the_module_that_asks_a_machine_says_what_a_program_printed_and_when_it_was_asked() -> None:
    asked = {"argv": ["sh", "-s"], "stdin": "echo hi; exit 3", "seconds": 20}

    found = run_module("plugins/modules/machine_facts.py", {"gather": [], "commands": {"mine": asked}})

    machine = answered(found, (), time.time(), time.time())
    assert machine["commands"] == {"mine": {"rc": 3, "text": "hi\n"}}
    assert found["changed"] is False
