"""The machines on which users log in, refused where they cannot be that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from provision import hostlist
from provision.errors import ClusterctlError


def require_logins(groups: Mapping[str, Sequence[str]], controller: str) -> None:
    """Refuse login hosts on which jobs run. The controller may be one: it has all that they have.

    Raises:
        ClusterctlError: a compute node is in the group slurm_login; ``member`` is the first of them.
    """
    compute = set(groups.get("slurm_compute", ())) - {controller}
    if both := [host for host in dict.fromkeys(groups.get("slurm_login", ())) if host in compute]:
        raise ClusterctlError(
            f"{hostlist.fold(both)}: in the groups slurm_login and slurm_compute; what keeps Slurm's configuration"
            " on a login host takes slurmd's port",
            fix="take it out of [slurm_login]: users get to a compute node by a job (srun --pty bash)",
            member=("slurm_login", both[0]),
        )
