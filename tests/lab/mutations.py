"""The mutation table: which rows are broken together."""

from __future__ import annotations

from mutation import Batch, Row
from mutations_accounting import (
    ACCOUNTING,
    DATABASE_FILES,
    DATABASE_REMOVED,
    DATABASE_STOPPED,
    PASSWORD,
    SLURMDBD_REMADE,
    SLURMDBD_STOPPED,
)
from mutations_containers import (
    CONFIGURATION,
    KILLED,
    LEFT,
    LEFT_TOO,
    LOGINS,
    MISSED,
    NO_RETURN,
    PAUSED,
    REMADE,
    STATES,
    UPDATES,
)
from mutations_files import (
    COMMANDS_ASTRAY,
    FILES,
    FOR_JOBS,
    LAST_COMMANDS,
    MORE_COMMANDS,
    MORE_FILES,
    PLACES,
    PROOFS,
    SEEN,
    SENT,
)
from mutations_packages import (
    AUTHORITY,
    CERTIFICATE,
    CONTROLLER,
    EARLIER,
    ENGINE,
    MIRROR_CERTIFICATE,
    NEW_AUTHORITY,
    PACKAGES,
    REGISTRY_FILES,
)
from mutations_services import KEYS, REGISTRY_STOPPED, SERVICES, UNREAD
from mutations_users import REFUSED_USERS, USERS

#: What provision cannot mend. A busy package manager, a full disk and more memory declared than there is stand in
#: test_refusals and tests/core, on machines that are not provisioned yet.
REFUSED = (
    Row(
        "another Slurm runs",
        "node1",
        "cp /bin/sleep /usr/local/bin/slurmd; systemd-run --quiet --unit=by-hand /usr/local/bin/slurmd 600",
        {"preflight.foreign_slurm": "slurmd"},
        undo="systemctl stop by-hand; rm /usr/local/bin/slurmd",
    ),
    Row(
        "a GPU is gone",
        "node2",
        "mv /dev/nvidia1 /dev/taken",
        {"hardware.gres": "gpu:sim:1"},
        undo="mv /dev/taken /dev/nvidia1",
    ),
    Row(
        "the machine has another name",
        "head",
        "hostname other",
        {"preflight.hostname": "other"},
        undo="hostname head",
    ),
    Row(
        "slurmctld has kept the state of another cluster",
        "head",
        "cp -p /var/spool/slurmctld/clustername /root/clustername;"
        " sed -i 's/^[^|]*/former/' /var/spool/slurmctld/clustername",
        {"preflight.same_cluster": "the state of cluster former"},
        undo="mv /root/clustername /var/spool/slurmctld/clustername",
    ),
    *REFUSED_USERS,
)

#: Two for every day, in which each check turns red once, and the rest.
BATCHES = (
    Batch(
        "everything",
        (
            # In this order: dpkg has systemd read again what later rows have it not know, and a container that is made
            # takes the hosts file of then.
            *PACKAGES, *SERVICES, *REMADE, *NO_RETURN, *USERS, *MORE_FILES, *PLACES, *LOGINS, *KEYS,
            *MIRROR_CERTIFICATE, LEFT_TOO, *SLURMDBD_STOPPED, *DATABASE_REMOVED,
        ),
        verified=SEEN,
    ),
    Batch("controller", (*ENGINE, *CONTROLLER, *EARLIER, *KILLED, *PAUSED, *FOR_JOBS, *ACCOUNTING)),
    Batch("files", (*PROOFS, *SLURMDBD_REMADE, LEFT), verified=(NEW_AUTHORITY, *FILES), rare=True),
    Batch(
        "containers", (*STATES, *UNREAD, *REGISTRY_FILES, COMMANDS_ASTRAY, *SENT, *DATABASE_FILES), rare=True
    ),
    Batch("configuration", (*UPDATES, *CONFIGURATION, *CERTIFICATE, *AUTHORITY, MORE_COMMANDS, *PASSWORD), rare=True),
    Batch("stopped", (*REGISTRY_STOPPED, *DATABASE_STOPPED, *MISSED, LAST_COMMANDS), rare=True),
)  # fmt: skip
