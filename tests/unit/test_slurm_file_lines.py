"""The lines of files that slurmctld hands to the nodes are read before any daemon reads them."""

from __future__ import annotations

from pathlib import Path

import pytest
from declare import cluster

from provision.errors import ClusterctlError
from provision.inventory import loader
from provision.inventory.valid import declared

#: Texts of files of which the last line is wrong, each with a word of the refusal.
WRONG_LINES: list[tuple[str, str, str]] = [
    ("topology.conf", "SwitchNam=s1 Nodes=node[1-2]", "did you mean SwitchName?"),
    ("topology.conf", "SwitchName=s1 Nodes=node[1-14]", "names node[3-14], which the inventory's compute nodes"),
    ("topology.conf", "SwitchName=s1 Nodes=nod1", "did you mean node1?"),
    ("topology.conf", "SwitchName=s1 Nodes=node[1-", "Nodes: "),
    ("topology.conf", "SwitchName=s[1- Nodes=node1", "SwitchName: "),
    ("topology.conf", "# two\n\nSwitchName=s1 Nodes=node1\nSwitchName=s2 Switches=s9", "Switches names s9"),
    ("topology.conf", "SwitchName=s1 Nodes=node1\nSwitchName=s2 Switches=s2", "which is no other switch of the file"),
    ("topology.conf", "SwitchName=s1", "neither Switches nor Nodes"),
    ("topology.conf", "SwitchName=s2 Nodes=node1\nSwitchName=s1 Nodes=node1 Switches=s2", "both Switches and Nodes"),
    ("topology.conf", "SwitchName=s1 Nodes=node1\nSwitchName=s[0-1] Nodes=node2", "s1 is there twice, in line 1"),
    ("topology.conf", "SwitchName=s1 Nodes=node1\nNodes=node2", "Nodes stands without a SwitchName"),
    ("topology.conf", "SwitchName=s1 Nodes=node1 LinkSpeed=fast", "LinkSpeed is 'fast': it must be a whole number"),
    ("topology.conf", "BlockName=b1 Nodes=node1\nBlockSizes=many", "BlockSizes is 'many'"),
    ("topology.conf", "RingName=r1 Nodes=node1", "it came with 26.05"),
    ("topology.conf", "SwitchName=s1 Nodes = node1\nswitch", "'switch' is no parameter with a value"),
    ("job_container.conf", "AutoBasePat=true", "did you mean AutoBasePath?"),
    ("job_container.conf", "AutoBasePath=maybe", "it must be YES or NO"),
    ("job_container.conf", "AutoBasePath=true\nBasePath=scratch", "BasePath is 'scratch': it must be a whole path"),
    ("job_container.conf", "NodeName=node7 BasePath=/scratch", "names node7"),
    ("job_container.conf", "Dirs=/tmp,shm", "whole paths with commas"),
    ("job_container.conf", "BasePath=", "BasePath has no value"),
    ("job_container.conf", "CloneNSScript_Wait=long", "it must be a whole number"),
    ("plugstack.conf", "requird /x.so", "did you mean required?"),
    ("plugstack.conf", "optional /x.so a=1\nrequired", "required has no path"),
    ("plugstack.conf", "include plugstack.d/*", "it must be a whole path"),
    ("helpers.conf", "Featur=nps1", "did you mean Feature?"),
    ("helpers.conf", "NodeName=gpu1 Feature=nps1 Helper=/x", "names gpu1"),
    ("helpers.conf", "Feature=nps1 Helper=nps", "Helper is 'nps': it must be a whole path"),
    ("mpi.conf", "PMIxTimeout=soon", "it must be a whole number"),
    ("mpi.conf", "PMIxShareServerTopology=yes", "it came with 25.11"),
    ("oci.conf", 'RunTimeRunn="runc run %n"', "did you mean RunTimeRun?"),
    ("oci.conf", "RunTimeRun=runc run %n", "'run' is no parameter with a value"),
    ("oci.conf", "CreateEnvFile=sure", "one of null, newline, disabled"),
    ("acct_gather.conf", "ProfileHDF5Default=Tasks", "did you mean Task?"),
    ("acct_gather.conf", "EnergyIPMIFrequency=often", "it must be a whole number"),
    ("acct_gather.conf", "MessageTimeout=3", "it is one of slurm.conf"),
]


@pytest.mark.parametrize(("name", "text", "words"), WRONG_LINES)
def test_a_line_that_slurm_would_not_take_is_refused(name: str, text: str, words: str) -> None:
    with pytest.raises(ClusterctlError) as refused:
        cluster(slurm_conf_files={name: f"{text}\n"})

    assert words in f"{refused.value.problem} {refused.value.fix}"
    assert refused.value.problem.startswith(f"slurm_conf_files: {name}, its line {text.count(chr(10)) + 1}: ")
    assert (refused.value.entry, refused.value.row) == (("slurm_conf_files", None, name), text.count("\n") + 1)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "topology.conf",
            "SwitchName=s[1-2] Nodes=node[1-2] # leaves\nswitchname=top \\\n  Switches=s[1-2] LinkSpeed=10",
        ),
        ("topology.conf", "BlockName=b1 Nodes=node1\nBlockName=b2 Nodes=node2\nBlockSizes=1,2"),
        (
            "job_container.conf",
            "AutoBasePath=true\nBasePath=/scratch/%n Dirs=/tmp,/dev/shm\nNodeName=node1 BasePath=none",
        ),
        (
            "plugstack.conf",
            "# the site's\nrequired site.so min=1\noptional /opt/x.so\ninclude /etc/slurm/plugstack.d/*.conf",
        ),
        ("helpers.conf", "MutuallyExclusive=nps1,nps2\nNodeName=node[1-2] Feature=nps1,nps2 Helper=/opt/nps"),
        ("oci.conf", 'RunTimeRun="crun --rootless=true run %n"\nCreateEnvFile=null\nSrunArgs=--mpi=none'),
        ("mpi.conf", "PMIxDebug=1\nPMIxDirectConn=true"),
        ("acct_gather.conf", "EnergyIPMIFrequency=10\nEnergyIPMIPassword=x#y\nProfileHDF5Default=Energy,Task"),
    ],
)
def test_a_line_that_slurm_takes_is_taken(name: str, text: str) -> None:
    assert cluster(slurm_conf_files={name: text}).slurm_files[name] == text


@pytest.mark.parametrize(
    ("text", "row"), [("- topology: a\n  tree: {switches: [\n", 3), ("- a: b\n\t- c\n", 2), ("tree", 1)]
)
def test_a_file_of_yaml_is_yaml(text: str, row: int) -> None:
    with pytest.raises(ClusterctlError, match=f"topology.yaml, its line {row}: this is n"):
        cluster(slurm_version="25.05", slurm_conf_files={"topology.yaml": text})


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("  helpers.conf: Feature=a\n  slurmdbd.conf: b\n", 4),
        ("  topology.conf: |\n    # ours\n\n    SwitchName=s1 Nodes=node9\n", 6),
        ("  mpi.conf: PMIxDebug=x\n", 3),
        ("  mpi.conf:\n    PMIxDebug=x\n", 3),
    ],
)
def test_a_refusal_names_file_and_line(tmp_path: Path, text: str, line: int) -> None:
    inventory = tmp_path / "inventory.ini"
    inventory.write_text("[slurm_controller]\nhead\n[slurm_compute]\nnode1\n[all:vars]\ncluster_name=x\n")
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars/all.yml").write_text(f"---\nslurm_conf_files:\n{text}")

    with pytest.raises(ClusterctlError) as refused:
        declared(loader.load(inventory))

    assert refused.value.problem.startswith(f"{tmp_path}/group_vars/all.yml, line {line}: ")
