"""Reading inventories: Ansible's own loader, our settings, and one clear message for each thing that is wrong."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from provision import content
from provision.ansible_env import clean_environment
from provision.errors import ClusterctlError
from provision.inventory import loader
from provision.inventory.where import written

SMALL = """\
[slurm_controller]
head ansible_host=10.0.0.1

[slurm_compute]
node[1:3]

[slurm_compute:vars]
node_cpus=48
node_real_memory=192000

[all:vars]
cluster_name=lab
"""

#: As it is before the other tests' fixture replaces it.
DUMPED = loader._dumped


@pytest.fixture
def read_as_clusterctl_does(forked_loader: object) -> Iterator[None]:
    """Start Ansible; that forks say the same of what is read well, badly and in part is compared below."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loader, "_dumped", DUMPED)
        yield


as_clusterctl_does = pytest.mark.usefixtures("read_as_clusterctl_does")


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "inventory.ini"
    path.write_text(SMALL)
    return path


def refusal(path: Path) -> ClusterctlError:
    with pytest.raises(ClusterctlError) as refused:
        loader.load(path)
    assert refused.value.fix
    assert "Traceback" not in refused.value.problem
    assert len(refused.value.problem.splitlines()) == 1
    return refused.value


def as_somebody_else(ask: Callable[[], str]) -> str:
    """Return the answer of a process that is not root, because root may read everything."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            os.write(writing, ask().encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        told = answer.read()
    os.waitpid(child, 0)
    return told


@as_clusterctl_does
def test_ini_with_group_variables_beside_it_is_read_as_ansible_reads_it(small: Path) -> None:
    (small.parent / "group_vars").mkdir()
    (small.parent / "group_vars" / "all.yml").write_text("slurm_partitions: [{PartitionName: gpu}]\n")
    (small.parent / "host_vars").mkdir()
    (small.parent / "host_vars" / "node2.yml").write_text("node_cpus: 96\n")

    loaded = loader.load(small)

    assert loaded.groups["slurm_compute"] == ("node1", "node2", "node3")
    assert loaded.hostvars["node1"]["node_cpus"] == 48
    assert loaded.hostvars["node2"]["node_cpus"] == 96
    assert loaded.hostvars["head"]["slurm_partitions"] == [{"PartitionName": "gpu"}]


def test_yaml_and_directories_work_and_child_groups_count(tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").write_text(
        "slurm_controller: {hosts: {head: {}}}\n"
        "slurm_compute: {children: {a40: {hosts: {node1: {}}}, h100: {hosts: {node2: {}}}}}\n"
    )
    (tmp_path / "README.md").write_text("not an inventory\n")

    loaded = loader.load(tmp_path)

    assert set(loaded.groups["slurm_compute"]) == {"node1", "node2"}
    assert loaded.groups["h100"] == ("node2",)
    assert loaded.hostvars["node1"] == {}


@as_clusterctl_does
def test_templates_come_back_as_they_were_written_and_nothing_is_run(small: Path, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    with small.open("a") as file:
        file.write(f"mine={{{{ lookup('pipe', 'touch {canary}') }}}}\n")

    loaded = loader.load(small)

    assert "lookup" in loaded.hostvars["head"]["mine"]
    assert not canary.exists()


@pytest.mark.parametrize("poison", [b"nvidia\x07smi", b"\xff\xfe", b"\x00", b"\xc2\x81", b"\xef\xbf\xbf"])
def test_a_recorded_file_that_is_no_text_is_named_with_its_line(small: Path, poison: bytes) -> None:
    recorded = small.parent / "host_vars/node1.yml"
    recorded.parent.mkdir()
    recorded.write_bytes(b'---\nnode_cpus: 4\nnode_gres: "" # ' + poison + b"\n")

    assert f"{recorded}, line 3" in refusal(small).problem


def test_a_missing_inventory_is_named(tmp_path: Path) -> None:
    assert "missing.ini does not exist" in refusal(tmp_path / "missing.ini").problem


@pytest.mark.parametrize("text", ["", "\n\n", "# only this\n; and this\n", "---\n"])
def test_an_empty_inventory_says_what_belongs_in_it(tmp_path: Path, text: str) -> None:
    path = tmp_path / "inventory.ini"
    path.write_text(text)

    assert "is empty" in refusal(path).problem
    assert "[slurm_controller]" in refusal(path).fix


def test_a_directory_without_an_inventory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "group_vars").mkdir()

    assert "holds no inventory" in refusal(tmp_path).problem


@as_clusterctl_does
def test_an_unreadable_inventory_is_refused() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "inventory.ini"
        path.write_text(SMALL)
        path.chmod(0)
        path.parent.chmod(0o755)

        told = as_somebody_else(lambda: refusal(path).problem)

    assert told == f"inventory {path} cannot be read: Permission denied"


def test_an_executable_inventory_is_refused_and_never_run(tmp_path: Path) -> None:
    path, canary = tmp_path / "inventory.sh", tmp_path / "canary"
    path.write_text(f"#!/bin/sh\ntouch {canary}\necho '{{}}'\n")
    path.chmod(0o755)

    assert "is executable" in refusal(path).problem
    assert f"chmod a-x {path}" in refusal(path).fix
    assert not canary.exists()


def test_an_executable_inside_a_directory_is_refused_and_never_run(small: Path) -> None:
    canary = small.parent / "canary"
    script = small.parent / "more"
    script.write_text(f"#!/bin/sh\ntouch {canary}\n")
    script.chmod(0o755)

    assert "is executable" in refusal(small.parent).problem
    assert not canary.exists()


@pytest.mark.parametrize("kind", ["fifo", "device", "socket"])
def test_what_is_no_file_is_refused_without_waiting_for_it(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "inventory.ini"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "socket":
        socket.socket(socket.AF_UNIX).bind(str(path))
    else:
        path = Path("/dev/zero")

    assert "is no regular file" in refusal(path).problem


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (SMALL.encode("utf-16"), "UTF-16"),
        (b"caf\xe9\n", "not UTF-8"),
        (b"a\0b", "zero bytes"),
        (b"\xef\xbb\xbf[all]\na\n", "byte order mark"),
    ],
)
def test_an_encoding_that_is_not_utf8_is_named(tmp_path: Path, content: bytes, word: str) -> None:
    path = tmp_path / "inventory.ini"
    path.write_bytes(content)

    assert word in refusal(path).problem


def test_carriage_returns_are_harmless(tmp_path: Path) -> None:
    path = tmp_path / "inventory.ini"
    path.write_bytes(SMALL.replace("\n", "\r\n").encode())

    assert loader.load(path).groups["slurm_controller"] == ("head",)


def test_encrypted_variables_without_a_password_say_how_to_give_it(small: Path) -> None:
    (small.parent / "group_vars").mkdir()
    (small.parent / "group_vars" / "all.yml").write_text("$ANSIBLE_VAULT;1.1;AES256\n3333\n")

    assert "--vault-password-file" in refusal(small).fix


@as_clusterctl_does
def test_what_stands_in_the_current_directory_or_the_environment_has_no_effect(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile = tmp_path / "hostile"
    (hostile / "group_vars").mkdir(parents=True)
    (hostile / "group_vars" / "all.yml").write_text("cluster_name: hijacked\n")
    (hostile / "ansible.cfg").write_text("[defaults]\ninventory_enabled = script\n")
    monkeypatch.chdir(hostile)
    monkeypatch.setenv("ANSIBLE_INVENTORY_ENABLED", "script")
    monkeypatch.setenv("ANSIBLE_VARS_ENABLED", "")
    monkeypatch.setenv("LC_ALL", "C")

    assert loader.load(small).hostvars["head"]["cluster_name"] == "lab"


@pytest.mark.parametrize(
    ("limit", "hosts"),
    [
        (None, ("head", "node1", "node2", "node3")),
        ("node2", ("node2",)),
        ("node3,head", ("head", "node3")),
        ("slurm_compute", ("node1", "node2", "node3")),
        ("node[1-2]", ("node1", "node2")),
        ("slurm_compute:!node2", ("node1", "node3")),
        ("*1", ("node1",)),
    ],
)
def test_a_limit_may_be_a_name_a_group_a_hostlist_or_a_pattern(
    small: Path, limit: str | None, hosts: tuple[str, ...]
) -> None:
    assert loader.hosts_in(loader.load(small), limit) == hosts


@pytest.mark.parametrize(
    ("limit", "fix"), [("nod2", "did you mean node2"), ("zzz", "the hosts are node[1-3],head"), ("", "the hosts")]
)
def test_a_limit_that_matches_nothing_is_refused_with_the_nearest_name(small: Path, limit: str, fix: str) -> None:
    with pytest.raises(ClusterctlError, match="no host of the inventory matches") as refused:
        loader.hosts_in(loader.load(small), limit)

    assert fix in refused.value.fix


def test_the_default_is_the_environments_then_the_current_directorys_then_the_newest_labs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CLUSTERCTL_INVENTORY", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ClusterctlError, match="no inventory was named"):
        loader.default_path()

    labs = [tmp_path / "state" / "clusterctl" / "labs" / name / "inventory.ini" for name in ("old", "new")]
    for age, lab in zip((100, 0), labs, strict=True):
        lab.parent.mkdir(parents=True)
        lab.write_text(SMALL)
        os.utime(lab, (1_000_000 - age, 1_000_000 - age))
    assert loader.default_path() == labs[1]

    Path("inventory.ini").write_text(SMALL)
    assert loader.default_path() == Path("inventory.ini")

    monkeypatch.setenv("CLUSTERCTL_INVENTORY", "elsewhere.yml")
    assert loader.default_path() == Path("elsewhere.yml")


@as_clusterctl_does
def test_our_loader_and_ansibles_own_program_agree_on_every_variable(tmp_path: Path) -> None:
    (tmp_path / "inventory.ini").write_text(
        "[slurm_controller]\nhead\n[a]\nnode[1:2]\n[b]\nnode2 x=host\nnode3\n[slurm_compute:children]\na\nb\n"
        "[a:vars]\nx=a\ny=a\nz=a\n[b:vars]\nx=b\ny=b\nansible_group_priority=5\n[slurm_compute:vars]\nx=child\nw=child\n"
        "[all:vars]\nx=all\nv={'k': [1, 2.5, True, None]}\n"
    )
    for folder, name, text in (
        ("group_vars", "all.yml", "u: all\nw: all\n"),
        ("group_vars", "b.yml", "z: file\n"),
        ("group_vars/a", "one.yml", "t: [1, 012, yes]\n"),
        ("host_vars", "node1.yml", "x: file\n"),
        ("host_vars/node3", "more.yml", "y: {deep: file}\n"),
    ):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / name).write_text(text)

    theirs = subprocess.run(
        [str(Path(sys.executable).parent / "ansible-inventory"), "--list", "-i", str(tmp_path / "inventory.ini")],
        env=clean_environment(),
        cwd=content.ROOT / "playbooks",
        capture_output=True,
        text=True,
        check=True,
    )

    ours = loader.load(tmp_path / "inventory.ini")
    for host, expected in json.loads(theirs.stdout)["_meta"]["hostvars"].items():
        assert {"ansible_local": {}, **ours.hostvars[host]} == expected, host


@pytest.mark.parametrize("mark", ["#", "; "])
def test_the_line_that_is_named_is_none_of_a_comment(tmp_path: Path, mark: str) -> None:
    inventory = tmp_path / "inventory.ini"
    inventory.write_text(f"[all:vars]\n{mark}cluster_name=old\ncluster_name=new\n")

    assert written(inventory, "cluster_name") == f"{inventory}, line 3"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("slurm_controller:\n  hosts: {head: {}\n", ["line "]),
        ("a: !!python/object/apply:os.system ['touch canary']\n", ["python/object"]),
        ("a:\n  hosts:\n    head: {x: 1}\n    head: {x: 2}\n", ["duplicate", "'head'", "line 4"]),
    ],
    ids=["yaml", "python tag", "duplicate key"],
)
def test_what_cannot_be_parsed_is_told_with_its_place(tmp_path: Path, text: str, words: list[str]) -> None:
    (tmp_path / "hosts.yml").write_text(text)

    problem = refusal(tmp_path / "hosts.yml").problem

    assert [word for word in ["cannot be parsed", *words] if word not in problem] == []
