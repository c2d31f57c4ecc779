"""Containers are what the engine says of them, and never what a label of ours says."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from machines import state as machine_state

from provision.judge import containers
from provision.model.checks import Check, Subject, Verdict
from provision.model.facts import facts_from
from provision.model.managed import Container, container

FIXTURES = Path(__file__).parent / "fixtures" / "containers"
SUBJECT = Subject("slurm_service", ("containers",), fix="clusterctl provision slurm")
IMAGE = "head:5000/clusterctl/slurm@sha256:f6d168f51783a58ea8bc28548255356e11fc8d885c07d365f280e61dfb23fe75"
INIT = "/usr/local/libexec/clusterctl/notify-init"

SLURMCTLD = container({
    "name": "slurmctld", "stop_timeout": 60,
    "image": IMAGE, "command": [INIT, "slurmctld", "--systemd"], "user": "64030:64030",
    "read_only": True, "security": ["no-new-privileges"],
    "tmpfs": ["/run/slurm:mode=0755,uid=64030,gid=64030", "/tmp"],
    "mounts": [
        "/etc/slurm:/etc/slurm:ro", "/var/spool/slurmctld:/var/spool/slurmctld", "/run/munge:/run/munge",
        "/etc:/run/machine-etc:ro", "/home:/home:rslave",
    ],
    "labels": {"clusterctl.started_with": "ClusterName=faults SlurmctldHost=head"},
})  # fmt: skip
SLURMD = container({
    "name": "slurmd", "image": IMAGE, "command": [INIT, "slurmd", "--systemd", "--conf-server", "head"], "user": "0:0",
    "read_only": False,
    "capabilities": ["CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID", "SYS_ADMIN", "SYS_NICE",
                     "SYS_PTRACE", "SYS_RESOURCE"],
    "security": ["seccomp=unconfined", "apparmor=unconfined", "systempaths=unconfined"],
    "tmpfs": ["/run/slurm:mode=0755"], "pid": "host", "cgroupns": "host", "ipc": "host",
    "device_rules": ["c *:* rwm"], "ulimits": ["memlock=-1:-1", "nofile=524288:524288"],
    "mounts": [
        "/sys/fs/cgroup:/sys/fs/cgroup:rw", "/dev:/dev", "/var/spool/slurmd:/var/spool/slurmd",
        "/run/munge:/run/munge", "/etc:/run/machine-etc:ro", "/var/lib/clusterctl:/var/lib/clusterctl",
        "/home:/home:rslave",
    ],
    "labels": {"clusterctl.started_with": ""},
})  # fmt: skip
WANTS = {"slurmctld": SLURMCTLD, "slurmd": SLURMD}


def inspected(name: str) -> dict[str, Any]:
    """What an engine of release 20.10 said of a container that cluster_container had made of these settings."""
    found: dict[str, Any] = json.loads((FIXTURES / f"{name}.json").read_text())
    return found


def answer(*found: dict[str, Any], **other: Any) -> dict[str, Any]:
    told = {one["Name"].lstrip("/"): one for one in found}
    return {"found": told, "problem": "", "raised": False, "nvidia_driver": "", **other}


def asked(*found: dict[str, Any]) -> dict[str, Any]:
    """Return what a machine's answer says of containers, which is no more than somebody compares."""
    said: dict[str, Any] = machine_state.containers(
        "/nonexistent", [one["Name"] for one in found], run=lambda *_: (0, json.dumps(found))
    )
    return said


def judged(want: Container, told: dict[str, Any] | None) -> Check:
    return containers.check(SUBJECT, [want], told)


@pytest.mark.parametrize("name", ["slurmctld", "slurmd"])
def test_a_container_of_the_declared_settings_passes_whatever_the_engine_has_filled_in(name: str) -> None:
    check = judged(WANTS[name], asked(inspected(name)))

    assert (check.verdict, check.observed) == (Verdict.PASS, f"{name} running")
    assert containers.needed(WANTS[name], asked(inspected(name))) == "nothing"


def later(found: dict[str, Any]) -> dict[str, Any]:
    """The same container in the words of releases from 25 on."""
    host = found["HostConfig"]
    host["CapAdd"] = [f"CAP_{name}" for name in host["CapAdd"] or []] or None
    host["SecurityOpt"] = [
        "no-new-privileges:true" if word == "no-new-privileges" else word for word in host["SecurityOpt"]
    ]
    host["Runtime"], host["CgroupnsMode"], host["PidsLimit"] = "io.containerd.runc.v2", "host", 0
    host["ExtraHosts"], host["VolumesFrom"], host["Devices"], host["OomKillDisable"] = [], [], None, None
    del host["KernelMemory"]
    return found


@pytest.mark.parametrize("name", ["slurmctld", "slurmd"])
def test_another_release_of_the_engine_says_the_same_in_other_words(name: str) -> None:
    assert judged(WANTS[name], answer(later(inspected(name)))).verdict is Verdict.PASS


def state(**values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda found: found["State"].update(values)


def host(**values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda found: found["HostConfig"].update(values)


def config(**values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda found: found["Config"].update(values)


def mounted(**values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda found: found["Mounts"].append({"Type": "bind", "RW": True, "Propagation": "rprivate", **values})


def remounted(found: dict[str, Any]) -> None:
    next(one for one in found["Mounts"] if one["Destination"] == "/run/machine-etc")["RW"] = True


def not_passed_on(found: dict[str, Any]) -> None:
    next(one for one in found["Mounts"] if one["Destination"] == "/home")["Propagation"] = "rprivate"


CHANGES: list[tuple[Callable[[dict[str, Any]], Any], str, str]] = [
    (state(Running=False, Status="exited"), "is exited", "start"),
    (state(Status="paused", Paused=True), "is paused", "unpause"),
    (state(Status="restarting", Restarting=True), "keeps being restarted", "nothing"),
    (host(NanoCpus=500_000_000), "NanoCpus 500000000", "replace"),
    (host(Memory=2**28, MemorySwap=2**29), "Memory 268435456", "replace"),
    (host(CpusetCpus="0"), "CpusetCpus 0", "replace"),
    (host(CpuShares=128), "CpuShares 128", "replace"),
    (host(PidsLimit=100), "PidsLimit 100", "replace"),
    (host(RestartPolicy={"Name": "no", "MaximumRetryCount": 0}), "restart policy no", "replace"),
    (host(RestartPolicy={"Name": "always", "MaximumRetryCount": 0}), "restart policy always", "replace"),
    (host(Privileged=True), "Privileged True", "replace"),
    (host(NetworkMode="default"), "network default", "replace"),
    (host(CapAdd=["NET_ADMIN"]), "has capability NET_ADMIN, which is not declared", "replace"),
    (host(CapDrop=[]), "lacks dropped capability ALL", "replace"),
    (host(SecurityOpt=[]), "security option", "replace"),
    (host(Tmpfs={}), "lacks directory in memory ", "replace"),
    (host(Devices=[{"PathOnHost": "/dev/kmsg"}]), "Devices", "replace"),
    (host(DeviceCgroupRules=["c 1:3 r"]), "has device rule c 1:3 r, which is not declared", "replace"),
    (host(DeviceRequests=[{"Driver": "nvidia", "Count": -1}]), "is given devices", "replace"),
    (host(UsernsMode="host"), "UsernsMode", "replace"),
    (config(Image=IMAGE.replace("f6d1", "0000")), "has another image", "replace"),
    (config(User="1:1"), "user 1:1", "replace"),
    (config(Labels={"clusterctl.started_with": "another"}), "clusterctl.started_with", "replace"),
    (lambda found: found.update(Args=["-D"]), "command", "replace"),
    (mounted(Source="/srv", Destination="/srv"), "has mount /srv:/srv:rw, which is not declared", "replace"),
    (remounted, "lacks mount /", "replace"),
    (not_passed_on, "lacks mount /home:/home:rw,rslave", "replace"),
    (lambda found: found.update(Mounts=found["Mounts"][1:]), "lacks mount ", "replace"),
]  # fmt: skip


@pytest.mark.parametrize("name", ["slurmctld", "slurmd"])
@pytest.mark.parametrize(("change", "said", "action"), CHANGES, ids=[said for _, said, _ in CHANGES])
def test_every_change_by_hand_is_seen_and_undone(
    name: str, change: Callable[[dict[str, Any]], Any], said: str, action: str
) -> None:
    found = inspected(name)
    change(found)

    check = judged(WANTS[name], answer(found))

    assert check.verdict is Verdict.FAIL
    assert said in check.observed
    assert containers.needed(WANTS[name], answer(found)) == action


@pytest.mark.parametrize(
    ("name", "values", "said"),
    [
        ("slurmctld", {"ReadonlyRootfs": False}, "read-only files"),
        ("slurmd", {"ReadonlyRootfs": True}, "read-only files"),
        ("slurmctld", {"PidMode": "host"}, "pid namespace"),
        ("slurmd", {"PidMode": ""}, "pid namespace"),
        ("slurmctld", {"IpcMode": "host"}, "ipc namespace"),
        ("slurmd", {"IpcMode": "private"}, "ipc namespace"),
        ("slurmd", {"CgroupnsMode": "private"}, "cgroup namespace"),
        ("slurmctld", {"MaskedPaths": [], "ReadonlyPaths": []}, "security option"),
        ("slurmd", {"MaskedPaths": ["/proc/kcore"]}, "security option"),
    ],
)
def test_what_a_container_may_see_is_compared(name: str, values: dict[str, Any], said: str) -> None:
    found = inspected(name)
    host(**values)(found)

    check = judged(WANTS[name], answer(found))

    assert (check.verdict, said in check.observed) == (Verdict.FAIL, True)


def test_a_machine_that_allows_higher_limits_has_them_set() -> None:
    found = inspected("slurmd")
    told = answer(found, raised=True)

    assert "limit memlock" in judged(SLURMD, told).observed
    found["HostConfig"]["CapAdd"].append("SYS_RESOURCE")
    found["HostConfig"]["Ulimits"] = [
        {"Name": "memlock", "Soft": -1, "Hard": -1}, {"Name": "nofile", "Soft": 524288, "Hard": 524288},
    ]  # fmt: skip
    assert judged(SLURMD, told).verdict is Verdict.PASS
    found["HostConfig"]["Ulimits"][1]["Soft"] = 1024
    assert "limit nofile" in judged(SLURMD, told).observed


ALL = ("nvidia.com/gpu=all",)


def with_gpus(way: str, driver: str = "580.95.05") -> dict[str, Any]:
    found = inspected("slurmd")
    if way == "cdi":
        found["HostConfig"]["DeviceRequests"] = [{"Driver": "cdi", "Count": 0, "DeviceIDs": list(ALL)}]
    else:
        found["HostConfig"]["Runtime"] = "nvidia"
        found["Config"]["Env"] = [f"NVIDIA_VISIBLE_DEVICES={ALL[0]}", *found["Config"]["Env"]]
    found["Config"]["Labels"]["clusterctl.nvidia_driver"] = driver
    return found


@pytest.mark.parametrize("way", ["cdi", "runtime"])
def test_gpus_are_given_by_name_in_either_of_the_engines_ways(way: str) -> None:
    want = replace(SLURMD, gpus=ALL)
    told = answer(with_gpus(way), nvidia_driver="580.95.05")

    assert judged(want, told).verdict is Verdict.PASS
    assert "nvidia.com/gpu=all" in judged(want, answer(inspected("slurmd"))).observed


def test_another_driver_makes_another_container() -> None:
    want, told = replace(SLURMD, gpus=ALL), answer(with_gpus("cdi", "580.95.05"), nvidia_driver="580.105.08")

    assert "was made with driver 580.95.05; 580.105.08 runs" in judged(want, told).observed
    assert containers.needed(want, told) == "replace"


def test_a_machine_without_the_container_or_without_the_engine_fails_and_is_acted_on() -> None:
    bare = answer(problem="docker: No such file or directory")

    assert judged(SLURMD, answer()).observed == "slurmd does not exist"
    assert (judged(SLURMD, bare).verdict, judged(SLURMD, bare).cause) == (Verdict.FAIL, bare["problem"])
    assert containers.needed(SLURMD, bare) == "create"


def test_an_engine_that_hangs_and_a_controller_that_is_silent_are_unknown_and_accuse_nobody() -> None:
    unheard = replace(SLURMD, image=None)
    # What else rests on the controller's word, as a command does, is not known either.
    unknown = replace(SLURMD, command=("another",), known=False)

    assert judged(SLURMD, None).verdict is Verdict.UNKNOWN
    for want in (unheard, unknown):
        assert judged(want, answer(inspected("slurmd"))).verdict is Verdict.UNKNOWN
    # Its state is seen all the same, and nothing is replaced for it.
    paused = inspected("slurmd")
    paused["State"]["Paused"] = True
    check = judged(unknown, answer(paused))
    assert (check.verdict, check.consequences) == (Verdict.FAIL, ())
    assert containers.needed(unknown, answer(paused)) == "unpause"


@pytest.mark.parametrize("seconds", [None, 10])
def test_the_seconds_that_a_daemon_has_to_end_are_compared_where_they_are_declared(seconds: int | None) -> None:
    found = inspected("slurmctld")
    config(StopTimeout=seconds)(found)

    assert f"has seconds to end {seconds or 'by the engine'}, not 60" in judged(SLURMCTLD, answer(found)).observed
    assert judged(replace(SLURMCTLD, stop_timeout=0), answer(found)).verdict is Verdict.PASS


def test_an_image_that_is_still_to_be_built_is_a_change() -> None:
    assert judged(replace(SLURMD, image=""), answer(inspected("slurmd"))).verdict is Verdict.FAIL


@pytest.mark.parametrize("key", ["HostConfig", "Mounts", "State", "Config", "Args", "Path"])
@pytest.mark.parametrize("value", [None, 3, "text", [3], {"a": [None]}])
def test_no_answer_crashes_the_judge_or_passes(key: str, value: Any) -> None:
    told = answer({**inspected("slurmd"), key: value})
    facts_from({"state": {"paths": {}, "packages": {}, "services": {}, "manager": {}, "containers": told}})

    assert judged(SLURMD, told).verdict is Verdict.FAIL
