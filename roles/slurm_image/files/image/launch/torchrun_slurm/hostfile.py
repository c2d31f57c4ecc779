# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""What a launcher that goes by ssh (--env ssh) is told of the job: its nodes, where they meet.

``deepspeed`` on the PATH is this, which becomes the image's own: so a script that calls it needs no option, either.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import Mapping, Sequence

from torchrun_slurm.step import Refusal, granted
from torchrun_slurm.team import say

#: Says that this was called as deepspeed.
DEEPSPEED = "--torchrun-slurm-deepspeed"


def stand_in(directory: Path, program: str, environment: Mapping[str, str]) -> None:
    """Put a deepspeed into the job's own directory of programs, where the image has one."""
    if shutil.which("deepspeed", path=environment.get("PATH")):
        words = shlex.join((sys.executable, program, DEEPSPEED, str(directory)))
        own = directory / "bin/deepspeed"
        own.write_text(f'#!/bin/sh\nexec {words} "$@"\n', encoding="utf-8")
        own.chmod(0o700)


def called_as_deepspeed(directory: Path, words: Sequence[str], environment: Mapping[str, str]) -> int:
    """Become the image's own deepspeed, with what its words leave out; return only where that cannot be."""
    try:
        program = [behind(directory, environment), *words]
        lines = (directory / "hosts").read_text(encoding="ascii").splitlines()
        refuse(program, [line.split()[0] for line in lines], int(lines[0].rpartition("=")[2]), environment)
        os.execv(program[0], with_hosts(program, f"{directory}/hosts", environment))  # noqa: S606 - no shell
    except Refusal as refusal:
        say(f"{environment.get('SLURMD_NODENAME', 'here')}: {refusal.args[0]}. Fix: {refusal.args[1]}")
        return 2
    except OSError as problem:
        say(f"{problem.filename}: {problem.strerror}")
        return 126


def behind(directory: Path, environment: Mapping[str, str]) -> str:
    """Return where the image's own deepspeed is: the next one on the PATH."""
    places = environment.get("PATH", os.defpath).split(os.pathsep)
    real = shutil.which("deepspeed", path=os.pathsep.join(one for one in places if Path(one) != directory / "bin"))
    if not real:
        raise Refusal("there is no other deepspeed on the PATH", "leave PATH as the image has it")
    return real


def refuse(program: Sequence[str], nodes: Sequence[str], workers: int, environment: Mapping[str, str]) -> None:
    """Refuse a launcher's words, and GPUs, with which it would start workers on what is another job's."""
    listed_hosts(program, nodes, workers)
    visible = environment.get("CUDA_VISIBLE_DEVICES", "")
    counted = ",".join(map(str, range(granted(environment))))
    # By ssh its launcher starts workers by itself, with these numbers. Elsewhere worker.see mends that.
    if Path(program[0]).name == "deepspeed" and re.fullmatch(r"[\d,]+", visible) and visible != counted:
        problem = f"deepspeed takes a node's GPUs from 0 on ({counted}), and this job has {visible}"
        fix = "--env deepspeed, which needs no ssh; or srun --container-image, where the job's GPUs are from 0 on"
        raise Refusal(problem, fix)


def with_hosts(program: Sequence[str], listed: str, added: Mapping[str, str]) -> list[str]:
    """Return a launcher's words with what it has to be told of the job: its nodes, where they meet.

    DeepSpeed would start on this node alone without a list, take any of the first node's addresses, and a port that is
    every job's.
    """
    words = list(program)
    if Path(words[0]).name != "deepspeed":
        return words
    told: list[str] = []
    own = {name.replace("-", "_") for name in own_options(words)}
    if host_file(words) is None:
        told += ["--hostfile", listed]
    for option, name in (("--master_addr", "MASTER_ADDR"), ("--master_port", "MASTER_PORT")):
        if name in added and option.replace("-", "_") not in own:
            told += [option, added[name]]
    return [words[0], *told, *words[1:]]


#: Options of DeepSpeed's launcher that have no value (deepspeed/launcher/runner.py).
FLAGS = {
    *("-h", "--help", "--module", "--no_python", "--no_local_rank", "--no_ssh", "--no_ssh_check", "--force_multi"),
    *("--save_pid", "--elastic_training", "--bind_cores_to_rank", "--detect_nvlink_pairs"),
}


def own_options(program: Sequence[str]) -> dict[str, str]:
    """Return a launcher's own options: the user's program behind them may have some that are called the same."""
    own: dict[str, str] = {}
    deepspeed = Path(program[0]).name == "deepspeed"
    rest = list(program[1:] if deepspeed else program)
    while rest and not rest[0].endswith((".py", ".sh")):
        word = rest.pop(0)
        if not word.startswith("-"):
            if deepspeed:
                break
            continue
        # The value of an option of one letter may stand in the same word.
        name, has, value = word.partition("=") if word.startswith("--") else (word[:2], word[2:], word[2:].lstrip("="))
        if not has and name not in FLAGS and rest:
            value = rest[0]
            # Which of its options have a value, mpirun alone knows: what follows is read for itself, too. A flag that
            # FLAGS has not is seen by the script behind it.
            if deepspeed and not value.endswith(".py"):
                rest.pop(0)
        own[name] = value
    return own


def host_file(program: Sequence[str]) -> str | None:
    """Return the file in which the user lists hosts, None where there is none."""
    # mpirun's -H is a list of names.
    options = ("--hostfile", "--machinefile", *(["-H"] if Path(program[0]).name == "deepspeed" else []))
    own = own_options(program)
    return next((own[name] for name in options if name in own), None)


def listed_hosts(program: Sequence[str], nodes: Sequence[str], workers: int) -> None:
    """Refuse a list of hosts that this job has not got."""
    file = host_file(program)
    if file is None:
        return
    try:
        lines = Path(file).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as problem:
        raise Refusal(
            f"{file}: {problem.strerror}", "leave the list of hosts out: the job's nodes are known"
        ) from problem
    for number, line in enumerate(lines, 1):
        host = re.match(r"\s*([^\s#]+)", line)
        slots = re.search(r"\bslots\s*=\s*(\d+)", line)
        if host and host[1] not in nodes:
            told = f"{file}:{number}: {host[1]} is no node of this job"
            raise Refusal(told, f"name {', '.join(nodes[:8])}; or leave the list out: the job's nodes are known")
        if host and slots and int(slots[1]) > workers:
            told = f"{file}:{number}: {slots[1]} slots for {workers} granted GPUs of a node"
            raise Refusal(told, f"slots={workers}; or more of --gpus-per-node")
