"""The templates of jobs that users copy: they say what to change, and have none of the mistakes that people post."""

from __future__ import annotations

import ast
import re
import subprocess
import time
from pathlib import Path

import pytest

from provision import content
from provision.job_lint import syntax_tree
from provision.slurm.job_mistakes import findings

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
def test_a_template_has_none_of_the_posted_mistakes(name: str) -> None:
    assert findings((PLACE / name).read_text(encoding="utf-8"), syntax_tree) == []


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_template_is_clean_shell(name: str) -> None:
    subprocess.run(["bash", "-n", PLACE / name], check=True)


MEGATRON = PLACE / "megatron.sh"


def submitted(directory: Path, script: Path = MEGATRON, **sizes: str) -> subprocess.CompletedProcess[str]:
    """Start a template outside of Slurm, where sbatch and srun only say that they were called."""
    for name in ("sbatch", "srun", "scontrol"):
        (directory / name).write_text(f"#!/bin/sh\necho {name} called\n", encoding="ascii")
        (directory / name).chmod(0o755)
    environment = {"PATH": f"{directory}:/usr/bin:/bin", **sizes}
    return subprocess.run(["bash", script], env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", ["NODES", "GPUS", "TP", "PP", "CP"])
@pytest.mark.parametrize("size", ["0", "-1", "two", "1.5", "08", "2 ", "a[0]", "99999999999999999999"])
def test_a_size_that_is_no_whole_number_is_refused_before_anything_is_reckoned(
    tmp_path: Path, name: str, size: str
) -> None:
    done = submitted(tmp_path, **{name: size})

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"megatron.sh: {name.lower()} is '{size}'. Fix: a whole number from 1 on")
    assert len(done.stderr.splitlines()) == 1


def test_a_size_of_the_script_itself_is_looked_at_as_well_and_good_ones_are_submitted(tmp_path: Path) -> None:
    changed = tmp_path / "megatron.sh"
    changed.write_text(MEGATRON.read_text(encoding="utf-8").replace("micro=2 ", "micro=0 "), encoding="utf-8")

    assert "megatron.sh: micro is '0'" in submitted(tmp_path, changed).stderr
    good = submitted(tmp_path, NODES="2", GPUS="2", TP="2")
    assert (good.returncode, good.stdout.splitlines()[-1]) == (0, "sbatch called")


@pytest.mark.parametrize(
    ("sizes", "arguments", "connections"),
    [
        ({}, "", "none"),
        ({"PP": "2"}, "", "none"),
        ({"TP": "2"}, "", "1"),
        ({"CP": "2"}, "", "1"),
        ({"TP": "2"}, "--use-megatron-fsdp", "none"),
        ({"TP": "2"}, "--use-torch-fsdp2", "none"),
    ],
)
def test_transfers_are_kept_in_one_queue_only_where_tensors_or_contexts_are_shared_out(
    tmp_path: Path, sizes: dict[str, str], arguments: str, connections: str
) -> None:
    (tmp_path / "srun").write_text(
        "#!/bin/sh\necho connections ${CUDA_DEVICE_MAX_CONNECTIONS-none}\n", encoding="ascii"
    )
    (tmp_path / "srun").chmod(0o755)
    script = tmp_path / "megatron.sh"
    script.write_text(MEGATRON.read_text(encoding="utf-8").replace("training=(", f"training=({arguments} "))
    slurm = {"SLURM_JOB_ID": "7", "SLURM_CPUS_PER_TASK": "2", "SLURM_JOB_END_TIME": str(int(time.time()) + 3000)}
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", **slurm, **sizes}
    # Checkpoints are below the directory, whose name is none of Megatron's options.
    (tmp_path / "fsdp-vs-tp").mkdir()

    done = subprocess.run(
        ["bash", script], cwd=tmp_path / "fsdp-vs-tp", env=environment, capture_output=True, text=True, check=True
    )

    assert done.stdout == f"connections {connections}\n"


#: Templates that go on in a new turn.
TURNS = [name for name in SCRIPTS if "scontrol requeue" in (PLACE / name).read_text(encoding="utf-8")]

#: A training that Slurm tells to end early (--signal=B:USR1), which saves and ends as it is asked to.
SRUN = """#!/bin/sh
case "$*" in *"tensorboard --logdir"*) exit 0 ;; esac
[ -n "${STOP_FILE:-}" ] || exit 0
kill -USR1 $PPID
until [ -e "$STOP_FILE" ]; do sleep 0.02; done
"""


def test_templates_that_train_go_on_in_turns() -> None:
    assert sorted(set(SCRIPTS) - set(TURNS)) == ["notebook.sbatch"]


@pytest.mark.parametrize("name", TURNS)
@pytest.mark.parametrize("turn", ["", "19", "20", "21"])
def test_a_job_goes_on_in_a_new_turn_twenty_times_at_most(tmp_path: Path, name: str, turn: str) -> None:
    scripts = {"srun": SRUN, "scontrol": f'#!/bin/sh\necho "$@" >>{tmp_path}/asked\n', "docker": SRUN}
    for command, text in scripts.items():
        (tmp_path / command).write_text(text, encoding="ascii")
        (tmp_path / command).chmod(0o755)
    slurm = {"SLURM_JOB_ID": "7", "SLURM_JOB_NAME": "train", "SLURM_CPUS_PER_TASK": "2", "SLURM_RESTART_COUNT": turn}
    slurm |= {"SLURM_ARRAY_JOB_ID": "6", "SLURM_ARRAY_TASK_ID": "1"}
    slurm |= {"SLURMD_NODENAME": "n1", "SLURM_SUBMIT_HOST": "head", "SLURM_JOB_END_TIME": str(int(time.time()) + 9)}
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "HOME": str(tmp_path), **slurm}

    done = subprocess.run(
        ["bash", PLACE / name], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False
    )

    asked = (tmp_path / "asked").read_text(encoding="ascii") if (tmp_path / "asked").exists() else ""
    if turn in ("", "19"):
        assert (done.returncode, asked) == (0, "requeue 7\n"), done.stderr
    else:
        assert (done.returncode, asked) == (1, "")
        assert done.stderr.splitlines()[-1] == "not at its end after 20 turns"


def test_a_template_names_the_files_that_it_needs() -> None:
    for name in SCRIPTS:
        text = (PLACE / name).read_text(encoding="utf-8")
        for program in set(re.findall(r"\b(train_\w+\.py|pretrain_gpt\.py)\b", text)):
            tree = ast.parse((PLACE / program).read_text(encoding="utf-8"))
            imported = {one.name for node in ast.walk(tree) if isinstance(node, ast.Import) for one in node.names}
            assert "stop_file" not in imported or "stop_file.py" in "\n".join(comment(name)), (name, program)
