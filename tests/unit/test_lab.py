"""Labs without machines: names, places, refusals, and the parts of the role that are programs."""

from __future__ import annotations

import importlib.util
import os
import stat
import subprocess
import sys
from collections.abc import Mapping
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from provision import content
from provision.ansible_env import clean_environment
from provision.errors import ClusterctlError, ExitCode
from provision.lab import computer, given, labs

ROLE = content.ROOT / "roles" / "lab_machines"


def loaded(path: Path) -> ModuleType:
    """Import a program that has no .py in its name, or is not on the path."""
    loader = SourceFileLoader(path.name.replace("-", "_").removesuffix(".py"), str(path))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def fake_docker(directory: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a docker that runs ``script`` first on the path."""
    program = directory / "docker"
    program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")


def test_what_lies_in_the_current_directory_is_not_run_as_root(tmp_path: Path) -> None:
    commands = [
        [str(word) for word in argv]
        for path in (content.ROOT / "roles").glob("*/tasks/*.yml")
        for task in yaml.safe_load(path.read_text(encoding="utf-8"))
        if isinstance(task.get("ansible.builtin.command"), dict)
        and isinstance(argv := task["ansible.builtin.command"].get("argv"), list)
        and "-m" in argv
    ]
    planted = tmp_path / "provision/lab/computer.py"
    planted.parent.mkdir(parents=True)
    for package in (planted, planted.parent / "__init__.py", planted.parents[1] / "__init__.py"):
        package.write_text(f"open({str(tmp_path / 'owned')!r}, 'w')\n")
    words = [[sys.executable, *command[1:]] for command in commands if "provision.lab.computer" in command]

    assert len(words) == 1
    subprocess.run(words[0], cwd=tmp_path, capture_output=True, check=False)

    assert not (tmp_path / "owned").exists()
    for command in commands:
        assert "-P" in command[: command.index("-m")], command


@pytest.mark.parametrize("name", ["", "Lab", "1lab", "a b", "a/b", "a_b", "../x", "x" * 21, "lab\n", "läb"])
def test_a_name_that_docker_or_slurm_would_refuse_is_refused(name: str) -> None:
    with pytest.raises(ClusterctlError) as refused:
        labs.directory(name)

    assert refused.value.exit_code is ExitCode.BAD_REQUEST
    assert "lower-case letters" in refused.value.fix


def test_a_labs_directory_follows_the_xdg_convention(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert labs.directory("a-1") == tmp_path / "clusterctl" / "labs" / "a-1"

    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.delenv("XDG_STATE_HOME")
    assert labs.directory("a-1") == Path("/home/somebody/.local/state/clusterctl/labs/a-1")


def test_who_is_not_root_is_told_so_before_anything_is_made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    with pytest.raises(ClusterctlError, match="root") as refused:
        labs.up("a")

    assert refused.value.exit_code is ExitCode.BAD_REQUEST
    assert list(tmp_path.iterdir()) == []


def test_an_engine_that_does_not_answer_is_named_with_how_to_start_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    fake_docker(tmp_path, "echo Cannot connect to the Docker daemon >&2; exit 1", monkeypatch)

    with pytest.raises(ClusterctlError, match="Cannot connect to the Docker daemon") as refused:
        labs.status("a")

    assert "make engine" in refused.value.fix
    assert not (tmp_path / "state").exists()


def test_a_computer_without_docker_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(ClusterctlError) as refused:
        labs.down("a")

    assert "docker.io" in refused.value.fix


def test_a_lab_of_a_site_stays_one_and_no_other_becomes_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    fake_docker(tmp_path, "exit 0", monkeypatch)
    played: dict[str, Any] = {}
    monkeypatch.setattr(labs, "_play", lambda _command, name, variables: played.update({name: variables}))
    for name, described in {"one": "site: true", "other": "kind: container"}.items():
        labs.directory(name).mkdir(parents=True)
        (labs.directory(name) / "lab.yml").write_text(f"{described}\n")

    labs.up("one")
    labs.up("new", site=True)
    labs.up("other")
    with pytest.raises(ClusterctlError, match="no site") as refused:
        labs.up("other", site=True)

    assert refused.value.fix == "clusterctl lab down other"
    assert {name: told["lab_machines_site"] for name, told in played.items()} == {
        "one": True,
        "new": True,
        "other": False,
    }
    with pytest.raises(ClusterctlError, match="containers"):
        labs.up("new", kind="vm", site=True)


def test_where_pip_gets_packages_is_handed_on_to_playbooks() -> None:
    settings = {"PIP_INDEX_URL": "https://packages.site.example/simple", "PIP_FIND_LINKS": "/srv/wheels"}

    assert settings.items() <= clean_environment(settings).items()


def inspected(name: str, state: str = "running", address: str = "10.0.0.1", fixed: str = "") -> dict[str, Any]:
    """Return the part of ``docker inspect`` that is read."""
    network = {"IPAddress": address, "IPAMConfig": {"IPv4Address": fixed} if fixed else None}
    return {
        "Name": f"/x-{name}",
        "Config": {"Labels": {"clusterctl.machine": name}},
        "State": {"Status": state},
        "NetworkSettings": {"Networks": {"clusterctl-x": network}},
    }


def test_the_depot_of_a_lab_is_none_of_its_machines() -> None:
    state = loaded(ROLE / "library" / "lab_state.py")

    assert [machine["name"] for machine in state.machines_of([inspected("depot"), inspected("head")])] == ["head"]


def test_machines_have_pips_configuration_of_this_computer_without_its_files() -> None:
    told = (
        ":env:.index-url='https://reader:secret@packages.site.example/simple'\n:env:.cert='/etc/ssl/all.crt'\n"
        "global.extra-index-url='file:///opt/simple\\nhttps://other.site.example/simple'\n"
        "global.find-links='/opt/wheels'\nglobal.index-url='https://elsewhere.example/simple'\n"
    )

    assert given.pip_conf(given.pip_settings(told), ["https://172.18.0.2/0/"]) == (
        "[global]\nextra-index-url = https://other.site.example/simple\nfind-links = https://172.18.0.2/0/\n"
        "index-url = https://reader:secret@packages.site.example/simple\n"
    )
    assert given.pip_conf(given.pip_settings("global.find-links='/opt/wheels'\nglobal.cert='/x'\n"), []) == ""


def test_the_certificate_of_a_depot_is_made_once_for_its_address_by_the_authority_of_all_labs(tmp_path: Path) -> None:
    def made(*words: str | Path) -> list[str]:
        program = ROLE / "files" / "make-certificate"
        told = subprocess.run([program, tmp_path / "lab", *words], check=True, capture_output=True, text=True)
        return [Path(path).name for path in told.stdout.split()]

    assert [made(), made(tmp_path / "a", "172.18.0.2")] == [["authority.crt"], ["server.crt"]]
    assert [made(tmp_path / "a", "172.18.0.2"), made(tmp_path / "a", "172.19.0.2")] == [[], ["server.crt"]]
    check = ["openssl", "verify", "-x509_strict", "-CAfile", tmp_path / "lab/authority.crt", "-verify_ip"]
    subprocess.run([*check, "172.19.0.2", tmp_path / "a/server.crt"], check=True, capture_output=True)


def test_machines_are_listed_with_the_controller_first_and_numbers_in_order() -> None:
    state = loaded(ROLE / "library" / "lab_state.py")

    found = state.in_order(state.machines_of([inspected(name) for name in ("node10", "node2", "head", "node1")]))

    assert [machine["name"] for machine in found] == ["head", "node1", "node2", "node10"]


def test_a_machine_that_is_switched_off_still_has_its_address() -> None:
    machines_of = loaded(ROLE / "library" / "lab_state.py").machines_of

    (machine,) = machines_of([inspected("node1", state="exited", address="", fixed="10.0.0.11")])

    assert machine == {
        "name": "node1",
        "address": "10.0.0.11",
        "state": "exited",
        "kind": "container",
        "container": "x-node1",
    }


@pytest.fixture
def nvidia_smi(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The stand-in, on a machine with two GPUs."""
    module = loaded(ROLE / "files" / "nvidia-smi")
    devices = ["/dev/nvidia1", "/dev/nvidia0", "/dev/nvidiactl"]
    monkeypatch.setattr(module.glob, "glob", lambda _pattern: devices)
    return module


def test_the_stand_in_answers_a_query_as_nvidia_smi_does(
    nvidia_smi: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    status = nvidia_smi.main(["--query-gpu=index,name,memory.total,serial", "--format=csv,noheader,nounits"])

    assert status == 0
    assert capsys.readouterr().out.splitlines() == ["0, SIM, 1024, [N/A]", "1, SIM, 1024, [N/A]"]


@pytest.mark.parametrize("words", [[], ["-L"], ["--help"], ["--query-gpu=name", "--format=csv"], ["--unknown"]])
def test_the_stand_in_always_says_that_it_is_one(
    nvidia_smi: ModuleType, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    nvidia_smi.main(words)

    assert "SIMULATED" in capsys.readouterr().err


def make_keys(directory: Path, *machines: str) -> list[str]:
    """Run the script and return the names of the keys it made."""
    command = [str(ROLE / "files" / "make-keys"), str(directory), "a lab", *machines]
    made = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return [Path(path).name for path in made]


def test_keys_are_made_once_and_only_for_their_owner(tmp_path: Path) -> None:
    home = tmp_path / "lab"
    assert make_keys(home, "head") == ["id_ed25519", "ssh_host_ed25519_key.head"]
    before = (home / "id_ed25519").read_bytes()

    assert make_keys(home, "head", "node1") == ["ssh_host_ed25519_key.node1"]

    assert (home / "id_ed25519").read_bytes() == before
    assert [path for path in home.rglob("*") if stat.S_IMODE(path.stat().st_mode) & 0o077] == []


def test_machines_do_not_get_to_see_the_users_private_key(tmp_path: Path) -> None:
    make_keys(tmp_path, "head")
    private = (tmp_path / "id_ed25519").read_bytes()

    assert all(path.read_bytes() != private for path in (tmp_path / "given").iterdir())


def test_a_pair_of_keys_that_a_killed_run_left_half_made_is_made_again(tmp_path: Path) -> None:
    (tmp_path / "id_ed25519.new").write_text("half", encoding="utf-8")
    (tmp_path / "id_ed25519.pub").write_text("the public half of a key that is not there", encoding="utf-8")

    assert make_keys(tmp_path) == ["id_ed25519"]
    derived = subprocess.run(
        ["ssh-keygen", "-y", "-f", str(tmp_path / "id_ed25519")], check=True, capture_output=True, text=True
    ).stdout
    assert (tmp_path / "id_ed25519.pub").read_text(encoding="utf-8").startswith(" ".join(derived.split()[:2]))


def wait_started(directory: Path, states: Mapping[str, str], seconds: int = 0) -> subprocess.CompletedProcess[str]:
    """Run the script against machines whose systemd answers with these words."""
    answers = "\n".join(f"{name}) echo {state} ;;" for name, state in states.items())
    script = (
        f'case "$4" in\nis-system-running) case "$2" in\n{answers}\nesac ;;\n--failed) echo broken.service ;;\nesac'
    )
    program = directory / "docker"
    program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    program.chmod(0o755)
    return subprocess.run(
        [str(ROLE / "files" / "wait-started"), str(seconds), *states],
        env={"PATH": f"{directory}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_machines_that_run_are_not_waited_for(tmp_path: Path) -> None:
    assert wait_started(tmp_path, {"a-head": "running", "a-node1": "running"}).returncode == 0


@pytest.mark.parametrize("state", ["degraded", "starting", "initializing", "offline", "Failed to connect to bus"])
def test_a_machine_that_does_not_come_up_is_named_with_what_failed(tmp_path: Path, state: str) -> None:
    done = wait_started(tmp_path, {"a-head": "running", "a-node1": state})

    assert done.returncode == 1
    assert "broken.service" in done.stderr
    assert done.stderr.splitlines()[-1] == f"systemd in a-node1 says after its start: {state}"


def test_a_program_in_the_current_directory_does_not_take_the_place_of_ours(tmp_path: Path) -> None:
    planted = tmp_path / "provision/lab/computer.py"
    planted.parent.mkdir(parents=True)
    planted.write_text("print('planted')\n")
    tasks = yaml.safe_load((content.ROOT / "roles/lab_machines/tasks/prepare.yml").read_text())
    commands = [task["ansible.builtin.command"] for task in tasks if "ansible.builtin.command" in task]
    [argv] = [one["argv"] for one in commands if isinstance(one, dict) and "provision.lab.computer" in one["argv"]]
    words = [sys.executable, *(word for word in argv[1:] if "{{" not in word), "lab", str(tmp_path), "1", "1"]

    ours = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert "planted" not in ours.stdout
    assert ours.returncode in (0, computer.UNFIT), ours.stderr
