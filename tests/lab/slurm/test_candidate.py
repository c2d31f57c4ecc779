"""A new configuration is tried first: what Slurm refuses changes nothing, and what loses the nodes is taken back."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from typing import Any

import labs
import pytest
import yaml
from test_slurm_change import Site, container, queued, submit

from provision import content
from provision.inventory import loader
from provision.inventory.valid import declared
from provision.slurm.render import render

#: Where the last configurations that worked are kept on the controller.
KEPT = "/var/lib/clusterctl/slurm/kept"


@pytest.fixture
def site(provisioned_lab: labs.Lab) -> Iterator[Site]:
    """The shared machines; none of these changes stays."""
    site = Site(provisioned_lab)
    yield site
    site.take_back()
    done = json.loads(site.provision().stdout)
    assert done["exit_code"] == 0, done["failures"]


@pytest.fixture
def job(provisioned_lab: labs.Lab) -> Iterator[int]:
    """A job that runs."""
    number = submit(provisioned_lab)
    labs.until(lambda: queued(provisioned_lab).get(number) == "RUNNING")
    yield number
    provisioned_lab.root("head", f"docker exec slurmctld scancel {number}")


def wants(site: Site, **variables: Any) -> None:
    site.variables.write_text(site.given + yaml.safe_dump(variables), encoding="utf-8")


def files(lab: labs.Lab) -> str:
    return lab.root("head", "cd /etc/slurm && sha256sum *")


def conf(**parameters: Any) -> dict[str, Any]:
    return {"slurm_conf_parameters": parameters}


def refusals(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    """Return what slurmctld has refused of a run."""
    told = json.loads(done.stdout)
    return [check for check in told["checks"] if check["id"] == "slurm_conf.candidate" and check["verdict"] == "fail"]


#: What the inventory has, which check takes, and what Slurm says of it.
BAD = (
    (conf(PriorityType="priority/none-such"), "cannot find priority plugin for priority/none-such"),
    (conf(DebugFlags="Nonsense"), "DebugFlags invalid: Nonsense"),
    (conf(PreemptMode="SUSPEND"), "PreemptMode=SUSPEND requires GANG too"),
    (
        conf(TopologyPlugin="topology/tree") | {"slurm_conf_files": {"topology.conf": "Nonsense=4\n"}},
        "unrecognized key: Nonsense",
    ),
)


def test_what_slurmctld_refuses_is_told_in_its_words_with_the_inventorys_line_and_changes_nothing(
    site: Site, job: int
) -> None:
    lab = site.lab
    before, there = container(lab), files(lab)
    for variables, words in BAD:
        wants(site, **variables)

        done = site.provision()

        assert done.returncode == 3, done.stdout
        (check,) = refusals(done)
        assert words in check["observed"]
        assert "fatal: " in check["observed"]
        assert f"{site.variables}, line " in check["source"], check
        assert (container(lab), files(lab), queued(lab)[job]) == (before, there, "RUNNING")
    assert not lab.root("head", "docker ps --all --quiet --filter name=slurmctld-candidate").strip()


def test_what_sites_have_posted_starts_without_an_error(provisioned_lab: labs.Lab) -> None:
    lab = provisioned_lab
    image = lab.root("head", "docker inspect --format '{{.Config.Image}}' slurmctld").strip()
    told = {}
    for path in sorted((content.ROOT / "tests/sites").iterdir()):
        inventory = loader.load(path)
        texts = render(declared(inventory))
        # The machine that plays the site's controller.
        texts["slurm.conf"] = re.sub(r"(?m)^SlurmctldHost=.*$", "SlurmctldHost=head", texts["slurm.conf"])
        asked = {
            "texts": texts,
            "names": ["head", *inventory.groups["slurm_compute"]],
            "image": image,
            "directory": "/nonexistent",
            "state": "/nonexistent",
        }
        command = [labs.BIN / "ansible", "head", "-i", lab.inventory, "--become", "-m", "slurm_candidate"]
        environment = {"ANSIBLE_CONFIG": str(content.ROOT / "ansible.cfg"), "ANSIBLE_LOAD_CALLBACK_PLUGINS": "1",
                       "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json"}  # fmt: skip
        done = labs.run([*command, "-a", json.dumps(asked)], check=False, env=environment)
        answer = json.loads(done.stdout)["plays"][0]["tasks"][0]["hosts"]["head"]
        told[path.name] = (answer["cluster_checks"][0]["observed"], answer["lines"])

    assert told == dict.fromkeys(told, ("slurmctld starts", [])), told
    assert len(told) == 6


@pytest.mark.parametrize("command", ["preflight", "provision"])
def test_a_whole_run_is_refused_before_anything_is_changed(site: Site, command: str) -> None:
    lab = site.lab
    there = files(lab)
    wants(site, **conf(SwitchType="switch/hpe_slingshot"))

    done = labs.clusterctl(command, "--json", lab.inventory, check=False)

    assert done.returncode == 3, done.stdout
    (check,) = refusals(done)
    assert "switch/hpe_slingshot" in check["observed"]
    assert json.loads(done.stdout)["changed"] == 0
    assert files(lab) == there


def taken_back(site: Site, **variables: Any) -> None:
    """Provision what Slurm starts with and cannot work with, and see that all is as before."""
    lab = site.lab
    there = files(lab)
    # Of two minutes and more that a busy lab has otherwise.
    wants(site, slurm_service_start_timeout=30, **variables)

    done = site.provision()

    assert done.returncode == 7, done.stdout
    assert files(lab) == there
    newest = lab.root("head", f"ls {KEPT} | sort | tail -1").strip()
    kept, live = (lab.root("head", f"cat {path}/slurm.conf") for path in (f"{KEPT}/{newest}", "/etc/slurm"))
    assert kept == live
    assert int(lab.root("head", f"ls {KEPT} | wc -l")) <= 5


def test_a_configuration_with_which_slurmctld_finds_no_node_is_taken_back(site: Site) -> None:
    taken_back(site, **conf(CommunicationParameters="EnableIPv6,DisableIPv4"))

    labs.until(site.lab.nodes_are_well, lambda: site.lab.root("head", "docker exec slurmctld scontrol show nodes"))


def test_a_configuration_with_which_nodes_do_not_register_is_taken_back(site: Site) -> None:
    lab = site.lab
    lab.root("node2", "pkill -STOP -f '^[^ ]*slurmd --systemd'")
    try:
        taken_back(site, **conf(MessageTimeout=43))
    finally:
        lab.root("node2", "pkill -CONT -f '^[^ ]*slurmd --systemd'")

    labs.until(lab.nodes_are_well, lambda: lab.root("head", "docker exec slurmctld scontrol show nodes"))


def test_a_configuration_with_which_slurmctld_cannot_stay_is_taken_back(site: Site) -> None:
    """It starts where nobody else is; on the controller somebody else has its port."""
    lab = site.lab
    lab.root("head", "nohup python3 -m http.server 7321 >/dev/null 2>&1 & echo $! >/run/t-port")
    try:
        taken_back(site, **conf(SlurmctldPort=7321))
    finally:
        lab.root("head", "kill $(cat /run/t-port); rm /run/t-port")

    labs.until(lab.nodes_are_well, lambda: lab.root("head", "docker exec slurmctld scontrol show nodes"))


def test_a_change_that_would_end_jobs_is_refused_with_their_numbers_and_users(site: Site, job: int) -> None:
    lab = site.lab
    waiting = submit(lab, "--begin=now+1hour")
    there = files(lab)
    wants(site, slurm_partitions=[{"PartitionName": "t"}])  # in place of the one in which they are

    done = site.provision()

    lab.root("head", f"docker exec slurmctld scancel {waiting}")
    assert done.returncode == 3, done.stdout
    told = {check["id"]: check for check in json.loads(done.stdout)["checks"]}["slurm_conf.queue"]
    for number in (job, waiting):
        assert f"job {number} (grace) is in partition batch, which is removed" in told["observed"]
    assert (files(lab), queued(lab)[job]) == (there, "RUNNING")
