"""``ansible-playbook playbooks/verify.yml`` is no weaker than ``clusterctl verify``: the same facts end it badly, too.

The playbook is a small one whose machines are this computer; what stands beside our playbooks stands beside it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ansible_runs import INVENTORY, write_inventory
from waiting import PATIENCE

from provision import content
from provision.ansible_env import clean_environment
from provision.judge import manifest

GROUPS = {"slurm_controller": ["head"], "slurm_compute": ["node1", "node2"]}

#: The owed checks of every machine, and of the cluster as a whole on the controller.
PLAYBOOK = """
- name: Verify the machines
  hosts: {hosts}
  gather_facts: false
  vars: {{cluster_check_collect: true}}
  tasks:
    - name: Judge
      cluster_check: {{results: "{{{{ judged[inventory_hostname] }}}}"}}
      vars:
        judged: {judged}
    # Without a module, whose Python would take longer on each machine than all the rest.
    - name: Ask
      ansible.builtin.raw: echo hello
      changed_when: false
- name: Report the verdict
  hosts: all
  gather_facts: false
  tasks:
    - name: Fail if a check did not pass
      cluster_check: {{conclude: true, judged: true}}
"""


def owed(*but: tuple[str, str]) -> dict[str, list[dict[str, Any]]]:
    """Return a pass for all that each machine owes, those left out."""
    found: dict[str, list[dict[str, Any]]] = {"head": [], "node1": [], "node2": []}
    for host, name in sorted(manifest.owed("verify", GROUPS)):
        if name not in manifest.ACCESS.ids and (host, name) not in but:
            found[host or "head"].append({"id": name, "host": host, "verdict": "pass"})
    return found


def verify(
    directory: Path,
    *words: str,
    judged: dict[str, list[dict[str, Any]]] | None = None,
    hosts: str = "all",
    inventory: str = INVENTORY,
    path: Path | None = None,
    environment: Iterable[tuple[str, str]] = (),
) -> subprocess.CompletedProcess[str]:
    playbooks = directory / "playbooks"
    playbooks.mkdir(exist_ok=True)
    if not (playbooks / "callback_plugins").exists():
        shutil.copytree(content.ROOT / "playbooks" / "callback_plugins", playbooks / "callback_plugins")
    (playbooks / "verify.yml").write_text(PLAYBOOK.format(hosts=hosts, judged=json.dumps(judged or owed())))
    program = Path(sys.executable).parent / "ansible-playbook"
    settings = clean_environment()
    if path:
        settings["PATH"] = f"{path}:{settings['PATH']}"
    return subprocess.run(
        [str(program), "-i", str(write_inventory(directory, inventory)), str(playbooks / "verify.yml"), *words],
        env={**settings, **dict(environment)},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )


def test_a_cluster_that_has_proven_all_that_it_owes_passes(tmp_path: Path) -> None:
    done = verify(tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"verdict: pass ({sum(map(len, owed().values()))} proven" in done.stdout


def test_a_check_that_never_came_is_missed_by_name_whatever_other_callbacks_there_are(tmp_path: Path) -> None:
    another = [("ANSIBLE_CALLBACK_PLUGINS", str(tmp_path))]

    done = verify(tmp_path, judged=owed(("node2", "munge.same_key")), environment=another)

    assert done.returncode == 8, done.stdout + done.stderr
    assert "failed=1" not in done.stdout, "no machine's task failed"
    (line,) = [line for line in done.stdout.splitlines() if "munge.same_key" in line and "never ran" in line]
    assert "node2" in line
    assert "node1" not in line
    assert "verdict: unknown (1 unknown" in done.stdout


def test_a_play_that_matched_nobody_is_no_pass(tmp_path: Path) -> None:
    done = verify(tmp_path, hosts="slurm_login")

    assert done.returncode == 8, done.stdout + done.stderr
    assert "no machine matched" in done.stdout


def test_a_machine_that_was_unreachable_makes_no_pass_and_is_named(tmp_path: Path) -> None:
    text = INVENTORY.replace("192.0.2.12", "127.0.0.1 ansible_connection=ssh ansible_port=1")

    done = verify(tmp_path, inventory=text)

    assert done.returncode == 8, done.stdout + done.stderr
    assert "verdict: unknown" in done.stdout
    assert "unreachable" in done.stdout.partition("PLAY RECAP")[2].partition("verdict:")[0]


def test_a_limited_run_says_so(tmp_path: Path) -> None:
    done = verify(tmp_path, "--limit", "head,node1")

    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("verdict: pass")]
    assert "limited to" in line
    assert "it says nothing about the rest of the cluster" in line


def test_a_run_of_some_tasks_is_no_pass(tmp_path: Path) -> None:
    done = verify(tmp_path, "--start-at-task", "Ask")

    assert done.returncode == 8, done.stdout + done.stderr
    assert "checks never ran" in done.stdout


def test_an_inventory_that_clusterctl_refuses_is_refused_here_too(tmp_path: Path) -> None:
    """What else is refused, and in which words, is the same function's; unit tests ask it."""
    text = INVENTORY.replace("[all:vars]", "[all:vars]\nansible_host_key_checking=false")

    done = verify(tmp_path, inventory=text)

    assert done.returncode == 2, done.stdout + done.stderr
    assert "switches the check of host keys off" in done.stderr
    assert "TASK" not in done.stdout


def test_an_extra_variable_that_leads_all_connections_elsewhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / "more.yml").write_text("ansible_host: 127.0.0.1\n")

    done = verify(tmp_path, "-e", f"@{tmp_path / 'more.yml'}")

    assert done.returncode == 2, done.stdout + done.stderr
    assert "sets ansible_host, which changes where or how all machines are reached" in done.stderr
    assert "TASK" not in done.stdout


def test_a_machine_that_answers_without_end_is_cut_off(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "ssh").write_text("#!/bin/sh\nexec 3<&0\ncat <&3 >/dev/null &\nexec yes\n")
    (programs / "ssh").chmod(0o755)
    text = INVENTORY.replace("192.0.2.12", "127.0.0.1 ansible_connection=ssh")

    # clean_environment puts the interpreter's directory first, where no ssh is.
    done = verify(tmp_path, inventory=text, path=programs)

    assert done.returncode == 8, done.stdout + done.stderr
    assert "the machine answered with more than 8 MiB" in done.stdout.replace("\n", " ")
    assert "node2" in done.stdout.partition("verdict:")[0].partition("PLAY RECAP")[2]


def test_a_run_that_nobody_judges_fails(tmp_path: Path) -> None:
    callbacks = tmp_path / "playbooks/callback_plugins"
    shutil.copytree(content.ROOT / "playbooks/callback_plugins", callbacks)
    (callbacks / "cluster_door.py").write_text("raise ImportError('no such thing')\n")

    done = verify(tmp_path)

    assert done.returncode == 2, done.stdout + done.stderr
    assert "nobody who would miss what never ran" in done.stdout
