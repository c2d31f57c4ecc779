"""Programs that no container has, hardware that nobody means, numbers that are the system's: refused."""

from __future__ import annotations

from typing import Any

import pytest
from declare import A40, cluster

from provision.errors import ClusterctlError, ExitCode
from provision.slurm.render import render

#: Programs that no container has in which they are to run.
BAD: list[tuple[dict[str, Any], str]] = [
    ({"Prolog": "/etc/slurm/prolog.sh"}, "write 'Prolog: prolog.sh'"),
    ({"Epilog": ["/opt/a", "/srv/end"]}, "Epilog is /srv/end"),
    ({"TaskProlog": "/usr/local/sbin/t.sh"}, "here as /run/slurm/conf/t.sh"),
    ({"TaskProlog": "/run/slurm/conf/site.sh"}, "not in the container of slurmd"),
    ({"TaskProlog": "site.sh"}, "not in the container of slurmd"),
    ({"TaskEpilog": "/optional/x"}, "not in the container of slurmd"),
    ({"TaskEpilog": "/opt/../srv/x"}, "not in the container of slurmd"),
    ({"HealthCheckProgram": "/usr/sbin/nhc"}, "slurm_image_extra_packages"),
    ({"RebootProgram": "/sbin/reboot"}, "not in the container of slurmd"),
    ({"MailProg": "/usr/bin/mail"}, "not in the container of slurmctld"),
    ({"MailProg": "/home/mail"}, "not in the container of slurmctld"),
    ({"ResumeProgram": "/opt/site/resume"}, "not in the container of slurmctld"),
    ({"PrologSlurmctld": "site.sh"}, "it must be a path"),
    ({"EpilogSlurmctld": "/etc/slurm/end.sh"}, "not in the container of slurmctld"),
]
GOOD: list[dict[str, Any]] = [
    {"RebootProgram": "/opt/site/reboot -f"}, {"UnkillableStepProgram": "/usr/bin/logger"}, {"MailProg": None},
    {"TaskEpilog": "/run/slurm/conf/job_task"}, {"Prolog": "/home/admin/prolog.d/*"}, {"SrunProlog": "/bin/b"},
    {"PrologSlurmctld": "/usr/bin/true"}, {"HealthCheckProgram": "/opt/nhc"},
    {"AuthInfo": "socket=/var/run/munge/munge.socket.2,ttl=60"},
    {"SuspendProgram": "/bin/true", "ResumeProgram": "/bin/true"},
]  # fmt: skip

HARDWARE: list[tuple[dict[str, Any], str]] = [
    ({"node_gres": "gpus:A40:4"}, "did you mean gpu?"),
    ({"node_gres": "gpu:A40:4,shards:8"}, "did you mean shard?"),
    ({"node_gres_files": "/dev/sda[0-3]"}, "/dev/sda0, which is no GPU"),
    ({"node_gres_files": "/dev/nvidia[0-2],/dev/null"}, "/dev/null, which is no GPU"),
    ({"node_real_memory": 1}, "node_real_memory is 1: it is in MB"),
    ({"node_real_memory": "192"}, "as 192000 for 192 GB"),
]
USERS: list[tuple[int, str]] = [(65535, "no user's")]


@pytest.mark.parametrize(("hardware", "words"), HARDWARE)
def test_hardware_that_nobody_means_is_refused(hardware: dict[str, Any], words: str) -> None:
    with pytest.raises(ClusterctlError) as refused:
        cluster({"node1": {**A40, **hardware}})

    assert words in f"{refused.value.problem}. {refused.value.fix}"


@pytest.mark.parametrize(
    "hardware",
    [
        {"node_gres": "vgpu:2"},
        {"node_gres": "gpu:A40:4,nvme:2", "node_gres_files": "/dev/nvidia[0-3],/dev/nvme[0-1]"},
        {"node_gres": "gpu:mi300:2", "node_gres_files": "/dev/dri/renderD[128-129]"}, {"node_real_memory": 900},
    ],
)  # fmt: skip
def test_hardware_of_other_kinds_is_taken(hardware: dict[str, Any]) -> None:
    assert cluster({"node1": {**A40, **hardware}}).nodes


@pytest.mark.parametrize(("uid", "words"), USERS)
def test_a_number_that_is_the_systems_is_no_users(uid: int, words: str) -> None:
    with pytest.raises(ClusterctlError, match=words) as refused:
        cluster(cluster_users=[{"name": "ada", "uid": uid}], cluster_homes_shared=False)

    assert refused.value.entry == ("cluster_users", 0, "uid")


@pytest.mark.parametrize(("parameters", "words"), BAD)
def test_a_program_that_is_not_where_it_would_run_is_refused(parameters: dict[str, Any], words: str) -> None:
    with pytest.raises(ClusterctlError) as refused:
        cluster(slurm_conf_parameters=parameters)

    assert words in f"{refused.value.problem}. {refused.value.fix}"
    assert refused.value.exit_code is ExitCode.BAD_REQUEST
    assert refused.value.entry in [("slurm_conf_parameters", None, name) for name in parameters]


def test_a_step_that_cannot_be_killed_has_five_times_as_long_as_a_message() -> None:
    assert (
        "\nUnkillableStepTimeout=500\n" in render(cluster(slurm_conf_parameters={"MessageTimeout": 100}))["slurm.conf"]
    )
    assert (
        "\nUnkillableStepTimeout=300\n" in render(cluster(slurm_conf_parameters={"MessageTimeout": 30}))["slurm.conf"]
    )


@pytest.mark.parametrize("parameters", GOOD)
def test_a_program_that_is_where_it_runs_is_taken(parameters: dict[str, Any]) -> None:
    assert cluster(slurm_conf_parameters=parameters).slurm_parameters.keys() == parameters.keys()
