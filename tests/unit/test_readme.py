"""What README.md and docs/ show can be pasted: variables are good to check, commands exist with these options."""

from __future__ import annotations

import importlib
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml

from provision import content
from provision.cli.main import cli
from provision.inventory import loader, variables
from provision.inventory.valid import declared

DOCS = content.ROOT / "docs"
#: Without the references, which are generated.
PAGES = [content.ROOT / "README.md", *(path for path in sorted(DOCS.rglob("*.md")) if path.parent.name != "reference")]
TEXTS = {str(path.relative_to(content.ROOT)): path.read_text(encoding="utf-8") for path in PAGES}


def blocks(language: str) -> list[tuple[str, str]]:
    """Return the blocks of code in a language, each with its page."""
    return [
        (page, block) for page, text in TEXTS.items() for block in re.findall(rf"(?ms)^```{language}\n(.*?)^```$", text)
    ]


YAML = blocks("yaml")
#: Homes and data, which most other blocks need.
STORAGE = next(block for _, block in YAML if "cluster_mounts:" in block)
SHELL = [*blocks("sh"), ("README.md", "\n".join(re.findall(r"(?m)^ {4}(make .*)$", TEXTS["README.md"])))]


def commands() -> Iterator[list[str]]:
    """Yield the words of each command of clusterctl: in blocks, and within a sentence."""
    lines = [line for _, block in SHELL for line in block.replace("\\\n", " ").splitlines()]
    lines += [words for text in TEXTS.values() for words in re.findall(r"`(clusterctl [a-z][^`]*)`", text)]
    for line in lines:
        words = shlex.split(line.removeprefix(".venv/bin/"), comments=True)
        if words[:1] == ["clusterctl"]:
            yield words[1:]


COMMANDS = list(commands())


@pytest.fixture
def groups(tmp_path: Path) -> Path:
    """A copy of inventory/groups, with what the pages say is beside it."""
    shutil.copytree(content.ROOT / "inventory/groups", tmp_path / "groups")
    image = tmp_path / "groups/images/pytorch-dist/Containerfile"
    image.parent.mkdir(parents=True)
    image.write_text("FROM cuda:12.4\n", encoding="utf-8")
    return tmp_path / "groups"


def checked(groups: Path, text: str) -> None:
    (groups / "group_vars/all.yml").write_text(text, encoding="utf-8")
    declared(loader.load(groups / "inventory.ini"))


@pytest.mark.parametrize(("page", "block"), YAML, ids=[next(iter(yaml.safe_load(block))) for _, block in YAML])
def test_a_block_of_variables_is_good(groups: Path, page: str, block: str) -> None:
    """Alone beside the storage that homes and data need, which is how a site begins."""
    checked(groups, block if block is STORAGE else STORAGE + block)


def test_accounts_users_and_storage_are_good_below_each_other(groups: Path) -> None:
    pages = ("docs/inventory/accounts.md", "docs/inventory/users.md", "docs/inventory/storage.md")
    checked(groups, "".join(next(block for page, block in YAML if page == name) for name in pages))


@pytest.mark.parametrize(("page", "block"), blocks("ini"))
def test_an_inventory_is_good_alone_and_what_is_a_part_of_one_below_it(tmp_path: Path, page: str, block: str) -> None:
    whole = next(block for page, block in blocks("ini") if page == "README.md")
    (tmp_path / "inventory.ini").write_text(block if "slurm_controller" in block else whole + block, encoding="utf-8")

    assert declared(loader.load(tmp_path / "inventory.ini")).name == "lab"


@pytest.mark.parametrize("path", sorted((content.ROOT / "inventory").glob("*/inventory.ini")), ids=str)
def test_an_example_is_good(path: Path) -> None:
    assert declared(loader.load(path)).nodes


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_command_is_one_with_these_options(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("inventory.ini", "INVENTORY", "train.sh", "inventory/a40/inventory.ini"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()

    command: click.Command = cli
    context = cli.make_context("clusterctl", list(words))
    rest = words
    while isinstance(command, click.Group):
        name, found, rest = command.resolve_command(context, rest)
        assert found is not None, words
        command, context = found, found.make_context(name, list(rest), parent=context)


@pytest.mark.parametrize(("page", "block"), SHELL)
def test_a_block_of_commands_is_a_shells_and_its_targets_and_playbooks_are_there(page: str, block: str) -> None:
    read = subprocess.run(["bash", "-n"], input=block, capture_output=True, text=True, check=False)
    targets = set(re.findall(r"(?m)^make (\S+)", block))
    playbooks = re.findall(r"(?m)^ansible-playbook .*?(playbooks/\S+)", block)

    assert read.stderr == ""
    assert targets <= set(re.findall(r"(?m)^([\w-]+):", (content.ROOT / "Makefile").read_text(encoding="utf-8")))
    assert all((content.ROOT / name).is_file() for name in playbooks)


def test_the_reference_has_each_check_and_each_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DOCS))
    reference = importlib.import_module("reference")
    all_checks = (content.ROOT / "tests/goldens/checks.txt").read_text(encoding="utf-8").split()
    shown = set(re.findall(r"(?m)^`(\w+)`$", reference.variables()))
    follows = {name for name, one in variables.options().items() if "It follows from" in str(one["description"])}

    assert sorted(re.findall(r"(?m)^\| `([\w.]+)`", reference.checks())) == all_checks
    assert variables.options().keys() - follows <= shown
    assert shown <= variables.options().keys()


def test_the_readme_is_short_and_its_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", TEXTS["README.md"])

    assert TEXTS["README.md"].count("\n") <= 150
    assert len(links) >= 20
    assert [link for link in links if not (content.ROOT / link).is_file()] == []


def test_each_template_of_a_job_is_a_link_that_leads_to_it() -> None:
    page, place = DOCS / "jobs/templates.md", content.ROOT / "roles/slurm_image/files/image/jobs"
    linked = re.findall(r"\[`([\w.-]+)`\]\(([\w./-]+)\)", page.read_text(encoding="utf-8"))

    assert {(name, (page.parent / path).resolve()) for name, path in linked} == {
        (path.name, path) for path in place.iterdir() if path.suffix in (".sbatch", ".sh") or "pretrain" in path.name
    }
