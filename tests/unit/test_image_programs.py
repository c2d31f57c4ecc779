"""Programs of the image find their modules where the Dockerfile puts them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from provision import content

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


@pytest.mark.parametrize("program", ["container_enter", "container_task"])
def test_a_program_finds_all_that_it_loads(library: Path, program: str) -> None:
    loads = f"import runpy; runpy.run_path({str(library / program)!r}, run_name='loaded')"

    done = subprocess.run([sys.executable, "-IS", "-c", loads], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
