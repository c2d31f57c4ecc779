"""Containers of an ordinary user's on a lab's nodes, of either kind: started, and looked for when they have ended."""

from __future__ import annotations

import functools
import shlex
import subprocess

import labs
from labs import Lab


@functools.cache
def image(lab: Lab) -> str:
    """Return the number of the image that is in every node's store, for the proof of training."""
    return lab.said("srun --quiet podman --log-level error images --quiet | head -n 1")


def run(lab: Lab, words: str) -> subprocess.CompletedProcess[str]:
    """Run a command line as an ordinary user on the controller, in their home; $I is the image."""
    return lab.ssh("head", f"export I={image(lab)}; {words}", user="ada")


def said(lab: Lab, words: str) -> list[str]:
    """Return the lines that such a command prints; it must succeed."""
    done = run(lab, words)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def on_node(lab: Lab, script: str, node: str = "node1") -> str:
    """Run a script in slurmd's container on a node."""
    return lab.root(node, f"docker exec slurmd sh -c {shlex.quote(script)}")


#: What could be left of ada's: processes, mounts and directories of jobs, shared memory, control groups. Slurm makes
#: these with version 2 only, on a virtual node.
LEFT = """
ps -e -o user:20,args 2>/dev/null | grep -E '^ada|[p]odman|[c]onmon|/[.]pause'
cut -d' ' -f5 /proc/self/mountinfo | grep clusterctl/jobs
ls -A /run/clusterctl/jobs /var/lib/clusterctl/jobs
find /dev/shm /tmp -user ada 2>/dev/null
find /sys/fs/cgroup -type d -path '*job_*'
true"""


def left(lab: Lab) -> set[str]:
    """Return what is there of it on the first node."""
    return set(on_node(lab, LEFT).splitlines())


def starts_leave_nothing(lab: Lab, times: int) -> None:
    """Start that many containers on a node: in a job, and in jobs that end well, badly, by scancel and by a daemon."""
    node = "srun --nodelist=node1 --container-image=$I"
    assert run(lab, f"{node} true").returncode == 0
    labs.until(lambda: "ada " not in on_node(lab, LEFT), lambda: on_node(lab, LEFT))
    before = left(lab)
    script = f"""
cat >many.sh <<END
for i in \\$(seq {times}); do srun --quiet --container-image=$I true || exit; done
srun --quiet podman ps --all --quiet | wc -l
END
salloc --quiet --nodelist=node1 --ntasks=1 sh many.sh; rm many.sh
{node} sh -c 'exit 3'
{node} sh -c 'setsid -f sleep 300 </dev/null >/dev/null 2>&1'
{node} --job-name=stays sh -c 'echo begun; exec sleep 300' >stays 2>/dev/null &
until grep -q begun stays; do sleep 0.2; done
scancel --me --name=stays; wait; rm stays
"""

    done = run(lab, script)

    # In a job the last step's container is there until the next one comes.
    assert done.stdout.strip() in ("0", "1"), done.stdout + done.stderr
    labs.until(lambda: left(lab) <= before, lambda: "\n".join(left(lab) - before))
