"""The lines of files that slurmctld hands to the nodes are read before any daemon reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from declare import cluster

from provision.errors import ClusterctlError
from provision.inventory import loader
from provision.inventory.valid import declared

LEAVES = "SwitchName=s1 Nodes=node1\nSwitchName=s2 Nodes=node2\n"
BLOCKS = "BlockName=b1 Nodes=node1\nBlockName=b2 Nodes=node2\n"


def read(name: str, text: str) -> dict[str, Any]:
    """Return variables with the file, and with what has Slurm read it."""
    kind = "block" if text.startswith("Block") else "ring" if text.startswith("Ring") else "tree"
    by = {"topology.conf": {"TopologyPlugin": f"topology/{kind}"}}
    by["helpers.conf"] = {"NodeFeaturesPlugins": "node_features/helpers"}
    parameters = {"slurm_conf_parameters": by[name]} if name in by else {}
    return {"slurm_conf_files": {name: text}, **parameters}


#: Texts of files of which the last line is wrong, each with a word of the refusal.
WRONG_LINES: list[tuple[str, str, str]] = [
    ("topology.conf", "SwitchNam=s1 Nodes=node[1-2]", "did you mean SwitchName?"),
    ("topology.conf", "SwitchName=s1 Nodes=node[1-14]", "names node[3-14], which the inventory's compute nodes"),
    ("topology.conf", "SwitchName=s1 Nodes=nod1", "did you mean node1?"),
    ("topology.conf", "SwitchName=s1 Nodes=node[1-", "Nodes: "),
    ("topology.conf", "SwitchName=s[1-2] Nodes=node[1-2]", "SwitchName is 's[1-2]': Slurm takes it for one name"),
    ("topology.conf", "SwitchName=s1 Switches=s[2-", "Switches: "),
    ("topology.conf", "# two\n\nSwitchName=s1 Nodes=node1\nSwitchName=s2 Switches=s9", "Switches names s9"),
    ("topology.conf", "SwitchName=s1 Nodes=node1\nSwitchName=s2 Switches=s2", "which is no other switch of the file"),
    ("topology.conf", "SwitchName=s1", "neither Switches nor Nodes"),
    ("topology.conf", "SwitchName=s2 Nodes=node1\nSwitchName=s1 Nodes=node1 Switches=s2", "both Switches and Nodes"),
    ("topology.conf", "SwitchName=s1 Nodes=node1\nSwitchName=s1 Nodes=node2", "s1 is there twice, in line 1"),
    ("topology.conf", "SwitchName=s1 Nodes=node1\nNodes=node2", "Nodes stands without a SwitchName"),
    ("topology.conf", "SwitchName=s1 Nodes=node1 LinkSpeed=fast", "LinkSpeed is 'fast': it must be a whole number"),
    ("topology.conf", "BlockName=b1 Nodes=node1\nBlockSizes=many", "BlockSizes is 'many'"),
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
    ("topology.conf", f"{LEAVES}SwitchName=a Switches=b,s[1-2]\nSwitchName=b Switches=a", "in a circle: a -> b -> a"),
    ("topology.conf", f"{LEAVES}SwitchName=a Switches=c\nSwitchName=b Switches=a\nSwitchName=c Switches=b",
     "a -> c -> b -> a"),
    ("topology.conf", f"{LEAVES}RingName=r1 Nodes=node1", "it came with 26.05"),
    ("topology.conf", f"{LEAVES}SwitchName=s3 Nodes=node1", "node1 is in s1 and in s3"),
    ("topology.conf", "SwitchName=s1 Nodes=node1", "node2: no switch has it"),
    ("topology.conf", f"{LEAVES}SwitchName={'s' * 65} Switches=s1", "has 65 characters"),
    ("topology.conf", f"{LEAVES}BlockName=b1 Nodes=node1", "set TopologyPlugin: topology/block"),
    ("topology.conf", f"{LEAVES}BlockSizes=1", "BlockSizes is not read by TopologyPlugin topology/tree"),
    ("topology.conf", f"{BLOCKS}BlockName=b3 Nodes=node2", "node2 is in b2 and in b3"),
    ("topology.conf", f"{BLOCKS}SwitchName=s1 Nodes=node1", "set TopologyPlugin: topology/tree"),
    ("topology.conf", f"{BLOCKS}BlockName=b3", "b3 has no Nodes"),
    ("topology.conf", f"{BLOCKS}BlockSizes=1,3", "each must be the first times 2, 4, 8"),
    ("topology.conf", f"{BLOCKS}BlockSizes=0", "each must be the first times"),
    ("topology.conf", f"{BLOCKS}BlockSizes=4,2", "each must be the first times"),
    ("topology.conf", "BlockSizes=2\nBlockName=b1 Nodes=node1", "b1 has 1 nodes, and BlockSizes begins with 2"),
    ("job_container.conf", "AutoBasePath=true", "there is no BasePath"),
    ("job_container.conf", "BasePath=/scratch", "where slurmd's container is read-only"),
    ("job_container.conf", "BasePath=/opt/tmp", "write AutoBasePath=true BasePath=/var/lib/clusterctl/jobtmp"),
    ("job_container.conf", "BasePath=/tmp Dirs=/tmp,/dev/shm", "is one of Dirs, too"),
    ("job_container.conf", "BasePath=/var/tmp/x\nNodeName=node1 Shared=true", "node1 has no BasePath"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "words"), WRONG_LINES)
def test_a_line_that_slurm_would_not_take_is_refused(name: str, text: str, words: str) -> None:
    with pytest.raises(ClusterctlError) as refused:
        cluster(**read(name, f"{text}\n"))

    assert words in f"{refused.value.problem} {refused.value.fix}"
    assert refused.value.problem.startswith(f"slurm_conf_files: {name}, its line {text.count(chr(10)) + 1}: ")
    assert (refused.value.entry, refused.value.row) == (("slurm_conf_files", None, name), text.count("\n") + 1)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "topology.conf",
            "SwitchName=s1 Nodes=node1 # a\nSwitchName=s2 Nodes=node2\nswitchname=a \\\n  Switches=s[1-2] LinkSpeed=1",
        ),
        ("topology.conf", "BlockName=b1 Nodes=node1\nBlockName=b2 Nodes=node2\nBlockSizes=1,2"),
        (
            "job_container.conf",
            "AutoBasePath=true\nBasePath=/var/tmp/%n Dirs=/tmp,/dev/shm\nNodeName=node1 BasePath=none",
        ),
        (
            "plugstack.conf",
            "# the site's\nrequired /opt/site.so min=1\noptional /opt/x.so\ninclude /etc/slurm/plugstack.d/*.conf",
        ),
        ("helpers.conf", "MutuallyExclusive=nps1,nps2\nNodeName=node[1-2] Feature=nps1,nps2 Helper=/opt/nps"),
        ("oci.conf", 'RunTimeRun="crun --rootless=true run %n"\nCreateEnvFile=null\nSrunArgs=--mpi=none'),
        ("mpi.conf", "PMIxDebug=1\nPMIxDirectConn=true"),
        ("acct_gather.conf", "EnergyIPMIFrequency=10\nEnergyIPMIPassword=x#y\nProfileHDF5Default=Energy,Task"),
    ],
)
def test_a_line_that_slurm_takes_is_taken(name: str, text: str) -> None:
    assert cluster(**read(name, text)).slurm_files[name] == text


@pytest.mark.parametrize(
    ("text", "row"), [("- topology: a\n  tree: {switches: [\n", 3), ("- a: b\n\t- c\n", 2), ("tree", 1)]
)
def test_a_file_of_yaml_is_yaml(text: str, row: int) -> None:
    with pytest.raises(ClusterctlError, match=f"topology.yaml, its line {row}: this is n"):
        cluster(slurm_version="25.05", slurm_conf_files={"topology.yaml": text})


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("  mpi.conf: PMIxDebug=1\n  slurmdbd.conf: b\n", 5),
        ("  topology.conf: |\n    # ours\n\n    SwitchName=s1 Nodes=node9\n", 7),
        ("  mpi.conf: PMIxDebug=x\n", 4),
        ("  mpi.conf:\n    PMIxDebug=x\n", 4),
    ],
)
def test_a_refusal_names_file_and_line(tmp_path: Path, text: str, line: int) -> None:
    inventory = tmp_path / "inventory.ini"
    inventory.write_text("[slurm_controller]\nhead\n[slurm_compute]\nnode1\n[all:vars]\ncluster_name=x\n")
    (tmp_path / "group_vars").mkdir()
    plugin = "{TopologyPlugin: topology/tree}" if "topology" in text else "{}"
    (tmp_path / "group_vars/all.yml").write_text(f"---\nslurm_conf_parameters: {plugin}\nslurm_conf_files:\n{text}")

    with pytest.raises(ClusterctlError) as refused:
        declared(loader.load(inventory))

    assert refused.value.problem.startswith(f"{tmp_path}/group_vars/all.yml, line {line}: ")
