"""The first day of a user: login, a script from home, a shell on a node, an allocation, Ctrl-C, a lost connection."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator

import labs
import pytest

from provision import content

PAGES = "".join(path.read_text(encoding="utf-8") for path in sorted((content.ROOT / "docs").rglob("*.md")))

#: A user whom the lab's inventory declares, with the lab's own key.
USER = "ada"


def terminal(lab: labs.Lab, command: str) -> subprocess.Popen[str]:
    """Begin a login with a terminal, in which a command runs."""
    words = lab.entering("head", command, user=USER)
    pipe = subprocess.PIPE
    return subprocess.Popen([words[0], "-tt", *words[1:]], stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True)


def jobs(lab: labs.Lab) -> list[str]:
    return lab.said("squeue --me --noheader --format=%T").split()


@pytest.fixture(autouse=True)
def nothing_of_hers(provisioned_lab: labs.Lab) -> Iterator[None]:
    yield
    provisioned_lab.said("scancel --me; rm -rf slurm-*.out first.sh train.sh imagenet")
    labs.until(lambda: not jobs(provisioned_lab))


#: What a user asks of the machine, in salloc's shell as outside.
AS_BEFORE = "hostname; id; sudo -n true 2>&1; ssh -V 2>&1"


def test_an_allocation_has_a_shell_where_she_is_as_it_was_before_and_steps_on_its_nodes(
    provisioned_lab: labs.Lab,
) -> None:
    before = provisioned_lab.ssh("head", AS_BEFORE, user=USER).stdout.split("\n")
    allocation = terminal(provisioned_lab, "salloc --nodes=2 --time=5")
    assert allocation.stdout is not None
    # What is typed before the shell is there, salloc's own terminal throws away.
    prompt = ""
    while (read := allocation.stdout.read(1)) and not (prompt := prompt + read).endswith("$ "):
        pass

    told, _ = allocation.communicate(
        f"{AS_BEFORE}; srun hostname </dev/null | sort | xargs echo steps\nexit 4\n", timeout=labs.PATIENCE
    )

    assert "Granted job allocation" in prompt, prompt + told
    assert before[0] == "head"
    assert any("sudo" in line for line in before), "she may not, and is told so"
    assert "is not allowed to run sudo" in provisioned_lab.root("head", f"sudo --list --other-user={USER}")
    assert any(line.startswith("OpenSSH_") for line in before)
    assert set(before) <= set(told.replace("\r", "").split("\n"))
    assert "steps node1 node2" in told
    assert allocation.returncode == 4


def test_a_running_job_is_watched_measured_and_given_a_file(provisioned_lab: labs.Lab) -> None:
    lab = provisioned_lab
    ticks = "srun bash -c 'cat /tmp/first-day; rm /tmp/first-day; while sleep 1; do echo tick; done'"
    lab.said(
        f"cat >first.sh <<'END'\n#!/bin/bash\necho carried >first-day\nsbcast first-day /tmp/first-day\n{ticks}\nEND"
    )
    job = lab.said("sbatch --parsable --nodes=2 first.sh")
    labs.until(lambda: f"{job}.0 " in lab.said("squeue --me --steps --noheader --format='%i '"))

    assert lab.said(f"timeout {labs.PATIENCE:g} sattach {job}.0 | grep --max-count=1 tick") == "tick"
    # Two tasks, and what the larger of them holds.
    labs.until(lambda: re.match(r"2\|[1-9]\d*K$", lab.said(f"sstat -n -P --jobs={job}.0 --format=NTasks,MaxRSS")))
    assert lab.said(f"cat slurm-{job}.out").split().count("carried") == 2


def test_a_job_of_hers_is_repeated_until_she_removes_it(provisioned_lab: labs.Lab) -> None:
    lab = provisioned_lab
    lab.said("echo '0 3 * * * true' >first.sh; scrontab first.sh")

    assert lab.said("scrontab -l").endswith("0 3 * * * true")
    labs.until(lambda: lab.said("squeue --me --noheader --format=%T:%r") == "PENDING:BeginTime")
    lab.said("scrontab -r")
    labs.until(lambda: not jobs(lab))


def pasted(beginning: str) -> str:
    """Return what the documentation shows that begins so: a line without its comment, or words within a sentence."""
    words = re.escape(beginning)
    found = re.findall(rf"(?m)^({words}.*?) *(?:#.*)?$|`({words}[^`]*)`", PAGES)
    (line,) = {line or inline for line, inline in found}
    return str(line)


def test_what_the_documentation_shows_to_users_can_be_pasted(provisioned_lab: labs.Lab) -> None:
    lab = provisioned_lab

    def entered(beginning: str, typed: str = "") -> list[str]:
        """Run a line of clusterctl's as it stands there, but for the lab's name, which there is the only one."""
        command, group, ssh, *rest = shlex.split(pasted(beginning))
        assert (command, group, ssh) == (".venv/bin/clusterctl", "lab", "ssh")
        return labs.clusterctl("lab", "ssh", "--lab", lab.name, *rest, input=typed).stdout.splitlines()

    shell = entered(".venv/bin/clusterctl lab ssh ada@head  ", "id --user --name; hostname\n")
    on_two = entered(".venv/bin/clusterctl lab ssh ada@head srun")
    lab.said("mkdir -p imagenet && echo pixels >imagenet/1")
    lab.said("printf '#!/bin/sh\\ncat $JOB_SCRATCH/imagenet/1\\n' >train.sh")
    # The data set is where this site has one.
    staged = lab.said(pasted("sbatch --export=ALL,STAGE_IN=").replace("=/data/", f"=/home/{USER}/"))
    account = pasted("sbatch --account=")
    charged = lab.said(f"{account} --wrap true").removeprefix("Submitted batch job ")
    labs.until(lambda: not jobs(lab))

    assert shell[-2:] == [USER, "head"]
    assert [line.split()[0] for line in on_two] == ["uid=2001(ada)"] * 2
    assert lab.said(f"cat slurm-{staged.removeprefix('Submitted batch job ')}.out") == "pixels"
    asked = f"sacct --noheader --parsable2 --allocations --jobs={charged} --format=State,Account"
    labs.until(lambda: lab.said(asked) == f"COMPLETED|{account.partition('=')[2]}", lambda: lab.said(asked))
