"""Rows of the mutation table: services, keys, limits, users, and what was killed between a write and its restart."""

from __future__ import annotations

from mutation import Row, spoilt
from mutations_files import LIMITS, MANAGER, MUNGE

DAEMON = "/etc/docker/daemon.json"
KEY = "/etc/munge/munge.key"
SMALL = "printf '[Manager]\\nDefaultLimitMEMLOCK=1M\\n'"

SERVICES = (
    Row("munge is stopped", "node1", "systemctl stop munge", {"munge.services": "munge is inactive"}, (), ("munge",)),
    Row(
        "munge is not started at boot",
        "node2",
        "systemctl disable munge",
        {"munge.services": "munge is not started at boot"},
    ),
    Row("munge is masked", "head", "systemctl mask munge", {"munge.services": "munge is masked"}),
    Row(
        "the mirror is stopped",
        "node1",
        "systemctl stop clusterctl-mirror",
        {"container_images.services": "clusterctl-mirror is inactive"},
        (),
        ("clusterctl-mirror",),
    ),
    Row(
        "the registry's writing side is not started at boot",
        "head",
        "systemctl disable docker-registry-write",
        {"container_images.services": "docker-registry-write is not started at boot"},
    ),
    Row(
        "the engine is not started at boot",
        "node1",
        "systemctl disable docker",
        {"container_engine.services": "docker is not started at boot"},
    ),
    # A text that is no JSON is refused, and nothing is changed.
    Row(
        "containers' logs grow larger than declared",
        "head",
        f"sed -i 's/\"max-file\": \"3\"/\"max-file\": \"9\"/' {DAEMON}",
        {
            "container_engine.files": f"{DAEMON} has another text",
            "container_engine.services": f"docker was started before {DAEMON} changed",
        },
        (),
        ("docker",),
    ),
    Row(
        "killed between the engine's configuration and its restart",
        "node2",
        f"touch {DAEMON}",
        {"container_engine.services": f"docker was started before {DAEMON} changed"},
        (),
        ("docker",),
    ),
    Row(
        "systemd gives services another limit",
        "node1",
        f"{SMALL} >{MANAGER}/clusterctl.conf; systemctl daemon-reexec",
        {
            "base_system.files": f"{MANAGER}/clusterctl.conf has another text",
            "base_system.limits": "services may lock 1048576",
        },
    ),
    Row(
        "killed between systemd's settings and their reading",
        "node2",
        f"cd {MANAGER}; cp -p clusterctl.conf /root/right; {SMALL} >clusterctl.conf; systemctl daemon-reexec;"
        " cp -p /root/right clusterctl.conf; rm /root/right",
        {"base_system.limits": "services may lock 1048576"},
    ),
    Row(
        "logins may lock next to nothing",
        "head",
        f"printf '* - memlock 64\\n' >{LIMITS}/90-clusterctl.conf",
        {"base_system.files": f"{LIMITS}/90-clusterctl.conf has another text", "base_system.memlock": "64 (KiB)"},
    ),
    Row(
        "the proof's user has another shell",
        "node1",
        "usermod --shell /bin/false grace",
        {"ddp_validation.user": "/bin/false", "cluster_users.users": "grace has shell /bin/false, not /bin/bash"},
    ),
    Row(
        # Its layers are there still: an empty store is each first provision's.
        "the store that all users share knows no image",
        "node1",
        "rm -r /var/lib/clusterctl/images/overlay-images",
        {"ddp_validation.stored": "not there"},
    ),
    Row(
        "the proof's user is gone",
        "node2",
        "userdel grace",
        {
            "ddp_validation.user": "no such user",
            "cluster_users.users": "grace is missing",
            "cluster_users.subordinate_ids": "grace has none in subuid",
        },
    ),
)  # fmt: skip

UNREAD = spoilt(
    "gone", "munge", f"{MUNGE}/clusterctl.conf", "head", services="munge has unit files that systemd has not read yet"
)

REGISTRY_STOPPED = (
    Row(
        "the registry is stopped",
        "head",
        "systemctl stop docker-registry",
        {
            "container_images.services": "docker-registry is inactive",
            "images.registry_answers": "",
        },
        (),
        ("docker-registry",),
    ),
)

KEYS = (
    Row(
        "the key may be read by munge's group",
        "node1",
        f"chmod 0440 {KEY}",
        {"munge.key_file": "0440 munge:munge"},
    ),
    Row(
        "a node has a key of its own",
        "node2",
        f"dd if=/dev/urandom of={KEY} bs=1024 count=1; systemctl restart munge",
        {"munge.key": "another key than the controller's"},
        (),
        ("munge",),
    ),
)
