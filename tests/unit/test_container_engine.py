"""daemon.json: what stands in it for which engine, and what a site's own keys do to it; how an engine is asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from machines import plugin, tree

from provision.model import addresses, engine
from provision.model.facts import facts_from

asked = plugin("plugins/module_utils/machine_engine.py", "ansible.module_utils.machine_engine")
filters = plugin("roles/container_engine/filter_plugins/container_engine.py")
daemon, packages = filters.container_engine_daemon, filters.container_engine_packages

OURS = {"live-restore": True, "log-driver": "json-file", "log-opts": {"max-size": "10m"}}
MACHINE = {"version": "20.10.24+dfsg1", "raises_limits": True}


@pytest.mark.parametrize(
    ("told", "how"),
    [
        ("Docker version 20.10.24+dfsg1, build 297e128", "runtime"),  # Debian 12
        ("Docker version 24.0.7, build 24.0.7-0ubuntu2~22.04.1", "runtime"),
        ("Docker version 25.0.0, build e758fe5", "feature"),
        ("Docker version 26.1.5+dfsg1, build a72d7cd", "feature"),  # Debian 13
        ("Docker version 28.2.2, build 28.2.2-0ubuntu1~24.04.1", "feature"),
        ("Docker version 28.3.0, build 38b7060", "engine"),
        ("Docker version 29.0.1, build eedd969", "engine"),
    ],
)
def test_each_engine_hands_out_gpus_in_its_own_way(told: str, how: str) -> None:
    assert engine.how_cdi(asked.version(told)) == how


def test_what_is_no_version_is_none() -> None:
    assert asked.version("command not found") == ""
    assert engine.how_cdi("") == ""


def written(file: dict[str, Any], declared: dict[str, Any] | None = None, **machine: Any) -> dict[str, Any]:
    """Return daemon.json on a machine that has this file of the site's; a second run writes nothing else."""
    gpus, memlock, taken = machine.pop("gpus", False), machine.pop("memlock", 0), machine.pop("addresses", ())
    now = {**MACHINE, "daemon": file, **machine}
    first = daemon(OURS, declared or {}, now, gpus, memlock, taken)
    again = daemon(
        OURS, declared or {}, {**now, "daemon": first["wanted"], "keys": list(first["ours"])}, gpus, memlock, taken
    )
    assert (again["wanted"], again["ours"]) == (first["wanted"], first["ours"])
    assert not again["write"]
    wanted: dict[str, Any] = first["wanted"]
    return wanted


def test_without_gpus_and_limits_the_file_is_as_it_always_was() -> None:
    # A machine without a GPU must not have its engine restarted by an upgrade.
    assert written({}) == OURS
    assert written(OURS) == OURS


@pytest.mark.parametrize(
    ("release", "added"),
    [
        ("28.3.0", {}),
        ("26.1.5", {"features": {"cdi": True}}),
        ("20.10.24", {"runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}),
    ],
)
def test_gpus_add_what_the_engine_needs_and_never_a_default_runtime(release: str, added: dict[str, object]) -> None:
    assert written({}, version=release, gpus=True) == {**OURS, **added}
    assert written({}, version=release) == OURS


def test_declared_features_runtimes_and_limits_stand_beside_ours() -> None:
    declared = {
        "features": {"containerd-snapshotter": True},
        "default-ulimits": {"nofile": {"Name": "nofile", "Hard": 1, "Soft": 1}},
    }

    found = written({}, declared, version="26.1", gpus=True, memlock=-1)

    assert found["features"] == {"cdi": True, "containerd-snapshotter": True}
    assert sorted(found["default-ulimits"]) == ["memlock", "nofile"]
    assert found["default-ulimits"]["memlock"] == {"Name": "memlock", "Hard": -1, "Soft": -1}


def test_other_declared_keys_replace_ours_as_a_whole() -> None:
    # Options of one log driver are an error to another.
    declared = {"log-driver": "journald", "log-opts": {"tag": "x"}}

    assert written({}, declared) == {"live-restore": True, **declared}


def test_null_removes_a_key_whoever_wrote_it() -> None:
    assert "log-opts" not in written({}, {"log-opts": None})
    assert "features" not in written({"features": {"buildkit": True}}, {"features": None}, version="26.1", gpus=True)
    assert "bip" not in written({"bip": "10.9.0.1/24"}, {"bip": None})


def test_what_the_sites_file_says_stays() -> None:
    site = {
        "data-root": "/data/docker",
        "registry-mirrors": ["https://mirror.site"],
        "bip": "10.9.0.1/24",
        "insecure-registries": ["harbor.site"],
        "proxies": {"http-proxy": "http://proxy:3128"},
        "log-driver": "local",
        "features": {"buildkit": True},
        "runtimes": {"nvidia": {"path": "/usr/bin/nvidia-container-runtime", "args": []}},
        "default-runtime": "nvidia",
        "default-ulimits": {"memlock": {"Hard": 65536, "Soft": 65536}, "nofile": {"Hard": 9, "Soft": 9}},
    }

    found = written(site, gpus=True, memlock=-1, addresses=["172.17.0.9"])

    # The options of a log driver are the site's, too; of locked memory no container gets less.
    memlock = {"Name": "memlock", "Hard": -1, "Soft": -1}
    assert found == {**site, "live-restore": True, "default-ulimits": {**site["default-ulimits"], "memlock": memlock}}
    assert written({"features": {"cdi": False}}, version="28.3", gpus=True)["features"] == {"cdi": True}


def test_a_file_that_says_all_this_in_a_form_of_its_own_is_not_written_anew() -> None:
    site = {**OURS, "default-ulimits": {"memlock": {"Hard": -1, "Soft": -1}}, "data-root": "/data"}
    machine = {**MACHINE, "daemon": site, "keys": []}

    assert not daemon(OURS, {}, {**machine, "formatted": False}, False, -1)["write"]
    # As we would write it, it is compared with its mode and owner.
    assert daemon(OURS, {}, {**machine, "formatted": True}, False, -1)["write"]
    assert daemon(OURS, {}, {**MACHINE, "daemon": {}}, False, 0)["write"]


def test_a_key_of_ours_that_is_no_longer_wanted_goes_away_and_none_of_the_sites() -> None:
    site = {"data-root": "/data", "dns": ["10.1.1.1"]}
    machine = {**MACHINE, "version": "26.1", "daemon": site}
    first = daemon(OURS, {"debug": True, "dns": ["10.1.1.1"]}, machine, True, -1)
    there = {**machine, "daemon": first["wanted"], "keys": list(first["ours"])}

    assert first["ours"] == (
        "debug", "default-ulimits.memlock", "features.cdi", "live-restore", "log-driver", "log-opts",
    )  # fmt: skip
    assert daemon(OURS, {}, there, False, 0)["wanted"] == {**OURS, **site}
    # A default that the inventory has changed reaches the file, as long as it is ours.
    larger = {**OURS, "log-opts": {"max-size": "50m"}}
    assert daemon(larger, {}, there, False, 0)["wanted"]["log-opts"] == {"max-size": "50m"}
    assert daemon(larger, {}, {**there, "keys": []}, False, 0)["wanted"]["log-opts"] == {"max-size": "10m"}


def test_a_file_of_an_earlier_release_is_ours_without_a_record() -> None:
    earlier = {**OURS, "log-opts": {"max-size": "10m", "max-file": "3"}, "live-restore": False}
    site = {**earlier, "data-root": "/data"}

    assert daemon(OURS, {}, {**MACHINE, "daemon": earlier}, False, 0)["wanted"] == OURS
    assert daemon(OURS, {}, {**MACHINE, "daemon": site}, False, 0)["wanted"] == site
    assert engine.was_configured({"daemon": earlier})
    assert not engine.was_configured({"daemon": site})
    assert engine.was_configured({"daemon": site, "keys": []})


@pytest.mark.parametrize(
    "file",
    [{"features": [], "log-opts": 7, "runtimes": None}, {"log-driver": "json-file", "live-restore": 1, "log-opts": 7}],
)
def test_a_file_that_no_engine_takes_ends_nothing_here(file: dict[str, Any]) -> None:
    assert written(file, {"features": {"x": True}}, version="26.1", gpus=True)["features"]["cdi"] is True


def test_what_the_engine_is_told_by_its_command_line_is_written_nowhere_else() -> None:
    told = ["H", "containerd", "live-restore", "log-opt", "default-ulimit", "add-runtime"]

    assert engine.flagged(["H", "insecure-registry", "label", "add-runtime"]) >= {
        "hosts",
        "insecure-registries",
        "labels",
    }
    assert written({}, flags=told, gpus=True, memlock=-1) == {
        "runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}
    }


def test_docker_takes_no_network_that_an_address_of_the_inventory_is_in() -> None:
    found = written({}, addresses=["10.0.0.5", "172.17.3.4", "192.168.1.7", "172.21.0.1"])

    assert [pool["base"] for pool in found["default-address-pools"]] == [
        "172.18.0.0/16", "172.19.0.0/16", "172.24.0.0/14", "172.28.0.0/14",
    ]  # fmt: skip
    assert "default-address-pools" not in written({}, addresses=["10.0.0.5", "fd00::1"])
    # Who has chosen is left alone: a network that is changed is one that other containers are in.
    for chosen in ({"bip": "10.9.0.1/24"}, {"default-address-pools": [{"base": "10.8.0.0/16", "size": 24}]}):
        assert written(chosen, addresses=["172.17.3.4"]) == {**OURS, **chosen}
        assert written({}, chosen, addresses=["172.17.3.4"]) == {**OURS, **chosen}
    assert "default-address-pools" not in written({}, addresses=["172.17.3.4"], flags=["bip"])


def test_addresses_are_found_wherever_an_inventory_has_them() -> None:
    told = {
        "a": {"ansible_host": "10.0.0.1"},
        "b": [{"source": "10.0.0.2@tcp:10.0.0.3@tcp:/fs"}, 7, None],
        "c": "1.2.3",
    }

    assert addresses.addresses_in(told) == {"10.0.0.1", "10.0.0.2", "10.0.0.3"}
    assert addresses.addresses_in(["127.0.0.1", "10.0.0.256", "10.0.0.4:5000/x", "1.2.3.4.5"]) == {"10.0.0.4"}
    assert addresses.first_within("10.0.0.1/24", ["fd00::1", "10.0.1.1", "10.0.0.9"]) == "10.0.0.9"
    assert addresses.first_within("nonsense", ["10.0.0.9"]) == ""


FAMILY = {"engine": ["docker.io", "docker-cli"], "dockers": ["docker-ce", "containerd.io"], "beside": ["apparmor"]}


@pytest.mark.parametrize(
    ("there", "machine", "wanted"),
    [
        ([], {}, ["docker.io", "docker-cli", "docker-ce", "containerd.io", "apparmor"]),  # what it is asked about
        ([], {"version": ""}, ["docker.io", "docker-cli", "apparmor"]),
        (["docker.io"], {"version": "26.1.5"}, ["docker.io", "docker-cli", "apparmor"]),
        (["docker-ce"], {"version": "28.3.0"}, ["apparmor"]),
        (["containerd.io"], {"version": ""}, ["docker-ce", "containerd.io", "apparmor"]),
    ],
)
def test_an_engine_that_is_there_is_used_as_it_is(there: list[str], machine: dict[str, Any], wanted: list[str]) -> None:
    assert packages(FAMILY, there, machine) == wanted


def test_the_file_follows_from_what_the_machine_said_of_its_engine_and_limits() -> None:
    assert "default-ulimits" in written({}, memlock=-1)
    assert "default-ulimits" not in written({}, memlock=-1, raises_limits=False)
    assert written({}, gpus=True, version="") == OURS


@pytest.mark.parametrize(("bound", "can"), [("000001ffffffffff", True), ("000001fffeffffff", False)])
def test_a_limit_is_set_only_where_the_machine_may(bound: str, can: bool) -> None:
    assert asked.can_raise_limits(f"Name:\tsystemd\nCapBnd:\t{bound}\n") is can


def answered(root: Path, answer: tuple[str, str, bool]) -> Any:
    """Return what is said of an engine whose programs answer so, as the control node reads it."""
    tree(root, {"proc/1/status": "CapBnd:\t000001ffffffffff\n"})
    told = asked.collect(root, {"seconds": 3}, 2, run=lambda _command, _seconds: answer)
    return facts_from({"engine": told})["engine"]


def test_an_engine_says_its_release_and_what_it_has_loaded(tmp_path: Path) -> None:
    found = answered(tmp_path, (json.dumps({"ServerVersion": "20.10.24", "LiveRestoreEnabled": True}), "", False))

    assert (found["server"], found["live_restore"], found["problem"], found["limit"]) == ("20.10.24", True, "", 6)
    assert found["raises_limits"]


@pytest.mark.parametrize(
    ("answer", "problem", "late"),
    [
        (("", "did not answer in 6 s", True), "did not answer in 6 s", True),
        (("", "docker: No such file or directory", False), "docker: No such file or directory", False),
        # What Docker 20.10 says where there is no engine: words on its standard output, and success.
        ((json.dumps({"ServerErrors": ["Cannot connect"], "ServerVersion": ""}), "", False), "Cannot connect", False),
        (('["x"]', "", False), "", False),
        (('{"ServerVersion": 7, "LiveRestoreEnabled": "yes", "ServerErrors": {}}', "", False), "", False),
    ],
)
def test_an_engine_that_is_silent_or_absent_is_said_to_be(
    tmp_path: Path, answer: tuple[str, str, bool], problem: str, late: bool
) -> None:
    found = answered(tmp_path, answer)

    assert (found["server"], found["live_restore"], found["problem"], found["late"]) == ("", None, problem, late)


def test_a_command_that_hangs_is_ended_and_one_that_is_not_there_is_named() -> None:
    assert asked.ask(["sleep", "9"], 0.2) == ("", "did not answer in 0.2 s", True)
    assert asked.ask(["no-such-program"], 1) == ("", "no-such-program is not installed", False)
    assert asked.ask(["sh", "-c", "echo said; echo why >&2; exit 3"], 5) == ("said\n", "why", False)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"data-root": "/data"}', {"daemon": {"data-root": "/data"}, "formatted": False}),
        (
            '{\n    "bip": "10.9.0.1/24",\n    "debug": true\n}\n',
            {"daemon": {"bip": "10.9.0.1/24", "debug": True}, "formatted": True},
        ),
        (" \n", {"daemon": {}, "daemon_problem": ""}),
        ("{} # by hand", {"daemon": {}, "daemon_problem": "Extra data: line 1 column 4 (char 3)"}),
        ('["secret"]', {"daemon": {}, "daemon_problem": "it is no object of JSON of at most 65536 bytes"}),
        (
            '{"dns": "' + "1" * 65536 + '"}',
            {"daemon": {}, "daemon_problem": "it is no object of JSON of at most 65536 bytes"},
        ),
        ('{"proxies": {"http-proxy": "http://ada:secret@proxy"}}', {"daemon": {}, "secret": True}),
    ],
    ids=lambda value: str(value)[:20],
)
def test_an_engines_file_is_told_as_far_as_it_may_be(tmp_path: Path, text: str, told: dict[str, Any]) -> None:
    tree(tmp_path, {"etc/docker/daemon.json": text, "etc/docker/clusterctl-keys.json": '["debug", 7]'})

    found = answered(tmp_path, ("", "", False))

    assert {key: found[key] for key in told} == told
    assert found["keys"] == ["debug"]
    assert "secret" not in str({key: value for key, value in found.items() if key != "secret"}).replace("'secret'", "")


def test_where_the_engine_keeps_its_images_is_its_own_word_then_its_files(tmp_path: Path) -> None:
    info = json.dumps(
        {"ServerVersion": "28", "DockerRootDir": "/data", "Driver": "overlay2", "Containers": 2, "Images": 3}
    )
    found = answered(tmp_path, (info, "", False))

    assert [found[key] for key in ("data_root", "driver", "kept", "keys")] == ["/data", "overlay2", 5, None]
    assert answered(tmp_path, ("", "", False))["data_root"] == "/var/lib/docker"
    tree(tmp_path, {"etc/docker/daemon.json": '{"data-root": "/file"}'})
    assert answered(tmp_path, ("", "", False))["data_root"] == "/file"
    asked_for = asked.collect(tmp_path, {"data_root": "/new"}, run=lambda _command, _seconds: ("", "", False))
    assert (asked_for["images_at"], asked_for["data_root"]) == ("/new", "/file")


def test_the_options_of_the_engine_are_those_of_its_unit_and_of_its_process(tmp_path: Path) -> None:
    unit = "ExecStart={ path=/usr/sbin/dockerd ; argv[]=/usr/sbin/dockerd -H fd:// $DOCKER_OPTS ; ignore_errors=no ; }"
    tree(
        tmp_path,
        {
            "run/docker.pid": "7",
            "proc/7/cmdline": "/usr/sbin/dockerd\0-H\0fd://\0--bip=10.9.0.1/24\0--log-opt\0tag=x\0",
        },
    )

    assert asked.flags(tmp_path, unit) == ["H", "bip", "log-opt"]
    assert asked.flags(tmp_path / "none", unit) == ["H"]
    assert asked.flags(tmp_path / "none", "") == []
