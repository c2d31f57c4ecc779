"""Mistakes that people posted as the cause of their failure are named in a job script, and nothing in a good one."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from provision import job_lint
from provision.cli.main import cli
from provision.job_lint import syntax_tree
from provision.slurm.job_mistakes import RULES, Finding, findings

HERE = Path(__file__).parent
CLEAN = sorted((HERE / "job_scripts").iterdir())
HEAD = "#!/bin/bash\n#SBATCH --nodes=2 --ntasks-per-node=1 --gpus-per-node=8\n"
TORCHRUN = "torchrun --nnodes=2 --nproc-per-node=8 --master-addr=$A --master-port=$P"


def posted() -> list[tuple[str, str, str, str]]:
    """Return of each posted mistake its rule, a piece of the line that is named, the script and its good twin."""
    parts = re.split(
        r"^== (\S+) @ (.*) \| .+\n", (HERE / "posted_mistakes.txt").read_text("utf-8"), flags=re.MULTILINE
    )[1:]
    scripts = [part.rstrip("\n").split("\n") for part in parts[2::3]]
    bad = ["\n".join(line[1:] for line in lines if line[:1] != "+") for lines in scripts]
    good = ["\n".join(line[1:] for line in lines if line[:1] != "-") for lines in scripts]
    return list(zip(parts[::3], parts[1::3], bad, good, strict=True))


def found(text: str) -> list[Finding]:
    return findings(text, syntax_tree)


def names(*lines: str, head: str = HEAD) -> list[str]:
    return [one.name for one in found(head + "\n".join(lines) + "\n")]


@pytest.mark.parametrize(("rule", "where", "bad", "good"), posted())
def test_a_posted_mistake_is_named_in_its_line_and_its_good_twin_has_none(
    rule: str, where: str, bad: str, good: str
) -> None:
    mistakes = found(bad)

    assert {one.name for one in mistakes} == {rule}
    assert where in " ".join(bad.split("\n")[mistakes[0].line - 1 :][:3])
    assert all((mistakes[0].problem, mistakes[0].effect, mistakes[0].better))
    assert found(good) == []


def test_each_rule_is_of_a_posted_mistake() -> None:
    assert {rule for rule, *_ in posted()} == {*RULES, "unreadable"}


@pytest.mark.parametrize("script", CLEAN, ids=lambda script: script.name)
def test_nothing_is_found_where_nothing_is_wrong(script: Path) -> None:
    assert found(script.read_text(encoding="utf-8")) == []


def test_a_published_template_for_docker_and_megatron_yields_its_mistakes() -> None:
    # As it is printed in a guide to Slurm with Docker.
    template = HERE / "seed_scripts" / "megatron_docker.slurm"

    assert [(one.line, one.name) for one in found(template.read_text(encoding="utf-8"))] == [
        (48, "fixed-port"),
        (122, "cpus-not-inherited"),
    ]


@pytest.mark.parametrize(
    "lines",
    [
        # Which shell expands the rank: the step's, by whichever way it is handed on.
        ["srun bash -c 'torchrun --nnodes=2 --node-rank=$SLURM_NODEID --nproc-per-node=8 x.py'"],
        ['srun bash -c "torchrun --nnodes=2 --node-rank=\\$SLURM_NODEID --nproc-per-node=8 x.py"'],
        ["cat <<'E' >run.sh", "torchrun --nnodes=2 --node-rank=$SLURM_NODEID x.py", "E", "srun bash run.sh"],
        ["srun bash <<'E'", "torchrun --nnodes=2 --node-rank=$SLURM_NODEID x.py", "E"],
        ["run='torchrun --nnodes=2 --node-rank=$SLURM_NODEID x.py'", 'srun bash -c "$run"'],
        ["run='torchrun --nnodes=2 --node-rank=$SLURM_NODEID x.py'", "eval \"srun bash -c '$run'\""],
        # What may be anything.
        ["srun torchrun $ARGS train.py"],
        ["srun torchrun --nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=$A:$P train.py"],
        ["./launch.sh"],
        ["#SBATCH --nodes=1", "export NCCL_SOCKET_IFNAME=lo", "srun python x.py"],
        ["#SBATCH --ntasks-per-node=8", "srun torchrun --nnodes=16 --nproc-per-node=1 --rdzv-backend=c10d x.py"],
        ["export CUDA_VISIBLE_DEVICES=0,1", "srun python x.py"],
        ["#SBATCH --ntasks=2 --gpus-per-node=1", "srun python x.py"],
        ["#SBATCH --ntasks-per-node=8 --gpus-per-task=1 --gpu-bind=none", "export NCCL_DEBUG=WARN", "srun python x.py"],
        ["run='torchrun --standalone'", "run='srun python'", "$run x.py"],
        ["port=$(srun --nodes=1 --ntasks=1 python free_port.py | head -n 1)", "srun python x.py"],
        ["srun python a.py &", "srun python b.py &", "wait"],
        ["srun python a.py &", "tail -f a.log"],
        ["cat >other.sbatch <<E", "#SBATCH --nodes=4", "E", "sbatch other.sbatch"],
        ["##SBATCH --nodes=4", "# SBATCH --time=1", "srun python x.py"],
    ],
)
def test_what_is_right_or_unknown_is_no_mistake(lines: list[str]) -> None:
    assert names(*lines) == []


@pytest.mark.parametrize(
    ("lines", "name"),
    [
        ([f"srun bash -c \"{TORCHRUN} --node-rank=$SLURM_NODEID x.py\""], "same-rank"),
        (["cat <<E >run.sh", f"{TORCHRUN} --node-rank=$SLURM_NODEID x.py", "E", "srun bash run.sh"], "same-rank"),
        (["export NODE_RANK=$SLURM_NODEID", f"srun bash -c '{TORCHRUN} --node-rank=$NODE_RANK x.py'"], "same-rank"),
        ([f"run=({TORCHRUN})", 'srun "${run[@]}" x.py'], "same-rank"),
        (["srun python x.py", "#SBATCH --time=3"], "unread-directive"),
        (["srun torchrun --standalone --nproc-per-node=8 x.py"], "same-rank"),
        (["srun bash -c 'export MASTER_ADDR=$(hostname); python x.py'"], "meeting-place"),
        (["srun bash -c 'export MASTER_PORT=$RANDOM; python x.py'"], "meeting-place"),
        (["export MASTER_ADDR=$SLURM_JOB_NODELIST", "srun python x.py"], "meeting-place"),
        (["MASTER_ADDR=$(scontrol show hostnames | head -n 1)", "srun python x.py"], "not-exported"),
        (["srun apptainer exec --nv torch.sif torchrun --nproc-per-node=8 x.py"], "same-rank"),
        (["{ srun python x.py; } | tee log"], "hidden-failure"),
        (["if true; then srun --ntasks-per-node=8 torchrun --nnodes=2 --rdzv-backend=c10d --nproc-per-node=8 x; fi"],
         "double-launch"),
    ],
)  # fmt: skip
def test_a_mistake_is_found_in_whichever_form(lines: list[str], name: str) -> None:
    assert names(*lines) == [name]


def test_the_trees_of_older_releases_read_the_same() -> None:
    # shfmt 3.6 of Debian 12 writes operators as numbers, newer ones as text.
    for _, _, bad, _ in posted():
        if "BODY_" not in bad:
            old = findings(bad, lambda text: json.loads(json.dumps(syntax_tree(text)).replace('"Op": "', '"Gone": "')))
            assert old == found(bad)


def test_what_a_script_says_to_ignore_is_no_mistake() -> None:
    lines = ["export MASTER_PORT=29500", "srun torchrun train.py"]
    assert names(*lines) == ["fixed-port", "same-rank"]

    assert names(*lines, "# Alone there. lint-job: ignore fixed-port, same-rank") == []
    assert names(*lines, "echo lint-job: ignore fixed-port, same-rank") == ["fixed-port", "same-rank"]


#: Each variable holds the next one ten times.
DEEP = "".join(f'v{at}="{f"$v{at + 1} " * 10}"\n' for at in range(30)) + "srun python $v0\n"


@given(st.text(alphabet="abc $\\'\"`(){}<>|&;\n#=-!srundocker0/.", max_size=200))
def test_any_text_is_read_or_called_unreadable(text: str) -> None:
    found("#!/bin/bash\n#SBATCH -N2\n" + text)


@pytest.mark.parametrize("text", ["(" * 5000, "srun bash -c '" * 50, "$(" * 3000 + ")" * 3000, DEEP])
def test_what_nobody_writes_ends_in_a_word_and_no_traceback(text: str) -> None:
    found(HEAD + text)


def call(*words: str, text: str | None = None) -> tuple[int, str]:
    done = CliRunner().invoke(cli, ["lint-job", *words], input=text)
    return done.exit_code, done.output


def test_a_finding_is_told_with_its_place_its_effect_and_the_better_line(tmp_path: Path) -> None:
    file = tmp_path / "train.sh"
    file.write_text(f"{HEAD}export MASTER_PORT=29500\nsrun python train.py\n", encoding="utf-8")

    code, told = call(str(file))

    assert code == 8
    assert f"{file}:3: fixed-port: the port 29500 is every job's\n    effect: of two such jobs" in told
    assert "    better: export MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))" in told
    assert f"{file}: 1 mistake\n" in told
    code, told = call("--json", str(file))
    assert (code, json.loads(told)["findings"][0]["line"]) == (8, 3)


def test_a_good_script_is_called_good_and_one_that_cannot_be_read_is_not() -> None:
    assert call("-", text=f"{HEAD}srun python x.py\n") == (0, "-: good\n")
    code, told = call("-", text=f"{HEAD}srun python 'x.py\n")
    assert code == 8
    assert told.startswith("-:3: unreadable: it cannot be read: reached EOF without closing quote")


def test_without_shfmt_the_command_says_where_it_is_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    monkeypatch.setattr(job_lint.shutil, "which", lambda _: None)

    code, told = call("-", text="#!/bin/sh\n")

    assert code == 2
    assert "lint-job needs shfmt" in told
    assert "apt install shfmt" in told


def test_a_reader_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(*_: object, **given: float) -> None:
        raise subprocess.TimeoutExpired("shfmt", given["timeout"])

    monkeypatch.setattr(job_lint.subprocess, "run", slow)

    assert "shfmt has not read it in 20 seconds" in call("-", text="#!/bin/sh\n")[1]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "it is empty"),
        (b"\n \n", "it is empty"),
        (b"\x7fELF\0\0", "it is no text"),
        (b"#!/usr/bin/env python3\nimport torch\n", "it is for /usr/bin/env python3"),
        (b"#!/bin/bash\r\n#SBATCH -N2\r\n", "as on Windows"),
        (b"#!/bin/bash\n#SBATCH -N2\r\n", "as on Windows"),
        (b"#" * (4 * 1024 * 1024 + 1), "larger than the 4 MiB"),
    ],
)
def test_what_is_no_job_script_is_refused(tmp_path: Path, data: bytes, words: str) -> None:
    file = tmp_path / "file"
    file.write_bytes(data)

    done = CliRunner().invoke(cli, ["lint-job", str(file)])

    assert done.exit_code == 2
    assert words in done.output
    assert call(str(tmp_path / "none"))[0] == 2
