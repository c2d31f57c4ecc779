"""Which packages are not as wanted: not there, at another version, or free to be upgraded."""

from __future__ import annotations

import subprocess

from machines import plugin

held = plugin("plugins/action/packages_held.py")

ANSWER = "hold 1.20.0-1 nvidia-container-toolkit\n- 1.20.0-1 libnvidia-container1:amd64\n"


def test_the_database_is_read_with_and_without_an_architecture() -> None:
    assert held.standing(ANSWER) == {
        "nvidia-container-toolkit": ("1.20.0-1", True),
        "libnvidia-container1": ("1.20.0-1", False),
    }


def test_a_package_of_another_version_is_missing() -> None:
    there = held.standing(ANSWER)

    assert held.missing(list(there), "1.20.0-1", there) == []
    assert held.missing(list(there), "", there) == []
    assert held.missing(["nvidia-container-toolkit", "absent"], "1.19.0-1", there) == [
        "nvidia-container-toolkit",
        "absent",
    ]


def test_the_question_works_on_a_real_package_database() -> None:
    question = held._FAMILIES["Debian"]["ask"] % "dpkg no-such-package"

    answer = subprocess.run(["sh", "-c", question], capture_output=True, text=True, check=True).stdout

    (name,) = held.standing(answer)
    assert name == "dpkg"
