"""Mistakes about shared file systems, homes and users, each beside what is right."""

from __future__ import annotations

from typing import Any

import pytest
from declare import A40

from provision.errors import ClusterctlError
from provision.inventory.declared import cluster_from
from provision.model.cluster import Cluster

HOME = {"path": "/home", "fstype": "nfs4", "source": "nas:/srv/home"}


def site(servers: tuple[str, ...] = (), **variables: Any) -> Cluster:
    """Return the cluster of a controller and a node, of which some export."""
    of_all = {"cluster_name": "lab", **variables}
    groups = {
        "all": ("head", "node1"),
        "slurm_controller": ("head",),
        "slurm_compute": ("node1",),
        "nfs_server": servers,
    }
    return cluster_from(groups, {"head": dict(of_all), "node1": {**A40, **of_all}})


def mounts(*told: dict[str, Any], servers: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"cluster_mounts": [{**HOME, **one} for one in told], "servers": servers}


def local(path: str) -> dict[str, Any]:
    return {"path": path, "fstype": "local", "source": None}


def lustre(source: str, **more: Any) -> dict[str, Any]:
    return mounts({"path": "/lustre", "fstype": "lustre", "source": source, **more})


def users(*told: dict[str, Any], **variables: Any) -> dict[str, Any]:
    people = [{"name": "ab"[number], "uid": 2001 + number, **one} for number, one in enumerate(told)]
    return {"cluster_users": people, "cluster_homes_shared": False, **variables}


def dirs(text: str, **variables: Any) -> dict[str, Any]:
    return {**variables, "slurm_conf_files": {"job_container.conf": f"BasePath=/var/tmp/%n\n{text}"}}


BAD: list[tuple[dict[str, Any], str]] = [
    (mounts({"source": "nfs://nas/srv/home"}), "write it as mount(8) does: nas:/srv/home"),
    (mounts({"source": "nfs://nas:2049/srv"}), "mount(8) does: nas:/srv"),
    (mounts({"source": "HEAD:/srv/home"}, servers=("head",)), "write head:/srv/home"),
    (mounts({}, local("/home/scratch")), "lies on /home, which comes from nas:/srv/home"),
    (mounts({"path": "/a", "source": "head:/b/x"}, {"path": "/b", "source": "node1:/a/y"}, servers=("head", "node1")),
     "each is exported from a place on the next: head:/b/x -> node1:/a/y -> head:/b/x"),
    *((users({"groups": [name]}), f"{name} makes of its members what root is") for name in ("root", "shadow", "disk")),
    (users({"uid": 65534}), "nobody's"),
    *((users({"home": home}), "a job could not write there") for home in ("/tmp/a", "/opt/a", "/var/tmp/a")),
    (users({"home": "/data/a"}, cluster_mounts=[{**HOME, "path": "/data", "read_only": True}]), "/data is read_only"),
    (dirs("Dirs=/tmp,/data", cluster_mounts=[{**HOME, "path": "/data"}]), "its line 2: Dirs has /data"),
    (dirs("Dirs=/site", **users({"home": "/site/a"}, slurm_service_job_directories=["/site"])), "/site/a is a's home"),
]  # fmt: skip
GOOD: list[dict[str, Any]] = [
    mounts({"source": "nas:/srv/home"}), mounts({"fstype": "nfs", "options": "vers=3,proto=udp"}),
    mounts({"options": "proto=rdma,timeo=600"}), mounts({"source": "head:/srv/home"}, servers=("head",)),
    mounts({}, local("/scratch")), mounts({"path": "/data", "fstype": "present", "source": None}, local("/data/x")),
    mounts({}, {**local("/home/x"), "groups": ["slurm_login"]}),
    mounts({"path": "/a", "source": "head:/srv/a"}, {"path": "/b", "source": "node1:/b"}, servers=("head", "node1")),
    lustre("10.0.0.5@o2ib1,10.0.0.6@tcp:mgs2@o2ib:/scratch/users", options="flock,noatime,user_xattr"),
    lustre("mgs:/fs"), users({}, {}), users({"home": "/home/a"}, {"home": "/home/ab"}),
    users({"groups": ["docker", "sudo", "adm"]}), users({"uid": 61183}), users({"uid": 65536}),
    users({"home": "/scratch/a"}, cluster_mounts=[local("/scratch")]),
    users({"home": "/site/a"}, slurm_service_job_directories=["/site"]),
    users({"home": "/srv/a"}, {"home": "/srv/a/b"}),
    dirs("Dirs=/tmp,/scratch", cluster_mounts=[{"path": "/scratch", "fstype": "present"}]),
    dirs("Dirs=/tmp,/scratch", cluster_mounts=[local("/scratch")]),
    dirs("Dirs=/tmp # not /data", cluster_mounts=[{**HOME, "path": "/data"}]),
]  # fmt: skip


@pytest.mark.parametrize(("variables", "words"), BAD)
def test_a_mistake_about_storage_or_users_is_refused_with_what_to_do(variables: dict[str, Any], words: str) -> None:
    with pytest.raises(ClusterctlError) as error:
        site(**variables)

    assert error.value.entry[0] or error.value.said[0]
    assert words in f"{error.value.problem}. {error.value.fix}"


@pytest.mark.parametrize("variables", GOOD)
def test_what_is_like_it_and_right_is_taken(variables: dict[str, Any]) -> None:
    assert site(**variables).nodes
