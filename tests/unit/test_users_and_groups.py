"""What is done to make users and groups as declared: only what differs, and nobody gets another number."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import machines
import pytest

module = machines.plugin("roles/cluster_users/library/users_and_groups.py")

ADA = {
    "name": "ada", "uid": 2001, "group": "physics", "groups": ["biology", "video"], "comment": "Ada",
    "shell": "/bin/bash", "home": "/home/ada", "password_lock": True, "subordinate": 67698688,
}  # fmt: skip
THERE = {
    "uid": 2001, "gid": 3001, "groups": ["biology", "video"], "comment": "Ada", "shell": "/bin/bash",
    "home": "/home/ada", "locked": True,
}  # fmt: skip
GROUPS = {"physics": (3001, []), "biology": (3002, ["ada"]), "video": (44, ["ada"]), "gone": (9, []), "ben": (7, [])}
WANTED = {
    "users": [ADA],
    "groups": [{"name": "physics", "gid": 3001}, {"name": "biology", "gid": 3002}],
    "absent_users": ["ben"],
    "absent_groups": ["gone"],
}


def planned(users: dict[str, Any], known: dict[str, Any] | None = None, **changed: Any) -> list[str]:
    wanted = {**WANTED, "users": [{**ADA, **changed}]}
    steps = (step(wanted, users, known or GROUPS) for step in module.STEPS)
    return [" ".join(command) for commands in steps for command in commands]


def test_what_is_as_declared_is_left_alone() -> None:
    assert planned({"ada": THERE}, {name: GROUPS[name] for name in ("physics", "biology", "video")}) == []


def test_what_goes_makes_room_for_what_comes() -> None:
    assert planned({"ben": THERE}, {"gone": (3001, [])}) == [
        "userdel ben",
        "groupdel gone",
        "groupadd --gid 3001 physics",
        "groupadd --gid 3002 biology",
        "useradd --no-create-home --uid 2001 --gid physics --comment Ada --shell /bin/bash --home /home/ada"
        " --groups biology,video ada",
    ]


@pytest.mark.parametrize(
    ("changed", "options"),
    [
        ({"gid": 3002}, "--gid physics"),
        ({"shell": "/bin/sh"}, "--shell /bin/bash"),
        ({"home": "/srv"}, "--home /home/ada"),
        ({"comment": ""}, "--comment Ada"),
        ({"groups": ["biology", "sudo", "video"]}, "--groups biology,video"),
        ({"groups": ["biology", "physics", "video"]}, ""),
        ({"locked": False}, "--lock"),
        ({"shell": "/bin/sh", "groups": []}, "--shell /bin/bash --groups biology,video"),
        # It is refused before: her files would be somebody else's.
        ({"uid": 2099}, ""),
    ],
)
def test_only_what_differs_is_changed(changed: dict[str, Any], options: str) -> None:
    done = planned({"ada": {**THERE, **changed}}, {name: GROUPS[name] for name in ("physics", "biology", "video")})

    assert done == ([f"usermod {options} ada"] if options else [])


def test_a_password_that_may_be_there_is_left_alone() -> None:
    assert not any("usermod" in line for line in planned({"ada": {**THERE, "locked": False}}, password_lock=False))


def test_nobody_is_in_groups_that_are_not_declared() -> None:
    assert "usermod --groups  ada" in planned({"ada": THERE}, groups=[])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "ada:67698688:65536\n"),
        ("# by hand\nben:100000:65536\n", "# by hand\nben:100000:65536\nada:67698688:65536\n"),
        ("ada:100000:65536\nben:165536:65536\n", "ben:165536:65536\nada:67698688:65536\n"),
        ("ada:67698688:65536\nada:100000:65536\n2001:9:9\n", "ada:67698688:65536\n"),
        ("ada:67698688:65536\nada:67698688:65536\n", "ada:67698688:65536\n"),
        ("adam:1:1\nada:67698688:65536", "adam:1:1\nada:67698688:65536\n"),
    ],
)
def test_each_has_exactly_the_declared_subordinate_numbers(before: str, after: str) -> None:
    assert module.ranges(before, [ADA], 65536) == after
    assert module.ranges(after, [ADA], 65536) == after


def test_nobodys_numbers_are_touched_where_nobody_is_declared() -> None:
    assert module.ranges("ada:1:2\n", [], 65536) == "ada:1:2\n"


def test_a_home_is_its_users_alone_and_whole(tmp_path: Path) -> None:
    skeleton = machines.tree(tmp_path / "skel", {".bashrc": "alias ll='ls -l'\n"})

    module.make_home(str(tmp_path / "home" / "ada"), os.getuid(), os.getgid(), str(skeleton))

    assert [path.name for path in (tmp_path / "home").iterdir()] == ["ada"]
    assert (tmp_path / "home/ada").stat().st_mode & 0o7777 == 0o700
    assert (tmp_path / "home/ada/.bashrc").read_text() == "alias ll='ls -l'\n"


def test_a_home_that_another_machine_has_made_meanwhile_stays_as_it_is(tmp_path: Path) -> None:
    """Machines that share their homes make them side by side."""
    skeleton = machines.tree(tmp_path / "skel", {".bashrc": "new\n"})
    machines.tree(tmp_path / "home/ada", {".bashrc": "of another's\n"})

    module.make_home(str(tmp_path / "home" / "ada"), os.getuid(), os.getgid(), str(skeleton))

    assert [path.name for path in (tmp_path / "home").iterdir()] == ["ada"]
    assert (tmp_path / "home/ada/.bashrc").read_text() == "of another's\n"


def test_a_home_that_cannot_be_given_away_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a server that makes root somebody who may write there, and give nothing to anybody."""

    def refused(*_: Any, **__: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(module.os, "chown", refused)

    with pytest.raises(PermissionError):
        module.make_home(str(tmp_path / "home" / "ada"), 2001, 2001, str(tmp_path / "none"))

    assert list((tmp_path / "home").iterdir()) == []


def test_a_home_at_which_root_may_not_look_is_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    assert module.missing(str(tmp_path / "none"))
    assert not module.missing(str(tmp_path))
    monkeypatch.setattr(module.os, "lstat", refused)
    assert not module.missing(str(tmp_path / "none"))
