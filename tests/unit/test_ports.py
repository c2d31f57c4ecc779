"""Which ports a cluster's machines need from one another: the table, and what of it comes in at one machine."""

from __future__ import annotations

from typing import Any

from declare import A40, inventory

from provision import content
from provision.inventory.declared import cluster_from
from provision.inventory.loader import load
from provision.inventory.ports import Port, ports_from, ways_in
from provision.inventory.valid import declared
from provision.report.ports import table


def rows(
    nodes: dict[str, dict[str, Any]] | None = None, more: dict[str, tuple[str, ...]] | None = None, **site: Any
) -> list[Port]:
    groups, hostvars = inventory(nodes, **site)
    groups |= more or {}
    hostvars |= {host: dict(hostvars["head"]) for hosts in groups.values() for host in hosts if host not in hostvars}
    return ports_from(groups, hostvars, cluster_from(groups, hostvars))


def told(found: list[Port]) -> list[str]:
    return [f"{row.port}/{row.protocol} {' '.join(row.sources)} -> {' '.join(row.targets)}" for row in found]


def test_the_smallest_cluster_has_these_and_jobs_choose_theirs() -> None:
    assert told(rows()) == [
        "22/tcp control node -> slurm_controller slurm_compute",
        "22/tcp users -> slurm_controller",
        "6817/tcp slurm_compute -> slurm_controller",
        "6818/tcp slurm_controller slurm_compute -> slurm_compute",
        "60001-63000/tcp slurm_compute -> slurm_controller slurm_compute",
        "5000/tcp slurm_compute -> slurm_controller",
        "10000-29999/tcp slurm_compute -> slurm_compute",
        "all/tcp slurm_compute -> slurm_compute",
        "18514-18515/tcp slurm_compute -> slurm_compute",
        "4791/udp slurm_compute -> slurm_compute",
    ]


def test_who_watches_reads_the_sites_own_exporter_of_gpus_where_there_is_one() -> None:
    watched = {"monitoring": ("watch1",)}
    own = "9100/tcp monitoring -> slurm_controller slurm_compute monitoring"

    assert told(rows(more=watched))[-1] == own
    assert told(rows(more=watched, cluster_dcgm_port=9400))[-2:] == [own, "9400/tcp monitoring -> slurm_compute"]


def test_what_a_site_switches_on_or_moves_is_in_the_table() -> None:
    found = told(
        rows(
            {"node1": {"ansible_port": 2222, **A40}, "node2": A40, "node3": A40},
            {"slurm_login": ("login1",), "slurm_database": ("head",), "nfs_server": ("storage1",)},
            slurm_conf_parameters={
                "SlurmctldPort": "6820-6823", "SlurmdPort": "7000", "SrunPortRange": None,
                "MpiParams": "ports=12000-12999",
            },
            rdma_userspace_port=19000,
            cluster_groups=[{"name": "dockerjobs", "gid": 3100}],
            job_docker="socket",
            job_docker_group="dockerjobs",
            job_docker_overlay_networks=[{"name": "test-net", "subnet": "10.77.0.0/16", "encrypted": True}],
            cluster_mounts=[
                {"path": "/home", "fstype": "nfs4", "source": "storage1:/srv/home"},
                {"path": "/data", "fstype": "nfs", "source": "10.0.9.1:/sets", "options": ["vers=3", "hard"]},
                {"path": "/work", "fstype": "lustre", "source": "10.0.9.5@tcp:/work"},
            ],
        )
    )  # fmt: skip

    users = "slurm_controller slurm_compute slurm_login"
    for row in (
        "2222/tcp control node -> node1",
        "22/tcp control node -> head node2 node3 login1 storage1",
        "22/tcp users -> slurm_controller slurm_login",
        "6820-6823/tcp slurm_compute slurm_login -> slurm_controller",
        f"7000/tcp {users} -> slurm_compute",
        "7000/tcp slurm_controller -> slurm_login",
        f"6819/tcp {users} -> slurm_database",
        f"all/tcp slurm_compute -> {users}",
        "12000-12999/tcp slurm_compute -> slurm_compute",
        "5002/tcp slurm_compute -> node1",
        "19000-19001/tcp slurm_compute -> slurm_compute",
        f"2049/tcp {users} -> storage1",
        f"2049/tcp {users} -> the site's 10.0.9.1",
        f"111/tcp {users} -> the site's 10.0.9.1",
        f"988/tcp {users} -> the site's Lustre",
        "2377/tcp slurm_compute -> slurm_controller",
        "4789/udp slurm_controller slurm_compute -> slurm_controller slurm_compute",
        "all/esp slurm_controller slurm_compute -> slurm_controller slurm_compute",
    ):
        assert row in found, row


def test_a_registry_of_the_sites_stands_in_place_of_ours() -> None:
    found = told(rows(container_images_registry="harbor.site.example:8443/slurm"))

    assert "8443/tcp slurm_controller slurm_compute -> the site's harbor.site.example" in found
    assert not [row for row in found if row.startswith(("5000/", "5002/"))]


def test_what_one_machine_alone_has_is_no_way_between_machines() -> None:
    found = told(rows({"head": A40}))

    assert found == ["22/tcp control node -> slurm_controller slurm_compute", "22/tcp users -> slurm_controller"]


ENTRIES = [
    {"address": "10.0.18.1", "names": ["head"]},
    {"address": "10.0.18.12", "names": ["node1"]},
    {"address": "10.0.18.13", "names": ["node2"]},
    {"address": "fd00::1", "names": ["node3"]},
]


def test_what_comes_in_at_a_machine_is_what_others_connect_to_there() -> None:
    nodes = dict.fromkeys(("node1", "node2", "node3"), A40)
    groups, _ = inventory(nodes)
    table_of_all = [row.as_dict() for row in rows(nodes)]
    at_the_controller = ways_in(table_of_all, groups, ENTRIES, "head")

    assert [one["port"] for one in at_the_controller["ways"]] == ["6817", "60001-63000", "5000"]
    # Who has no IPv4 address in the inventory is left out, and so is the machine itself.
    assert at_the_controller["sources"] == {"slurm_compute": "10.0.18.12/31"}
    assert at_the_controller["machines"] == ["10.0.18.12/31"]
    at_a_node = ways_in(table_of_all, groups, ENTRIES, "node1")
    assert at_a_node["sources"] == {"slurm_controller": "10.0.18.1", "slurm_compute": "10.0.18.13"}
    # An adapter sends RoCE past the machine's firewall.
    assert {one["protocol"] for one in at_a_node["ways"]} == {"tcp"}


def test_the_documentation_has_the_table_of_an_example() -> None:
    found = load(content.ROOT / "inventory/groups")
    lines = table([row.as_dict() for row in ports_from(found.groups, found.hostvars, declared(found))])

    assert "\n".join(lines) in (content.ROOT / "docs/networks.md").read_text(encoding="utf-8")
