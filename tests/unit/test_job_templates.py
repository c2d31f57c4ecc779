"""The templates of jobs that users copy: they say what to change, and have none of the mistakes of public ones."""

from __future__ import annotations

import ast
import re
import subprocess

import pytest

from provision import content
from provision.slurm.jobs.lint import findings

PLACE = content.ROOT / "roles/slurm_image/files/image/jobs"
SCRIPTS = sorted(path.name for path in PLACE.iterdir() if path.suffix in (".sbatch", ".sh"))


def comment(name: str) -> list[str]:
    """Return the lines of a template's header."""
    lines = (PLACE / name).read_text(encoding="utf-8").splitlines()[1:]
    return lines[
        : next(number for number, line in enumerate(lines) if not line.startswith("# ") and line[:4] != "#   ")
    ]


def test_there_is_one_for_each_way_of_training() -> None:
    assert [name.partition(".")[0] for name in SCRIPTS] == [
        *("accelerate", "array", "ddp-container", "ddp-docker", "ddp-srun", "deepspeed", "lightning", "megatron"),
        *("notebook", "tensorboard"),
    ]


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_template_says_in_ten_lines_what_to_change(name: str) -> None:
    header = comment(name)

    assert len(header) <= 10
    assert any("change" in line for line in header)
    for option in ("--account", "image"):
        assert any(line.startswith("#   ") and option in line for line in header), option


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_template_has_none_of_the_mistakes_of_public_ones(name: str) -> None:
    assert findings((PLACE / name).read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_template_is_clean_shell(name: str) -> None:
    subprocess.run(["bash", "-n", PLACE / name], check=True)


def test_a_template_names_the_files_that_it_needs() -> None:
    for name in SCRIPTS:
        text = (PLACE / name).read_text(encoding="utf-8")
        for program in set(re.findall(r"\b(train_\w+\.py|pretrain_gpt\.py)\b", text)):
            tree = ast.parse((PLACE / program).read_text(encoding="utf-8"))
            imported = {one.name for node in ast.walk(tree) if isinstance(node, ast.Import) for one in node.names}
            assert "stop_file" not in imported or "stop_file.py" in "\n".join(comment(name)), (name, program)
