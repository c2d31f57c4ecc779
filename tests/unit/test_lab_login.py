"""Logging in to a machine of a lab: its key, its recorded host keys, and nothing of this computer's own settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from provision.errors import ClusterctlError
from provision.lab import labs


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    home = labs.directory("lab")
    home.mkdir(parents=True)
    inventory = "[slurm_controller]\nhead ansible_host=10.0.0.1\n[slurm_compute]\nnode1 ansible_host=10.0.0.2\n"
    (home / "inventory.ini").write_text(f"{inventory}[all:vars]\ncluster_name=lab\n")
    return home


def test_a_user_enters_a_machine_with_the_labs_key_and_host_keys(home: Path) -> None:
    words = labs.login("lab", "ada@head", ["srun", "--gres=gpu:1", "hostname"])

    assert words[:5] == ["ssh", "-F", "none", "-i", f"{home}/id_ed25519"]
    assert {"StrictHostKeyChecking=yes", f"UserKnownHostsFile={home}/known_hosts"} <= set(words)
    assert words[-4:] == ["ada@10.0.0.1", "srun", "--gres=gpu:1", "hostname"]


def test_a_port_that_the_inventory_names_is_taken(home: Path) -> None:
    assert "22" in labs.login("lab", "head", [])
    inventory = home / "inventory.ini"
    inventory.write_text(f"{inventory.read_text()}ansible_port=2222\n")

    assert labs.login("lab", "head", [])[-3:] == ["-p", "2222", "admin@10.0.0.1"]


def test_without_a_user_it_is_the_one_with_sudo(home: Path) -> None:
    assert labs.login("lab", "node1", [])[-1] == "admin@10.0.0.2"


@pytest.mark.parametrize(("name", "target", "words"), [("other", "head", "no lab"), ("lab", "ada@node9", "no machine")])
def test_what_is_not_there_is_named(home: Path, name: str, target: str, words: str) -> None:
    with pytest.raises(ClusterctlError, match=words) as refused:
        labs.login(name, target, [])

    assert refused.value.fix
