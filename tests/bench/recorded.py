"""The whole road over made-up machines: each answers what a machine of a converged cluster has answered.

The cluster is asked once, by ``site.yml`` in check mode, through an interpreter that keeps what the module prints. What
a made-up machine then answers differs in names, addresses and the texts that follow from how many there are. Two things
cannot be as declared: a machine on 127.0.0.0/8 calls itself so, and the daemons of the cluster run with a configuration
for fewer nodes. So the road is measured in check mode: all is asked, judged and said, and no role's task runs.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import fleet
from bench.commands import BIN, CLUSTERCTL
from bench.processor import Cost, measure

from provision import content
from provision.ansible_env import clean_environment
from provision.inventory import loader

#: Where the recorder is on a machine, and what it keeps; both go when the answers are here.
RECORDER, KEPT = "/usr/local/sbin/bench-recorder", "/run/bench-recorded"
SCRIPT = f'#!/bin/sh\n/usr/bin/python3 "$@" | tee {KEPT}.new\nmv {KEPT}.new {KEPT}\n'

#: Variables of the cluster that its answers rest on, besides the nodes' own.
SHARED = (
    *("cluster_name", "cluster_simulated", "slurm_conf_cgroup_v1_allowed"),
    *("cluster_groups", "cluster_users", "cluster_test_user", "cluster_mounts"),
)


@dataclass(frozen=True)
class Recorded:
    """What a controller and one of its compute nodes have answered, and the variables that go with it."""

    controller: str
    node: str
    addresses: Mapping[str, str]
    hardware: Mapping[str, Any]
    variables: Mapping[str, Any]


def record(inventory: Path) -> Recorded:
    """Return what the machines of a converged cluster answer; SystemExit where it has no compute node or does not."""
    loaded = loader.load(inventory)
    controller, node = loaded.groups["slurm_controller"][0], loaded.groups["slurm_compute"][0]
    try:
        ad_hoc(inventory, "copy", f"dest={RECORDER} mode=0755 content={json.dumps(SCRIPT)}")
        recording = inventory.with_name("bench.ini")
        interpreter = f"\n[all:vars]\nansible_python_interpreter={RECORDER}\n"
        recording.write_text(inventory.read_text(encoding="utf-8") + interpreter, encoding="utf-8")
        command = [str(BIN / "ansible-playbook"), "--check", "-i", str(recording), str(content.playbook("site"))]
        try:
            measure(command, env=clean_environment())
        finally:
            recording.unlink()
        answers = [ad_hoc(inventory, "command", f"cat {KEPT}", host) for host in (controller, node)]
    finally:
        ad_hoc(inventory, "shell", f"rm -f {RECORDER} {KEPT} {KEPT}.new")
    own = loaded.hostvars[node]
    return Recorded(
        *(answer[answer.index("{") :] for answer in answers),
        {host: str(loaded.hostvars[host]["ansible_host"]) for host in loaded.hostvars},
        {name: own[name] for name in own if name.startswith("node_")},
        # Of two nodes none passes images on, and what they have answered says so.
        {name: own[name] for name in SHARED if name in own} | {"container_images_mirrors": []},
    )


def replay(machines: fleet.Fleet, recorded: Recorded, count: int) -> Path:
    """Let ``count`` made-up machines answer as those of the cluster did; return their inventory."""
    inventory = machines.write(count, recorded.hardware, **recorded.variables)
    rendered = machines.directory / f"rendered{count}"
    measure([CLUSTERCTL, "render", str(inventory), "--output", str(rendered)])
    machines.answer("machine_facts", _told(recorded, recorded.node, count, rendered, "@NAME@", "@ADDRESS@"))
    head = _told(recorded, recorded.controller, count, rendered, fleet.name(0), fleet.address(0))
    machines.answer("machine_facts", head, fleet.name(0))
    return inventory


def judged(machines: fleet.Fleet, recorded: Recorded, count: int) -> Cost:
    """Return what it costs to ask and judge ``count`` machines whole, by clusterctl."""
    return measure([CLUSTERCTL, "provision", "--check", str(replay(machines, recorded, count))])[0]


def _told(recorded: Recorded, answer: str, count: int, rendered: Path, name: str, address: str) -> str:
    """Return an answer as a made-up machine gives it: with its own name, and those of all the others."""
    machine = json.loads(answer)
    own = machine["machine"]["hostname"]
    machine["machine"]["addresses"] = {fleet.name(number): [fleet.address(number)] for number in range(count)}
    machine["machine"]["hostname"] = name
    for path, state in machine["machine"]["state"]["paths"].items():
        if "sha256" in state and (text := rendered / Path(path).name).is_file():
            state["sha256"] = hashlib.sha256(text.read_bytes()).hexdigest()
    text = json.dumps(machine).replace(recorded.addresses[own], address)
    # When the machine's clock was read: what it is compared with is the control node's now.
    return re.sub(r'"(begun|ended)": [0-9.]+', r'"\1": @NOW@', text)


def ad_hoc(inventory: Path, module: str, arguments: str, hosts: str = "all") -> str:
    """Run one module as root and return what Ansible prints; SystemExit where it fails."""
    command = [str(BIN / "ansible"), hosts, "-i", str(inventory), "--become", "-m", module, "-a", arguments]
    done = subprocess.run(command, env=clean_environment(), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout
