"""What a process of Ansible sees of the caller's world."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from provision import content
from provision.ansible_env import clean_environment, ignored_settings


def test_settings_and_secrets_of_the_caller_stay_behind() -> None:
    caller = {
        "ANSIBLE_HOST_KEY_CHECKING": "False",
        "PYTHONPATH": "/x",
        "AWS_SECRET": "s",
        "HOME": "/root",
        "PATH": "/bin",
    }

    clean = clean_environment(caller)

    assert clean["HOME"] == "/root"
    assert not {"ANSIBLE_HOST_KEY_CHECKING", "PYTHONPATH", "AWS_SECRET"} & clean.keys()


def test_the_configuration_is_ours_and_the_locale_one_that_ansible_accepts() -> None:
    clean = clean_environment({"ANSIBLE_CONFIG": "/tmp/ansible.cfg", "LC_ALL": "C", "LANG": "de_DE.ISO-8859-1"})

    assert clean["ANSIBLE_CONFIG"] == str(content.ROOT / "ansible.cfg")
    assert clean["LC_ALL"] == "C.UTF-8"
    assert "LANG" not in clean


def test_ansible_is_found_beside_the_interpreter_even_without_a_path() -> None:
    first = clean_environment({})["PATH"].split(os.pathsep)[0]

    assert first == str(Path(sys.executable).parent)


def test_what_is_ignored_is_told(tmp_path: Path) -> None:
    (tmp_path / "ansible.cfg").write_text("[defaults]\nhost_key_checking = False\n")

    told = ignored_settings({"ANSIBLE_ROLES_PATH": "/x", "HOME": "/root"}, tmp_path)

    assert told == ["ANSIBLE_ROLES_PATH", str(tmp_path / "ansible.cfg")]


def test_our_own_configuration_is_nothing_to_warn_about() -> None:
    assert ignored_settings({}, content.ROOT) == []
