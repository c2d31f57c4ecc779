"""Programs of the image find their modules where the Dockerfile puts them."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
import sys
import zipapp
from pathlib import Path

import pytest

from provision import content, image_files

HERE = Path(__file__).parent
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


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with users' commands, as the image makes them."""
    made = tmp_path_factory.mktemp("commands")
    for name, text in image_files.texts("slurm_image").items():
        if name.startswith("commands/"):
            (made / name).parent.mkdir(parents=True, exist_ok=True)
            (made / name).write_text(text)
    for command, main in (("lint-job", "job_lint"), ("seff", "job_seff")):
        zipapp.create_archive(made / "commands", made / command, main=f"provision.{main}:command")
    return made


def alone(program: Path, *words: str, path: str = "/nowhere") -> tuple[int, str]:
    """Run a program without what is installed beside Python (-S) and around this directory (-I)."""
    done = subprocess.run(
        [os.path.realpath(sys.executable), "-IS", program, *words],
        cwd=program.parent, env={"PATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def test_lint_job_is_one_file_that_needs_nothing_but_python_and_shfmt(packed: Path) -> None:
    (packed / "shfmt").symlink_to(Path(sys.executable).with_name("shfmt"))
    (packed / "bad.sh").write_text("#!/bin/bash\nsrun true\n#SBATCH --gpus=1\n")

    code, said = alone(packed / "lint-job", "bad.sh")
    assert (code, said.splitlines()[0].partition(" sbatch")[0]) == (8, "bad.sh:3: unread-directive:")
    assert alone(packed / "lint-job", "none.sh") == (
        2,
        "lint-job: none.sh cannot be read: No such file or directory. Fix: name a file that you may read\n",
    )
    assert alone(packed / "lint-job", "--help")[0] == 0
    assert alone(packed / "lint-job")[0] == 2


def test_seff_is_one_file_that_needs_nothing_but_python_and_slurms_commands(packed: Path, tmp_path: Path) -> None:
    told = HERE / "fixtures/job_use/sacct.json"
    name = pwd.getpwuid(os.getuid()).pw_name
    (tmp_path / "sacct").write_text(f'#!/bin/sh\n/bin/sed -n \'s/"ada"/"{name}"/; p\' {told}\n')
    (tmp_path / "sacct").chmod(0o755)

    code, said = alone(packed / "seff", "9", path=str(tmp_path))

    assert (code, said.splitlines()[0]) == (0, "Job ID: 9")
    assert alone(packed / "seff", "--help")[0] == 0


@pytest.mark.parametrize("program", ["container_enter", "container_task"])
def test_a_program_finds_all_that_it_loads(library: Path, program: str) -> None:
    loads = f"import runpy; runpy.run_path({str(library / program)!r}, run_name='loaded')"

    done = subprocess.run([sys.executable, "-IS", "-c", loads], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
