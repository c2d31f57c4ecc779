"""What is done on which machines, in which order, when nodes are drained for a change or come into the cluster."""

from __future__ import annotations

from pathlib import Path

from ansible_runs import command, stages_in, write_inventory, write_playbook

STAGES = ("discover", "preflight", "base", "containers")
#: Writes down what each stage was told, and where.
STAGE = """
    - name: Write down who it is
      ansible.builtin.lineinfile:
        path: "{{ inventory_dir }}/said"
        line: "%s {{ ansible_play_hosts | join(',') }} {{ cluster_test_reservation | default('-') }}\
 {{ slurm_service_node_state | default('-') }}"
        create: true
        mode: "0644"
      run_once: true
"""
NODE = """
    - name: Write down what is asked for
      ansible.builtin.lineinfile:
        path: "{{ inventory_dir }}/said"
        line: "{{ ([slurm_service_node_state] + slurm_service_node_names + [slurm_service_node_reason]) | join(' ') }}"
        create: true
        mode: "0644"
"""
STATUS = """
    - name: Say who is there
      cluster_report:
        status:
          nodes: [{name: node1, state: [IDLE], reservation: ""}]
          jobs: []
"""
#: A job runs on node1 that the change would end, until the node is drained.
QUEUE = """
    - name: Compare with the queue
      cluster_check:
        results:
          - id: slurm_conf.queue
            verdict: "{{ 'pass' if 'drained' in lookup('file', inventory_dir ~ '/said') else 'fail' }}"
            observed: job 7 (ada) runs on node1, whose sockets or cores change
            before: true
            whole: true
            details: [{code: in_use, thing: node1}]
      when: inventory_hostname == 'head'
      any_errors_fatal: true
"""


def place(tmp_path: Path, **stages: str) -> Path:
    """Return a site whose stages write down what they are told."""
    write_inventory(tmp_path)
    wanted = {name: STAGE % name for name in (*STAGES, "slurm", "monitoring", "verify")}
    stages_in(tmp_path, **wanted | stages)
    write_playbook(tmp_path / "playbooks/join.yml", STAGE % "join")
    write_playbook(tmp_path / "playbooks/status.yml", STATUS, hosts="slurm_controller")
    write_playbook(tmp_path / "playbooks/node.yml", NODE + STATUS, hosts="slurm_controller")
    return tmp_path


def said(site: Path) -> list[str]:
    path = site / "said"
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def test_running_jobs_are_waited_for_before_a_change_that_would_end_them(tmp_path: Path) -> None:
    site = place(tmp_path, preflight=QUEUE)

    refused = command(site, "provision")
    assert (refused.returncode, said(site)[1:]) == (3, []), refused
    done = command(site, "provision", "--drain")

    assert done.returncode == 0, done
    assert said(site)[1:] == [
        "drained node1 clusterctl: provision", "base head,node1,node2 - -",
        "containers head,node1,node2 - -", "slurm head,node1,node2 - -", "monitoring head,node1,node2 - -",
        "resumed node1 node2 clusterctl: provision",
    ]  # fmt: skip


def test_a_new_node_is_provisioned_alone_then_known_to_all_and_reserved_until_verify_has_passed(tmp_path: Path) -> None:
    site = place(tmp_path)

    refused, done = command(site, "node", "add", "node1"), command(site, "node", "add", "node2")

    assert (refused.returncode, "node1 is in the cluster already" in refused.stderr) == (3, True), refused
    # Of this verify nothing is known: what it owes never ran.
    assert (done.returncode, "stays in the reservation clusterctl-new" in done.stderr) == (8, True), done
    assert said(site) == [
        *(f"{stage} node2 clusterctl-new -" for stage in ("join", *STAGES, "monitoring")),
        *(f"{stage} head,node1,node2 clusterctl-new reserved" for stage in (*STAGES[1:], "slurm", "monitoring")),
        "verify node2 clusterctl-new -",
    ]
