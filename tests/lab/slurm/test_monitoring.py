"""A host under [monitoring] watches a cluster: who is read and by whom; what is broken is named and mended alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import labs
import pytest

DIRECTORY = "/etc/clusterctl/monitoring"
SUMMARIES = "/opt/clusterctl/monitoring/job-figures"
FIGURES = "/var/lib/prometheus/node-exporter/slurm.prom"
#: As it was before: packages go with all that they have written.
LEFT = f"""
systemctl stop test-mail 2>/dev/null
systemctl disable --now clusterctl-slurm-metrics clusterctl-job-figures clusterctl-node-metrics 2>/dev/null
DEBIAN_FRONTEND=noninteractive apt-get -qqy purge 'prometheus*' python3-prometheus-client >/dev/null 2>&1
rm -rf {DIRECTORY} /opt/clusterctl/monitoring /var/lib/prometheus /etc/systemd/system/prometheus*.service.d
rm -f /etc/systemd/system/clusterctl-*-metrics.service /etc/systemd/system/clusterctl-job-figures.service
systemctl daemon-reload
"""


#: A mail server of Python's, and who is mailed.
MAIL = "/tmp/test-mail"
SERVER = f"systemd-run -qu test-mail -p StandardOutput=file:{MAIL} python3 -um smtpd -nc DebuggingServer 127.0.0.1:2525"
MAILED = {"to": "ops@lab.test", "from": "lab@lab.test", "smarthost": "127.0.0.1:2525", "require_tls": False}


@pytest.fixture(scope="module")
def watched(provisioned_lab: labs.Lab) -> Iterator[Path]:
    """The inventory of the lab whose controller watches it."""
    lab = provisioned_lab
    inventory = lab.directory / "watched.ini"
    text = lab.inventory.read_text(encoding="utf-8")
    more = f"[monitoring]\nhead\n\n[all:vars]\nmonitoring_mail={MAILED}"
    inventory.write_text(text.replace("[all:vars]", more, 1), encoding="utf-8")
    lab.root("head", SERVER)
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
            for name in ("alerts", "files", "key", "packages", "port", "services", "slurm", "stored", "targets")
        ],
        "pass",
    )
    up = {one["metric"]["node"]: one["value"][1] for one in prometheus(provisioned_lab, 'up{job="node"}')}
    assert up == dict.fromkeys(provisioned_lab.machines, "1")
    page = f"{DIRECTORY}/consoles/clusterctl.html"
    served = f"curl -sS --max-time 20 127.0.0.1:9090/consoles/clusterctl.html | cmp - {page}"
    assert provisioned_lab.root("head", f"{served} && echo as it was written").strip() == "as it was written"
    # What a node says of Slurm is not heard.
    provisioned_lab.root("node1", f'echo \'slurm_node_state{{node="node2",state="down"}} 1\' > {FIGURES}')
    nodes = {one["metric"]["node"] for one in prometheus(provisioned_lab, "slurm_node_state")}
    assert nodes == {"node1", "node2"}
    labs.until(
        lambda: prometheus(provisioned_lab, 'node_textfile_mtime_seconds{node="node1",file=~".*slurm.prom"}') != []
    )
    assert prometheus(provisioned_lab, 'slurm_node_state{state="down"}') == []
    provisioned_lab.root("node1", f"rm {FIGURES}")
    # What verify has found of the cluster a moment ago.
    said = 'clusterctl_verdict{subject="all"}'
    labs.until(lambda: [one["metric"]["verdict"] for one in prometheus(provisioned_lab, said)] == ["pass"])


def test_gpus_and_trainings_are_told_by_job_and_simulated_ones_are_marked(
    provisioned_lab: labs.Lab, watched: Path
) -> None:
    lab = provisioned_lab

    def values(question: str) -> dict[tuple[str, str], str]:
        found = prometheus(lab, question)
        return {(one["metric"]["node"], one["metric"].get("device", "")): one["value"][1] for one in found}

    each = {(node, f"nvidia{number}"): "17" for node in ("node1", "node2") for number in (0, 1)}
    labs.until(lambda: values("DCGM_FI_DEV_GPU_TEMP") == each, lambda: str(values("DCGM_FI_DEV_GPU_TEMP")))
    assert values("clusterctl_gpu_up") == {("node1", ""): "1", ("node2", ""): "1"}
    marked = {one["metric"]["node"] for one in prometheus(lab, 'clusterctl_simulated{what="gpu"}')}
    assert marked == {"node1", "node2"}
    figures = "printf 'step=3\\nloss=0.5\\nslurm_up=0\\n' >$JOB_TRAINING; sleep 300"
    asked = "cd / && sbatch --parsable --output=/dev/null --nodelist=node1 --gres=gpu:1 --wrap"
    job = lab.said(f'{asked} "{figures}"'.replace("$", "\\$"))
    try:
        of_job = f'DCGM_FI_DEV_GPU_TEMP*on(node,device)group_left(jobid,user)slurm_job_gpu{{jobid="{job}"}}'
        labs.until(lambda: [one["metric"]["user"] for one in prometheus(lab, of_job)] == ["ada"])
        loss = f'clusterctl_training_loss{{jobid="{job}"}}'
        labs.until(lambda: values(loss) == {("node1", ""): "0.5"}, lambda: str(values(loss)))
    finally:
        lab.said(f"scancel {job}")
    labs.until(lambda: values(loss) == {})


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


def mailed(lab: labs.Lab) -> str:
    """Return all that the mail server has got."""
    return lab.root("head", f"cat {MAIL}")


def test_a_machine_that_stops_raises_one_alert_and_a_drained_one_none(provisioned_lab: labs.Lab, watched: Path) -> None:
    lab, rules = provisioned_lab, f"{DIRECTORY}/alerts.yml"
    soon = "/alert: (MachineDown|SlurmNodeDown)$/,/for:/ s/for: [0-9]+m/for: 5s/"
    before = lab.root("head", f"cat {rules}; sed -E -i '{soon}' {rules}; systemctl reload prometheus")
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
            labs.until(lambda: "MachineDown" in mailed(lab), lambda: mailed(lab))
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


#: What is said of two GPUs of a node, of which one is used. The lab's do nothing.
GPUS = """\
DCGM_FI_DEV_GPU_UTIL{gpu="0",device="nvidia0"} 80
DCGM_FI_DEV_GPU_UTIL{gpu="1",device="nvidia1"} 0
DCGM_FI_DEV_FB_USED{gpu="0",device="nvidia0"} 40960
DCGM_FI_DEV_FB_USED{gpu="1",device="nvidia1"} 4
DCGM_FI_DEV_FB_FREE{gpu="0",device="nvidia0"} 40960
DCGM_FI_DEV_FB_FREE{gpu="1",device="nvidia1"} 81916
DCGM_FI_DEV_GPU_TEMP{gpu="0",device="nvidia0"} 60
DCGM_FI_DEV_GPU_TEMP{gpu="1",device="nvidia1"} 30
"""


def test_what_the_gpus_of_a_job_did_is_read_by_its_user_and_by_the_administrator(
    provisioned_lab: labs.Lab, watched: Path
) -> None:
    lab, file = provisioned_lab, "/var/lib/prometheus/node-exporter/test_gpus.prom"
    service = "clusterctl-node-metrics"
    lab.root("node1", f"systemctl stop {service}; cat >{file} <<'EOF'\n{GPUS}EOF")
    labs.until(lambda: prometheus(lab, 'node_cpu_seconds_total{node="node1"}') != [])
    asks = "--nodelist=node1 --gpus-per-node=2 --mem=100M --output=/dev/null"
    try:
        job = lab.said(f"cd / && sbatch --parsable {asks} --wrap 'sleep 80'")
        labs.until(lambda: lab.state(job) == "COMPLETED", lambda: lab.state(job))
        lab.root("head", f"sacctmgr -i modify job where JobID={job} set AdminComment='ticket 7'")
        # A minute after its end, within a minute.
        labs.until(
            lambda: "GPU Efficiency: 40.00% of 2 GPUs" in lab.said(f"seff {job}"), lambda: lab.said(f"seff {job}")
        )
    finally:
        lab.root("node1", f"rm {file}; systemctl start {service}")

    lines = lab.said(f"seff {job}").splitlines()
    assert "GPUs: held 2, used 1" in lines
    assert "GPU Memory Utilized: 40.00 GB of 80.00 GB on the GPU that had most" in lines
    assert lab.root("head", f"sacct -XnP -j {job} -o AdminComment").startswith("ticket 7 JS1:")
    told = json.loads(labs.clusterctl("job", job, "-i", watched, "--json").stdout)
    assert [(gpu["node"], gpu["index"], gpu["peak"]) for gpu in told["gpus"]] == [("node1", "0", 80), ("node1", "1", 0)]
    assert (told["other_jobs"], told["missing"], told["job"]["user"]) == (0, [], "ada")
    assert {"cpus", "memory_peak", "network_in", "network_in_peak"} <= told["nodes"]["node1"].keys()
    # Of what nobody has watched nothing is known, and it is no error.
    alone = json.loads(labs.clusterctl("job", job, "-i", lab.inventory, "--json").stdout)
    assert (alone["nodes"], len(alone["missing"]), len(alone["gpus"])) == ({}, 1, 2)


def test_what_is_broken_is_named_and_mended_alone(provisioned_lab: labs.Lab, watched: Path) -> None:
    lab, drop_in = provisioned_lab, "/etc/systemd/system/prometheus-node-exporter.service.d/clusterctl.conf"
    program = "/opt/clusterctl/monitoring/slurm-metrics"
    lab.root("head", f"chmod 0644 {DIRECTORY}/alertmanager.yml; echo >> {DIRECTORY}/alerts.yml")
    lab.root("head", f"systemctl stop prometheus-alertmanager clusterctl-slurm-metrics; echo >> {program}")
    lab.root("head", f"systemctl stop clusterctl-job-figures; rm {SUMMARIES}")
    lab.root("node1", "echo >> /opt/clusterctl/monitoring/pynvml.py; systemctl disable --now clusterctl-node-metrics")
    lab.root("node1", f"echo another | sha512sum > {DIRECTORY}/tls.pem")
    lab.root("node2", f"rm {drop_in}")
    wanted = {
        "machine_metrics.files@head": program,
        "machine_metrics.services@head": "clusterctl-slurm-metrics is inactive",
        "monitoring.files@head": f"{DIRECTORY}/alerts.yml",
        "monitoring.services@head": "prometheus-alertmanager is inactive",
        "monitoring.key@node1": "another certificate than the controller's",
        "machine_metrics.files@node1": "/opt/clusterctl/monitoring/pynvml.py",
        "machine_metrics.services@node1": "clusterctl-node-metrics is inactive",
        "machine_metrics.files@node2": f"{drop_in} is absent",
    }

    found = red(watched)

    # A service whose file was changed by hand is older than that file.
    assert found.keys() - {"machine_metrics.services@node2"} == wanted.keys()
    assert {name: words for name, words in wanted.items() if words not in found[name]} == {}
    assert f"{SUMMARIES} is absent" in found["monitoring.files@head"]
    assert "clusterctl-job-figures is inactive" in found["monitoring.services@head"]
    assert labs.document(watched, "provision", "monitoring")["exit_code"] == 0
    assert red(watched) == {}
