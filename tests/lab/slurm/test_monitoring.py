"""A host under [monitoring] watches a cluster: who is read and by whom; what is broken is named and mended alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import labs
import pytest

DIRECTORY = "/etc/clusterctl/monitoring"
FIGURES = "/var/lib/prometheus/node-exporter/slurm.prom"
#: As it was before: packages go with all that they have written.
LEFT = f"""
systemctl disable --now clusterctl-slurm-metrics 2>/dev/null
DEBIAN_FRONTEND=noninteractive apt-get -qqy purge 'prometheus*' python3-prometheus-client >/dev/null 2>&1
rm -rf {DIRECTORY} /opt/clusterctl/monitoring /var/lib/prometheus /etc/systemd/system/prometheus*.service.d
rm -f /etc/systemd/system/clusterctl-slurm-metrics.service
systemctl daemon-reload
"""


@pytest.fixture(scope="module")
def watched(provisioned_lab: labs.Lab) -> Iterator[Path]:
    """The inventory of the lab whose controller watches it."""
    lab = provisioned_lab
    inventory = lab.directory / "watched.ini"
    text = lab.inventory.read_text(encoding="utf-8")
    inventory.write_text(text.replace("[all:vars]", "[monitoring]\nhead\n\n[all:vars]", 1), encoding="utf-8")
    try:
        done = labs.document(inventory, "provision", "monitoring")
        assert done["exit_code"] == 0, done
        yield inventory
    finally:
        for machine in lab.machines:
            lab.root(machine, LEFT, check=False)
        inventory.unlink()


def red(inventory: Path) -> dict[str, Any]:
    """Return what provisioning would mend: by check and machine, what was observed."""
    found = labs.document(inventory, "plan", "monitoring")["pending_checks"]
    return {f"{one['id']}@{one['host']}": one["observed"] for one in found if one["verdict"] == "fail"}


def prometheus(lab: labs.Lab, question: str) -> list[dict[str, Any]]:
    """Return Prometheus's answer to a question, which has no blanks."""
    told = lab.root(
        "head", f"curl -sS --max-time 20 --get --data-urlencode 'query={question}' 127.0.0.1:9090/api/v1/query"
    )
    found: list[dict[str, Any]] = json.loads(told)["data"]["result"]
    return found


@pytest.mark.proves("monitoring", machine="head")
def test_every_machine_is_read_and_slurms_figures_are_slurms_own(provisioned_lab: labs.Lab, watched: Path) -> None:
    assert labs.document(watched, "provision", "monitoring", "--full")["changed"] == 0

    checks = labs.document(watched, "verify")["checks"]

    found = {
        one["id"]: one["verdict"] for one in checks if one["id"].startswith("monitoring.") and one["host"] == "head"
    }
    assert found == dict.fromkeys(
        [
            f"monitoring.{name}"
            for name in ("files", "key", "packages", "port", "services", "slurm", "stored", "targets")
        ],
        "pass",
    )
    up = {one["metric"]["node"]: one["value"][1] for one in prometheus(provisioned_lab, 'up{job="node"}')}
    assert up == dict.fromkeys(provisioned_lab.machines, "1")
    # What a node says of Slurm is not heard.
    provisioned_lab.root("node1", f'echo \'slurm_node_state{{node="node2",state="down"}} 1\' > {FIGURES}')
    nodes = {one["metric"]["node"] for one in prometheus(provisioned_lab, "slurm_node_state")}
    assert nodes == {"node1", "node2"}
    labs.until(
        lambda: prometheus(provisioned_lab, 'node_textfile_mtime_seconds{node="node1",file=~".*slurm.prom"}') != []
    )
    assert prometheus(provisioned_lab, 'slurm_node_state{state="down"}') == []
    provisioned_lab.root("node1", f"rm {FIGURES}")


def test_who_has_no_certificate_of_the_cluster_reads_nothing(provisioned_lab: labs.Lab, watched: Path) -> None:
    ask = f"curl -sSk --max-time 20 https://{provisioned_lab.address('node1')}:9100/metrics 2>&1"
    with_it = f"{ask} --cert {DIRECTORY}/tls.pem"

    assert "node_load1" not in provisioned_lab.root("head", ask, check=False)
    assert "node_load1 " in provisioned_lab.root("head", with_it)
    listening = provisioned_lab.root("head", "ss -Hltn").splitlines()
    ours = sorted(
        line.split()[3] for line in listening if line.split()[3].endswith((":9090", ":9093", ":9094", ":9100"))
    )
    assert ours == ["127.0.0.1:9090", "127.0.0.1:9093", f"{provisioned_lab.address('head')}:9100"]


def test_a_slurmctld_that_is_away_leaves_no_figures_of_before(provisioned_lab: labs.Lab, watched: Path) -> None:
    def figures() -> list[str]:
        told = provisioned_lab.root("head", f"cat {FIGURES}", check=False)
        return [line for line in told.splitlines() if not line.startswith("#")]

    provisioned_lab.root("head", "docker stop --time 60 slurmctld")
    try:
        labs.until(lambda: figures() == ["slurm_up 0.0"], lambda: str(figures()))
    finally:
        provisioned_lab.root("head", "docker start slurmctld")
    labs.until(lambda: 'slurm_node_state{node="node1",state="idle"} 1.0' in figures(), lambda: str(figures()))
    labs.until(provisioned_lab.nodes_are_well)


def alerts(lab: labs.Lab) -> set[tuple[str, str]]:
    """Return the alerts that the administrator is told of: name and node."""
    told = json.loads(lab.root("head", "curl -sS --max-time 20 '127.0.0.1:9093/api/v2/alerts?inhibited=false'"))
    return {(one["labels"]["alertname"], one["labels"].get("node", "")) for one in told} - {("Watchdog", "")}


def test_a_machine_that_stops_raises_one_alert_and_a_drained_one_none(provisioned_lab: labs.Lab, watched: Path) -> None:
    lab, rules = provisioned_lab, f"{DIRECTORY}/alerts.yml"
    before = lab.root("head", f"cat {rules}; sed -E -i 's/for: [0-9]+m/for: 5s/' {rules}; systemctl reload prometheus")
    labs.until(lambda: alerts(lab) == set(), lambda: str(alerts(lab)))
    lab.root("head", "docker exec slurmctld scontrol update nodename=node1 state=drain reason=fans")
    labs.until(lambda: prometheus(lab, 'slurm_node_flag{node="node1",flag="drain"}') != [])
    try:
        labs.docker("stop", "--time", "20", lab.container("node2"))
        try:
            labs.until(lambda: ("MachineDown", "node2") in alerts(lab), lambda: str(alerts(lab)))
            # Slurm, too, says that it is down; whoever knows that the machine is away is not told.
            lab.root("head", "docker exec slurmctld scontrol update nodename=node2 state=down reason=away")
            labs.until(lambda: prometheus(lab, 'ALERTS{alertname="SlurmNodeDown",alertstate="firing"}') != [])
            labs.until(lambda: "SlurmNodeDown" in lab.root("head", "curl -sS 127.0.0.1:9093/api/v2/alerts"))
            assert alerts(lab) == {("MachineDown", "node2")}
        finally:
            lab.restart("node2")
    finally:
        lab.root("head", f"cat > {rules} <<'END'\n{before}\nEND\nsystemctl reload prometheus")
        lab.root("head", "docker exec slurmctld scontrol update nodename=node[1-2] state=resume")
    labs.until(lab.nodes_are_well)


def test_a_full_disk_of_prometheus_is_said_and_no_job_notices(provisioned_lab: labs.Lab, watched: Path) -> None:
    lab, store = provisioned_lab, "/var/lib/prometheus/metrics2"
    small = f"mount -t tmpfs -o size=6m,mode=0755,uid=prometheus,gid=prometheus tmpfs {store}"
    lab.root("head", f"systemctl stop prometheus; {small}; systemctl start prometheus")
    listens = "curl -sSf --max-time 20 127.0.0.1:9090/-/ready && echo yes || true"
    try:
        labs.until(lambda: lab.root("head", listens).endswith("yes"))
        labs.until(lambda: prometheus(lab, "up") != [])

        def stored() -> str:
            checks = labs.document(watched, "verify")["checks"]
            return str(next(one for one in checks if one["id"] == "monitoring.stored")["verdict"])

        assert stored() == "pass"
        lab.root("head", f"dd if=/dev/zero of={store}/fill bs=64k 2>&1 || true")
        # It goes on and stores nothing, or ends at the first page of a file for which there is no room (SIGBUS).
        labs.until(lambda: stored() in ("fail", "unknown"))
        assert lab.said("srun --nodes=2 hostname | sort").split() == ["node1", "node2"]
    finally:
        lab.root("head", f"systemctl stop prometheus; umount {store}; systemctl start prometheus")


def test_what_is_broken_is_named_and_mended_alone(provisioned_lab: labs.Lab, watched: Path) -> None:
    lab, drop_in = provisioned_lab, "/etc/systemd/system/prometheus-node-exporter.service.d/clusterctl.conf"
    program = "/opt/clusterctl/monitoring/slurm-metrics"
    lab.root("head", f"chmod 0644 {DIRECTORY}/alertmanager.yml; echo >> {DIRECTORY}/alerts.yml")
    lab.root("head", f"systemctl stop prometheus-alertmanager clusterctl-slurm-metrics; echo >> {program}")
    lab.root("node1", f"echo another | sha512sum > {DIRECTORY}/tls.pem")
    lab.root("node2", f"rm {drop_in}")
    wanted = {
        "machine_metrics.files@head": program,
        "machine_metrics.services@head": "clusterctl-slurm-metrics is inactive",
        "monitoring.files@head": f"{DIRECTORY}/alerts.yml",
        "monitoring.services@head": "prometheus-alertmanager is inactive",
        "monitoring.key@node1": "another certificate than the controller's",
        "machine_metrics.files@node2": f"{drop_in} is absent",
    }

    found = red(watched)

    # A service whose file was changed by hand is older than that file.
    assert found.keys() - {"machine_metrics.services@node1", "machine_metrics.services@node2"} == wanted.keys()
    assert {name: words for name, words in wanted.items() if words not in found[name]} == {}
    assert labs.document(watched, "provision", "monitoring")["exit_code"] == 0
    assert red(watched) == {}
