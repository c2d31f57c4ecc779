"""What a user tries who is curious about others and about the machine: run as that user, in a job or after a login.

``probes.py OTHER_UID JOB`` prints one JSON object: for each probe what it was told, each once; JOB is the other's. What
was not refused is ``open: PATH``. The program comes on standard input: only the standard library.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

#: The node's own, in a job, and where somebody is who has logged in.
ETC = "/run/machine-etc" if Path("/run/machine-etc").exists() else "/etc"
CGROUPS = Path("/sys/fs/cgroup")


def told(attempt: Callable[[], object], what: object) -> str:
    """Return how one attempt was refused, in the kernel's words, or that it was not."""
    try:
        attempt()
    except OSError as refused:
        return os.strerror(refused.errno or errno.EIO)
    return f"open: {what}"


def read(path: str | Path) -> str:
    return told(lambda: os.close(os.open(path, os.O_RDONLY)), path)


def written(path: Path, text: str) -> str:
    return told(lambda: path.write_text(text, encoding="utf-8"), path)


def connected(path: str) -> str:
    return told(lambda: socket.socket(socket.AF_UNIX).connect(path), path)


def processes(name: str = "", uid: int | None = None) -> list[int]:
    """Return the processes whose program has this name, or whose owner this number.

    A daemon of Slurm's that has been reconfigured has the name of Debian's file: slurmctld-wlm.
    """
    found, names = [], (name.encode(), f"{name}-wlm".encode())
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "comm").read_bytes().strip() in names or process.stat().st_uid == uid:
                found.append(int(process.name))
        except OSError:
            continue  # it has ended
    return found


def own_cgroup() -> Path:
    return CGROUPS / Path("/proc/self/cgroup").read_text(encoding="utf-8").strip().rpartition(":/")[2]


def others_script(job: str) -> str:
    done = subprocess.run(
        ["scontrol", "write", "batch_script", job, "-"], capture_output=True, text=True, check=False, timeout=120
    )
    if done.returncode == 0 and "secret" in done.stdout:
        return f"open: script of job {job}"
    return (done.stderr or done.stdout).strip().rpartition("error: ")[2].rpartition(": ")[2]


def other_cores() -> Iterable[str]:
    for core in set(range(os.cpu_count() or 1)) - os.sched_getaffinity(0):
        yield told(lambda core=core: os.sched_setaffinity(0, {core}), f"core {core}")  # type: ignore[misc]


def signals(uid: int) -> Iterable[str]:
    """Send what nobody minds. Not SIGCONT, which one may send within a session: a step's is its slurmstepd's."""
    for name in ("slurmd", "slurmstepd", "slurmctld", "munged", "dockerd"):
        for pid in processes(name):
            yield f"{name}: {told(lambda pid=pid: os.kill(pid, signal.SIGURG), pid)}"  # type: ignore[misc]
    for pid in processes(uid=uid):
        yield f"another's: {told(lambda pid=pid: os.kill(pid, signal.SIGURG), pid)}"  # type: ignore[misc]


def probes(uid: int, job: str) -> dict[str, list[str]]:
    """Try everything, once each."""
    others, cgroup = processes(uid=uid), own_cgroup()
    daemons = processes("slurmd") + processes("slurmstepd")
    spool, own = Path("/var/spool/slurmd"), Path("/var/lib/clusterctl/jobtmp")
    tried: dict[str, Iterable[str]] = {
        "munge_key": [read(f"{ETC}/munge/munge.key"), read("/proc/1/root/etc/munge/munge.key")],
        "slurmdbd_conf": [read(f"{ETC}/slurmdbd/slurmdbd.conf"), read(f"{ETC}/slurmdbd/password.conf")],
        "state": [read("/var/spool/slurmctld/job_state"), *map(read, spool.glob("*_state*"))],
        "scripts": [others_script(job), *map(read, spool.glob(f"job0*{job}"))],
        "environment": [read(f"/proc/{pid}/environ") for pid in others + daemons],
        "tmp": [read(f"/tmp/secret-{job}"), *(read(f"/proc/{pid}/root/tmp") for pid in others),
                *map(read, own.glob(f"*/{job}"))],
        "shm": [read(f"/dev/shm/secret-{job}"), *(read(f"/proc/{pid}/root/dev/shm") for pid in others)],
        "gpus": map(read, Path("/dev").glob("nvidia[0-9]*")),
        "memory": [written(cgroup / "memory.max", "max"), written(CGROUPS / "cgroup.procs", str(os.getpid())),
                   *(read(f"/proc/{pid}/mem") for pid in others)],
        "cores": [*other_cores(), written(cgroup / "cpuset.cpus", "0-1")],
        "docker": [connected(path) for path in ("/run/docker.sock", "/proc/1/root/run/docker.sock")],
        "signals": signals(uid),
    }  # fmt: skip
    return {name: sorted(set(answers)) for name, answers in tried.items()}


if __name__ == "__main__":
    print(json.dumps(probes(int(sys.argv[1]), sys.argv[2])))
