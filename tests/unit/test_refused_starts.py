"""Mistakes with which a daemon of Slurm would not start, or no job could run, each beside what is right."""

from __future__ import annotations

from typing import Any

import pytest
from declare import A40, cluster

from provision.errors import ClusterctlError, ExitCode


def conf(**parameters: Any) -> dict[str, Any]:
    return {"slurm_conf_parameters": parameters}


def files(name: str, text: str, **parameters: Any) -> dict[str, Any]:
    return {"slurm_conf_files": {name: text}, **conf(**parameters)}


def topology(text: str, release: str = "25.05") -> dict[str, Any]:
    return {"slurm_version": release, "slurm_conf_files": {"topology.yaml": text}}


def namespace(text: str, release: str = "25.11") -> dict[str, Any]:
    return {"slurm_version": release, "slurm_conf_files": {"namespace.yaml": text}}


def prolog(interpreter: str, **site: Any) -> dict[str, Any]:
    return {**files("a.sh", f"#!{interpreter}\nexit 0\n", Prolog="a.sh"), **site}


def partitions(*told: dict[str, Any]) -> dict[str, Any]:
    return {"slurm_partitions": [{"PartitionName": f"p{number}", **one} for number, one in enumerate(told)]}


OLD = {"nodes": {"node1": {**A40, "node_cgroup_version": 1}}, "slurm_conf_cgroup_v1_allowed": True}
TREE = "- topology: a\n  cluster_default: true\n  tree:\n    switches:\n"
BLOCK = "- topology: b\n  block:\n    block_sizes: [1, 2]\n    blocks: [{block: b1, nodes: 'node[1-2]'}]\n"
OURS = "BasePath=/var/lib/clusterctl/jobtmp"

BAD: list[tuple[dict[str, Any], str]] = [
    # What is selected.
    *((conf(SelectTypeParameters=words), "it needs one of CR_Core_Memory") for words in
      ("CR_Memory", "CR_LLN", "CR_ONE_TASK_PER_CORE", "CR_Pack_Nodes", "CR_LLN,CR_Memory")),
    (conf(SelectTypeParameters="CR_LLN"), "write SelectTypeParameters: 'CR_Core_Memory,CR_LLN'"),
    (conf(MaxNodeCount=1), "write 2 or more"), (conf(RequeueExit=0), "each job that succeeds would be queued again"),
    (conf(RequeueExitHold="0-9"), "0-9 has 0"), (conf(SrunPortRange="20000-20003"), "one srun on all nodes takes 5"),
    # Scripts in Lua, which have no way to the daemons.
    (conf(CliFilterPlugins="user_defaults,cli_filter/lua"), "whose cli_filter.lua"),
    # Old control groups.
    ({**OLD, **conf(TaskPlugin="task/affinity,task/cgroup")}, "node1 has cgroup v1"),
    ({**OLD, **conf(ProctrackType="proctrack/cgroup")}, "remove ProctrackType"),
    # The database.
    # Files.
    (files("topology.conf", "Include switches.conf", TopologyPlugin="topology/tree"), "write the lines of that file"),
    (files("mpi.conf", "PMIxDebug=1\ninclude x"), "its line 2: 'include x'"),
    (files("job_container.conf", "Include x"), "have no other file beside it"),
    (files("job_container.conf", OURS), "add AutoBasePath=true"),
    (files("job_container.conf", f"AutoBasePath=false\n{OURS}"), "its line 2: BasePath is"),
    (files("job_container.conf", f"AutoBasePath=yes\n{OURS}\nNodeName=node1 AutoBasePath=no {OURS}"), "its line 3"),
    (topology("- topology: a\n  tre: {}"), "its line 2: there is no 'tre' here. did you mean tree?"),
    (topology("{}"), "topology.yaml must be a list"), (topology("[]"), "there is no topology"),
    (topology(f"{TREE}      - {{switch: s1, nodes: 'node[1-3]'}}"), "its line 5: nodes names node3"),
    (topology(f"{TREE}      - {{switch: s1, nodes: nod1}}"), "did you mean node1?"),
    (topology(f"{TREE}      - {{switch: s1, node: node1}}"), "did you mean nodes?"),
    (topology("- topology: a\n  flat: true\n  block: {}"), "topology a is block and flat"),
    (topology("- topology: a"), "topology a is of no kind"), (topology("- flat: true"), "no name of its own"),
    (topology("- topology: a\n  cluster_default: maybe\n  flat: true"), "it must be true or false"),
    (topology("- topology: a\n  ring: {rings: []}"), "it came with 26.05"),
    (topology("- topology: a\n  block: {blocks: {}}"), "blocks must be a list"),
    (namespace("defaults: {auto_basepath: true}"), "did you mean auto_base_path?"),
    (namespace("defaults:\n  shared: perhaps"), "its line 2: shared is 'perhaps'"),
    (namespace("default: {shared: true}"), "did you mean defaults?"),
    (namespace("disable_bpf_token: true"), "write it below defaults"),
    (namespace("[]"), "must be a mapping"),
    *((prolog(path), "which is not in Slurm's image") for path in
      ("/usr/bin/zsh", "/usr/bin/env zsh", "/usr/bin/env -S ruby -w", "/usr/local/bin/python3", "/usr/bin/python")),
    (files("plugstack.conf", "# ours\nrequired nosuch.so"), "its line 2: nosuch.so is none of Slurm's plugins"),
    # Partitions.
    (partitions({"Alternate": "p1", "Default": "YES"}, {"Alternate": "p2"}, {"Alternate": "p1"}), "p1 -> p2 -> p1"),
    # Control groups.
    *(({"slurm_conf_cgroup_parameters": {name: value}}, "a percentage from 10") for name in
      ("MaxRAMPercent", "AllowedRAMSpace") for value in (0, 1)),
    ({"slurm_conf_cgroup_parameters": {"MinRAMSpace": 200000}}, "it is in MB, and 30 where it is left out"),
    (conf(SlurmdTimeout=1), "300 is Slurm's own"),
]  # fmt: skip

GOOD: list[dict[str, Any]] = [
    *(conf(SelectTypeParameters=words) for words in
      ("CR_CPU", "cr_core", "CR_Socket_Memory,CR_LLN", "CR_Core_Memory,CR_ONE_TASK_PER_CORE,CR_Pack_Nodes")),
    conf(MaxNodeCount=2), conf(RequeueExit="1-9"), conf(RequeueExitHold="10,20"), conf(SrunPortRange="20000-20004"),
    conf(JobSubmitPlugins="all_partitions,require_timelimit"), conf(CliFilterPlugins="user_defaults"),
    {**OLD, **conf(TaskPlugin="task/affinity")}, conf(TaskPlugin="task/cgroup,task/affinity"),
    conf(AccountingStorageType="accounting_storage/slurmdbd", AccountingStorageHost="db.site.example"),
    {"database": True}, files("job_container.conf", f"{OURS}\nAutoBasePath=true"),
    files("job_container.conf", "BasePath=/var/tmp/%n"),
    files("job_container.conf", f"AutoBasePath=true\n{OURS}\nNodeName=node1 BasePath=none"),
    topology(f"{TREE}      - {{switch: s1, nodes: 'node[1-2]'}}\n      - {{switch: s2, children: s1}}\n{BLOCK}"),
    topology("- {topology: a, flat: true}"), topology("- {topology: a, new: true}", "26.11"),
    topology("- {topology: a, ring: {rings: [{ring: r, nodes: 'node[1-2]'}]}}", "26.05"),
    namespace("defaults: {auto_base_path: true, base_path: /var/tmp, shared: yes}\n"
              "node_confs: [{nodes: ['node1', 'node[2]'], options: {base_path: none}}]"),
    namespace("{}"),
    *map(prolog, ("/bin/bash", "/usr/bin/env bash", "/usr/bin/env -S python3 -I", "/usr/bin/perl", "/opt/bin/x")),
    prolog("/usr/bin/zsh", slurm_image_extra_packages=["zsh"]),
    files("plugstack.conf", "optional nosuch.so\nrequired /opt/site/x.so"),
    {**files("plugstack.conf", "required x.so"), "slurm_image_extra_packages": ["site-spank"]},
    partitions({"Alternate": "p1", "Default": "YES"}, {"Alternate": "p2"}, {}),
    partitions({"Alternate": "p1", "Default": "YES"}, {"Alternate": "p0"}),
    partitions({"State": "UP", "Default": "YES"}, {"State": "DOWN"}), partitions({"State": "DRAIN"}),
    partitions({"DefMemPerGPU": 60000}), conf(AccountingStorageType="accounting_storage/slurmdbd"),
    conf(JobSubmitPlugins="throttle,lua"), conf(JobCompType="jobcomp/lua"), prolog("/usr/bin/python3.13"),
    namespace("defaults:\nnode_confs: [{nodes: 'node[1-99]', options: {shared: true}}]"),
    {"slurm_conf_cgroup_parameters": {"MaxRAMPercent": 98, "AllowedRAMSpace": 100, "MinRAMSpace": 64}},
    conf(SlurmdTimeout=0), conf(SlurmdTimeout=60),
]  # fmt: skip


@pytest.mark.parametrize(("variables", "words"), BAD)
def test_what_keeps_slurm_from_starting_is_refused_with_what_to_do(variables: dict[str, Any], words: str) -> None:
    with pytest.raises(ClusterctlError) as error:
        cluster(**variables)

    assert error.value.exit_code is ExitCode.BAD_REQUEST
    assert error.value.entry
    assert words in f"{error.value.problem}. {error.value.fix}"


@pytest.mark.parametrize("variables", GOOD)
def test_what_looks_like_it_and_is_right_is_taken(variables: dict[str, Any]) -> None:
    assert cluster(**variables).nodes
