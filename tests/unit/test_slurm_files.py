"""What a site adds to Slurm's files beside slurm.conf: cgroup.conf's parameters, other files, further programs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from declare import A40, cluster
from machines import plugin

from provision.content import ROOT
from provision.errors import ClusterctlError, ExitCode
from provision.slurm.conf import unconfined
from provision.slurm.names import FETCHED
from provision.slurm.render import render

SCRIPT = "#!/bin/sh\ntrue\n"

OTHER = {"url": "https://packages.site.example/enroot_3.5.0-1_amd64.deb", "sha256": "0" * 64}


def prolog(interpreter: str) -> dict[str, Any]:
    return {"slurm_conf_files": {"a.sh": f"#!{interpreter}\n"}, "slurm_conf_parameters": {"Prolog": "a.sh"}}


#: Variables that are refused, each with a word of the refusal.
BAD: list[tuple[dict[str, Any], str]] = [
    ({"slurm_conf_cgroup_parameters": {"Frobnicate": 1}}, "no parameter of cgroup.conf"),
    ({"slurm_conf_cgroup_parameters": {"MessageTimeout": 1}}, "remove it here"),
    ({"slurm_conf_cgroup_parameters": {"ConstrainCore": True}}, "did you mean ConstrainCores"),
    ({"slurm_conf_cgroup_parameters": {"ConstrainCores": "perhaps"}}, "must be YES or NO"),
    ({"slurm_conf_cgroup_parameters": {"MaxRAMPercent": "half"}}, "a percentage from 10 to 100"),
    ({"slurm_conf_cgroup_parameters": {"AllowedKmemSpace": 5}}, "23.02 was its last"),
    ({"slurm_conf_cgroup_parameters": {"CgroupSlice": "x"}}, "it came with 25.11"),
    ({"slurm_conf_cgroup_parameters": {"IgnoreSystemd": False}}, "cannot set IgnoreSystemd"),
    ({"slurm_conf_cgroup_parameters": {"CGROUPPLUGIN": "cgroup/v1"}}, "node_cgroup_version"),
    ({"slurm_conf_cgroup_parameters": {"ConstrainCores": True, "CONSTRAINCORES": True}}, "twice"),
    ({"slurm_conf_cgroup_parameters": ["ConstrainCores"]}, "must map parameters of cgroup.conf"),
    ({"slurm_conf_cgroup_parameters": {"MemorySwappiness": 500}}, "a whole number from 0 to 100"),
    ({"slurm_conf_cgroup_parameters": {"MemorySwappiness": "UNLIMITED"}}, "a whole number from 0 to 100"),
    ({"slurm_conf_cgroup_parameters": {"MaxRAMPercent": 250}}, "a percentage from 10 to 100"),
    ({"slurm_conf_cgroup_parameters": {"AllowedRAMSpace": 0}}, "a percentage from 10 to 1000"),
    ({"slurm_conf_cgroup_parameters": {"AllowedRAMSpace": 0.9}}, "a percentage from 10 to 1000"),
    ({"slurm_conf_cgroup_parameters": {"AllowedSwapSpace": "50%"}}, "it must be a number"),
    ({"slurm_conf_cgroup_parameters": {"CgroupMountpoint": "/cgroup"}}, "/sys/fs/cgroup"),
    ({"slurm_conf_cgroup_parameters": {"CgroupReleaseAgentDir": "/x"}}, "Slurm has removed it"),
    ({"slurm_conf_cgroup_parameters": {"AllowedDevicesFile": "/x"}}, "Slurm has removed it"),
    ({"slurm_conf_cgroup_parameters": {"EnableExtraControllers": "io"}}, "it came with 25.05"),
    ({"slurm_database_parameters": {"MessageTimeout": 0}}, "a whole number from 1"),
    ({"slurm_database_parameters": {"ArchiveDir": "rel"}}, "cannot set ArchiveDir"),
    ({"slurm_database_parameters": {"ArchiveJobs": True}}, "goes with its container"),
    ({"slurm_database_parameters": {"DefaultQOS": "nosuch"}, "database": True}, "define it in slurm_qos"),
    ({"slurm_database_parameters": {"DefaultQOS": "norml"}, "database": True}, "did you mean normal?"),
    ({"slurm_database_parameters": {"MaxQueryTimeRange": "1month"}}, "minutes, hours:minutes:seconds"),
    ({"slurm_database_parameters": {"StorageLoc": "other"}}, "cannot set StorageLoc"),
    ({"slurm_database_parameters": {"DbdPort": 7000}}, "6819"),
    ({"slurm_database_parameters": {"StoragePass": "x"}}, "cannot set StoragePass"),
    ({"slurm_database_parameters": {"DbdHost": "x"}}, "cannot set DbdHost"),
    ({"slurm_database_parameters": {"PurgeJobsAfter": "12months"}}, "did you mean PurgeJobAfter"),
    ({"slurm_database_parameters": {"MaxPurgeLimit": 5}}, "it came with 25.11"),
    ({"slurm_database_parameters": {"CommitDelay": "soon"}}, "must be a whole number"),
    ({"slurm_database_parameters": {"PurgeJobAfter": "2years"}}, "hours, days or months"),
    ({"slurm_database_parameters": {"TrackWCKey": "maybe"}}, "must be YES or NO"),
    ({"slurm_database_parameters": {"ConstrainCores": True}}, "one of cgroup.conf"),
    ({"slurm_conf_files": "topology.conf"}, "must map names of files"),
    ({"slurm_conf_files": {"slurm.conf": "x"}}, "made from the inventory"),
    ({"slurm_conf_files": {"slurmdbd.conf": "x"}}, "no file that Slurm's daemons read"),
    ({"slurm_conf_files": {"../evil.sh": SCRIPT}}, "no file that Slurm's daemons read"),
    ({"slurm_conf_files": {"topology.conf": ""}}, "must be the file's text"),
    ({"slurm_conf_files": {"topology.conf": ["SwitchName=s0"]}}, "must be the file's text"),
    ({"slurm_conf_files": {"topology.conf": "x" * 300_000}}, "262144 bytes at most"),
    ({"slurm_conf_files": {"topology.yaml": "x"}}, "it came with 25.05"),
    ({"slurm_conf_files": {"site.sh": "#!/bin/sh\r\ntrue\r\n"}}, "as Windows ends them"),
    ({"slurm_conf_files": {"site.sh": "true\n"}, "slurm_conf_parameters": {"Prolog": "site.sh"}}, "no interpreter"),
    ({"slurm_conf_files": {"site.sh": SCRIPT}}, "which no Prolog or Epilog"),
    ({"slurm_conf_parameters": {"Prolog": "site.sh"}}, "not in slurm_conf_files"),
    ({"slurm_conf_parameters": {"Epilog": ["/opt/a", "b"]}}, "must be a path"),
    ({"slurm_conf_parameters": {"Epilog": [7]}}, "must be a path"),
    ({"slurm_conf_parameters": {"Prolog": "/etc/slurm/site.sh"}}, "write 'Prolog: site.sh', and its text as site.sh"),
    ({"slurm_conf_parameters": {"Epilog": "/srv/end"}}, "write 'Epilog: end.sh'"),
    ({"slurm_conf_parameters": {"HealthCheckProgram": "/sbin/nhc"}}, "slurm_image_extra"),
    ({"slurm_conf_parameters": {"MailProg": "/usr/bin/mail"}}, "not in the container of slurmctld"),
    ({"slurm_conf_parameters": {"PrologSlurmctld": "site.sh"}}, "a path in the daemon's container give"),
    ({"slurm_conf_parameters": {"Prolog": "/opt/a b"}}, "no blanks"),
    ({"slurm_version": "23.11", "slurm_conf_parameters": {"Prolog": "/opt/a"}}, "runs one Prolog"),
    (
        {"slurm_version": "23.11", "slurm_conf_parameters": {"PrologSlurmctld": ["/opt/a", "/opt/b"]}},
        "runs one PrologSlurmctld",
    ),
    *(({"slurm_conf_parameters": {name: value}}, f"'{script}: |'") for name, value, script in (
        ("JobSubmitPlugins", "throttle,lua", "job_submit.lua"), ("Jobsubmitplugins", "lua", "job_submit.lua"),
        ("CliFilterPlugins", ["x", "cli_filter/lua"], "cli_filter.lua"), ("JobCompType", "jobcomp/lua", "jobcomp.lua"),
    )),
    *((prolog(path), "is not in Slurm's image") for path in
      ("/usr/bin/zsh", "/usr/bin/env zsh", "/usr/bin/env -S ruby -w", "/usr/local/bin/python3", "/usr/bin/python")),
    *(({"nodes": {"node1": {**A40, "node_cgroup_version": 1}}, "slurm_conf_cgroup_v1_allowed": True,
        "slurm_conf_parameters": {name: value}}, f"remove {name}")
      for name, value in (("TaskPlugin", "task/affinity,task/cgroup"), ("ProctrackType", "proctrack/cgroup"))),
    ({"job_container_runtime": "docker"}, "must be podman, pyxis, apptainer, none"),
    ({"job_container_runtime": "enroot"}, "by its plugin pyxis"),
    ({"job_container_runtime": "apptainer"}, "brings no package of it"),
    ({"job_container_runtime": "apptainer", "job_container_packages": [OTHER]}, "brings no package of it"),
    ({"job_container_packages": "x.deb"}, "it must be a list"),
    ({"job_container_packages": ["x.deb"]}, "must have url and sha256"),
    ({"job_container_packages": [{"url": "/srv/x.deb", "sha256": "0" * 64}]}, "no address of a Debian package"),
    ({"job_container_packages": [{"url": "http://a/x.deb;reboot.deb", "sha256": "0" * 64}]}, "no address"),
    ({"job_container_packages": [OTHER | {"sha256": "0" * 63}]}, "no SHA-256"),
    ({"job_container_runtime": "pyxis"}, "has no plugstack.conf that loads it"),
    ({"slurm_conf_files": {"plugstack.conf": "required /opt/spank_pyxis.so"}}, "set job_container_runtime=pyxis"),
    ({"slurm_conf_parameters": {"LaunchParameters": ["use_interactive_step", "test_exec"]}}, "what only an image has"),
]  # fmt: skip


@pytest.mark.parametrize(("variables", "words"), BAD)
def test_what_could_not_work_is_refused(variables: dict[str, Any], words: str) -> None:
    with pytest.raises(ClusterctlError) as refused:
        cluster(**variables)

    assert words in f"{refused.value.problem} {refused.value.fix}"
    assert refused.value.exit_code is ExitCode.BAD_REQUEST


SCRIPTS: list[dict[str, Any]] = [
    {"slurm_conf_files": {"job_submit.lua": "return 0"}, "slurm_conf_parameters": {"JobSubmitPlugins": "lua"}},
    {"slurm_conf_files": {"cli_filter.lua": "x", "jobcomp.lua": "y", "job_submit.lua": "not yet read"},
     "slurm_conf_parameters": {"CliFilterPlugins": "cli_filter/lua", "JobCompType": "jobcomp/lua"}},
    {"slurm_conf_parameters": {"JobSubmitPlugins": "require_timelimit,all_partitions"}},
    *map(prolog, ("/bin/bash", "/usr/bin/env bash", "/usr/bin/env -S python3 -I", "/usr/bin/python3.13", "/opt/bin/x")),
    {**prolog("/usr/bin/zsh"), "slurm_image_extra_packages": ["zsh"]},
    {"slurm_conf_files": {"plugstack.conf": "optional nosuch.so\nrequired /opt/site/x.so"}},
    {"slurm_conf_files": {"plugstack.conf": "required x.so"}, "slurm_image_extra_packages": ["site-spank"]},
]  # fmt: skip


@pytest.mark.parametrize("site", SCRIPTS)
def test_a_script_that_its_plugin_or_interpreter_runs_stands_as_it_is(site: dict[str, Any]) -> None:
    told = render(cluster(**site))

    for name, text in site.get("slurm_conf_files", {}).items():
        assert text in told[name]


def test_srun_may_look_for_programs_on_its_own_machine_where_no_step_is_in_an_image() -> None:
    sites = {"job_container_runtime": "none", "slurm_conf_parameters": {"LaunchParameters": "test_exec"}}
    assert cluster(**sites).slurm_parameters["LaunchParameters"] == "test_exec"


def test_the_sites_programs_run_after_the_clusters_own() -> None:
    text = render(
        cluster(
            slurm_conf_parameters={"PROLOG": ["site.sh", "/opt/second"], "Epilog": "/opt/last"},
            slurm_conf_files={"site.sh": SCRIPT},
        )
    )["slurm.conf"]

    lines = [line for line in text.splitlines() if line.startswith(("Prolog=", "Epilog="))]
    assert lines == [
        "Prolog=job_begin",
        "Epilog=job_end",
        "Epilog=/opt/last",
        "Prolog=job_task",
        "Prolog=site.sh",
        "Prolog=/opt/second",
    ]


@pytest.mark.parametrize("release", ["23.11", "24.11", "25.11"])
def test_every_program_that_slurm_conf_names_comes_to_a_node_together_with_it(release: str) -> None:
    told = render(cluster(slurm_version=release))

    named = re.findall(r"^(?:(?:Task)?(?:Prolog|Epilog)|\w*Program)=(\S+)$", told["slurm.conf"], re.M)
    fetched = set(re.findall(r"^(?:Prolog|Epilog)=([^/\s]+)$", told["slurm.conf"], re.M))

    assert {"job_begin", "job_end"} <= fetched <= told.keys()
    assert ("/run/slurm/conf/job_task" in named) == (release != "23.11"), "before, one Prolog only"
    for program in named:
        assert program.removeprefix("/run/slurm/conf/") in fetched, "a node's image may be older than its slurm.conf"
        assert told[program.removeprefix("/run/slurm/conf/")].startswith("#!/")


@pytest.mark.parametrize(
    ("site", "program"),
    [
        ({"slurm_image_extra_packages": ["nhc"]}, "/usr/sbin/nhc"),
        ({"slurm_image_base": "registry.site.example/debian:13"}, "/usr/local/sbin/nhc"),
        ({"slurm_service_read_only_directories": ["/site"]}, "/site/sbin/nhc"),
        ({"slurm_service_job_directories": "/apps,/site"}, "/site/sbin/nhc"),
        ({"slurm_service_job_directories": "{{ site_directories }}"}, "/site/sbin/nhc"),
    ],
)
def test_what_a_site_has_put_into_the_image_or_shows_to_jobs_may_be_a_program(
    site: dict[str, Any], program: str
) -> None:
    named = {"slurm_conf_parameters": {"HealthCheckProgram": program}}

    assert cluster(**site, **named).slurm_parameters
    with pytest.raises(ClusterctlError, match="which is not in the container of slurmd"):
        cluster(**named)


def test_a_program_may_be_on_a_file_system_that_nodes_mount_and_no_other() -> None:
    mounts = [{"path": "/apps", "fstype": "present"}]

    assert cluster(cluster_mounts=mounts, slurm_conf_parameters={"Epilog": "/apps/end"}).slurm_parameters
    with pytest.raises(ClusterctlError, match="Epilog is /application/end, which is not in the container of slurmd"):
        cluster(cluster_mounts=mounts, slurm_conf_parameters={"Epilog": "/application/end"})


def test_a_site_does_without_our_programs() -> None:
    told = render(cluster(slurm_conf_parameters={"Prolog": None, "Epilog": None, "TaskProlog": None}))

    assert set(told) == {"slurm.conf", "gres.conf", "cgroup.conf", "job_container.conf", "plugstack.conf"}
    assert "job_begin" not in told["slurm.conf"]


def test_files_stand_beside_ours_as_they_are_declared() -> None:
    told = render(
        cluster(
            slurm_conf_parameters={"TopologyPlugin": "topology/tree"},
            slurm_conf_files={"topology.conf": "SwitchName=s0 Nodes=node[1-2]"},
        )
    )

    assert told.keys() - render(cluster()).keys() == {"topology.conf"}
    assert told["topology.conf"] == "SwitchName=s0 Nodes=node[1-2]"


def test_a_sites_lines_of_plugstack_conf_are_added_to_ours() -> None:
    ours, lines = "\noptional spank_container.so\n", "optional /opt/site.so a=b\n"

    assert ours in render(cluster())["plugstack.conf"]
    both = render(cluster(slurm_conf_files={"plugstack.conf": lines}))["plugstack.conf"]
    assert ours in both
    assert both.endswith(f"\n{lines}")


@pytest.mark.parametrize("runtime", ["pyxis", "none"])
def test_a_site_that_has_pyxis_has_no_plugin_of_ours(runtime: str) -> None:
    lines = "required /opt/spank_pyxis.so\n"
    text = render(cluster(job_container_runtime=runtime, slurm_conf_files={"plugstack.conf": lines}))["plugstack.conf"]

    assert "spank_container.so" not in text
    assert text.endswith(f"\n{lines}")


def test_a_job_has_a_tmp_of_its_own_unless_the_site_says_otherwise() -> None:
    ours, later = render(cluster()), render(cluster(slurm_version="25.11"))
    shared = render(cluster(slurm_conf_parameters={"JobContainerType": None, "PrologFlags": "Alloc"}))
    old = render(cluster({"node1": {**A40, "node_cgroup_version": 1}}, slurm_conf_cgroup_v1_allowed=True))
    own = render(cluster(slurm_conf_files={"job_container.conf": "BasePath=/var/tmp"}))

    assert "\nJobContainerType=job_container/tmpfs\n" in ours["slurm.conf"]
    assert "\nPrologFlags=Contain\n" in ours["slurm.conf"]
    assert "\nNamespaceType=namespace/tmpfs\n" in later["slurm.conf"]
    assert "\nDirs=/tmp,/var/tmp,/dev/shm\n" in ours["job_container.conf"]
    assert "JobContainerType" not in shared["slurm.conf"]
    for name in ("JobContainerType", "NamespaceType"):
        newest = render(cluster(slurm_conf_parameters={name: None}, slurm_version="25.11"))
        assert "namespace/tmpfs" not in newest["slurm.conf"], "either name is both"
    assert "JobContainerType" not in old["slurm.conf"], "jobs that are not confined share the node's"
    assert own["job_container.conf"] == "BasePath=/var/tmp"


def test_parameters_of_cgroup_conf_take_the_place_of_ours() -> None:
    text = render(cluster(slurm_conf_cgroup_parameters={"CONSTRAINSWAPSPACE": None, "MaxRAMPercent": 98}))[
        "cgroup.conf"
    ]

    assert "ConstrainSwapSpace" not in text
    assert "# set by slurm_conf_cgroup_parameters\nMaxRAMPercent=98\n" in text
    assert "ConstrainDevices=yes" in text


@pytest.mark.parametrize("value", [None, "no"])
def test_a_site_that_takes_confinement_away_is_told_so(value: str | None) -> None:
    told = unconfined(cluster(slurm_conf_cgroup_parameters={"ConstrainDevices": value}))

    assert told == "slurm_conf_cgroup_parameters leaves ConstrainDevices out"
    assert unconfined(cluster(slurm_conf_cgroup_parameters={"ConstrainDevices": True})) == ""


def test_what_slurmctld_alone_reads_is_expected_of_no_node() -> None:
    role = plugin("roles/slurm_service/filter_plugins/slurm_service.py")
    files = {"slurm.conf": "a", "job_submit.lua": "b", "cli_filter.lua": "c", "gres.conf": "d"}

    assert role.slurm_service_only(files, None).keys() == files.keys() - {"job_submit.lua"}
    assert role.slurm_service_only(files, ["slurm.conf", "job_submit.lua"]) == {"slurm.conf": "a"}
    assert role.slurm_service_only(None, None) is None


def test_the_role_removes_what_slurmctld_would_hand_on_undeclared() -> None:
    role = yaml.safe_load(Path(ROOT, "roles/slurm_conf/vars/main.yml").read_text(encoding="utf-8"))

    assert set(role["__slurm_conf_fetched"]) == FETCHED.keys()


def test_parameters_of_slurmdbd_conf_are_taken() -> None:
    given = {"PurgeJobAfter": "24months", "TrackWCKey": True, "PurgeStepAfter": None, "DebugFlags": ["DB_JOB", "Net"]}
    given |= {"DefaultQOS": "gold", "MaxQueryTimeRange": "60-0", "Parameters": "PreserveCaseUser", "CommitDelay": 1}

    assert cluster(database=True, slurm_qos=[{"name": "gold"}], slurm_database_parameters=given)


def test_parameters_of_cgroup_conf_are_taken_within_their_bounds() -> None:
    given = {"AllowedRAMSpace": 101.5, "AllowedSwapSpace": 0, "MaxRAMPercent": "98", "MemorySwappiness": 0}
    given |= {"CgroupMountpoint": "/sys/fs/cgroup", "MinRAMSpace": 64, "SignalChildrenProcesses": True}

    assert cluster(slurm_conf_cgroup_parameters=given).cgroup_parameters.keys() == given.keys()
    later = {"EnableExtraControllers": "io,pids", "CgroupSlice": "system.slice"}
    assert cluster(slurm_version="25.11", slurm_conf_cgroup_parameters=later).cgroup_parameters == later
