"""The templates' training with DistributedDataParallel: what it keeps and resumes from, and when its workers end."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import labs
from worker import free_port

from provision import content

TRAINING = content.ROOT / "roles/slurm_image/files/image/jobs/train_ddp.py"

#: Run the training once for each pair of what Python does before it and its words. PyTorch is loaded once for all.
SEVERAL = """
import json, os, pathlib, runpy, sys, time, torch
program, runs = sys.argv[1], json.loads(sys.argv[2])
sys.path.insert(0, str(pathlib.Path(program).parent))
for before, words in runs:
    exec(before)
    print("run", words, flush=True)
    sys.argv = [program, *words.split()]
    runpy.run_path(program, run_name="__main__")
    print("ends with", *sorted(path.name for path in pathlib.Path().glob("*.pt")), flush=True)
"""

#: A model whose saving takes its time.
SLOW = "save = torch.save; torch.save = lambda *given: (time.sleep(1), save(*given)); "


def worker(python: Path, place: Path, *runs: tuple[str, str], **environment: str) -> subprocess.Popen[str]:
    """Start a process that is a worker of one training after the other."""
    return subprocess.Popen(
        [str(python), "-c", SEVERAL, str(TRAINING), json.dumps(runs)],
        cwd=place,
        env={**os.environ, "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def ended(*workers: subprocess.Popen[str]) -> list[tuple[int, list[str]]]:
    """Return the exit code of each worker, and the lines that it has said."""
    try:
        said = [one.communicate(timeout=labs.PATIENCE)[0].splitlines() for one in workers]
    finally:
        for one in workers:
            one.kill()
    return [(one.returncode, lines) for one, lines in zip(workers, said, strict=True)]


def test_the_last_two_checkpoints_are_kept_and_the_older_one_stands_in_for_the_newer(
    torch_python: Path, tmp_path: Path
) -> None:
    first, second = "--steps 4 --every 2 --checkpoint run.1", "--steps 2 --checkpoint run.2"
    of_before = "saved = torch.load('run.1'); del saved['world']; torch.save(saved, 'run.1')"
    runs = [("", first), ("os.unlink('run.1')", first), ("", second), (of_before, first)]

    ((code, said),) = ended(worker(torch_python, tmp_path, *runs))

    assert code == 0, said
    assert [line for line in said if line.startswith(("run ", "resumed "))] == [
        f"run {first}",
        f"run {first}",
        "resumed at step 2, saved by 1 workers, now 1",
        f"run {second}",
        f"run {first}",
        "resumed at step 4, saved by ? workers, now 1",
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.1", "run.1.old", "run.2"]


def test_workers_that_would_begin_at_different_steps_do_not_begin(torch_python: Path, tmp_path: Path) -> None:
    own, elsewhere = "--steps 2 --checkpoint own", "--steps 2 --checkpoint elsewhere"
    alone, together = (f"os.environ['WORLD_SIZE'] = '{world}'" for world in (1, 2))
    port = str(free_port())
    ranks = [[(alone, own), (together, own)], [(together, elsewhere)]]

    done = ended(
        *(worker(torch_python, tmp_path, *runs, RANK=str(rank), MASTER_PORT=port) for rank, runs in enumerate(ranks))
    )

    for rank, (step, (code, said)) in enumerate(zip((2, 0), done, strict=True)):
        assert code == 1, said
        assert f"rank {rank} begins at step {step}, others elsewhere: is --checkpoint one file on all nodes?" in said


def test_workers_end_together_however_long_the_first_one_saves(torch_python: Path, tmp_path: Path) -> None:
    """Slurm kills what is left of a step a minute after the first of its tasks that ends (--wait=60)."""
    (tmp_path / "stop").touch()
    ports = [f"os.environ['MASTER_PORT'] = '{free_port()}'" for _ in range(2)]
    at_its_end = (f"{SLOW}{ports[0]}", "--steps 1 --checkpoint end.pt")
    stopped = (f"{ports[1]}; os.environ['STOP_FILE'] = 'stop'", "--steps 1000000 --checkpoint stopped.pt")

    done = ended(
        *(worker(torch_python, tmp_path, at_its_end, stopped, RANK=str(rank), WORLD_SIZE="2") for rank in range(2))
    )

    for code, said in done:
        assert code == 0, said
        assert [line for line in said if line.startswith("ends")] == ["ends with end.pt", "ends with end.pt stopped.pt"]
