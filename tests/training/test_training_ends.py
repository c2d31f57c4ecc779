"""Programs that train end as they should: Python's own end must not meet a thread of a process group.

Such a thread may hold the last reference to a tensor, needs Python to let go of it, and is then ended in a way that
C++ answers with "terminate called without an active exception": SIGABRT, once in some hundred ends, after a training
that was well.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import labs
import pytest
from worker import free_port

from provision import content

JOBS = content.ROOT / "roles/slurm_image/files/image/jobs"
PROOF = content.ROOT / "roles/ddp_validation/files"

#: Run a program as Python does, and tell before Python ends which threads are left. C++ names its own.
WATCHED = """
import atexit, pathlib, sys
def left():
    names = (one.read_text().strip() for one in pathlib.Path("/proc/self/task").glob("*/comm"))
    print("left:", *sorted(name for name in names if name != "python"))
atexit.register(left)
sys.argv = sys.argv[1:]
sys.path.insert(0, str(pathlib.Path(sys.argv[0]).parent))
exec(compile(pathlib.Path(sys.argv[0]).read_text(), sys.argv[0], "exec"))
"""
RUN_PROOF = "from ddp_proof.program import main\nraise SystemExit(main())\n"


@pytest.mark.parametrize("program", ["train_ddp.py --steps 3", "pretrain_gpt.py --train-iters 2", "proof"])
def test_no_thread_of_a_process_group_is_left_when_python_ends(
    torch_python: Path, tmp_path: Path, program: str
) -> None:
    if program == "proof":
        (tmp_path / "proof.py").write_text(RUN_PROOF, encoding="utf-8")
        small = "--layers 1 --width 64 --steps 5 --largest-bytes 65536 --timeout 30 --device cpu"
        words = [
            str(tmp_path / "proof.py"),
            "--out",
            str(tmp_path / "out"),
            "--run-id=r",
            "--expect=node1=2",
            *small.split(),
        ]
    else:
        words = [str(JOBS / program.split()[0]), *program.split()[1:]]
    port = str(free_port())
    both = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
    }
    told = {"PYTHONPATH": str(PROOF), "OMP_NUM_THREADS": "1", "SLURMD_NODENAME": "node1", "SLURM_JOB_ID": "7"}
    ranks = [
        subprocess.Popen(
            [str(torch_python), "-c", WATCHED, *words],
            env={**os.environ, **both, **told, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in (0, 1)
    ]
    said = [rank.communicate(timeout=labs.PATIENCE)[0] for rank in ranks]
    if program == "proof":  # whose output is its log
        said = [(tmp_path / f"out/rank-{rank}.log").read_text(encoding="utf-8") for rank in (0, 1)]

    assert [one.splitlines()[-1] for one in said] == ["left:"] * 2, "\n".join(said)
