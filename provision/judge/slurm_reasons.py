"""Why slurmctld keeps a node out, by the reason that it has written down: a program's words, never a person's. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

from provision.model.checks import Code

_AGAIN = "; then clusterctl provision slurm"
_COMPARE = f"clusterctl preflight compares {{}} with the machine; correct it or the machine{_AGAIN}"


class Reason(NamedTuple):
    """A row: what Slurm writes, as a pattern; what it means, as a code and a sentence; and what to do."""

    pattern: str
    code: Code
    cause: str
    fix: str


#: The first that fits counts. Files and functions are those of Slurm 24.11.5; 23.11 to 25.11 write the same words.
REASONS = (
    # src/interfaces/gres.c: _check_core_range_matches_sock(), since 24.11.
    Reason(
        r"doesn't match socket boundaries",
        Code.SOCKETS,
        "a GPU is near a part of a socket's cores (NPS2, NPS4, SNC), and Slurm takes whole sockets only",
        f"declare node_gpu_affinity=numa for this host{_AGAIN}",
    ),
    # src/interfaces/gres.c: _node_config_validate(). Before the rows below, of which they are no case.
    Reason(
        r"^gres/\S+ (count|type) changed and jobs are using them",
        Code.IN_USE,
        "slurmd finds other devices than before, and jobs still have the old ones",
        "squeue -w {node}; when the jobs have ended, on the node: docker restart slurmd",
    ),
    # src/interfaces/gres.c: _node_config_validate(), _valid_gres_type(), _valid_gres_types().
    Reason(
        r"^gres/\S+ count (reported lower than configured|too low)",
        Code.DEVICES,
        "slurmd finds fewer devices than node_gres counts: one is missing, or Slurm does not know it by that type",
        f"on the node: docker exec slurmd slurmd -G; {_COMPARE.format('node_gres')}",
    ),
    # src/interfaces/gres.c: _valid_gres_type(); _links_str2array(), where more was detected than node_gres counts.
    Reason(
        r"^gres/\S+ type \(.*\) reported but not configured|^Invalid GRES ",
        Code.DEVICES,
        "slurmd finds devices that node_gres does not name",
        f"on the node: docker exec slurmd slurmd -G; {_COMPARE.format('node_gres')}",
    ),
    # src/slurmctld/node_mgr.c: validate_node_specs(), these four and those of reboots and Prologs.
    Reason(
        r"Low socket\*core\*thread count|Low CPUs",
        Code.CORES,
        "the node has fewer processors than slurm.conf says: hyperthreads are off in its firmware, or CPUs are offline",
        _COMPARE.format("node_cpus, node_sockets, node_cores_per_socket and node_threads_per_core"),
    ),
    Reason(
        r"Low RealMemory",
        Code.MEMORY,
        "the node has less memory than slurm.conf says: a module failed, or node_real_memory leaves the kernel nothing",
        _COMPARE.format("node_real_memory"),
    ),
    Reason(
        r"Low TmpDisk",
        Code.DISK,
        "the node's /tmp is on a smaller file system than slurm.conf says",
        f"on the node: df -m /tmp; lower node_tmp_disk{_AGAIN}",
    ),
    Reason(
        r"CoreSpec differ",
        Code.CORES,
        "slurmd keeps other cores for the system than slurmctld expects",
        "on the node: docker restart slurmd",
    ),
    Reason(
        r"^Node unexpectedly rebooted",
        Code.REBOOTED,
        "the machine started anew by itself, and the jobs on it were lost",
        "on the node: journalctl -b -1 -e; clusterctl provision slurm takes it back",
    ),
    # src/slurmctld/node_mgr.c: check_node_timers(); src/slurmctld/power_save.c.
    Reason(
        r"^(reboot timed out|ResumeTimeout reached)",
        Code.REBOOTED,
        "the machine did not come back within ResumeTimeout of its reboot",
        "look at its console; when it is up: scontrol update NodeName={node} State=RESUME",
    ),
    # Beside validate_node_specs(): src/slurmctld/agent.c, and job_epilog_complete() in src/slurmctld/job_mgr.c.
    Reason(
        r"^(Prolog error|Epilog error|Prolog/Epilog failure|Job env setup error)",
        Code.PROGRAM,
        "a program that runs before or after jobs failed on the node",
        "on the node: docker logs --tail 50 slurmd; then scontrol update NodeName={node} State=RESUME",
    ),
    # ESLURMD_KILL_TASK_FAILED in src/common/slurm_errno.c, which slurmstepd gives as the reason.
    Reason(
        r"^Kill task failed",
        Code.PROCESS,
        "a job's process could not be ended within UnkillableStepTimeout: it hangs in a GPU's driver or a file system",
        "on the node: ps -eo pid,stat,wchan:30,args | grep ' D'; dmesg | tail; mostly only a reboot helps",
    ),
    # src/slurmctld/ping_nodes.c: ping_nodes().
    Reason(
        r"^Not responding",
        Code.SILENT,
        "slurmctld has not heard from slurmd for longer than SlurmdTimeout",
        "on the node: docker ps --all; docker logs --tail 20 slurmd; it returns by itself when it answers",
    ),
)


def reason_of(text: str) -> Reason | None:
    """Return what a node's reason means; None for what somebody has written, or another program."""
    return next((row for row in REASONS if re.search(row.pattern, text)), None)
