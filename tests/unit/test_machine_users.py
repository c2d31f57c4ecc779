"""What a machine is asked about users and groups, and what it answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from machines import users as machine_users

from provision.model.facts import facts_from

FILES = {
    "passwd": "root:x:0:0:root:/root:/bin/bash\nada:x:2001:3001:Ada:/home/ada:/bin/bash\n+::::::\nhalf:x:7\n",
    "group": "physics:x:3001:\nvideo:x:44:ada,ben\nbiology:x:3002:ada\n",
    "shadow": "root:$y$x:19000:0:99999:7:::\nada:!:19000:0:99999:7:::\n",
    "subuid": "# by hand\nada:67698688:65536\nben:abc:65536\n",
    "subgid": "",
}
GETENT = {
    "passwd": "ada:x:2001:3001:Ada:/home/ada:/bin/bash\nldap:*:2002:3001::/home/ldap:/bin/sh\n",
    "group": "physics:x:3001:\nvideo:x:44:ada,ben\n",
}
ASK = {"users": ["ada", "ben"], "uids": [2001, 2002], "groups": ["physics", "video"], "gids": [3001]}


def machine(root: Path, silent: str = "", homes: str = "2001:directory:/home/ada\n", **files: str) -> Any:
    """Return the answer of a made-up machine, read as input; the program ``silent`` does not answer."""
    (root / "etc").mkdir(exist_ok=True)
    for name, text in (FILES | files).items():
        (root / "etc" / name).write_text(text)

    def run(argv: list[str], _seconds: float, **_: Any) -> tuple[int | None, str]:
        if argv[0] == silent or (argv[0] == "getent" and argv[1] == silent):
            return None, "did not answer in 10 s"
        return (2, GETENT[argv[1]]) if argv[0] == "getent" else (1, homes)

    ask = {**ASK, "homes": ["/home/ada", "/home/ben"]}
    return facts_from({"people": machine_users.collect(str(root), ask, run=run)})["people"]


def test_its_own_files_and_its_name_services_are_told_apart(tmp_path: Path) -> None:
    found = machine(tmp_path)

    assert found["users"] == {
        "ada": {
            "uid": 2001, "gid": 3001, "comment": "Ada", "home": "/home/ada", "shell": "/bin/bash",
            "groups": ["biology", "video"], "locked": True,
        },
    }  # fmt: skip
    assert found["known_users"] == [
        {"name": "ada", "number": 2001, "own": True},
        {"name": "ldap", "number": 2002, "own": False},
    ]
    assert [entry["number"] for entry in found["known_groups"]] == [3001, 44]
    assert (found["ordinary_users"], found["ordinary_groups"]) == ({"ada": 2001}, {"physics": 3001, "biology": 3002})
    assert found["homes"] == {"/home/ada": {"uid": 2001, "kind": "directory"}}
    assert found["subuid"] == [
        {"owner": "ada", "first": 67698688, "count": 65536},
        {"owner": "ben", "first": -1, "count": 65536},
    ]


def test_a_home_at_which_root_may_not_look_is_told_apart_from_one_that_is_missing(tmp_path: Path) -> None:
    said = (
        "stat: cannot statx '/home/ben': No such file or directory\nstat: cannot statx '/home/ada': Permission denied\n"
    )

    assert machine(tmp_path, homes=said)["homes"] == {"/home/ada": {"uid": -1, "kind": "closed"}}


@pytest.mark.parametrize(("field", "locked"), [("!", True), ("*", True), ("!$y$x", True), ("", False), ("$y$x", False)])
def test_a_password_that_fits_nothing_is_locked(tmp_path: Path, field: str, locked: bool) -> None:
    found = machine(tmp_path, shadow=f"ada:{field}:19000:0:99999:7:::\n")

    assert found["users"]["ada"]["locked"] is locked


@pytest.mark.parametrize(("silent", "what"), [("passwd", "known_users"), ("group", "known_groups"), ("stat", "homes")])
def test_silence_is_no_answer(tmp_path: Path, silent: str, what: str) -> None:
    found = machine(tmp_path, silent)

    assert found[what] is None
    assert all(found[other] is not None for other in {"known_users", "known_groups", "homes"} - {what})
