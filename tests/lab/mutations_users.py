"""Rows of the mutation table: the site's users and groups, changed by hand."""

from __future__ import annotations

from mutation import Row, spoilt

KEYS = "/etc/ssh/authorized_keys.d"
SSHD = "/etc/ssh/sshd_config.d/10-clusterctl.conf"

USERS = (
    Row(
        "a user is gone",
        "node1",
        "userdel ben",
        {"cluster_users.users": "ben is missing", "cluster_users.subordinate_ids": "ben has none in subuid"},
    ),
    Row(
        "a user has another shell and another home",
        "node1",
        "usermod --shell /bin/sh --home /srv ada",
        {"cluster_users.users": "ada has home /srv, not /home/ada and shell /bin/sh, not /bin/bash"},
    ),
    Row(
        "a group is gone",
        "node2",
        "sed -i /^physics:/d /etc/group /etc/gshadow",
        {"cluster_users.groups": "physics is missing"},
    ),
    Row(
        "one user is in other groups, and another, too",
        "node2",
        "gpasswd --delete ada biology; usermod --append --groups audio ben",
        {"cluster_users.members": ("ada is not in biology", "ben is also in audio")},
    ),
    Row("an empty password", "head", "passwd --delete ben", {"cluster_users.passwords": "ben has a password"}),
    Row(
        "users have other subordinate numbers",
        "node2",
        "sed -i /^ada:/d /etc/subuid; echo ben:100000:65536 >>/etc/subgid",
        {"cluster_users.subordinate_ids": ("ada has none in subuid", "and 100000:65536 in subgid")},
    ),
    Row("a home is gone", "head", "rm -r /home/ben", {"cluster_users.homes": "/home/ben is missing"}),
    *spoilt("text", "cluster_users", f"{KEYS}/ada", "head"),
    *spoilt("mode", "cluster_users", f"{KEYS}/ben", "head"),
    *spoilt("gone", "cluster_users", f"{KEYS}/grace", "head"),
    *spoilt("owner", "cluster_users", KEYS, "head"),
    *spoilt(
        "text", "cluster_users", SSHD, "head", restarts=("ssh",), services=f"ssh was started before {SSHD} changed"
    ),
)  # fmt: skip

#: Provision gives nobody another number: their files would be somebody else's.
REFUSED_USERS = (
    Row(
        "a user has another number",
        "node1",
        "usermod --uid 2099 ada",
        {"cluster_users.ids": "ada has uid 2099, declared 2001"},
        undo="usermod --uid 2001 ada",
    ),
    Row(
        "somebody whom nobody declares has the number of another",
        "node1",
        "echo t-other:x:1000:1000::/:/bin/false >>/etc/passwd",
        {"cluster_users.same_ids": "uid 1000 is t-other's, on the controller admin's"},
        undo="sed -i /^t-other:/d /etc/passwd",
    ),
    Row(
        "a group that is not declared is only on the other machines",
        "node2",
        # The distribution's group comes back as it was, and in its place, by which a user's groups are ordered.
        "cp --preserve /etc/group /etc/gshadow /run/; groupdel video",
        {"cluster_users.known_groups": "no group video, which ada needs"},
        undo="mv /run/group /run/gshadow /etc/",
    ),
)
