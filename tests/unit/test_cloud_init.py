"""Where cloud-init is, it is told to leave the machine's names alone; elsewhere nothing of it is written."""

from __future__ import annotations

from pathlib import Path

import managed_things
import pytest
import yaml

from provision import content
from provision.judge import road
from provision.model.facts import facts_from

PLACE = "/etc/cloud/cloud.cfg.d"
FILE = f"{PLACE}/99-clusterctl.cfg"
INVENTORY = "[slurm_controller]\nhead\n[slurm_compute]\nnode1\n[all:vars]\ncluster_name=lab\n"


@pytest.mark.parametrize(("kind", "has"), [("directory", True), ("absent", False)])
def test_a_machine_with_cloud_init_has_its_file_and_no_other_machine(
    kind: str, has: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = {"paths": {PLACE: {"kind": kind}}, "packages": {}, "services": {}, "manager": {}}
    told = road.handed_on(facts_from({"state": state}))["cluster_machine"]
    monkeypatch.setattr(managed_things, "ANSWERED", {"cluster_machine": {"container": True, **told}})
    (tmp_path / "inventory.ini").write_text(INVENTORY)

    for _, constants, templar in managed_things.on_machines(tmp_path / "inventory.ini"):
        names = [name for _, name, _ in managed_things.of_role("base_system", constants, templar)]
        assert (FILE in names) is has
        assert PLACE in templar.template(constants["__base_system_asks"])["state"]["paths"]


def test_it_says_what_cloud_init_reads() -> None:
    text = (content.ROOT / "roles/base_system/templates/cloud.cfg.j2").read_text()

    assert yaml.safe_load(text) == {"preserve_hostname": True, "manage_etc_hosts": False}
