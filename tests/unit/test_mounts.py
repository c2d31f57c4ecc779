"""File systems that machines share: what is declared, what of it is refused, and what systemd calls it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from declare import inventory

from provision.errors import ClusterctlError
from provision.inventory.declared import cluster_from
from provision.inventory.loader import load
from provision.inventory.valid import declared
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


def refusal(*entries: Any, groups: dict[str, tuple[str, ...]] | None = None) -> str:
    with pytest.raises(ClusterctlError) as refused:
        mounts(*entries, groups=groups)
    return f"{refused.value.problem}. {refused.value.fix}"


def test_a_mount_is_for_the_machines_that_start_and_run_jobs_and_has_nfs_options_that_lose_nothing() -> None:
    (home,) = mounts(HOME)

    assert home.options == NFS_OPTIONS
    assert {"hard", "vers=4.2"} <= set(home.options)
    assert home.on(["slurm_compute"])
    assert not home.on(["nfs_server", "all"])
    assert (home.server, home.exported) == ("10.0.9.1", "/srv/home")


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"path": "/"}, "hide"),
        ({"path": "/usr"}, "/usr is the system's"),
        ({"path": "/usr/share/data"}, "/usr is the system's"),
        ({"path": "/usr/local"}, "hide all that is there"),
        ({"path": "/usr/local/bin"}, "Slurm's image has its own /usr/local/bin"),
        ({"path": "/usr/local/libexec/clusterctl"}, "Slurm's image has its own /usr/local/libexec"),
        ({"path": "/etc/slurm"}, "/etc is the system's"),
        ({"path": "/var/lib/clusterctl"}, "/var is the system's"),
        ({"path": "/proc"}, "/proc is the system's"),
        ({"path": "/tmp"}, "/tmp is the system's"),
        ({"path": "/opt"}, "hide all that is there"),
        ({"path": "/opt/clusterctl/slurm"}, "/opt/clusterctl is the system's"),
        ({"path": "home"}, "absolute path"),
        ({"path": "/home/"}, "absolute path"),
        ({"path": "/home/../etc"}, "absolute path"),
        ({"path": "//home"}, "absolute path"),
        ({"path": "/my data"}, "absolute path"),
        ({"path": "/a:b"}, "absolute path"),
        ({"path": 7}, "absolute path"),
        ({"path": None}, "absolute path"),
        ({"source": None}, "nfs4 is mounted from a server, as storage1:/srv/home"),
        ({"source": "/srv/home"}, "nfs4 is mounted from a server"),
        ({"source": "a b:/srv"}, "nfs4 is mounted from a server"),
        ({"fstype": "lustre", "source": "/scratch"}, "lustre is mounted from a server, as 10.0.0.5@o2ib:/scratch"),
        ({"fstype": "nfs5"}, "did you mean nfs"),
        ({"fstype": None}, "fstype of /home is None"),
        ({"fstype": "local"}, "is a directory of the machine's own and has the source"),
        ({"fstype": "present", "source": "a b"}, "no file system is called that"),
        ({"fstype": "present", "options": "ro"}, "nothing is mounted there"),
        ({"options": "ro, no suid"}, "words of mount(8)"),
        ({"options": {"ro": True}}, "words of mount(8)"),
        ({"options": "rw,ro"}, "take rw out of the options"),
        ({"options": "rw", "read_only": True}, "take rw out of the options"),
        ({"source": "300.1.1.1:/x"}, "300.1.1.1 is neither an address nor a name"),
        ({"source": "10.0.0:/x"}, "neither an address nor a name"),
        ({"source": "0.0.0.0:/x"}, "neither an address nor a name"),
        ({"source": "[fe80:::1]:/x"}, "neither an address nor a name"),
        ({"groups": ["slurm_compte"]}, "did you mean slurm_compute?"),
        ({"groups": []}, "groups of the inventory"),
        ({"read_only": "perhaps"}, "true or false"),
        ({"optoins": "ro"}, "did you mean options?"),
        ({"source": "head:/srv/home"}, "head, which is not in group nfs_server"),
    ],
)
def test_what_cannot_be_mounted_is_refused_with_what_to_do(entry: dict[str, Any], said: str) -> None:
    assert said in refusal({**HOME, **entry})


@pytest.mark.parametrize(
    "options",
    [
        "vers=4.1,nconnect=24,spread_reads,remoteports=10.0.0.1-10.0.0.8,localports=eth0",
        "vers=4.2,rdirplus=force,noalignwrite,fatal_neterrors=none",
        "vers=4.1,hard,proto=rdma,port=20049,nconnect=16,noatime,_netdev,x-systemd.automount,sec=krb5i:krb5p",
        "rw,nosuid,nodev,rsize=1048576,wsize=1048576,timeo=600,retrans=2,lookupcache=pos,actimeo=30,nofail,bg",
        "context=system_u:object_r:nfs_t:s0,noresvport,soft,local_lock=all,max_connect=4,clientaddr=10.0.0.5,fsc",
        "ro,nolock,nocto,xprtsec=mtls,softreval",
    ],
)
def test_options_that_sites_use_are_taken(options: str) -> None:
    (one,) = mounts({**HOME, "options": options})

    assert one.options == tuple(options.split(","))
    assert mounts({**HOME, "fstype": "nfs", "options": "vers=3,nolock,mountproto=tcp"})


@pytest.mark.parametrize("server", ["[fd00::5]", "fs-1.site.example", "10.0.0.5", "nas", "0nas"])
def test_a_server_is_an_address_or_a_name(server: str) -> None:
    assert mounts({**HOME, "source": f"{server}:/srv/home"})[0].exported == "/srv/home"


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
    "source", ["10.0.0.1@tcp", "10.0.0.1@tcp:fs", "10.0.0.1@tcp:/", "10.0.0.1 @tcp:/fs", "/dev/sdb"]
)
def test_what_no_client_of_lustres_mounts_is_refused(source: str) -> None:
    said = refusal({"path": "/lustre/fs", "fstype": "lustre", "source": source})
    assert "lustre is mounted from a server, as 10.0.0.5@o2ib:/scratch" in said


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


def test_a_list_of_something_else_is_refused() -> None:
    assert "list of mappings" in refusal("/home")


def test_two_file_systems_at_one_path_are_refused_where_a_machine_would_have_both() -> None:
    other = {**HOME, "source": "10.0.9.2:/srv/home"}

    assert "node[1-2],head would have two file systems at /home" in refusal(HOME, other)
    assert mounts({**HOME, "groups": ["slurm_compute"]}, {**other, "groups": ["slurm_controller"]})


def test_a_server_of_the_inventory_exports_a_directory_of_its_own_and_nothing_of_the_system() -> None:
    server = {"nfs_server": ("head",)}

    (home,) = mounts({**HOME, "source": "head:/srv/home"}, groups=server)
    assert home.server == "head"
    assert "would export /etc: /etc is the system's" in refusal({**HOME, "source": "head:/etc"}, groups=server)


def test_the_innermost_file_system_counts() -> None:
    found = told(*mounts(HOME, {"path": "/home/scratch", "fstype": "present"}))

    assert innermost(found, "/home/ada") == found[0]
    assert innermost(found, "/home/scratch/ada") == found[1]
    assert innermost(found, "/homes") is None


@pytest.mark.parametrize("path", ["/home", "/data/sets", "/data/im-ages_1", "/srv/.hidden", "/.a/b+c", "/a@b"])
def test_units_are_called_as_systemd_calls_them(path: str) -> None:
    told = subprocess.run(
        ["systemd-escape", "--path", "--suffix=mount", path], capture_output=True, text=True, check=False
    )
    if told.returncode:
        pytest.skip("no systemd-escape on this computer")
    assert unit_name(path) == told.stdout.strip()


@pytest.mark.parametrize(
    ("path", "name"),
    [("/home", "home.mount"), ("/data/im-ages", "data-im\\x2dages.mount"), ("/.a", "\\x2ea.mount"), ("/", "-.mount")],
)
def test_a_unit_is_called_by_its_path_escaped(path: str, name: str) -> None:
    assert unit_name(path) == name


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("cluster_mounts:\n- {path: /home, fstype: present}\n- {path: /usr, fstype: present}\n", 3),
        ("cluster_mounts:\n- path: /usr/local/bin\n  fstype: present\n", 2),
        ("cluster_mounts:\n- path: /home\n  fstype: nfs4\n  options: ro\n", 2),
    ],
)
def test_a_refusal_says_in_which_line(tmp_path: Path, text: str, line: int) -> None:
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars/all.yml").write_text(text)
    file = tmp_path / "inventory.ini"
    file.write_text("[slurm_controller]\nhead\n[slurm_compute]\nnode1\n[all:vars]\ncluster_name=lab\n")

    with pytest.raises(ClusterctlError) as refused:
        declared(load(file))

    assert refused.value.problem.startswith(f"{tmp_path}/group_vars/all.yml, line {line}: cluster_mounts: ")


def test_the_mounts_may_stand_in_a_line_of_ini(tmp_path: Path) -> None:
    file = tmp_path / "inventory.ini"
    text = "[slurm_controller]\nhead\n[slurm_compute]\nnode1\n[all:vars]\ncluster_name=lab\n"
    file.write_text(text + "cluster_mounts=[{'path': '/home', 'fstype': 'present'}]\n")

    assert [mount.path for mount in declared(load(file)).mounts] == ["/home"]


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


def homes(**site: Any) -> str:
    groups, variables = inventory(
        cluster_users=[{"name": "ada", "uid": 2001}, {"name": "ben", "state": "absent"}], **site
    )
    try:
        cluster_from(groups, variables)
    except ClusterctlError as error:
        return f"{error.entry} {error.problem}"
    return ""


def test_a_home_that_is_not_shared_is_refused_where_there_is_more_than_one_machine() -> None:
    home = {"path": "/home", "fstype": "present"}

    assert homes().startswith(
        "('cluster_users', 0, 'home') cluster_users: ada's home /home/ada is on no file system that all machines share"
    )
    assert "ada's home" in homes(cluster_mounts=[{**home, "groups": ["slurm_compute"]}])
    assert "ada's home" in homes(cluster_mounts=[{"path": "/home", "fstype": "local"}])
    assert "ada's home" in homes(cluster_mounts=[{**home, "read_only": True}])
    assert (
        homes(cluster_mounts=[home]) == homes(cluster_homes_shared="false") == homes(cluster_homes_shared=False) == ""
    )


def test_one_machine_shares_its_homes_with_itself() -> None:
    _, variables = inventory({}, cluster_users=[{"name": "ada", "uid": 2001}])

    assert cluster_from({"slurm_controller": ("head",), "slurm_compute": ("head",)}, variables).people.present


def test_what_is_to_be_unmounted_is_no_mount_any_more() -> None:
    found, variables = inventory(cluster_mounts=[HOME, {"path": "/data", "state": "absent", "groups": "slurm_compute"}])

    cluster = cluster_from(found, variables)

    assert [one.path for one in cluster.mounts] == ["/home"]
    assert [dict(one) for one in cluster.unmounted] == [{"path": "/data", "hosts": ["node1", "node2"]}]


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"path": "/home", "state": "absent"}, "node[1-2],head would have /home and not have it"),
        ({"path": "/data", "state": "gone"}, "state of /data is 'gone'"),
        ({"path": "/usr", "state": "absent"}, "/usr is the system's"),
        ({"path": "/data", "state": "absent", "grups": "x"}, "did you mean groups"),
    ],
)
def test_what_cannot_be_unmounted_is_refused(entry: dict[str, str], said: str) -> None:
    assert said in refusal(HOME, entry)


@pytest.mark.parametrize("name", ["slurm_service_job_directories", "slurm_service_read_only_directories"])
@pytest.mark.parametrize(
    ("value", "said"),
    [
        (["/usr/local"], "it would hide all that is there"),
        (["/apps", "/usr/local/libexec"], "Slurm's image has its own /usr/local/libexec"),
        ("/apps,/etc", "/etc is the system's"),
        (["/var/tmp"], "slurmd's container has its own /var/tmp"),
        (["/var/lib"], "slurmd's container has its own"),
        (["/run/munge"], "slurmd's container has its own /run/munge"),
        (["apps"], "it must be an absolute path"),
        (["/apps/../etc"], "it must be an absolute path"),
        (["/apps", None], "it must be an absolute path"),
        (5, "it must be a list of directories"),
    ],
)
def test_what_jobs_cannot_be_shown_is_refused_in_its_line(tmp_path: Path, name: str, value: Any, said: str) -> None:
    file = tmp_path / "inventory.ini"
    text = "[slurm_controller]\nhead\n[slurm_compute]\nnode1\n[all:vars]\ncluster_name=lab\n"
    file.write_text(f"{text}{name}={value!r}\n" if not isinstance(value, str) else f"{text}{name}={value}\n")

    with pytest.raises(ClusterctlError) as refused:
        declared(load(file))

    assert refused.value.problem.startswith(f"{file}, line 7: {name}")
    assert said in refused.value.problem


def test_a_site_shows_jobs_what_is_its_own() -> None:
    own = ["/opt", "/apps", "/usr/local/cuda-12.8", "/run/site", "/var/lib/site"]

    assert [hides_from_jobs(path) for path in own] == [""] * len(own)
