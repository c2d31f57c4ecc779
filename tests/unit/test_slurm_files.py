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


def test_a_site_does_without_our_programs() -> None:
    told = render(cluster(slurm_conf_parameters={"Prolog": None, "Epilog": None, "TaskProlog": None}))

    assert set(told) == {"slurm.conf", "gres.conf", "cgroup.conf", "job_container.conf", "plugstack.conf"}
    assert "job_begin" not in told["slurm.conf"]


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


def prolog(interpreter: str) -> dict[str, Any]:
    return {"slurm_conf_files": {"a.sh": f"#!{interpreter}\n"}, "slurm_conf_parameters": {"Prolog": "a.sh"}}


#: Variables that are refused, each with a word of the refusal.
BAD: list[tuple[dict[str, Any], str]] = [
    ({"slurm_conf_files": {"topology.conf": "x" * 300_000}}, "262144 bytes at most"),
    ({"slurm_conf_files": {"plugstack.conf": "# ours\nrequired nosuch.so"}}, "its line 2: nosuch.so is not in"),
    ({"slurm_conf_files": {"helpers.conf": "Feature=a Helper=/srv/a"}}, "/srv/a is not in"),
    *(({"slurm_conf_files": {"job_container.conf": f"BasePath=/var/tmp\n{line}"}}, said) for line, said in (
        ("Dirs=/tmp,/home", "Dirs has /home"), ("InitScript=/opt/../etc/x", "/etc/x is not in the container"),
    )),
    ({"slurm_conf_parameters": {"HealthCheckProgram": "/usr/sbin/nhc"}}, "slurm_image_extra_packages"),
    ({"slurm_conf_parameters": {"JobSubmitPlugins": "throttle,lua"}}, "'job_submit.lua: |'"),
    *((prolog(path), "is not in Slurm's image") for path in ("/usr/bin/env zsh", "/usr/bin/env -S ruby -w")),
]  # fmt: skip


@pytest.mark.parametrize(("variables", "words"), BAD)
def test_what_could_not_work_is_refused(variables: dict[str, Any], words: str) -> None:
    with pytest.raises(ClusterctlError) as refused:
        cluster(**variables)

    assert words in f"{refused.value.problem} {refused.value.fix}"
    assert refused.value.exit_code is ExitCode.BAD_REQUEST


SCRIPTS: list[dict[str, Any]] = [
    {"slurm_conf_files": {"cli_filter.lua": "x", "jobcomp.lua": "y", "job_submit.lua": "not yet read"},
     "slurm_conf_parameters": {"CliFilterPlugins": "cli_filter/lua", "JobCompType": "jobcomp/lua"}},
    *map(prolog, ("/usr/bin/env -S python3 -I", "/usr/bin/python3.13", "/opt/bin/x")),
    {**prolog("/usr/bin/zsh"), "slurm_image_extra_packages": ["zsh"]},
    {"slurm_conf_files": {"plugstack.conf": "required x.so"}, "slurm_image_extra_packages": ["site-spank"]},
]  # fmt: skip


@pytest.mark.parametrize("site", SCRIPTS)
def test_a_script_that_its_plugin_or_interpreter_runs_stands_as_it_is(site: dict[str, Any]) -> None:
    told = render(cluster(**site))

    for name, text in site.get("slurm_conf_files", {}).items():
        assert text in told[name]


@pytest.mark.parametrize(
    ("site", "program"),
    [
        ({}, "/opt/nhc"),
        ({"slurm_image_extra_packages": ["nhc"]}, "/usr/sbin/nhc"),
        ({"slurm_image_base": "registry.site.example/debian:13"}, "/usr/local/sbin/nhc"),
        ({"slurm_service_read_only_directories": ["/site"]}, "/site/sbin/nhc"),
        ({"slurm_service_job_directories": "{{ site_directories }}"}, "/site/sbin/nhc"),
    ],
)
def test_what_a_site_has_put_into_the_image_or_shows_to_jobs_may_be_a_program(
    site: dict[str, Any], program: str
) -> None:
    assert cluster(**site, slurm_conf_parameters={"HealthCheckProgram": program}).slurm_parameters
