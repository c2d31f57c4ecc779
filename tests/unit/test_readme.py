"""What README.md shows can be pasted: its variables are good to check, its commands are commands with these options."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import click
import pytest
import yaml

from provision import content
from provision.cli.main import cli
from provision.errors import ClusterctlError
from provision.inventory import loader
from provision.inventory.valid import declared

README = (content.ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"(?ms)^```yaml\n(.*?)^```$", README)
STORAGE = next(block for block in BLOCKS if "cluster_mounts:" in block)
#: Commands in blocks of code, up to a comment, and between the words of a sentence.
COMMANDS = [
    shlex.split(line or words, comments=True)
    for line, words in re.findall(
        r"(?m)^ {4}(?:\.venv/bin/)?clusterctl (.*)$|`(?:\.venv/bin/)?clusterctl ([a-z][^`]*)`", README
    )
]


@pytest.fixture
def groups(tmp_path: Path) -> Path:
    """A copy of inventory/groups, with what the README says is beside it."""
    shutil.copytree(content.ROOT / "inventory/groups", tmp_path / "groups")
    image = tmp_path / "groups/images/pytorch-dist/Containerfile"
    image.parent.mkdir(parents=True)
    image.write_text("FROM cuda:12.4\n", encoding="utf-8")
    return tmp_path / "groups"


def checked(groups: Path, text: str) -> None:
    (groups / "group_vars/all.yml").write_text(text, encoding="utf-8")
    declared(loader.load(groups / "inventory.ini"))


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: next(iter(yaml.safe_load(block))))
def test_a_block_of_variables_is_good(groups: Path, block: str) -> None:
    """Alone beside the storage that homes and data need, which is how a site begins."""
    checked(groups, block if block is STORAGE else STORAGE + block)


def test_the_blocks_of_the_first_sections_are_good_below_each_other(groups: Path) -> None:
    checked(groups, "".join(BLOCKS[:3]))


def test_the_smallest_inventory_is_good_with_and_without_hardware(tmp_path: Path) -> None:
    whole, hardware = re.findall(r"(?ms)^```ini\n(.*?)^```$", README)
    for text in (whole, whole + hardware):
        (tmp_path / "inventory.ini").write_text(text, encoding="utf-8")
        assert declared(loader.load(tmp_path / "inventory.ini")).name == "lab"


def test_a_block_that_is_spoilt_is_refused(groups: Path) -> None:
    with pytest.raises(ClusterctlError):
        checked(groups, STORAGE + BLOCKS[0].replace("GrpTRES", "GrpTres7"))


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_command_is_one_with_these_options(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("inventory.ini", "train.sh", "inventory/a40/inventory.ini"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()

    command: click.Command = cli
    context = cli.make_context("clusterctl", list(words))
    rest = words
    while isinstance(command, click.Group):
        name, found, rest = command.resolve_command(context, rest)
        assert found is not None, words
        command, context = found, found.make_context(name, list(rest), parent=context)


def test_the_readme_has_them() -> None:
    assert len(BLOCKS) >= 6
    assert len(COMMANDS) >= 15


def test_each_template_of_a_job_is_a_link_that_leads_to_it() -> None:
    place = content.ROOT / "roles/slurm_image/files/image/jobs"
    linked = re.findall(rf"\[`([\w.-]+)`\]\(({place.relative_to(content.ROOT)}/[\w.-]+)\)", README)

    assert {(name, content.ROOT / path) for name, path in linked} == {
        (path.name, path) for path in place.iterdir() if path.suffix in (".sbatch", ".sh") or "pretrain" in path.name
    }
