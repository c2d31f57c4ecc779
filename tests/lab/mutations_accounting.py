"""Rows of the mutation table: the accounting database, and what it has."""

from __future__ import annotations

from mutation import Row, spoilt
from mutations_containers import REMAKE

DIRECTORY = "/etc/slurmdbd"
SETTINGS = "/etc/mysql/mariadb.conf.d/60-clusterctl.cnf"
#: Nobody knows which accounts there are while the database is away.
UNHEARD = ("slurm_accounts.qos", "slurm_accounts.accounts", "slurm_accounts.users")
SACCTMGR = "docker exec slurmdbd sacctmgr --immediate --quiet"

#: None of these is in the way of a job.
ACCOUNTING = (
    *spoilt("mode", "slurm_database", f"{DIRECTORY}/slurmdbd.conf", "head"),
    *spoilt("owner", "slurm_database", DIRECTORY, "head"),
    Row(
        "accounts, users and QOS were changed by hand",
        "head",
        f"{SACCTMGR} modify account where name=biology set Fairshare=7;"
        f"{SACCTMGR} modify qos where name=short set Priority=1;"
        f"{SACCTMGR} delete user where name=ada account=test1267",
        {
            "slurm_accounts.accounts": "Fairshare of biology is 7, not 40",
            "slurm_accounts.qos": "Priority of short is 1, not 100",
            "slurm_accounts.users": "ada is missing in test1267",
        },
    ),
    Row(
        "killed between slurmdbd's configuration and its restart",
        "head",
        f"touch {DIRECTORY}/slurmdbd.conf",
        {"slurm_database.current": f"slurmdbd was started before {DIRECTORY}/slurmdbd.conf changed"},
        (),
        ("slurmdbd",),
    ),
)

DATABASE_STOPPED = (
    Row(
        "MariaDB is stopped",
        "head",
        "systemctl stop mariadb",
        {"slurm_database.services": "mariadb is inactive", "slurm_database.answers": "Unable to connect to database"},
        UNHEARD,
        ("mariadb",),
    ),
)

SLURMDBD_STOPPED = (
    Row(
        "slurmdbd is stopped",
        "head",
        "docker stop --time 30 slurmdbd",
        {"slurm_database.containers": "slurmdbd is exited", "slurm_database.answers": "is not running"},
        UNHEARD,
        ("slurmdbd",),
    ),
)

DATABASE_FILES = (
    *spoilt("owner", "slurm_database", f"{DIRECTORY}/password.conf", "head"),
    # sacctmgr beside slurmdbd reads it, so that nobody can be asked what the database has.
    Row(
        f"mode of {DIRECTORY}/slurm.conf",
        "head",
        f"chmod 0601 {DIRECTORY}/slurm.conf",
        {
            "slurm_database.files": f"{DIRECTORY}/slurm.conf has mode 0601, not",
            "slurm_database.answers": "sacctmgr: fatal: Unable to process configuration file",
        },
        ("slurm_accounts.accounts", "slurm_accounts.qos", "slurm_accounts.users"),
    ),
)

#: Where nothing that slurmdbd reads at its start is broken.
SLURMDBD_REMADE = (
    Row(
        "slurmdbd's days are not the site's",
        "head",
        REMAKE.format(
            name="slurmdbd", change='host["Binds"] = [one for one in host["Binds"] if "localtime" not in one]'
        ),
        {"slurm_database.containers": "slurmdbd lacks mount /etc/localtime"},
        (),
        ("slurmdbd",),
    ),
)

PASSWORD = (
    *spoilt(
        "gone", "slurm_database", f"{DIRECTORY}/password.conf", "head", restarts=("slurmdbd",),
        current=f"{DIRECTORY}/password.conf is absent",
    ),
    *spoilt(
        "text", "slurm_database", SETTINGS, "head", restarts=("mariadb",),
        services=f"mariadb was started before {SETTINGS} changed",
    ),
    Row(
        "slurmctld has run without the database",
        "head",
        "sed -i 's/[0-9]*$/1/' /var/spool/slurmctld/clustername",
        {"slurm_database.cluster": "and 1 in slurmctld's saved state"},
    ),
)  # fmt: skip

DATABASE_REMOVED = (
    Row(
        "MariaDB is removed",
        "head",
        "dpkg --remove --force-depends mariadb-server mariadb-client",
        {
            "slurm_database.packages": ("mariadb-server", "mariadb-client"),
            "slurm_database.services": "mariadb is ",
            # The words are those of the engine, where slurmdbd is stopped, too.
            "slurm_database.answers": "",
        },
        UNHEARD,
        ("mariadb",),
    ),
)
