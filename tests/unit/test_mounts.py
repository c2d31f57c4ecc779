"""File systems that machines share: what is declared, what of it is refused, and what systemd calls it."""

from __future__ import annotations

from typing import Any

import pytest
from declare import inventory

from provision.inventory.declared import cluster_from
from provision.model.mounts import (
    NFS_OPTIONS,
    Mount,
    hides_from_jobs,
    innermost,
    mounted_on,
    same_source,
    seen_by_jobs,
    shared_by,
    unit_name,
    units,
)

HOME = {"path": "/home", "fstype": "nfs4", "source": "10.0.9.1:/srv/home"}


def mounts(*entries: Any, groups: dict[str, tuple[str, ...]] | None = None) -> tuple[Mount, ...]:
    found, variables = inventory(cluster_mounts=list(entries))
    return cluster_from({**found, **(groups or {})}, variables).mounts


def test_a_mount_is_for_the_machines_that_start_and_run_jobs_and_has_nfs_options_that_lose_nothing() -> None:
    (home,) = mounts(HOME)

    assert home.options == NFS_OPTIONS
    assert {"hard", "vers=4.2"} <= set(home.options)
    assert home.on(["slurm_compute"])
    assert not home.on(["nfs_server", "all"])
    assert (home.server, home.exported) == ("10.0.9.1", "/srv/home")


@pytest.mark.parametrize(
    "source",
    [
        "10.0.0.1@tcp:/fs",
        "mgs1@o2ib:mgs2@o2ib:/fs",
        "10.0.0.1@tcp,192.168.0.1@o2ib1:10.0.0.2@tcp,192.168.0.2@o2ib1:/fs/projects/physics",
        "mgs.site.example:/scratch",
    ],
)
def test_lustre_is_declared_in_the_forms_of_its_manual(source: str) -> None:
    options = "_netdev,flock,user_xattr,retry=5"
    (one,) = mounts({"path": "/lustre/fs", "fstype": "lustre", "source": source, "options": options})

    assert one.options == ("_netdev", "flock", "user_xattr", "retry=5")
    # What mounts it is asked of no machine's name, and is no NFS.
    assert (one.server, one.exported) == ("", "")
    (unit,) = units(told(one), "node1")
    assert (unit["what"], unit["fstype"], unit["nfs"]) == (source, "lustre", False)
    assert mounts({"path": "/lustre/fs", "fstype": "lustre", "source": source})[0].options == ()


@pytest.mark.parametrize(
    ("declared", "found", "same"),
    [
        ("10.0.0.1@tcp:/fs", "10.0.0.1@tcp:/fs", True),
        ("10.0.0.1@tcp0:/fs", "10.0.0.1@tcp:/fs", True),
        ("10.0.0.1:/fs", "10.0.0.1@tcp:/fs", True),
        ("10.0.0.1@o2ib10:/fs/", "10.0.0.1@o2ib10:/fs", True),
        ("mgs1@o2ib:mgs2@o2ib:/fs", "10.0.0.1@o2ib:10.0.0.2@o2ib:/fs", True),
        ("10.0.0.1@tcp:10.0.0.2@tcp:/fs", "10.0.0.1@tcp:/fs", False),
        ("10.0.0.1@tcp:/fs", "10.0.0.9@tcp:/fs", False),
        ("10.0.0.1@tcp1:/fs", "10.0.0.1@tcp10:/fs", False),
        ("mgs1@tcp:/fs", "10.0.0.1@tcp:/other", False),
    ],
)
def test_lustres_servers_have_addresses_where_the_kernel_tells_of_them(declared: str, found: str, same: bool) -> None:
    assert same_source("lustre", declared, found) is same


def test_the_innermost_file_system_counts() -> None:
    found = told(*mounts(HOME, {"path": "/home/scratch", "fstype": "present"}))

    assert innermost(found, "/home/ada") == found[0]
    assert innermost(found, "/home/scratch/ada") == found[1]
    assert innermost(found, "/homes") is None


@pytest.mark.parametrize(
    ("path", "name"),
    [("/home", "home.mount"), ("/data/im-ages", "data-im\\x2dages.mount"), ("/.a", "\\x2ea.mount"), ("/", "-.mount")],
)
def test_a_unit_is_called_by_its_path_escaped(path: str, name: str) -> None:
    assert unit_name(path) == name


def told(*declared: Mount) -> list[dict[str, Any]]:
    return [one.as_dict({"slurm_compute": ("node1", "node2"), "nfs_server": ("node2",)}) for one in declared]


def test_jobs_see_what_is_declared_and_write_where_they_may() -> None:
    found = told(
        Mount("/home", "nfs4", "node2:/home", (), ("slurm_compute",)),
        Mount("/data", "present", "", (), ("slurm_compute",), read_only=True),
    )

    assert seen_by_jobs(found, ["/srv"], ["/opt"], {}) == [
        "/data:/data:ro,rslave", "/home:/home:rslave", "/opt:/opt:ro,rslave", "/srv:/srv:rslave",
    ]  # fmt: skip
    assert seen_by_jobs([], [], [], {}) == ["/home:/home:rslave"]


def test_jobs_see_toolkits_and_the_one_that_the_short_path_means() -> None:
    toolkits = {"/usr/local/cuda-12.8": "/usr/local/cuda-12.8", "/usr/local/cuda": "/usr/local/cuda-12.8"}

    assert seen_by_jobs([], [], ["/opt"], toolkits) == [
        "/home:/home:rslave",
        "/opt:/opt:ro,rslave",
        "/usr/local/cuda-12.8:/usr/local/cuda:ro,rslave",
        "/usr/local/cuda-12.8:/usr/local/cuda-12.8:ro,rslave",
    ]


def test_what_is_awaited_is_what_another_machine_or_the_site_brings() -> None:
    found = told(
        Mount("/home", "nfs4", "node2:/home", (), ("slurm_compute",)),
        Mount("/data", "present", "", (), ("slurm_compute",)),
        Mount("/scratch", "local", "", (), ("slurm_compute",)),
    )

    assert mounted_on(found, "node1") == ["/home", "/data"]
    assert mounted_on(found, "node2") == ["/data"]


@pytest.mark.parametrize(
    ("mount", "shared"),
    [
        (Mount("/home", "present", "", (), ("slurm_compute",)), True),
        (Mount("/home", "local", "", (), ("slurm_compute",)), False),
        (Mount("/home", "present", "", (), ("slurm_compute",), read_only=True), False),
        (Mount("/home", "present", "", (), ("nfs_server",)), False),
        (Mount("/homes", "present", "", (), ("slurm_compute",)), False),
    ],
)
def test_a_home_is_shared_where_all_machines_have_it_and_it_can_be_written(mount: Mount, shared: bool) -> None:
    assert shared_by(told(mount), "/home/ada", ["node1", "node2"]) is shared


def test_what_is_to_be_unmounted_is_no_mount_any_more() -> None:
    found, variables = inventory(cluster_mounts=[HOME, {"path": "/data", "state": "absent", "groups": "slurm_compute"}])

    cluster = cluster_from(found, variables)

    assert [one.path for one in cluster.mounts] == ["/home"]
    assert [dict(one) for one in cluster.unmounted] == [{"path": "/data", "hosts": ["node1", "node2"]}]


def test_a_site_shows_jobs_what_is_its_own() -> None:
    own = ["/opt", "/apps", "/usr/local/cuda-12.8", "/run/site", "/var/lib/site"]

    assert [hides_from_jobs(path) for path in own] == [""] * len(own)
