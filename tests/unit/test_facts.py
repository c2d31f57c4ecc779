"""The door through which machines' answers come in."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import driver_machines
import pytest
import rdma_machines
from hypothesis import given
from hypothesis import strategies as st
from machines import gpu, hardware, processors, system, tree
from pydantic import BaseModel, ValidationError

from provision.judge import base_system, managed, munge, preflight
from provision.judge import hardware as hardware_judge
from provision.model.checks import Subject
from provision.model.facts import HardwareFacts, MachineFacts, RdmaFacts, facts_from
from provision.model.gpu_facts import read_as
from provision.model.managed import Managed, Place, Service

READY: dict[str, Any] = {
    "python": "3.11.2",
    "os": {"id": "debian", "version": "12", "name": "Debian GNU/Linux 12 (bookworm)"},
    "systemd": True,
    "container": "",
    "uid": 0,
    "hostname": "node1",
    "addresses": {"node1": ["10.0.18.11"], "head": ["10.0.18.1", "fe80::1%eth0"]},
    "clock_synchronised": True,
    "clock_offset": {"low": -0.4, "high": 0.3},
    "disks": {"/": {"free": 9000, "device": 1, "used": True}},
    "lock": {"holder": {"pid": 7, "command": "apt-get update"}, "waited": 0},
    "packages_interrupted": [],
    "slurm_daemons": [],
    "time_daemons": ["chronyd"],
    "memlock": {"login_highest": "8192", "service_highest": "unlimited", "login": "unlimited"},
    "hardware": {
        "cpus": 48, "sockets": 2, "cores_per_socket": 24, "threads_per_core": 1, "real_memory": 193000,
        "cgroup_version": 2, "gres": "gpu:a40:1", "gpu_count": 1, "gpu_source": "nvidia-smi",
        "gpu_addresses": ["0000:3b:00.0"], "gpus_on_bus": 1,
        "bus_gpus": [{"address": "0000:3b:00.0", "id": "10de:2235", "product": "NVIDIA A40"}], "bus_gres": "gpu:a40:1",
    },
    "hosts": {"current": True},
    "kernel_settings": {"user.max_user_namespaces": "63000"},
    "firewall": {
        "problem": "", "filtered": True,
        "stopped": [{"program": "ufw", "family": "ip", "table": "filter", "chain": "INPUT", "port": "6818",
                     "protocol": "tcp", "purpose": "slurmd", "source": "10.0.18.1"}],
    },
    "proxy": {"status": 407, "problem": ""},
    "munge": {"salt": "00", "fingerprint": "ab", "mode": "0400", "owner": "munge:munge"},
    "state": {
        "paths": {
            "/a": {"kind": "file", "mode": "0644", "owner": "root", "group": "root", "uid": 0, "gid": 0, "age": 3.5,
                   "sha256": "0" * 64},
            "/b": {"error": "Permission denied"},
        },
        "packages": {"munge": {"version": "0.5.15-2", "held": False}},
        "services": {"munge": {"load": "loaded", "active": "active", "sub": "running", "enabled": "enabled",
                               "reload": False, "age": 7.0, "loaded_age": 9.0}},
        "manager": {"DefaultLimitMEMLOCK": "infinity"},
    },
}  # fmt: skip
WANTS: dict[str, Any] = {
    "cgroup_v1_allowed": False,
    "cluster": {"name": "lab", "controller": "head", "saved": ""},
    "own_directories": True,
    "name": "node1",
    "hosts": [{"address": "10.0.18.1", "names": ["head"]}],
    "disk_space": [{"path": "/", "megabytes": 1000, "purpose": "logs"}],
    "clock_warn_seconds": 5,
    "clock_fail_seconds": 30,
    "memlock": "unlimited",
    "service_memlock": "unlimited",
    "time_service": "chrony",
    "firewall": {"handling": "check", "machines": ["10.0.18.1"]},
    "proxy": {"host": "proxy.site", "port": 3128, "tls": False, "password": False},
}
MANAGED = Managed(
    packages=("munge",), files=(Place("/a", text="x", mode="0644"), Place("/b")), services=(Service("munge", ("/a",)),)
)
DECLARED = {"node_cpus": 48, "node_gres": "gpu:a40:1", "node_real_memory": 190000}


def plain(facts: object) -> Any:
    """As it comes over the wire."""
    return json.loads(json.dumps(facts))


def unnamed(answer: Any, kind: Any) -> set[str]:
    """Return the keys that a typed part does not name."""
    return set(answer) - set(kind.__annotations__)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    if isinstance(value, dict):
        for key, item in value.items():
            found += places(item, (*path, key))
    if isinstance(value, list):
        for index, item in enumerate(value):
            found += places(item, (*path, index))
    return found


def changed(answer: dict[str, Any], path: tuple[Any, ...], value: object) -> dict[str, Any]:
    answer = copy.deepcopy(answer)
    at: Any = answer
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    return answer


class Lazy(dict[str, Any]):
    """A container as Ansible hands it over: its parts are made when Python asks for them, and are not in it before."""

    def __init__(self, made: dict[str, Any]) -> None:
        super().__init__(dict.fromkeys(made))
        self.made = made

    def items(self) -> Any:
        return [(key, Lazy(value) if isinstance(value, dict) else value) for key, value in self.made.items()]


class _Inner(BaseModel):
    name: str


class _Outer(BaseModel):
    inner: _Inner


def test_whoever_reads_by_a_model_reads_what_ansible_makes_when_it_is_asked_for() -> None:
    lazy = Lazy({"inner": {"name": "a"}})

    assert read_as(_Outer, lazy) == {"inner": {"name": "a"}}
    with pytest.raises(ValidationError):
        _Outer.model_validate(lazy)  # which reads around it


def test_what_this_computer_answers_has_the_types(tmp_path: Path) -> None:
    found = system.collect("/", names=["localhost"], disk_paths=["/"], login_user="nobody")
    answer = {"python": "3.11.2", **plain(found), "hardware": plain({**hardware.collect(), **gpu.bus("/")})}

    facts = facts_from(answer)

    assert dict(facts) == answer
    assert unnamed(facts, MachineFacts) == set()
    assert unnamed(facts["hardware"], HardwareFacts) == set()


@pytest.mark.parametrize("products", ["NVIDIA A40\n", "NVIDIA H100 80GB HBM3, 00000000:3B:00.0\n", ""])
def test_what_made_up_hardware_answers_has_the_types(tmp_path: Path, products: str) -> None:
    root = processors(tmp_path, sockets=2, cores=4, threads=2)
    tree(root, {"proc/meminfo": "MemTotal:       263956480 kB\n"})
    answer = {"hardware": plain({**hardware.collect(root, lambda command: products), **gpu.bus(root)})}

    assert dict(facts_from(answer)) == answer


@pytest.mark.parametrize("name", driver_machines.names())
def test_what_machines_with_drivers_answer_has_the_types(tmp_path: Path, name: str) -> None:
    found, _ = driver_machines.machine(name, tmp_path)
    answer = plain({**found, "hardware": {**hardware.collect(tmp_path, lambda command: None), **gpu.bus(tmp_path)}})

    assert dict(facts_from(answer)) == answer


def test_what_machines_with_adapters_answer_has_the_types(tmp_path: Path) -> None:
    infiniband = rdma_machines.device(
        tmp_path / "ib", "mlx5_0", rdma_machines.INFINIBAND, address="0000:17:00.0", gid="fe80::1"
    )
    soft = rdma_machines.device(tmp_path / "soft", "rxe0", rdma_machines.SOFT, gid="fe80::1")
    for root in (infiniband, soft, tmp_path / "none"):
        answer = {"rdma": plain(rdma_machines.found(root))}

        facts = facts_from(answer)

        assert dict(facts) == answer
        assert {"devices", "adapters", "on_bus"} <= set(RdmaFacts.__required_keys__)


#: What a machine can say instead of the truth.
EVIL = [
    None, True, -1, 10**400, 1e308, float("nan"), float("inf"), [], {}, "", "x" * 300_000, [[]], {"": {}}, "\x1b[2J",
    "\r", "{{ lookup('pipe', 'id') }}", "{0.__class__}", "%n%s", "\u202e", [None] * 3, {"a": 10**30}, 0.5, "٣", "²",
]  # fmt: skip


def typed(answer: object) -> MachineFacts | str:
    """Return the facts, or why there are none."""
    try:
        return facts_from(answer)
    except ValueError as error:
        return str(error)


@pytest.mark.parametrize("path", places(READY), ids=lambda path: ".".join(map(str, path)))
def test_nothing_that_the_door_lets_in_breaks_a_judge(path: tuple[Any, ...]) -> None:
    for evil in EVIL:
        facts = typed(changed(READY, path, evil))
        if isinstance(facts, str):
            assert len(facts) < 300
            assert facts.isprintable()
            continue
        checks = [*preflight.checks(facts, WANTS), *base_system.checks(facts, WANTS)]
        checks += hardware_judge.checks(facts["hardware"], DECLARED)
        checks += munge.machine_checks(facts, {"controller": False, "fingerprint": "ab", "mode": "0400"})
        checks += managed.checks(Subject("munge", ("packages", "files", "services")), MANAGED, facts["state"])
        for check in checks:
            assert "\x1b" not in check.observed
            assert len(check.observed) < 5000


KEYS = st.sampled_from([*MachineFacts.__annotations__, "x"])
ANSWERS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner),
)


@given(ANSWERS)
def test_any_answer_is_typed_or_refused(answer: object) -> None:
    facts = typed(answer)

    assert isinstance(facts, dict) or "answer cannot be used" in facts


def test_an_answer_that_is_deep_or_endless_is_refused() -> None:
    deep: list[Any] = []
    for _ in range(500):
        deep = [deep]
    for answer in ({"x": deep}, {"x": list(range(300_000))}):
        with pytest.raises(ValueError, match="too large"):
            facts_from(answer)


def test_a_process_that_calls_itself_something_odd_is_shown_without_it() -> None:
    facts = facts_from({"lock": {"holder": {"pid": 7, "command": "\x1b]0;owned\x07apt\r"}, "waited": 0}})

    assert facts["lock"]["holder"]["command"] == "apt�"


def test_a_part_that_was_asked_for_and_did_not_come_is_that_machines_failure() -> None:
    with pytest.raises(ValueError, match="asked for rdma and says nothing"):
        facts_from({"uid": 0}, ["system", "rdma"])

    assert facts_from({"uid": 0}, ["system"]) == {"uid": 0}
