"""What a login shows: the cluster in ten lines, within a few seconds, and nothing where nobody types."""

from __future__ import annotations

import os
import subprocess
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import pytest
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from provision import content

ROLE = content.ROOT / "roles/slurm_client"
PROFILE = ROLE / "templates/profile.sh.j2"


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """cluster-help, with a site's text of one line, and Slurm's commands in a directory of the test's."""
    loader = SourceFileLoader("cluster_help", str(ROLE / "files/cluster-help"))
    spec = spec_from_loader("cluster_help", loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    (tmp_path / "site").write_text("ask         ops@site.example\n")
    monkeypatch.setattr(module, "SITE", str(tmp_path / "site"))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return module


def slurm(tmp_path: Path, **commands: str) -> None:
    for name, script in commands.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)


def told(module: Any, *nodes: tuple[str, str, str, str, str, str, str]) -> str:
    """Return nodes as sinfo tells them: partition, whether it is up, its limit, node, state, GPUs, and those in use."""
    return "\n".join(
        "".join(value.ljust(width) for value, width in zip(node, module.ASKED.values(), strict=True)) for node in nodes
    )


def test_a_user_reads_free_gpus_partitions_own_accounts_and_the_sites_words(
    program: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    day, half = "1-00:00:00", "30:00"
    (tmp_path / "nodes").write_text(
        told(
            program,
            ("debug", "up", half, "n1", "mix", "gpu:a40:4(S:0-1)", "gpu:a40:3(IDX:0,2-3)"),
            ("gpu*", "up", day, "n1", "mix", "gpu:a40:4(S:0-1)", "gpu:a40:3(IDX:0,2-3)"),
            ("gpu*", "up", day, "n2", "alloc", "gpu:a40:4,gpu:h100:2", "gpu:a40:0(IDX:N/A),gpu:h100:0"),
            ("gpu*", "up", day, "n3", "drain", "gpu:h100:2", "gpu:h100:0(IDX:N/A)"),
            ("gpu*", "up", day, "n4", "idle*", "gpu:h100:2", "gpu:h100:0(IDX:N/A)"),
            ("gpu*", "up", day, "n5", "idle~", "gpu:2", "gpu:1"),
            ("old", "inact", "infinite", "n6", "idle", "(null)", "gpu:0"),
            ("slow", "up", "infinite", "n6", "idle", "(null)", "gpu:0"),
        )
    )
    slurm(tmp_path, sinfo=f"cat {tmp_path}/nodes", sacctmgr=r"printf 'lab|teaching\nlab|lab\n'")

    program.main()

    assert capsys.readouterr().out.splitlines() == [
        "GPUs free   1 of 2, a40 1 of 8, h100 0 of 6 (4 on nodes that take no jobs)",
        "partitions  gpu (default) 5 nodes, up to 1-00:00:00; debug 1 node, up to 30:00; old 1 node, closed; "
        "slow 1 node, no time limit",
        "accounts    lab (default), teaching",
        "ask         ops@site.example",
    ]


@pytest.mark.parametrize("sinfo", ["exec sleep 600", "echo no answer >&2; exit 1"])
def test_where_slurm_is_silent_a_line_says_so_and_the_sites_words_come(
    program: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], sinfo: str
) -> None:
    monkeypatch.setattr(program, "LIMIT", 0.2)
    slurm(tmp_path, sinfo=sinfo, sacctmgr="exec sleep 600")

    program.main()

    out = capsys.readouterr()
    assert out.out.splitlines() == [
        "Slurm does not answer now. Jobs that run go on; try sinfo in a minute.",
        "ask         ops@site.example",
    ]
    assert out.err == ""


def test_many_partitions_are_counted(program: Any) -> None:
    nodes = program.rows(
        told(program, *((f"p{number}", "up", "1:00", "n1", "idle", "(null)", "") for number in range(9)))
    )

    assert program.partitions(nodes).endswith("p5 1 node, up to 1:00; 3 more: sinfo -s")
    assert program.gpus(nodes) == ""


def test_the_sites_text_has_its_images_file_systems_and_whom_to_ask() -> None:
    template = Environment(  # noqa: S701 - no page of a browser's
        loader=FileSystemLoader(ROLE / "templates"),
        trim_blocks=True,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    ).get_template("cluster-help.txt.j2")
    values = {
        "job_docker": "podman", "job_container_runtime": "podman", "slurm_client_contact": "ops@site.example",
        "__slurm_client_images": ["pytorch:cluster", "cuda:12.4"], "__slurm_client_shared": ["/scratch"],
        "__slurm_client_scratch": True,
    }  # fmt: skip

    text = template.render(values)
    bare = template.render(
        values
        | {
            "job_docker": "none",
            "job_container_runtime": "none",
            "slurm_client_contact": "",
            "__slurm_client_scratch": False,
        }
    )

    assert "images      pytorch:cluster, cuda:12.4; your own: docker build -t NAME .\n" in text
    assert "write to    your home, /scratch; in a job, and gone with it: /tmp, $JOB_SCRATCH\n" in text
    assert text.endswith("ask         ops@site.example\n")
    assert "images" not in bare
    assert "ask " not in bare
    assert "JOB_SCRATCH" not in bare


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_a_shell_in_which_nobody_types_prints_and_sets_nothing(shell: str) -> None:
    script = f". {PROFILE}; echo ${{SINFO_FORMAT-unset}} ${{SQUEUE_FORMAT2-unset}}"

    done = subprocess.run(
        [shell, "-euc", script], env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, check=True
    )

    assert (done.stdout, done.stderr) == ("unset unset\n", "")


def test_where_somebody_types_slurms_lists_show_gpus_and_own_formats_stay(tmp_path: Path) -> None:
    script = f'. {PROFILE}; echo "$SINFO_FORMAT|$SQUEUE_FORMAT2"'
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "SQUEUE_FORMAT2": "JobID"}

    done = subprocess.run(
        ["bash", "--norc", "-ic", script],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        stdin=subprocess.DEVNULL,
    )

    assert done.stdout == "%9P %.5a %.10l %.6D %.6t %24G %N|JobID\n"
