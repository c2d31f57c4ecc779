"""What a lab and this computer were doing when a test failed: the lab is gone when somebody reads of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import labs

#: Of Slurm, as the controller sees it.
_CONTROLLER = """
timeout 20 squeue --all
timeout 20 scontrol show node
timeout 20 sdiag | head -n 40
"""

#: Of each machine: what failed, which containers there are, and the last words of the daemons and of the kernel.
_MACHINE = """
systemctl --failed --no-legend --plain
timeout 20 docker ps --all --format '{{.Names}}: {{.Status}}'
timeout 20 journalctl --no-pager --quiet --priority=warning --lines=40
for daemon in slurmctld slurmdbd slurmd sackd; do
    echo "-- $daemon"; timeout 20 journalctl --no-pager --quiet --output=cat --lines=40 CONTAINER_NAME=$daemon
done
"""


def evidence(name: str) -> str:
    """Return all of it as text, by machine, for the lab of that name; what does not answer is left out."""
    machines = [one for one in labs.objects(name)["containers"] if one.startswith(f"{name}-")]
    asked = [("this computer", _here())]
    asked += [("Slurm", _inside(one, _CONTROLLER)) for one in machines if one == f"{name}-head"]
    asked += [(one, _inside(one, _MACHINE)) for one in machines]
    return "\n".join(f"== {title}\n{said}" for title, said in asked)


def _inside(container: str, script: str) -> str:
    try:
        words = ["docker", "exec", container, "sh", "-c", f"exec 2>&1\n{script}"]
        return subprocess.run(words, capture_output=True, text=True, check=False, timeout=120).stdout
    except subprocess.TimeoutExpired as late:
        said = late.stdout or b""
        return f"{said.decode(errors='replace') if isinstance(said, bytes) else said}\nno more within 120 s"


def _here() -> str:
    load = Path("/proc/loadavg").read_text(encoding="ascii")
    pressure = [f"{kind} {Path('/proc/pressure', kind).read_text()}" for kind in ("cpu", "io", "memory")
                if Path("/proc/pressure", kind).exists()]  # fmt: skip
    return "load " + load + "".join(pressure)


if __name__ == "__main__":
    print(evidence(sys.argv[1]))
