"""Login hosts: users submit there, and Slurm's commands need nothing of a machine but its kernel and munge's socket."""

from __future__ import annotations

import labs
import pytest

TREE = "/opt/clusterctl/slurm"
#: Debian 13, which Slurm's image is made of, without the library and the plugins of Slurm that are in it.
TRIXIE = "docker export slurmctld | tar -x -C $R && rm -r $R/usr/lib/*/slurm-wlm"
#: Another root for a program, with what Slurm's commands read: who people are, addresses, the configuration.
ROOT = """
set -eu
R=$(mktemp -d)
trap 'cd /; for place in {mounts}; do umount -q $R$place || true; done; rm -rf --one-file-system $R' EXIT
chmod 0755 $R
{make}
for place in {mounts}; do mkdir -p $R$place; mount --bind $place $R$place; done
mkdir -p $R/etc; cp /etc/hosts $R/etc/
for file in passwd group; do grep -E '^(slurm|ada|physics|biology):' /etc/$file >>$R/etc/$file; done
{then}
"""


def inside(lab: labs.Lab, machine: str, conf: str, make: str, then: str) -> list[str]:
    """Return what a script prints that has such a root at ``$R``; ``conf`` is where the machine's configuration is."""
    return lab.root(machine, ROOT.format(mounts=f"{TREE} /run/munge {conf}", make=make, then=then)).splitlines()


def said(lab: labs.Lab, script: str) -> str:
    """Return what a script prints that ada runs on the login host, after a login with her key."""
    done = lab.ssh("login1", script, user="ada")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def test_sackd_has_no_right_of_its_own(provisioned_lab: labs.Lab) -> None:
    pid = provisioned_lab.root("login1", "docker inspect --format '{{.State.Pid}}' sackd")
    told = provisioned_lab.root("login1", f"grep -E '^(Uid|CapEff|NoNewPrivs)' /proc/{pid}/status").split()

    assert told == ["Uid:", *["64030"] * 4, "CapEff:", "0" * 16, "NoNewPrivs:", "1"]


def test_a_login_shows_the_cluster_and_a_command_shows_nothing_of_it(provisioned_lab: labs.Lab) -> None:
    types = r"printf 'squeue\nsinfo\nlogout\n' | script -qec 'bash -li' /dev/null"

    shown = said(provisioned_lab, types).replace("\r", "").splitlines()

    for beginning in (
        "GPUs free   sim ",
        "partitions  ",
        "accounts    test1267 (default)",
        "images      pytorch:cluster",
    ):
        assert any(line.startswith(beginning) for line in shown), shown
    for column in (" TRES_ALLOC ", " GRES "):
        assert any(column in line for line in shown), shown
    assert said(provisioned_lab, "true") == ""
    assert "--requeue-on=node-failure" in said(provisioned_lab, "torchrun-slurm --help")
    assert said(provisioned_lab, "lint-job /usr/local/share/clusterctl/jobs/ddp-container.sbatch").endswith(": good")


def test_another_slurms_files_on_the_machine_are_not_theirs(provisioned_lab: labs.Lab) -> None:
    """Debian's own slurm-client leaves such a file."""
    lab = provisioned_lab
    lab.root("login1", "mkdir -p /etc/slurm; echo 'required /nonexistent.so' >/etc/slurm/plugstack.conf")
    try:
        assert said(lab, "srun --chdir=/ echo ran") == "ran"
    finally:
        lab.root("login1", "rm /etc/slurm/plugstack.conf; rmdir --ignore-fail-on-non-empty /etc/slurm")


@pytest.mark.parametrize(
    ("machine", "conf", "make", "debian"),
    [("head", "/etc/slurm", TRIXIE, "13."), ("login1", "/run/slurm", "", "")],
    ids=["debian13", "nothing"],
)
def test_slurms_commands_need_nothing_of_the_machine(
    provisioned_lab: labs.Lab, machine: str, conf: str, make: str, debian: str
) -> None:
    """On Debian 13, and where there is nothing else: no shell, no library, neither /proc nor /dev."""
    commands = (
        "sinfo --noheader --format=%P", "srun --chdir=/ echo ran",
        "sbatch --chdir=/ --output=/dev/null --wait --quiet --wrap true",
        f"salloc --quiet -n1 {TREE}/current/bin/srun --chdir=/ echo ran", "scontrol ping",
    )  # fmt: skip
    calls = "\n".join(f"chroot --userspec=2001:3001 --groups= $R {TREE}/current/bin/{words}" for words in commands)
    there = "cat $R/etc/debian_version 2>/dev/null || (cd $R; find . -xdev -type f | sort | tr '\\n' ' '; echo)"

    release, *told = inside(provisioned_lab, machine, conf, make, f"{there}\n{calls}")

    assert told == ["batch*", "ran", "ran", "Slurmctld(primary) at head is UP"]
    assert release.startswith(debian) if debian else release.split() == ["./etc/group", "./etc/hosts", "./etc/passwd"]
