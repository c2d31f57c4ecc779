"""Simulated machines for tests: make a lab, look into its machines, run clusterctl on it, remove it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import waiting
import yaml

from provision import content
from provision.ansible_env import clean_environment
from provision.judge import slurm_answers
from provision.lab import labs

BIN = Path(sys.executable).parent

#: Seconds after which a command of a test is taken for hung; the slowest, a cold provision, takes a third of it.
LIMIT = 1800

#: Numbers of grace and of her group, who proves a lab: cluster_test_user of its inventory.
PROVES = "2003:3001"


def cache() -> Path:
    """Return the directory that all labs of this user share, as the role lab_machines has it."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "clusterctl"


def run(command: Sequence[str | Path], *, check: bool = True, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command with its output captured; with ``check``, a failure shows that output as the test's error."""
    environment = clean_environment() | options.pop("env", {})
    done = subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        timeout=options.pop("timeout", LIMIT),
        **options,
    )
    if check and done.returncode != 0:
        raise AssertionError(
            f"{' '.join(map(str, command))}\nended with {done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        )
    return done


def clusterctl(*words: str | Path, check: bool = True, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the command line that is installed beside the running interpreter."""
    return run([BIN / "clusterctl", *words], check=check, **options)


def document(inventory: Path, command: str, *words: str) -> dict[str, Any]:
    """Return what a command of clusterctl says with ``--json``, whatever its verdict is."""
    done = clusterctl(command, inventory, "--json", *words, check=False)
    assert done.stdout.strip(), done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def playbook(name: str, *words: str | Path, check: bool = True, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run one of our playbooks with ansible-playbook itself, as somebody without clusterctl would."""
    return run([BIN / "ansible-playbook", content.playbook(name), *words], check=check, **options)


def tasks(
    inventory: Path | str, hosts: str, role: str, name: str, directory: Path, **variables: Any
) -> subprocess.CompletedProcess[str]:
    """Run some tasks of a role on hosts of an inventory, as another role includes them; whether they fail is told."""
    include = {"name": role, "tasks_from": name}
    play = {"hosts": hosts, "gather_facts": False, "vars": variables}
    play["tasks"] = [{"name": name, "ansible.builtin.include_role": include}]
    file = directory / "tasks.yml"
    file.write_text(json.dumps([play]), encoding="utf-8")
    environment = {"ANSIBLE_CONFIG": str(content.ROOT / "ansible.cfg")}
    return run([BIN / "ansible-playbook", "-i", inventory, file], check=False, env=environment)


def docker(*words: str, check: bool = True) -> str:
    """Run docker and return what it printed."""
    return run(["docker", *words], check=check).stdout.strip()


#: How patient tests are: one number for all.
PATIENCE = waiting.PATIENCE


def until(condition: Callable[[], object], what: str | Callable[[], str] = "it did not happen") -> None:
    """Wait for something on a lab's machines, each look at which is a login or a container's process."""
    waiting.until(condition, what, pause=0.5)


@dataclass(frozen=True)
class Lab:
    """A lab that is up."""

    name: str
    nodes: int
    logins: int = 0
    port: str = "22"

    @property
    def directory(self) -> Path:
        """Where its inventory, keys and record are."""
        return labs.directory(self.name)

    @property
    def inventory(self) -> Path:
        """The inventory that ``lab up`` wrote."""
        return self.directory / "inventory.ini"

    def inventory_with(self, directory: Path, replace: dict[str, str]) -> Path:
        """Write a copy of the inventory with something changed in it, and return where it is."""
        text = self.inventory.read_text(encoding="utf-8")
        for old, new in replace.items():
            assert old in text
            text = text.replace(old, new)
        path = directory / "inventory.ini"
        path.write_text(text, encoding="utf-8")
        return path

    @property
    def machines(self) -> list[str]:
        """The controller, the compute machines and those for logins, by the inventory's names."""
        nodes = (f"node{number}" for number in range(1, self.nodes + 1))
        return ["head", *nodes, *(f"login{number}" for number in range(1, self.logins + 1))]

    def container(self, machine: str) -> str:
        """Return the name that Docker knows the machine by."""
        return f"{self.name}-{machine}"

    def inspect(self, machine: str) -> dict[str, Any]:
        """Return what Docker says about the machine."""
        described: dict[str, Any] = json.loads(docker("inspect", self.container(machine)))[0]
        return described

    def address(self, machine: str) -> str:
        """Return the machine's address, as Docker gave it."""
        networks = self.inspect(machine)["NetworkSettings"]["Networks"]
        return str(next(iter(networks.values()))["IPAddress"])

    def root(self, machine: str, script: str, *, check: bool = True) -> str:
        """Run a shell script as root inside the machine, past SSH, and return what it printed."""
        return docker("exec", self.container(machine), "sh", "-c", script, check=check)

    def ssh(self, machine: str, command: str, *, user: str = "admin") -> subprocess.CompletedProcess[str]:
        """Run a command over SSH, with the lab's key and nothing of this computer's own settings."""
        return run(self.entering(machine, command, user=user), check=False)

    def entering(self, machine: str, command: str, *, user: str = "admin") -> list[str | Path]:
        """Return the command that does so."""
        options = ["BatchMode=yes", "ConnectTimeout=60", "IdentitiesOnly=yes", "StrictHostKeyChecking=yes"]
        options.append(f"UserKnownHostsFile={self.directory / 'known_hosts'}")
        words = [word for option in options for word in ("-o", option)]
        target = f"{user}@{self.address(machine)}"
        key = self.directory / "id_ed25519"
        return ["ssh", "-F", "none", "-i", key, *words, "-p", self.port, target, command]

    def said(self, script: str, *, user: str = "ada", machine: str = "head") -> str:
        """Return what a script prints that an ordinary user runs after a login; it must succeed."""
        done = self.ssh(machine, script, user=user)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    def declare(self, variables: dict[str, Any]) -> None:
        """Have the inventory declare these variables for all machines, and no others beside its own."""
        directory = self.directory / "group_vars"
        directory.mkdir(mode=0o700, exist_ok=True)
        file = directory / "all.yml"
        file.write_text(yaml.safe_dump(variables), encoding="utf-8")
        file.chmod(0o600)

    def node(self, name: str) -> slurm_answers.Node:
        """Return what Slurm says of a node, as the product reads it; without a state where Slurm does not answer.

        All nodes are asked for: of a single one slurmctld answers without counting anew what is allocated on it
        (``_slurm_rpc_dump_node_single`` in its proc_req.c), so that it is mixed for minutes after a job's end.
        """
        told = self.root("head", "docker exec slurmctld scontrol show nodes --json", check=False)
        return slurm_answers.nodes_in(told).get(name, slurm_answers.Node(name))

    def node_is_well(self, name: str) -> bool:
        """Tell whether a node takes jobs, whichever words Slurm joins to say so."""
        return self.node(name).fit

    def node_is_free(self, name: str) -> bool:
        """Tell whether it does, and nobody's job is on it or still ends there."""
        node = self.node(name)
        return node.fit and not node.cpus_used and "COMPLETING" not in node.state

    def nodes_are_well(self) -> bool:
        """Tell whether all nodes take jobs: steps that begin before nodes have registered wait for minutes."""
        return all(self.node_is_well(f"node{number + 1}") for number in range(self.nodes))

    def state(self, job: str | int) -> str:
        """Return a job's state without what Slurm adds to it: by slurmctld while that knows it, then by accounting."""
        told = self.root("head", f"docker exec slurmctld scontrol show job {job} --json", check=False)
        if found := slurm_answers.jobs_in(told):
            return found[0].state[0]
        asked = f"sacct --noheader --parsable2 --allocations --jobs={job} --format=State"
        return self.root("head", asked, check=False).partition(" ")[0]

    def requeued(self, job: str) -> None:
        """Wait until a job is back in the queue, and spare it the two minutes for which slurmctld has it wait there."""
        reason = f"squeue --noheader --jobs={job} --format=%r"
        until(lambda: self.said(reason) == "BeginTime", lambda: self.said(reason))
        self.said(f"scontrol update JobId={job} StartTime=now")

    def registered(self, node: str) -> int:
        """Return since when a node's slurmd runs, in seconds since 1970, by what it has told slurmctld."""
        told = json.loads(self.root("head", f"docker exec slurmctld scontrol show node {node} --json"))["nodes"][0]
        return int(told["slurmd_start_time"]["number"])

    def restart(self, machine: str) -> None:
        """Switch the machine off and on, and wait until its services have started."""
        docker("restart", self.container(machine))
        run([content.ROOT / "roles/lab_machines/files/wait-started", "600", self.container(machine)])


def up(name: str, *, nodes: int = 1, gpus: int = 2, logins: int = 0, sudo_password: str = "") -> Lab:
    """Make a lab with the command line, as a user does; with a password for sudo, with the playbook."""
    if sudo_password:
        wanted = {"lab_machines_name": name, "lab_machines_compute": nodes, "lab_machines_gpus": gpus}
        password = {"lab_machines_sudo_password": sudo_password}
        playbook("lab_up", "-i", "localhost,", "-e", json.dumps(wanted | password))
    else:
        clusterctl("lab", "up", name, "--nodes", str(nodes), "--gpus", str(gpus), "--login", str(logins))
    return Lab(name, nodes, logins)


def down(name: str) -> None:
    """Remove a lab, whatever state it is in."""
    clusterctl("lab", "down", name)


#: Whether the labs that tests share are there for the next session: ``make lab-test``, and one lane after the other.
KEEP = bool(os.environ.get("CLUSTERCTL_KEEP_LABS"))


@contextmanager
def made(
    name: str, *, nodes: int = 1, gpus: int = 2, logins: int = 0, sudo_password: str = "", keep: bool = False
) -> Iterator[Lab]:
    """Make a lab, and remove it in the end."""
    with removed(name, keep=keep):
        yield up(name, nodes=nodes, gpus=gpus, logins=logins, sudo_password=sudo_password)


@contextmanager
def removed(name: str, *, keep: bool = False) -> Iterator[None]:
    """Remove the lab that is made within, unless it is to be kept.

    One that a killed session has left is no clean one: it is removed before.
    """
    if labs.directory(name).exists() and not keep:
        down(name)
    try:
        yield
    finally:
        if not keep:
            down(name)


def objects(name: str) -> dict[str, list[str]]:
    """Return everything in Docker whose name begins with the lab's, with or without our label."""
    found = {
        "containers": docker("ps", "--all", "--format", "{{.Names}}"),
        "volumes": docker("volume", "ls", "--format", "{{.Name}}"),
        "networks": docker("network", "ls", "--format", "{{.Name}}"),
    }
    prefixes = (f"{name}-", f"clusterctl-{name}")
    return {
        kind: [line for line in text.split() if line.startswith(prefixes[0]) or line == prefixes[1]]
        for kind, text in found.items()
    }
