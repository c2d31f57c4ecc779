"""Values that Slurm takes and a cluster cannot run with, or that mean nothing: refused, with what was meant."""

from __future__ import annotations

from typing import Any

import pytest
from declare import cluster

from provision.errors import ClusterctlError, ExitCode

BAD: list[tuple[dict[str, Any], str]] = [
    ({"Prolog": "/etc/slurm/prolog.sh"}, "write 'Prolog: prolog.sh'"),
    ({"Epilog": ["/opt/a", "/srv/end"]}, "Epilog is /srv/end"),
    ({"TaskProlog": "/usr/local/sbin/t.sh"}, "here as /run/slurm/conf/t.sh"),
    ({"TaskProlog": "/run/slurm/conf/site.sh"}, "not in the container of slurmd"),
    ({"TaskEpilog": "/optional/x"}, "not in the container of slurmd"),
    ({"HealthCheckProgram": "/usr/sbin/nhc"}, "slurm_image_extra_packages"),
    ({"HealthCheckProgram": "/opt/nhc -v"}, "a whole path without arguments"),
    ({"RebootProgram": "/sbin/reboot"}, "not in the container of slurmd"),
    ({"MailProg": "/usr/bin/mail"}, "not in the container of slurmctld"),
    ({"MailProg": "/home/mail"}, "not in the container of slurmctld"),
    ({"ResumeProgram": "/opt/site/resume"}, "not in the container of slurmctld"),
    ({"PrologSlurmctld": "site.sh"}, "it must be a path"),
    ({"EpilogSlurmctld": "/etc/slurm/end.sh"}, "not in the container of slurmctld"),
    ({"PluginDir": "/usr/lib/slurm"}, "cannot set PluginDir"),
    ({"PlugStackConfig": "/etc/slurm/plugstack.conf"}, "add its lines by slurm_conf_files"),
    ({"AccountingStorageEnforce": "none"}, "one or more of all, associations, limits"),
]
GOOD: list[dict[str, Any]] = [
    {"RebootProgram": "/opt/site/reboot -f"}, {"UnkillableStepProgram": "/usr/bin/logger"}, {"MailProg": None},
    {"TaskEpilog": "/run/slurm/conf/job_task"}, {"Prolog": "/home/admin/prolog.d/*"}, {"SrunProlog": "/usr/bin/begin"},
    {"PrologSlurmctld": "/usr/bin/true"}, {"HealthCheckProgram": "/opt/nhc"},
]  # fmt: skip


@pytest.mark.parametrize(("parameters", "words"), BAD)
def test_a_parameter_that_could_not_work_here_is_refused(parameters: dict[str, Any], words: str) -> None:
    with pytest.raises(ClusterctlError) as refused:
        cluster(slurm_conf_parameters=parameters)

    assert words in f"{refused.value.problem}. {refused.value.fix}"
    assert refused.value.exit_code is ExitCode.BAD_REQUEST
    assert refused.value.entry in [("slurm_conf_parameters", None, name) for name in parameters]


@pytest.mark.parametrize("parameters", GOOD)
def test_a_parameter_that_works_here_is_taken(parameters: dict[str, Any]) -> None:
    assert cluster(slurm_conf_parameters=parameters).slurm_parameters.keys() == parameters.keys()
