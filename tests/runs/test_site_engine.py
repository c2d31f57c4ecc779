"""An engine that is there, with a daemon.json of the site's: what the role has to do, by the real Ansible."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from ansible_runs import INVENTORY, PLAY, run
from test_observe import REPLAY, ROOT, RUNNING

from provision.events.fold import RunReport

OBSERVED = """\
    - name: Ask
      observe: {roles: [container_engine]}
      changed_when: false
      environment: {MACHINE: "{{ inventory_hostname }}"}
"""

SITE = {"data-root": "/data/docker", "registry-mirrors": ["https://mirror.site"]}
MERGED = {
    **SITE,
    "default-ulimits": {"memlock": {"Hard": -1, "Name": "memlock", "Soft": -1}},
    "live-restore": True,
    "log-driver": "json-file",
    "log-opts": {"max-file": "3", "max-size": "10m"},
}
KEYS = ["default-ulimits.memlock", "live-restore", "log-driver", "log-opts"]


def file(content: object) -> dict[str, Any]:
    """Return what a machine says of a file that has this text, as the role writes it."""
    text = json.dumps(content, indent=4, sort_keys=True) + "\n"
    return {**ROOT, "kind": "file", "mode": "0644", "sha256": hashlib.sha256(text.encode()).hexdigest()}


def machine(daemon: object, keys: list[str] | None, **engine: Any) -> dict[str, Any]:
    """Return the answer of a machine with Docker's own engine, to which no package of ours belongs."""
    written = {"kind": "absent"} if keys is None else file(keys)
    return {
        "os": {"id": "debian", "version": "12", "name": "Debian"},
        "engine": {
            **{"version": "28.3.0", "server": "28.3.0", "raises_limits": True, "live_restore": True, "problem": ""},
            **{"late": False, "limit": 10, "kept": 3, "data_root": "/data/docker", "driver": "overlay2"},
            **{"flags": ["H", "containerd"], "daemon": daemon, "keys": keys, "formatted": True, **engine},
        },
        "state": {
            "packages": {
                name: {"version": "1", "held": False} for name in ("docker-ce", "apparmor", "python3-requests")
            },
            "paths": {
                "/etc/docker": {**ROOT, "kind": "directory", "mode": "0755"},
                "/etc/docker/daemon.json": file(daemon),
                "/etc/docker/clusterctl-keys.json": written,
                "/etc/systemd/system/docker.service.d/clusterctl-proxy.conf": {"kind": "absent"},
            },
            "services": {"docker": {**RUNNING, "age": 100.0, "loaded_age": 200.0}},
            "manager": {},
        },
    }


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory) -> RunReport:
    here = tmp_path_factory.mktemp("engine")
    answers = {
        "head": machine(MERGED, KEYS),
        "node1": machine(SITE, None),
        "node2": machine({}, None, daemon_problem="Extra data: line 1 column 4 (char 3)"),
    }
    (here / "library").mkdir()
    (here / "library/machine_facts.py").write_text(REPLAY.format(place=str(here)), encoding="utf-8")
    for host, answer in answers.items():
        (here / f"{host}.json").write_text(json.dumps([answer]), encoding="utf-8")
    (here / "try.yml").write_text(PLAY.format(name="Observe", hosts="all") + OBSERVED, encoding="utf-8")
    return run(Path(here / "try.yml"), text=INVENTORY)[0]


def test_an_engine_of_docker_s_own_packages_is_configured_and_nothing_is_installed(observed: RunReport) -> None:
    pending = {(one.check.host, one.check.id): one.check.observed for one in observed.pending}

    assert pending == {
        ("node1", "container_engine.files"): (
            "/etc/docker/clusterctl-keys.json is absent; /etc/docker/daemon.json has another text"
        )
    }


def test_a_file_that_is_no_json_ends_that_machine_alone_with_one_line(observed: RunReport) -> None:
    assert observed.failed_hosts == {"node2"}
    said = [check for check in observed.checks if check.host == "node2" and not check.ok]
    assert [check.id for check in said if check.before] == ["engine.configuration"]
    assert "/etc/docker/daemon.json cannot be read: Extra data" in said[0].observed + said[-1].observed
