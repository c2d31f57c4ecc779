"""Programs of the image find their modules where the Dockerfile puts them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipapp
from pathlib import Path

import pytest

from provision import content, image_files

IMAGE = content.ROOT / "roles/slurm_image/files/image"
LIBRARY = "/usr/local/libexec/clusterctl/"
COPIED = re.compile(rf"^COPY (?!--)(.+) {LIBRARY}(\S*)$", re.MULTILINE)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The image's own directory of programs, as its Dockerfile lays it out."""
    made = tmp_path_factory.mktemp("clusterctl")
    for sources, directory in COPIED.findall((IMAGE / "Dockerfile").read_text(encoding="utf-8")):
        for pattern in sources.split():
            for source in IMAGE.glob(pattern):
                target = made / directory / (source.name if directory.endswith("/") or not directory else "")
                target.parent.mkdir(parents=True, exist_ok=True)
                (shutil.copytree if source.is_dir() else shutil.copy)(source, target)
    return made


def test_lint_job_is_one_file_that_needs_nothing_but_python_and_shfmt(tmp_path: Path) -> None:
    for name, text in image_files.texts("slurm_image").items():
        if name.startswith("lint/"):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
    program = tmp_path / "lint-job"
    zipapp.create_archive(tmp_path / "lint", program, main="provision.job_lint:command")
    (tmp_path / "shfmt").symlink_to(Path(sys.executable).with_name("shfmt"))
    (tmp_path / "bad.sh").write_text("#!/bin/bash\nsrun true\n#SBATCH --gpus=1\n")

    def run(*words: str) -> tuple[int, str]:
        # Without what is installed beside Python (-S) and around this directory (-I).
        done = subprocess.run(
            [os.path.realpath(sys.executable), "-IS", program, *words],
            cwd=tmp_path, env={"PATH": "/nowhere"}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr

    code, said = run("bad.sh")
    assert (code, said.splitlines()[0].partition(" sbatch")[0]) == (8, "bad.sh:3: unread-directive:")
    assert run("none.sh") == (
        2,
        "lint-job: none.sh cannot be read: No such file or directory. Fix: name a file that you may read\n",
    )
    assert run("--help")[0] == 0
    assert run()[0] == 2


@pytest.mark.parametrize("program", ["container_enter", "container_task"])
def test_a_program_finds_all_that_it_loads(library: Path, program: str) -> None:
    loads = f"import runpy; runpy.run_path({str(library / program)!r}, run_name='loaded')"

    done = subprocess.run([sys.executable, "-IS", "-c", loads], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
