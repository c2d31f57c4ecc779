"""The action that judges, run by the real ansible-playbook."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from provision import content


def play(tmp_path: Path, tasks: list[dict[str, Any]], **variables: Any) -> tuple[int, str]:
    book = tmp_path / "play.yml"
    book.write_text(yaml.safe_dump([{"hosts": "localhost", "gather_facts": False, "vars": variables, "tasks": tasks}]))
    done = subprocess.run(
        [
            str(Path(sys.executable).parent / "ansible-playbook"),
            "-i",
            "localhost,",
            "-c",
            "local",
            "-e",
            f"ansible_python_interpreter={sys.executable}",
            str(book),
        ],
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "ANSIBLE_CONFIG": str(content.ROOT / "ansible.cfg"),
            "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.default",
            "ANSIBLE_CALLBACK_RESULT_FORMAT": "json",
            "LC_ALL": "C.UTF-8",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def one(**arguments: Any) -> list[dict[str, Any]]:
    return [
        {"name": "Judge", "cluster_check": {"id": "munge.mode", **arguments}, "register": "judged"},
        {
            "name": "Show",
            "ansible.builtin.copy": {
                "content": "{{ judged.cluster_checks | to_json }}",
                "dest": "{{ out }}",
                "mode": "0600",
            },
        },
    ]


def test_equal_is_a_pass_and_carries_no_cause(tmp_path: Path) -> None:
    out = tmp_path / "out.json"

    code, text = play(tmp_path, one(observed="0400", expected="0400", cause="wrong", fix="repair"), out=str(out))

    assert code == 0, text
    (check,) = json.loads(out.read_text())
    assert (check["verdict"], check["host"], check["cause"]) == ("pass", "localhost", "")


def test_different_ends_the_run_and_says_both_values_and_the_fix(tmp_path: Path) -> None:
    code, text = play(tmp_path, one(observed="0644", expected="0400", fix="run provision munge"), out="/nonexistent")

    assert code == 2
    assert "munge.mode: fail: observed 0644, expected 0400" in text
    assert "Fix: run provision munge" in text


def test_what_was_not_observed_is_unknown_and_not_a_pass(tmp_path: Path) -> None:
    code, text = play(tmp_path, one(observed="{{ absent | default(omit) }}", expected="x"), out="/nonexistent")

    assert code == 2
    assert "munge.mode: unknown" in text


def test_a_warning_does_not_end_the_run(tmp_path: Path) -> None:
    code, text = play(tmp_path, one(observed="a", expected="b", severity="warn"), out=str(tmp_path / "o"))

    assert code == 0, text


def test_collecting_records_every_failure_and_goes_on(tmp_path: Path) -> None:
    tasks = [
        {"name": "First", "cluster_check": {"id": "a.one", "observed": "1", "expected": "2"}},
        {"name": "Second", "cluster_check": {"results": [{"id": "a.two", "verdict": "unknown"}]}},
        {"name": "Third", "cluster_check": {"id": "a.three", "observed": "3", "expected": "3"}},
        {"name": "Conclude", "cluster_check": {"conclude": True}},
    ]

    code, text = play(tmp_path, tasks, cluster_check_collect=True)

    assert code == 2, text
    assert "TASK [Third]" in text
    assert "a.one: fail: observed 1, expected 2\\na.two: unknown" in text


def test_a_conclusion_over_passes_is_a_success(tmp_path: Path) -> None:
    tasks = [
        {"name": "First", "cluster_check": {"id": "a.one", "observed": "1", "expected": "1"}},
        {"name": "Conclude", "cluster_check": {"conclude": True}},
    ]

    code, text = play(tmp_path, tasks, cluster_check_collect=True)

    assert code == 0, text


def test_a_misspelt_argument_is_refused(tmp_path: Path) -> None:
    code, text = play(tmp_path, one(observd="1", expected="1"), out="/nonexistent")

    assert code == 2
    assert "does not know observd" in text
