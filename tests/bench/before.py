"""A provision that has nothing to do, beside the release before users, accounts, storage and images of jobs.

Both sides ask and judge three made-up machines, each with what a converged cluster's have answered to its own modules
(bench.recorded), in turn in this one run. The other side is a worktree of its commit, with the running environment's
packages.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.commands import in_turn
from bench.processor import Cost

from provision import content
from provision.ansible_env import clean_environment

#: The last commit before them.
COMMIT = "b9259e7"
TITLE = "made-up machines with nothing to do, beside the release before users"
#: How many times its processor seconds a provision may take.
AIM = 1.1
#: What that release knows of an inventory; others it would refuse.
KNOWN = ("ansible_", "node_", "cluster_name=", "cluster_simulated=", "slurm_conf_cgroup_v1_allowed=")
GROUPS = ("[slurm_controller]", "[slurm_compute]", "[all:vars]")
#: In either tree: record INVENTORY FILE, or judge FILE MACHINES, which prints what it cost.
SIDE = """
import pickle, sys, tempfile
from pathlib import Path
from bench import fleet, recorded
what, *words = sys.argv[1:]
if what == "record":
    Path(words[1]).write_bytes(pickle.dumps(recorded.record(Path(words[0]))))
else:
    answers = pickle.loads(Path(words[0]).read_bytes())
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch, fleet.running(Path(scratch)) as machines:
        cost = recorded.judged(machines, answers, int(words[1]))
    print(cost.user, cost.system, cost.wall)
"""


def beside(inventory: Path, runs: int, machines: int = 3) -> dict[str, Cost | float | str]:
    """Return medians of both and of the processor seconds' ratio; why not, where git does not have the commit."""
    there = subprocess.run(
        ["git", "-C", str(content.ROOT), "cat-file", "-e", f"{COMMIT}^{{commit}}"], capture_output=True, check=False
    )
    if there.returncode != 0:
        return {"not measured": f"git has no commit {COMMIT} here: it takes a checkout with its history"}
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=content.ROOT) as scratch, worktree(Path(scratch)) as old:
        older = Path(scratch) / "inventory" / "inventory.ini"
        older.parent.mkdir()
        older.write_text(understood(inventory.read_text(encoding="utf-8")), encoding="utf-8")
        if (hosts := inventory.parent / "host_vars").is_dir():
            shutil.copytree(hosts, older.parent / "host_vars")
        sides = {content.ROOT: inventory, old: older}
        for number, (tree, declared) in enumerate(sides.items()):
            _run(tree, "record", declared, f"{scratch}/{number}")
        now, before, ratio = in_turn(
            lambda: _cost(_run(content.ROOT, "judge", f"{scratch}/0", machines)),
            lambda: _cost(_run(old, "judge", f"{scratch}/1", machines)),
            runs,
        )
    return {"now": now, f"at {COMMIT}": before, f"times (aim: {AIM})": ratio}


def understood(inventory: str) -> str:
    """Return of an INI inventory what the older release knows: its groups, and its variables."""
    lines, kept, group = inventory.splitlines(), [], ""
    for line in lines:
        if line.startswith("["):
            group = line.strip()
        if group in GROUPS and (group != "[all:vars]" or line.startswith(("[", *KNOWN))):
            kept.append(line)
    return "\n".join(kept) + "\n"


@contextmanager
def worktree(scratch: Path) -> Iterator[Path]:
    """Check the older release out, with this environment's packages, until the block ends."""
    old = scratch / "tree"
    git = ["git", "-C", str(content.ROOT), "worktree"]
    subprocess.run([*git, "add", "--quiet", "--detach", str(old), COMMIT], check=True)
    try:
        own = old / ".venv"
        shutil.copytree(sys.prefix, own, symlinks=True, copy_function=os.link)
        # What names the tree names the other one there: programs, and where Python finds the package.
        for file in [*(own / "bin").iterdir(), *own.glob("lib/python3*/site-packages/*.pth"), own / "pyvenv.cfg"]:
            if file.is_symlink() or str(content.ROOT).encode() not in (text := file.read_bytes()):
                continue
            mode = file.stat().st_mode
            file.unlink()
            file.write_bytes(text.replace(str(content.ROOT).encode(), str(old).encode()))
            file.chmod(mode)
        yield old
    finally:
        subprocess.run([*git, "remove", "--force", str(old)], check=True)


def _run(tree: Path, *words: object) -> str:
    """Run one of SIDE's in a tree and return what it printed last; SystemExit where it fails."""
    command = [str(tree / ".venv/bin/python"), "-c", SIDE, *map(str, words)]
    environment = {**clean_environment(), "PYTHONPATH": str(tree / "tests")}
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{tree}: {' '.join(command[3:])}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout.strip().rpartition("\n")[2]


def _cost(printed: str) -> Cost:
    return Cost(*map(float, printed.split()))
