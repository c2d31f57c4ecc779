"""The module that keeps the cluster's names in a hosts file."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import plugin, run_module

hosts_file = plugin("plugins/module_utils/hosts_text.py")

ENTRIES = [
    {"address": "10.0.18.1", "names": ["head"]},
    {"address": "10.0.18.11", "names": ["node1.example.com", "node1"]},
]
BLOCK = f"{hosts_file.BEGIN}\n10.0.18.1\thead\n10.0.18.11\tnode1.example.com node1\n{hosts_file.END}\n"


def planned(before: str, *own: str, entries: list[dict[str, Any]] | None = None) -> str:
    return str(hosts_file.planned(before, ENTRIES if entries is None else entries, list(own)))


def test_debians_line_for_the_machines_own_name_goes_and_all_others_stay() -> None:
    before = "127.0.0.1 localhost\n127.0.1.1 node1.example.com node1\n\n# mine\n10.9.9.9 storage\n"

    assert planned(before, "node1") == "127.0.0.1 localhost\n\n# mine\n10.9.9.9 storage\n" + BLOCK


def test_other_names_on_such_a_line_stay() -> None:
    assert planned("127.0.0.1 localhost node1 db\n::1 node1 ip6-localhost\n", "node1") == (
        "127.0.0.1\tlocalhost db\n::1\tip6-localhost\n" + BLOCK
    )


def test_a_machine_that_the_block_does_not_name_keeps_its_line() -> None:
    before = "127.0.1.1 workstation\n"

    assert planned(before, "workstation") == before + BLOCK


def test_localhost_is_never_removed() -> None:
    entries = [*ENTRIES, {"address": "10.0.18.9", "names": ["localhost"]}]

    assert planned("127.0.0.1 localhost\n", "localhost", entries=entries).startswith("127.0.0.1 localhost\n")


def test_an_old_block_is_replaced_where_it_is() -> None:
    before = f"# before\n{hosts_file.BEGIN}\n10.0.0.9\tgone\n{hosts_file.END}\n# after\n"

    assert planned(before) == f"# before\n{BLOCK}# after\n"


def test_a_block_without_its_end_is_refused() -> None:
    with pytest.raises(ValueError, match="line 2 begins our block"):
        planned(f"127.0.0.1 localhost\n{hosts_file.BEGIN}\n10.0.0.9\tgone\n")


@given(st.lists(st.text(alphabet="ab1.: \t#", max_size=20), max_size=8))
def test_a_second_time_changes_nothing(lines: list[str]) -> None:
    once = planned("\n".join([*lines, "127.0.1.1 node1"]), "node1")

    assert planned(once, "node1") == once


def test_the_module_writes_that_text_once(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("127.0.1.1 node1\n")
    arguments = {"path": str(file), "entries": ENTRIES, "own_names": ["node1"]}

    first, second = (run_module("roles/base_system/library/hosts_file.py", arguments) for _ in range(2))

    assert (first["changed"], second["changed"]) == (True, False)
    assert first["diff"]["before"] == "127.0.1.1 node1\n"
    assert file.read_text() == BLOCK


def test_a_file_that_not_even_root_may_change_is_one_clear_line(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("127.0.0.1 localhost\n")
    file.chmod(0o444)  # enough for whoever is not root
    if os.geteuid() == 0 and subprocess.run(["chattr", "+i", str(file)], check=False).returncode:
        pytest.skip("files cannot be made immutable here")
    try:
        told = run_module("roles/base_system/library/hosts_file.py", {"path": str(file), "entries": ENTRIES})
    finally:
        subprocess.run(["chattr", "-i", str(file)], check=False)

    assert told["failed"]
    assert told["msg"].endswith(f"Fix: lsattr {file}; chattr -i {file}; then clusterctl provision base")
    assert file.read_text() == "127.0.0.1 localhost\n"
