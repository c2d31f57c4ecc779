"""The judgement of a machine before and after its preparation."""

from __future__ import annotations

from typing import Any

import pytest

from provision.judge import base_system, preflight, road
from provision.model import memlock
from provision.model.checks import check_from

READY: dict[str, Any] = {
    "python": "3.11.2",
    "os": {"id": "debian", "version": "12", "name": "Debian GNU/Linux 12 (bookworm)"},
    "systemd": True,
    "container": "",
    "uid": 0,
    "hostname": "node1",
    "addresses": {"node1": ["10.0.18.11"], "head": ["10.0.18.1"]},
    "clock_synchronised": True,
    "clock_offset": {"low": -0.4, "high": 0.3},
    "commands": {"space": {"rc": 0, "text": "/dev/vda1 9 9 10000 50% /\n"}},
    "disks": {"/": {"free": 9000, "device": 1, "used": True}, "/images": {"free": 9000, "device": 1, "used": False}},
    "lock": {"holder": None, "waited": 0},
    "packages_interrupted": [],
    "slurm_daemons": [],
    "time_daemons": ["chronyd"],
    "memlock": {"login_highest": "unlimited", "service_highest": "unlimited", "login": "unlimited"},
    "hardware": {"cgroup_version": 2},
    "kernel": "6.1.0-28-amd64",
    "kernel_settings": {"user.max_user_namespaces": "63000"},
    "firewall": {"problem": "", "filtered": False, "stopped": []},
    "hosts": {"current": True},
    "state": {"paths": {}, "packages": {}, "services": {}, "manager": {"DefaultLimitMEMLOCK": "infinity"}},
}
ROOT_NEEDS = {"path": "/", "megabytes": 1000, "purpose": "logs", "always": True}
IMAGES_NEED = {"path": "/images", "megabytes": 5000, "purpose": "images"}
ENTRIES = [{"address": "10.0.18.1", "names": ["head"]}, {"address": "10.0.18.11", "names": ["node1"]}]
SETTINGS: dict[str, Any] = {
    "name": "node1",
    "hosts": ENTRIES,
    "disk_space": [ROOT_NEEDS, IMAGES_NEED],
    "lock_timeout": 120,
    "clock_warn_seconds": 5,
    "clock_fail_seconds": 30,
    "cgroup_v1_allowed": False,
    "cluster": {"name": "lab", "controller": "head", "saved": "lab"},
    "own_directories": True,
    "memlock": "unlimited",
    "service_memlock": "unlimited",
    "time_service": "chrony",
    "firewall": {"handling": "check", "machines": ["10.0.18.1"]},
    "proxy": {},
}


def before(name: str, settings: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    checks = preflight.checks({**READY, **changes}, {**SETTINGS, **(settings or {})})
    return next(check for check in checks if check.id == f"preflight.{name}").as_dict()


def after(name: str, settings: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    checks = base_system.checks({**READY, **changes}, {**SETTINGS, **(settings or {})})
    return next(check for check in checks if check.id == f"base_system.{name}").as_dict()


def test_a_machine_that_is_ready_passes_everything() -> None:
    checks = preflight.checks(READY, SETTINGS) + base_system.checks(READY, SETTINGS)

    assert {check.id: check for check in checks if check.verdict != "pass"} == {}


@pytest.mark.parametrize("facts", [READY, {key: value for key, value in READY.items() if key != "hardware"}])
def test_every_check_is_given_for_every_machine(facts: dict[str, Any]) -> None:
    assert sorted(check.id for check in preflight.checks(facts, SETTINGS)) == sorted(preflight.SUBJECT.ids)
    assert sorted(check.id for check in base_system.checks(facts, SETTINGS)) == sorted(base_system.SUBJECT.ids)


@pytest.mark.parametrize(
    ("groups", "name", "whole"),
    [
        (["slurm_compute"], "clock", False),
        (["slurm_login"], "clock", False),
        # Without these nothing works.
        (["slurm_controller"], "clock", True),
        (["slurm_compute", "nfs_server"], "clock", True),
        (["slurm_database"], "clock", True),
        # Jobs of all nodes would be lost, or of none confined.
        (["slurm_compute"], "same_cluster", True),
        (["slurm_compute"], "cgroup", True),
    ],
)
def test_what_fails_is_a_machines_own_or_the_whole_clusters(groups: list[str], name: str, whole: bool) -> None:
    bad, good = preflight.SUBJECT.check(name, False), preflight.SUBJECT.check("python", True)

    found, _ = road.before({"preflight": [bad, good]}, groups)

    assert [(check.verdict, check.whole) for check in found] == [("fail", whole), ("pass", False)]
    assert [check_from(check.as_dict()) for check in found] == found


def test_another_name_than_the_inventorys_is_a_failure_of_what_was_prepared() -> None:
    changed = after("hostname", hostname="other", addresses={**READY["addresses"], "other": ["10.0.18.11"]})

    assert (changed["verdict"], changed["observed"], changed["expected"]) == ("fail", "other", "node1")


def state(
    saved: str = "", controller: str = "", kept: str | None = "lab", machine: str = "head", cluster: str = "lab"
) -> dict[str, Any]:
    """Return the check of a machine with this state and this slurmd; the controller has kept ``kept``."""
    slurm = {"saved": saved, "cluster": cluster if controller else "", "controller": controller}
    settings = {"name": machine, "cluster": {"name": "lab", "controller": "head", "saved": kept}}
    return before("same_cluster", settings, slurm=slurm)


def test_a_cluster_that_runs_keeps_its_name() -> None:
    renamed = state(saved="former")

    assert (renamed["verdict"], renamed["observed"]) == ("fail", "the state of cluster former")
    assert "write cluster_name=former again" in renamed["fix"]
    assert state(saved="lab")["verdict"] == "pass"
    assert state(saved="former", machine="node1")["verdict"] == "pass", "it is no controller any more"


def test_a_new_controller_without_the_state_is_no_controller_of_nodes_that_had_another() -> None:
    moved = state(controller="former", kept="")

    assert (moved["verdict"], moved["observed"], moved["expected"]) == ("fail", "its slurmd is former's", "head")
    assert "copy its /var/spool/slurmctld to head" in moved["fix"]
    assert "remove /var/spool/slurmd/conf-cache" in moved["fix"]
    assert state(controller="former", kept="", cluster="another")["verdict"] == "pass", "it comes from another cluster"
    # The state has come with the name, or the controller has not been asked.
    assert state(controller="former", kept="lab")["verdict"] == "pass"
    assert state(controller="former", kept=None)["verdict"] == "pass"
    assert state(controller="head", kept="")["verdict"] == "pass"
    assert (state(kept="")["verdict"], state(kept="")["observed"]) == ("pass", "none yet")


def test_an_address_in_front_of_the_declared_one_is_a_cause_of_its_own() -> None:
    check = after("names", addresses={"node1": ["10.0.18.11"], "head": ["10.9.9.9", "10.0.18.1"]})

    assert check["verdict"] == "fail"
    assert check["observed"] == "head is 10.9.9.9, and the declared 10.0.18.1 comes after it"
    assert "before the declared one" in check["cause"]


def test_an_address_behind_the_declared_one_does_no_harm() -> None:
    addresses = {"node1": ["10.0.18.11"], "head": ["10.0.18.1", "10.9.9.9"]}

    assert after("names", addresses=addresses)["verdict"] == "pass"


def test_one_address_is_the_same_however_it_is_written() -> None:
    hosts = [{"address": "FD00:0::12", "names": ["head"]}]

    assert (
        after("names", {"hosts": hosts}, addresses={"node1": ["10.0.18.11"], "head": ["fd00::12"]})["verdict"] == "pass"
    )


@pytest.mark.parametrize(
    ("name", "changes", "verdict", "words"),
    [
        ("python", {"python": "3.6.9"}, "fail", "3.6.9"),
        ("system", {"os": {"id": "debian", "version": "11", "name": "Debian 11"}}, "fail", "Debian 11"),
        ("system", {"os": {"id": "ubuntu", "version": "24.04", "name": "U"}}, "pass", "U"),
        ("system", {"os": {"id": "ubuntu", "version": "24.04", "name": "U", "dgx": True}}, "fail", "DGX OS on U"),
        ("system", {"os": {"id": "debian", "version": "120", "name": "D"}}, "fail", "D"),
        ("system", {"os": {"id": "", "version": "", "name": ""}}, "fail", ""),
        ("systemd", {"systemd": False}, "fail", "not running"),
        ("root", {"uid": 1000}, "fail", "uid 1000"),
        ("hostname", {"hostname": "other", "addresses": {"other": ["10.0.18.9"]}}, "fail", "other"),
        ("hostname", {"hostname": "NODE1.example.com", "addresses": {}}, "pass", "NODE1"),
        ("own_name", {"addresses": {"node1": ["127.0.1.1"]}}, "warn", "127.0.1.1"),
        ("own_name", {"addresses": {}}, "warn", "no address"),
        ("foreign_slurm", {"slurm_daemons": ["slurmd (pid 7)"]}, "fail", "slurmd (pid 7)"),
        ("cgroup", {"hardware": {"cgroup_version": 1}}, "fail", "v1"),
        ("kernel", {"kernel": "6.18.5"}, "fail", "6.18.5"),
        ("kernel", {"kernel": "7.0.0-14-generic"}, "fail", "7.0.0"),
        ("kernel", {"kernel": "6.8.0-90-generic"}, "pass", "6.8.0"),
        ("packages", {"packages_interrupted": ["libc6"]}, "warn", "libc6"),
    ],
)
def test_what_is_wrong_is_named(name: str, changes: dict[str, Any], verdict: str, words: str) -> None:
    check = before(name, **changes)

    assert check["verdict"] == verdict
    assert words in check["observed"]
    assert bool(check["fix"]) == (verdict != "pass")


def test_cgroup_v1_is_refused_before_anything_changes_unless_the_site_lets_it_in() -> None:
    old = {"hardware": {"cgroup_version": 1}}
    refused = before("cgroup", **old)

    assert "slurm_conf_cgroup_v1_allowed=true under [all:vars]" in refused["fix"]
    assert "no job on any node is confined" in refused["cause"]
    assert before("cgroup", {"cgroup_v1_allowed": True}, **old)["verdict"] == "warn"
    assert before("cgroup", {"cgroup_v1_allowed": True})["verdict"] == "pass"


@pytest.mark.parametrize(
    ("settings", "changes", "verdict"),
    [
        ({"own_directories": False}, {"kernel": "6.18.5"}, "skip"),
        ({}, {"kernel": "6.18.5", "hardware": {"cgroup_version": 1}}, "skip"),
        ({}, {"kernel": ""}, "unknown"),
    ],
)
def test_a_kernel_matters_where_jobs_have_a_tmp_of_their_own(
    settings: dict[str, Any], changes: dict[str, Any], verdict: str
) -> None:
    assert before("kernel", settings, **changes)["verdict"] == verdict
    assert "node_private_tmp=false" in before("kernel", kernel="6.18.5")["fix"]
    on_the_controller = {key: value for key, value in READY.items() if key != "hardware"}
    (found,) = (one for one in preflight.checks(on_the_controller, SETTINGS) if one.id == "preflight.kernel")
    assert found.verdict.value == "skip"


def test_a_busy_package_manager_is_named_with_its_process() -> None:
    lock = {"holder": {"pid": 812, "command": "/usr/bin/python3 /usr/bin/unattended-upgrade"}, "waited": 120}

    check = before("package_lock", lock=lock)

    assert check["verdict"] == "fail"
    assert "pid 812: /usr/bin/python3 /usr/bin/unattended-upgrade (waited 120 s)" in check["observed"]


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (-0.4, 0.3, "pass"),
        (-40.0, 2.0, "pass"),  # a machine that took 42 s to answer proves nothing
        (5.2, 9.0, "warn"),
        (-9.0, -5.2, "warn"),
        (30.5, 31.0, "fail"),
        (-3600.5, -3600.0, "fail"),
    ],
)
def test_a_clock_is_judged_by_what_is_certain(low: float, high: float, verdict: str) -> None:
    offset = {"low": low, "high": high}

    assert before("clock", clock_offset=offset)["verdict"] == verdict
    assert after("clock", clock_offset=offset)["verdict"] == verdict


def test_space_on_one_file_system_is_not_counted_twice() -> None:
    tight = {"/": {"free": 5500, "device": 1, "used": True}, "/images": {"free": 5500, "device": 1, "used": False}}
    apart = {"/": {"free": 5500, "device": 1, "used": True}, "/images": {"free": 5500, "device": 2, "used": False}}

    assert before("disk_space", disks=tight)["verdict"] == "fail"
    assert "/images 5000 MB (images)" in before("disk_space", disks=tight)["expected"]
    assert before("disk_space", disks=apart)["verdict"] == "pass"


def test_what_an_earlier_run_has_filled_needs_no_space_again() -> None:
    filled = {"/": {"free": 1500, "device": 1, "used": True}, "/images": {"free": 1500, "device": 1, "used": True}}

    assert before("disk_space", disks=filled)["verdict"] == "pass"
    assert before("disk_space", {"disk_space": [{**ROOT_NEEDS, "megabytes": 2000}]}, disks=filled)["verdict"] == "fail"


def test_images_are_counted_where_the_engine_keeps_them_and_a_foreign_one_has_none_of_ours() -> None:
    wanted = [ROOT_NEEDS, {**IMAGES_NEED, "path": "/var/lib/docker"}]
    disks = {
        "/": {"free": 9000, "device": 1, "used": True},
        "/var/lib/docker": {"free": 9000, "device": 1, "used": False},
        "/data": {"free": 40, "device": 2, "used": True},
    }
    full = before("disk_space", {"disk_space": wanted}, disks=disks, engine={"images_at": "/data", "keys": None})
    ours = before("disk_space", {"disk_space": wanted}, disks=disks, engine={"images_at": "/data", "keys": ["debug"]})

    assert (full["verdict"], full["observed"].partition(";")[0]) == ("fail", "/data: 40 MB free")
    assert full["fix"].startswith("df -h /data; make room")
    assert ours["verdict"] == "pass"
    assert before("disk_space", {"disk_space": wanted}, disks=disks)["verdict"] == "pass"


@pytest.mark.parametrize(
    "addresses",
    [
        {"node1": ["127.0.1.1", "10.0.18.11"], "head": ["10.0.18.1"]},
        {"node1": ["10.0.18.11"], "head": ["10.0.18.99"]},
        {"node1": ["10.0.18.11"], "head": []},
    ],
)
def test_a_name_that_leads_elsewhere_fails_after_preparation(addresses: dict[str, list[str]]) -> None:
    check = after("names", addresses=addresses)

    assert check["verdict"] == "fail"
    assert "declared" in check["observed"]


def test_a_thousand_wrong_names_are_one_short_finding() -> None:
    entries = [{"address": f"10.1.{n // 250}.{n % 250 + 1}", "names": [f"n{n}"]} for n in range(1000)]

    check = after("names", {"hosts": entries})

    assert "and 995 more" in check["observed"]
    assert len(check["observed"]) < 400


@pytest.mark.parametrize(
    ("changes", "settings", "verdict"),
    [
        ({"time_daemons": []}, {}, "fail"),
        ({"clock_synchronised": False}, {}, "warn"),
        ({"clock_synchronised": None}, {}, "unknown"),
        ({"container": "docker", "time_daemons": []}, {}, "skip"),
        ({"time_daemons": []}, {"time_service": "none"}, "skip"),
    ],
)
def test_a_clock_without_a_keeper_is_told(changes: dict[str, Any], settings: dict[str, Any], verdict: str) -> None:
    assert after("time_service", settings, **changes)["verdict"] == verdict


@pytest.mark.parametrize(
    ("root", "docker", "verdict", "observed"),
    [
        (50, 89, "pass", "/ is 50 % full, 9 GiB free; /var/lib/docker is 89 % full, 2 GiB free"),
        (50, 90, "warn", "/var/lib/docker is 90 % full, 2 GiB free"),
        (95, 50, "warn", "/ is 95 % full, 9 GiB free"),
    ],
)
def test_a_file_system_that_is_nearly_full_warns(root: int, docker: int, verdict: str, observed: str) -> None:
    text = (
        f"Filesystem     1048576-blocks  Used Available Capacity Mounted on\n/dev/vda1 9 9 10000 {root}% /\n"
        f"/dev/vdb1 9 9 3000 {docker}% /var/lib/docker\n/dev/vdc1 9 9 3000 99% /data of a user\n"
    )

    found = after("space", commands={"space": {"rc": 0, "text": text}})

    assert (found["verdict"], found["observed"]) == (verdict, observed)
    assert after("space", commands={"space": {"rc": None, "text": "did not answer"}})["unproven"]
    assert after("space", container="docker")["verdict"] == "skip"


@pytest.mark.parametrize(
    ("login", "highest", "wanted", "verdict"),
    [
        ("unlimited", "unlimited", "unlimited", "pass"),
        ("8192", "unlimited", "unlimited", "fail"),
        ("8192", "8192", "unlimited", "warn"),
        ("64", "8192", "unlimited", "fail"),
        ("9000", "unlimited", "8192", "pass"),
        ("", "unlimited", "unlimited", "unknown"),
    ],
)
def test_locked_memory_is_judged_by_what_a_login_gets(login: str, highest: str, wanted: str, verdict: str) -> None:
    limits = {"login_highest": highest, "service_highest": highest, "login": login}

    assert after("memlock", {"memlock": wanted}, memlock=limits)["verdict"] == verdict


def test_a_limit_is_never_set_higher_than_the_machine_allows() -> None:
    assert memlock.possible("unlimited", "unlimited") == "unlimited"
    assert memlock.possible("unlimited", "8192") == "8192"
    assert memlock.possible("4096", "8192") == "4096"
    assert memlock.possible("16384", "8192") == "8192"


def test_an_installation_that_was_stopped_in_the_middle_is_named() -> None:
    assert "procps" in after("interrupted", packages_interrupted=["procps"])["observed"]


def test_names_that_only_somebody_elses_lines_give_are_not_as_declared() -> None:
    assert "hosts file" in after("names", hosts={"current": False})["observed"]
    assert (
        "no line ends it" in after("names", hosts={"error": "line 3 begins our block, and no line ends it"})["observed"]
    )


@pytest.mark.parametrize(
    ("wanted", "manager", "verdict"),
    [
        ("unlimited", {"DefaultLimitMEMLOCK": "infinity"}, "pass"),
        ("8192", {"DefaultLimitMEMLOCK": "8388608"}, "pass"),
        ("unlimited", {"DefaultLimitMEMLOCK": "8388608"}, "fail"),
        ("unlimited", {}, "fail"),
        ("unlimited", None, "unknown"),
    ],
)
def test_what_systemd_gives_services_is_what_it_was_told(wanted: str, manager: Any, verdict: str) -> None:
    state = {**READY["state"], "manager": manager}

    assert after("limits", {"service_memlock": wanted}, state=state)["verdict"] == verdict


@pytest.mark.parametrize(
    ("settings", "verdict", "fix"),
    [
        ({}, "pass", ""),
        ({"kernel.unprivileged_userns_clone": "1"}, "pass", ""),
        ({"user.max_user_namespaces": "0"}, "fail", "sysctl -w user.max_user_namespaces=63000, and the line"),
        ({"kernel.unprivileged_userns_clone": "0"}, "fail", "sysctl -w kernel.unprivileged_userns_clone=1"),
        # Ubuntu 24.04: a profile may name podman.
        ({"kernel.apparmor_restrict_unprivileged_userns": "1"}, "warn", "=0, and the line"),
    ],
)
def test_user_namespaces_matter_where_jobs_run(settings: dict[str, str], verdict: str, fix: str) -> None:
    check = before("user_namespaces", kernel_settings={**READY["kernel_settings"], **settings})

    assert check["verdict"] == verdict
    assert fix in check["fix"]
    assert all(f"{name} = {value}" in check["observed"] for name, value in settings.items())


def test_users_of_a_machine_that_runs_no_jobs_need_no_namespaces() -> None:
    facts = {key: value for key, value in READY.items() if key != "hardware"}
    checks = preflight.checks({**facts, "kernel_settings": {"user.max_user_namespaces": "0"}}, SETTINGS)

    assert [check.verdict for check in checks if check.id == "preflight.user_namespaces"] == ["skip"]


def test_a_firewall_is_refused_before_and_named_after() -> None:
    way = {"program": "ufw", "family": "ip", "table": "filter", "chain": "INPUT", "port": "6818", "protocol": "tcp"}
    found = {"problem": "", "filtered": True, "stopped": [{**way, "purpose": "slurmd", "source": "10.0.18.1"}]}

    assert [judge("firewall", firewall=found)["verdict"] for judge in (before, after)] == ["fail", "fail"]
    opened = {"firewall": {"handling": "open", "machines": ["10.0.18.1"]}}
    assert [judge("firewall", opened, firewall=found)["verdict"] for judge in (before, after)] == ["warn", "fail"]


@pytest.mark.parametrize(
    ("told", "password", "verdict", "observed", "fix"),
    [
        ({"status": 301, "problem": ""}, False, "pass", "proxy.site:3128: it answers", ""),
        ({"status": 407, "problem": ""}, True, "pass", "proxy.site:3128: it asks for a password", ""),
        (
            {"status": 407, "problem": ""},
            False,
            "fail",
            "proxy.site:3128: it asks for a password",
            "USER:PASSWORD@HOST",
        ),
        ({"status": 0, "problem": "Connection refused"}, False, "fail", "Connection refused", "correct cluster_proxy"),
    ],
)
def test_a_proxy_that_takes_no_questions_is_named_before_anything_is_fetched(
    told: dict[str, Any], password: bool, verdict: str, observed: str, fix: str
) -> None:
    declared = {"host": "proxy.site", "port": 3128, "tls": False, "password": password}

    check = before("proxy", {"proxy": declared}, proxy=told)

    assert (check["verdict"], observed in check["observed"], fix in check["fix"]) == (verdict, True, True), check
    assert before("proxy", {"proxy": declared})["verdict"] == "unknown"
