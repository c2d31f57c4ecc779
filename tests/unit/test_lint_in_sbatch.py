"""What sbatch says of the script that it was given: found among its words, and told in a few lines."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

from provision import content, image_files

BEFORE = list(sys.path)
PROGRAM: dict[str, Any] = runpy.run_path(str(content.ROOT / "roles/slurm_image/files/image/lint-job/lint-job"))
sys.path[:] = BEFORE
SEED = Path(__file__).parent / "seed_scripts/megatron_docker.slurm"


@pytest.fixture
def process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What /proc would have of an sbatch whose directory has train.sh, with an input, and on whose PATH is own.sh."""
    for name in ("cwd/train.sh", "cwd/jobs/train.sh", "fd/0", "bin/own.sh"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("#!/bin/bash\n")
    monkeypatch.setenv("PATH", f"{tmp_path}/none:{tmp_path}/bin")
    return tmp_path


@pytest.mark.parametrize(
    ("words", "file"),
    [
        ("train.sh", "cwd/train.sh"),
        ("jobs/train.sh", "cwd/jobs/train.sh"),
        ("-N 2 --parsable -W --mem=5G train.sh --epochs 3", "cwd/train.sh"),
        ("-N2 --wait --hold -J name -p batch train.sh", "cwd/train.sh"),
        ("--container-image=x:1 --exclusive -- train.sh", "cwd/train.sh"),
        ("own.sh", "bin/own.sh"),
        ("-n 4", "fd/0"),
        ("none.sh", None),
        ("--wrap=hostname", None),
        ("--wrap hostname", None),
        ("--quiet train.sh", None),
    ],
)
def test_the_script_is_found_as_sbatch_finds_it(process: Path, words: str, file: str | None) -> None:
    found = PROGRAM["given"](words.split(), process)

    assert (found[1] if found else None) == (process / file if file else None)


def test_a_large_script_is_nobodys_to_wait_for(process: Path) -> None:
    (process / "cwd/train.sh").write_text("#!/bin/sh\n" + "#" * (1 << 18))

    assert PROGRAM["given"](["train.sh"], process) is None


def test_mistakes_are_told_in_a_line_each_and_a_good_script_in_none() -> None:
    lines = PROGRAM["said"]("m.slurm", SEED.read_text(encoding="utf-8"))

    assert 2 < len(lines) <= PROGRAM["TOLD"] + 2
    assert any(line.startswith("lint-job: m.slurm:48: fixed-port: ") for line in lines)
    assert all(line.startswith("lint-job: ") and "\n" not in line for line in lines)
    assert "the job is submitted all the same" in lines[-1]
    assert PROGRAM["said"]("good.sh", "#!/bin/sh\n#SBATCH --mem=1G\nhostname\n") == []
    assert PROGRAM["said"]("train.py", "#!/usr/bin/env python3\nsrun\n") == []


def test_the_image_has_the_rules_of_clusterctl() -> None:
    files = image_files.texts("slurm_image")

    assert {"lint-job/provision/__init__.py", "lint-job/provision/slurm/jobs/lint.py"} <= files.keys()
    assert "Dockerfile" in files
    assert not any("/judge/" in name or name.endswith("conf.py") for name in files)
