"""The command line: help, arguments, errors and exit codes; no machine and no Ansible run."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from provision.cli import extra, flow
from provision.cli.complete import names_in
from provision.cli.machines import inventory_and_stages
from provision.cli.main import cli
from provision.errors import ClusterctlError
from provision.inventory import loader

GOOD = """\
[slurm_controller]
head ansible_host=192.0.2.1
[slurm_compute]
node1 ansible_host=192.0.2.11
node2 ansible_host=192.0.2.12
[slurm_compute:vars]
node_cpus=4
node_real_memory=4000
[all:vars]
cluster_name=small
"""


def commands(group: click.Group, prefix: str = "") -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        yield f"{prefix}{name}", command
        if isinstance(command, click.Group):
            yield from commands(command, f"{prefix}{name} ")


ALL = dict(commands(cli))


def call(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments)


@pytest.fixture
def inventory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "inventory.ini"
    path.write_text(GOOD, encoding="utf-8")
    return path


@pytest.mark.parametrize("name", ALL)
def test_every_command_has_help_with_an_example_that_parses(name: str) -> None:
    result = call(*name.split(), "--help")

    assert result.exit_code == 0
    assert "Example" in result.output
    examples = re.findall(r"clusterctl ([^#&)\n]+)", ALL[name].help or "")
    assert examples
    for example in examples:
        words = [word for word in shlex.split(example) if not word.startswith(">")]
        group: click.Command = cli
        while isinstance(group, click.Group):
            group = group.commands[words.pop(0)]
        # Click keeps the help option of the first context that it sees, for other tests too.
        context = click.Context(group, help_option_names=cli.context_settings["help_option_names"])
        group.make_parser(context).parse_args([word for word in words if word != "/etc"])


def test_help_does_not_import_what_only_a_run_needs() -> None:
    script = (
        "import sys, click, provision.cli.main\n"
        "slow = {'ansible_runner', 'paramiko', 'pydantic', 'rich', 'yaml', 'ansible', 'jinja2', 'ClusterShell'}\n"
        "print(sorted(slow & sys.modules.keys()))"
    )

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


def test_the_inventory_is_checked_without_contacting_anything(inventory: Path) -> None:
    result = call("check", str(inventory), "--json")

    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert document["schema"] == "clusterctl/check/1"
    assert document["compute"] == ["node1", "node2"]
    assert document["warnings"] == []
    assert not (inventory.parent / ".clusterctl").exists()


def test_check_lists_the_ports_where_it_is_asked_and_says_how_to_ask(inventory: Path) -> None:
    ports = json.loads(call("check", str(inventory), "--json").stdout)["ports"]

    assert {"6817", "6818", "all"} <= {port["port"] for port in ports}
    assert "6817/tcp" in call("check", "--ports", str(inventory)).stdout
    shown = call("check", str(inventory)).stdout
    assert "clusterctl check --ports" in shown
    assert "6817/tcp" not in shown


def test_images_that_no_job_can_use_are_warned_of(inventory: Path) -> None:
    site = "job_container_runtime: none\njob_docker: none\njob_images: [{name: a, archive: /a.tar}]\n"
    (inventory.parent / "group_vars").mkdir(exist_ok=True)
    (inventory.parent / "group_vars" / "all.yml").write_text(site, encoding="utf-8")

    result = call("check", str(inventory), "--json")

    told = "job_images: no job can use them: job_container_runtime and job_docker are none"
    assert result.exit_code == 0
    assert json.loads(result.stdout)["warnings"] == [told]
    assert f"Warning: {told}" in result.stderr


def test_rendering_writes_the_files_and_names_them(inventory: Path, tmp_path: Path) -> None:
    result = call("render", str(inventory), "--output", str(tmp_path / "out"))

    assert result.exit_code == 0, result.output
    assert (tmp_path / "out" / "slurm.conf").read_text().count("NodeName=") == 1
    assert str(tmp_path / "out" / "slurm.conf") in result.stdout


@pytest.mark.parametrize("command", [["check"], ["render", "--output", "out"], ["plan"], ["provision"]])
def test_a_node_with_cgroup_v1_is_refused_before_any_machine_is_contacted(
    inventory: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    inventory.write_text(GOOD.replace("192.0.2.12", "192.0.2.12 node_cgroup_version=1"), encoding="utf-8")
    monkeypatch.setattr(flow, "play", lambda *_, **__: pytest.fail("a machine would be contacted"))

    result = call(command[0], str(inventory), *command[1:])

    assert result.exit_code == 2
    assert "node2: node_cgroup_version is 1" in result.stderr
    assert "slurm_conf_cgroup_v1_allowed" in result.stderr


def test_an_error_is_a_sentence_and_a_fix_on_standard_error() -> None:
    result = call("check", "nowhere.ini")

    assert result.exit_code == 2
    assert result.stdout == ""
    assert re.fullmatch(r"Error: .*nowhere.ini.*\n  Fix: .+\n", result.stderr)


def test_an_error_is_a_document_where_json_was_asked_for() -> None:
    result = call("provision", "nowhere.ini", "--json")

    assert result.exit_code == 2
    document = json.loads(result.stdout)
    assert document["command"] == "provision"
    assert document["exit_code"] == 2
    assert "nowhere.ini" in document["error"]["problem"]


@pytest.mark.parametrize(
    "wrong", [["provison"], ["check", "--nonsense"], ["lab", "up", "--nodes", "0"], ["lab", "up", "--kind", "pod"]]
)
def test_a_misused_command_line_is_a_bad_request(wrong: list[str]) -> None:
    result = call(*wrong)

    assert result.exit_code == 2
    assert "Traceback" not in result.output


def test_a_bug_is_called_one_and_its_traceback_is_in_a_private_file(
    inventory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(flow, "load", broken)

    result = call("check", str(inventory))

    assert result.exit_code == 1
    assert "Traceback" not in result.output
    assert "this is a bug" in result.stderr
    log = Path(re.findall(r"traceback is in (\S+)", result.stderr)[0])
    assert "ZeroDivisionError" in log.read_text()
    assert log.stat().st_mode & 0o077 == 0
    log.unlink()


def test_an_interrupt_has_its_own_exit_code(inventory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(flow, "load", interrupted)

    assert call("check", str(inventory)).exit_code == 130


STAGES = ("discover", "preflight", "base", "containers", "gpu", "rdma", "munge", "slurm", "monitoring")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], (None, list(STAGES))),
        (["munge"], (None, ["munge"])),
        (["slurm", "munge"], (None, ["munge", "slurm"])),
        (["inv.yml", "base"], (Path("inv.yml"), ["base"])),
        (["some/dir"], (Path("some/dir"), list(STAGES))),
        (["hosts"], (Path("hosts"), list(STAGES))),
    ],
)
def test_the_first_word_is_an_inventory_unless_it_is_a_stage(words: list[str], expected: Any) -> None:
    assert inventory_and_stages(words) == expected


def test_an_unknown_stage_is_refused_with_a_suggestion() -> None:
    for words in (["mung"], ["inventory.ini", "mung"]):
        with pytest.raises(ClusterctlError, match="no stage 'mung'") as caught:
            inventory_and_stages(words)
        assert caught.value.fix == "did you mean munge?"
    with pytest.raises(ClusterctlError) as caught:
        inventory_and_stages(["inventory.ini", "zzz"])
    assert "base" in caught.value.fix
    with pytest.raises(ClusterctlError, match=r"'inventory\.ini' is no stage") as caught:
        inventory_and_stages(["slurm", "inventory.ini"])
    assert caught.value.fix == "name the inventory first: inventory.ini slurm"


@pytest.mark.parametrize(
    ("texts", "variables", "files"),
    [
        (["a=1 b='x y'"], {"a": "1", "b": "x y"}, []),
        (['{"a": [1, 2]}'], {"a": [1, 2]}, []),
        (["@/tmp/v.yml", "a="], {"a": ""}, ["@/tmp/v.yml"]),
    ],
)
def test_extra_variables_are_read_as_ansible_reads_them(
    texts: list[str], variables: dict[str, Any], files: list[str]
) -> None:
    assert extra.extra_variables(texts) == (variables, files)


@pytest.mark.parametrize("text", ["novalue", "{a: [", "=x", "", "a='unclosed"])
def test_extra_variables_that_say_nothing_are_refused(text: str) -> None:
    with pytest.raises(ClusterctlError, match="-e takes"):
        extra.extra_variables([text])


def test_settings_meant_for_ansible_are_ignored_with_one_warning(
    inventory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANSIBLE_HOST_KEY_CHECKING", "False")
    (inventory.parent / "ansible.cfg").write_text("[defaults]\nhost_key_checking = false\n")

    result = call("check", str(inventory))

    assert result.exit_code == 0
    assert result.stderr.count("Warning") == 1
    assert "ANSIBLE_HOST_KEY_CHECKING" in result.stderr
    assert "ansible.cfg" in result.stderr


def test_a_reader_who_leaves_early_is_no_error(inventory: Path) -> None:
    script = f"{sys.executable} -m provision.cli.main render {inventory} | head -n 1; exit ${{PIPESTATUS[0]}}"

    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)

    assert done.returncode == 0
    assert done.stderr == ""


@pytest.mark.parametrize("columns", ["20", "80"])
def test_help_fits_80_columns_and_the_plainest_locale(columns: str) -> None:
    environment = {**os.environ, "COLUMNS": columns, "LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0"}

    done = subprocess.run(
        [sys.executable, "-m", "provision.cli.main", "provision", "--help"],
        capture_output=True,
        check=False,
        env=environment,
    )

    assert done.returncode == 0
    assert done.stdout.isascii()
    assert max(map(len, done.stdout.splitlines())) <= 80


def completed(shell: str, words: str, position: int, directory: Path) -> list[str]:
    names = {"bash": "bash_complete", "zsh": "zsh_complete"}
    environment = {**os.environ, "_CLUSTERCTL_COMPLETE": names[shell], "COMP_WORDS": words, "COMP_CWORD": str(position)}
    script = "from provision.cli.main import main; import sys; sys.argv = ['clusterctl']; main()"
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, cwd=directory, capture_output=True, text=True, check=False
    )
    if shell == "zsh":
        return done.stdout.splitlines()[1::3]
    return [line.partition(",")[2] for line in done.stdout.splitlines()]


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_the_shell_completes_commands_stages_and_hosts(inventory: Path, shell: str) -> None:
    here = inventory.parent

    assert completed(shell, "clusterctl pr", 1, here) == ["preflight", "provision"]
    assert completed(shell, "clusterctl provision mu", 2, here) == ["munge"]
    assert completed(shell, "clusterctl provision --limit no", 3, here) == ["node1", "node2"]
    assert completed(shell, "clusterctl verify --limit node1,hea", 3, here) == ["node1,head"]
    (here / "other.yml").write_text("all: {children: {slurm_compute: {hosts: {n1: {}}}}}\n", encoding="utf-8")
    assert completed(shell, "clusterctl verify other.yml --limit n", 4, here) == ["n1"]


@pytest.mark.parametrize(
    "words", [["--vault-password-file", "word"], ["--vault-id", "site@word"], ["--vault-id", "word"]]
)
def test_an_encrypted_inventory_is_read_with_its_password_whose_file_may_be_relative(
    inventory: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.chdir(inventory.parent)
    Path("word").write_text("open sesame\n", encoding="utf-8")
    Path("group_vars/all").mkdir(parents=True)
    secret = Path("group_vars/all/vault.yml")
    secret.write_text("container_images_username: robot\ncontainer_images_password: hunter2\n", encoding="utf-8")
    encrypt = [Path(sys.executable).parent / "ansible-vault", "encrypt", "--vault-password-file", "word", secret]
    subprocess.run(encrypt, check=True, capture_output=True)

    without = call("check", inventory.name)
    with_it = call("check", inventory.name, *words)

    assert without.exit_code == 2
    assert "--vault-password-file" in without.stderr
    assert with_it.exit_code == 0, with_it.stderr
    assert "hunter2" not in with_it.output


#: What the shells' own machinery would do around the script: hand it a half-written line, and show what it offers.
SHELLS = {
    "bash": '''compopt() { :; }; eval "$(clusterctl completion bash)"
        COMP_WORDS=(clusterctl pr); COMP_CWORD=1
        _clusterctl_completion clusterctl; printf '%s\\n' "${COMPREPLY[@]}"''',
    "zsh": """compdef() { : }; compadd() { print -rl -- ${(P)@[-1]} }; _describe() { print -rl -- ${(P)3} }
        eval "$(clusterctl completion zsh)"; words=(clusterctl pr); CURRENT=2; _clusterctl_completion""",
}


@pytest.mark.parametrize("shell", SHELLS)
def test_the_completion_script_works_in_the_shell_itself(shell: str) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"

    done = subprocess.run(
        [shell, "-c", SHELLS[shell]], capture_output=True, text=True, check=False, env={**os.environ, "PATH": path}
    )

    assert [line.partition(":")[0] for line in done.stdout.splitlines()] == ["preflight", "provision"], done.stderr


def test_host_names_are_read_from_an_inventory_that_is_half_written(tmp_path: Path) -> None:
    path = tmp_path / "inventory.ini"
    path.write_text("[slurm_compute\n[a]\nn1 x=1\n\n# n2\n[a:vars]\nx=1\n[b:children]\na\n")

    assert names_in(path) == ["a", "n1", "b"]


def test_a_reader_of_a_document_who_leaves_early_does_not_change_how_the_command_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def gone(_: str) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(click, "echo", gone)

    flow.print_json({"verdict": "fail"})


def test_an_inventory_is_named_as_ansible_has_it_too(inventory: Path) -> None:
    named = str(inventory)

    assert CliRunner().invoke(cli, ["check", "-i", named]).exit_code == 0
    twice = CliRunner().invoke(cli, ["check", named, "-i", named])
    assert "two inventories are named" in twice.output


def test_yaml_in_a_file_of_another_name_is_told_so(tmp_path: Path) -> None:
    path = tmp_path / "inventory.ini"
    path.write_text("all:\n  hosts:\n    node1:\n", encoding="utf-8")

    with pytest.raises(ClusterctlError) as caught:
        loader.load(path)

    assert caught.value.fix == f"this looks like YAML: name the file {tmp_path / 'inventory.yml'}"
