"""What a machine says of a path: what is there, and of its content only what was asked for."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from machines import plugin, system, tree

sys.modules["ansible.module_utils.machine_system"] = system
state = plugin("plugins/module_utils/machine_state.py")


def test_only_files_whose_content_counts_are_read(tmp_path: Path) -> None:
    tree(tmp_path, {"etc/key": "secret", "etc/a.conf": "a\n", "etc/b.conf": "b\n"})

    found = state.paths(tmp_path, ["/etc/key", "/etc/a.conf", "/etc/b.conf"], ["/etc/b.conf"], ["/etc/a.conf"])

    assert (found["/etc/key"]["kind"], found["/etc/key"].keys() & {"sha256", "text"}) == ("file", set())
    assert found["/etc/a.conf"]["sha256"] == hashlib.sha256(b"a\n").hexdigest()
    assert "text" not in found["/etc/a.conf"]
    assert found["/etc/b.conf"]["text"] == "b\n"


def test_what_is_no_file_is_named_and_what_is_not_there_is_absent(tmp_path: Path) -> None:
    tree(tmp_path, {"etc/a.conf": "a\n"})
    (tmp_path / "etc/link").symlink_to("a.conf")
    (tmp_path / "etc/a.conf").chmod(0o640)

    found = state.paths(tmp_path, ["/etc", "/etc/link", "/etc/a.conf", "/nowhere"], (), ["/etc/link", "/etc"])

    assert [entry["kind"] for entry in found.values()] == ["directory", "link", "file", "absent"]
    assert (found["/etc/link"]["target"], found["/etc/a.conf"]["mode"]) == ("a.conf", "0640")
