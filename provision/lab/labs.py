"""Labs: clusters of simulated machines on this computer. Playbooks make them; this chooses, starts and enters them."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from provision import content
from provision.errors import ClusterctlError, ExitCode
from provision.events.exit import exit_code
from provision.events.fold import RunReport
from provision.inventory import loader
from provision.lab import computer, given
from provision.report.progress import Progress
from provision.runner import journal, playbooks
from provision.runner.journal_lock import lock
from provision.runner.recover import recover

#: What machines can be; mixed: the controller is a container, the compute machines are virtual.
KINDS = ("container", "mixed", "vm")

#: Who has the machines' sudo: the user of the lab's inventory.
ADMIN = "admin"

#: What Docker and Slurm both take as a name, short enough for a host's.
_NAME = re.compile(r"[a-z][a-z0-9-]{0,19}")


def directory(name: str) -> Path:
    """Return where a lab keeps its inventory, keys and description; it need not exist.

    Raises:
        ClusterctlError: the name is none that Docker and Slurm would take.
    """
    if not _NAME.fullmatch(name):
        raise ClusterctlError(
            f"'{name}' cannot be a lab's name",
            fix="use 1 to 20 lower-case letters, digits and dashes, starting with a letter",
        )
    return _state() / "labs" / name


def up(name: str, *, nodes: int = 2, gpus: int = 2, login: int = 0, kind: str = "", site: bool = False) -> Path:
    """Make a lab of one controller, ``nodes`` compute machines with ``gpus`` simulated GPUs, and ``login`` for logins.

    A lab that is there is completed or changed, not made anew, and without a ``kind`` keeps its own. ``site``: its
    machines are as a site leaves them. Returns the inventory that describes it.

    Raises:
        ClusterctlError: this computer cannot run a lab (exit code 2), or making it failed (4).
    """
    home = directory(name)
    there = (home / "lab.yml").exists()
    if site != is_site(name) and there:
        # Without --site it stays one.
        if site:
            raise ClusterctlError(f"lab '{name}' is there and no site", fix=f"clusterctl lab down {name}")
        site = True
    own = recorded_kind(name)
    kind = kind or own
    if kind != own and there:
        raise ClusterctlError(f"lab '{name}' is there and of the kind {own}", fix=f"clusterctl lab down {name}")
    if site and kind != "container":
        raise ClusterctlError("the machines of a site are containers", fix="leave --kind out")
    _refuse_unfit()
    if kind != "container":
        defaults = yaml.safe_load((content.ROOT / "roles/lab_machines/defaults/main.yml").read_text(encoding="utf-8"))
        wrong = computer.unfit(
            name, home, nodes + (kind == "vm") * (1 + login), int(defaults["lab_machines_vm_memory"])
        )
        if wrong:
            raise ClusterctlError(wrong[0], fix=wrong[1])
    machines = {"lab_machines_compute": nodes, "lab_machines_login": login, "lab_machines_gpus": gpus}
    _play("lab up", name, {**machines, "lab_machines_kind": kind, "lab_machines_site": site})
    return home / "inventory.ini"


def recorded_kind(name: str) -> str:
    """Return what the machines of the lab are, as ``lab up`` wrote it down; containers where it is not there."""
    kind = _recorded(name).get("kind")
    return kind if kind in KINDS else KINDS[0]


def is_site(name: str) -> bool:
    """Tell whether the lab was made with machines as a site leaves them."""
    return _recorded(name).get("site") is True


def _recorded(name: str) -> dict[str, Any]:
    try:
        described = yaml.safe_load((directory(name) / "lab.yml").read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError):
        return {}
    return described if isinstance(described, dict) else {}


def down(name: str) -> None:
    """Remove everything that carries the lab's name; a lab that is not there is no error.

    Raises:
        ClusterctlError: this computer cannot run a lab (exit code 2), or something could not be removed (4).
    """
    directory(name)
    _refuse_unfit()
    _play("lab down", name, {})
    shutil.rmtree(_records(name), ignore_errors=True)


def status(name: str) -> dict[str, Any]:
    """Return the lab's ``name``, its ``inventory`` (empty when there is no such lab) and its ``machines``.

    A machine has ``name``, ``address``, ``state`` (Docker's word: running, exited, ...), ``kind`` and ``container``.
    ``given`` is what labs give their machines, which a site's administrator gives them otherwise.

    Raises:
        ClusterctlError: this computer cannot run a lab (exit code 2), or Docker could not tell (4).
    """
    inventory = directory(name) / "inventory.ini"
    _refuse_unfit()
    report = _play("lab status", name, {})
    machines = report.data.get("cluster_data", {}).get("machines", [])
    place = str(inventory) if inventory.is_file() else ""
    return {"name": name, "inventory": place, "machines": machines, "given": given.listed(site=is_site(name))}


def login(name: str, target: str, words: Sequence[str]) -> list[str]:
    """Return the command that enters ``machine`` or ``user@machine``, to run ``words`` there, a shell without them.

    Raises:
        ClusterctlError: there is no such lab, or it has no such machine.
    """
    home = directory(name)
    if not (home / "inventory.ini").exists():
        raise ClusterctlError(f"there is no lab '{name}'", fix=f"make it: clusterctl lab up {name}")
    user, _, machine = target.rpartition("@")
    machines = {
        host: own for host, own in loader.load(home / "inventory.ini").hostvars.items() if "ansible_host" in own
    }
    if machine not in machines:
        raise ClusterctlError(
            f"lab '{name}' has no machine '{machine}'", fix=f"name one of {', '.join(machines)}, as ada@head"
        )
    options = ("IdentitiesOnly=yes", "StrictHostKeyChecking=yes", f"UserKnownHostsFile={home / 'known_hosts'}")
    return [
        *("ssh", "-F", "none", "-i", str(home / "id_ed25519")),
        *(word for option in options for word in ("-o", option)),
        *("-p", str(machines[machine].get("ansible_port", 22))),
        f"{user or ADMIN}@{machines[machine]['ansible_host']}",
        *words,
    ]


def _state() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "clusterctl"


def _records(name: str) -> Path:
    """Return where runs on the lab are recorded: not in its own directory, which goes with it while a run goes on."""
    return _state() / "lab-runs" / name


def _refuse_unfit() -> None:
    """Say at once what the playbooks would say late: who is not root or has no engine can make no machine."""
    if os.geteuid() != 0:
        raise ClusterctlError("making machines takes root", fix=f"sudo {shlex.join(sys.argv)}")
    if shutil.which("docker") is None:
        raise ClusterctlError("there is no docker command here", fix="apt-get install docker.io, or 'make engine'")
    asked = subprocess.run(["docker", "version"], capture_output=True, text=True, check=False)
    if asked.returncode != 0:
        why = (asked.stderr.strip() or "no reason given").splitlines()[-1]
        raise ClusterctlError(
            f"Docker's engine does not answer: {why}",
            fix="systemctl start docker; where there is no systemd: 'make engine' in a checkout",
        )


def _play(command: str, name: str, variables: Mapping[str, Any]) -> RunReport:
    records = _records(name)
    records.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    journal.prepare(records)
    record = journal.begin(records, command)
    with lock(records, record), Progress(sys.stderr, machines=1) as progress:
        for told in recover(records, []):
            progress.say(f"Note: {told}")
        try:
            report = playbooks.run(
                [command.replace(" ", "_")],
                inventory="localhost,",
                record=record,
                options=playbooks.Options(extra_vars={"lab_machines_name": name, **variables}),
                on_event=progress,
            )
        except BaseException:
            record.finish("crashed")
            raise
        code = exit_code(command, report, root=str(content.ROOT))
        record.finish("done" if code is ExitCode.DONE else "failed", exit_code=int(code))
    if code is not ExitCode.DONE:
        reasons = [failure.reason for failure in report.failures] or report.messages[-1:]
        raise ClusterctlError(
            f"{command} {name}: {'; '.join(reasons) or 'stopped'}",
            fix=f"see {record.directory / 'ansible.log'}, then try again; 'clusterctl lab down {name}' starts over",
            exit_code=code,
        )
    return report
