"""What holds for all unit tests: reading an inventory starts no Ansible; and what several of them run."""

from __future__ import annotations

import json
import subprocess
import sys
import zipapp
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest
from torchrun_nodes import LAUNCH
from waiting import PATIENCE

from provision.ansible_env import clean_environment
from provision.inventory import loader

FORKS = Path(__file__).parent.parent / "support/inventory_forks.py"

Dumped = Callable[[Sequence[str]], "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session", autouse=True)
def forked_loader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dumped]:
    """Let inventories be read in forks of one process."""
    place = tmp_path_factory.mktemp("inventories")
    out, err = place / "out", place / "err"

    @cache
    def reader() -> subprocess.Popen[str]:
        command = [sys.executable, "-P", str(FORKS), str(loader.DUMP)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        # A session of its own: a test that is interrupted does not end it.
        return subprocess.Popen(
            command, env=clean_environment(), cwd=loader.STANDS, text=True, start_new_session=True, **pipes
        )

    def dumped(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
        asks, answers = reader().stdin, reader().stdout
        assert asks is not None
        assert answers is not None
        asks.write(json.dumps({"words": list(words), "out": str(out), "err": str(err)}) + "\n")
        asks.flush()
        code = int(answers.readline())
        return subprocess.CompletedProcess(list(words), code, out.read_text("utf-8"), err.read_text("utf-8"))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loader, "_dumped", dumped)
        yield dumped
    if reader.cache_info().currsize:
        # Its standard input ends, and it with it.
        reader().communicate(timeout=PATIENCE)


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """torchrun-slurm as the image has it: one file."""
    target = tmp_path_factory.mktemp("bin") / "torchrun-slurm"
    zipapp.create_archive(LAUNCH, target, sys.executable, filter=lambda path: "__pycache__" not in path.parts)
    return target
