"""Mistakes of who meets whom, and of how many workers there are."""

from __future__ import annotations

import re
from collections.abc import Iterator

from provision.slurm.jobs.finding import Told, asked, assigned, distributed, nodes, number, step, steps, tasks_each
from provision.slurm.jobs.script import Script

_MEETING = ("torchrun", "deepspeed", "accelerate")
_PORT = "MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))"
_FIRST = 'MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1), in the batch script'

#: What is another number, or another name, each time and on each machine that it is asked.
_CHANCE = re.compile(
    r"\bS?RANDOM\b|\bshuf\b|\buuidgen\b|/dev/u?random|import (random|socket|uuid)|mktemp -u|date \+%[sN]"
)
_OWN_NAME = re.compile(
    r"\$\(\s*(/bin/)?hostname\b|\$\{?(HOSTNAME|HOST|SLURMD_NODENAME|SLURM_LAUNCH_NODE_IPADDR)\b|\$\(\s*uname -n"
)
_LIST = re.compile(r"^\$\{?SLURM_(JOB_)?NODELIST\}?$")
_HERE = re.compile(r"^(localhost|127\.\d+\.\d+\.\d+|::1|\[::1\]|0\.0\.0\.0)$")


def _ports(script: Script) -> Iterator[tuple[int, str]]:
    """Yield line and value of each port at which workers meet."""
    yield from _meeting(script, "PORT", ("master-port", "main-process-port"), re.compile(r":([^:\]]+)$"))


def _addresses(script: Script) -> Iterator[tuple[int, str]]:
    """Yield line and value of each address at which workers meet."""
    yield from _meeting(script, "ADDR", ("master-addr", "main-process-ip"), re.compile(r"^(.*?)(?::[^:\]]*)?$", re.S))


def _meeting(script: Script, what: str, names: tuple[str, ...], part: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    """Yield line and value of what variables, launchers' options and that part of an endpoint say of the place."""
    yield from ((line, value) for line, _, value in assigned(script, f"MASTER_{what}", f"PET_MASTER_{what}"))
    for call in script.called(*_MEETING):
        yield from ((call.options[name].line, call.options[name].value) for name in names if name in call.options)
        endpoint = call.options.get("rdzv-endpoint")
        if endpoint and (found := part.search(endpoint.value)):
            yield endpoint.line, found[1]


def fixed_port(script: Script) -> Iterator[Told]:
    """A port that stands in the script, or is the launcher's default."""
    effect = "two such jobs on a node meet each other, or the second ends with 'address already in use'"
    told = set()
    for line, value in _ports(script):
        if re.fullmatch(r"\d+", value) and value not in told:
            told.add(value)
            yield line, f"the port {value} is every job's", effect, f"{_PORT}, in the batch script"
    for call in script.called("torchrun"):
        options = call.options.keys()
        several = nodes(script, step(call)) > 1 or (number(call.options.get("nnodes")) or 1) > 1
        if several and "master-addr" in options and not {"master-port", "rdzv-endpoint"} & options:
            yield (
                call.line,
                "no port is named, so it is torchrun's 29500",
                effect,
                f"{_PORT}; --master-port=$MASTER_PORT",
            )


def port_per_node(script: Script) -> Iterator[Told]:
    """A port or an id by chance, made where each node makes its own."""
    meeting = re.compile(r"PORT|RDZV|ENDPOINT|JOB_?ID|RUN_?ID", re.I)
    for command in script.commands:
        if not script.each_node(command):
            continue
        for word in command.words:
            name, _, value = word.text.partition("=")
            meets = meeting.search(name) or (name.startswith("--") and re.search(r"port|rdzv", name))
            before = command.words[command.words.index(word) - 1].text if word is not command.words[0] else ""
            if (meets or re.search(r"port|rdzv", before)) and _CHANCE.search(value or word.text):
                yield (
                    word.line,
                    f"each node throws its own dice for {name or before}",
                    "the nodes wait for each other at different places until the time-out",
                    f"once, in the batch script: {_PORT}; export it",
                )


def hostname_endpoint(script: Script) -> Iterator[Told]:
    """An address that is another one on each node, is no address, or is every node's own."""
    effect = "each node that expands it waits for itself; it is right only where it happens to be expanded once"
    told = set()
    for line, value in _addresses(script):
        several = distributed(script) and nodes(script) > 1
        problem = ""
        if _OWN_NAME.search(value):
            problem, why = "the address is the name of whoever asks", effect
        elif _LIST.search(value):
            problem, why = "the address is a list, such as gpu[01-04]", "no such host: the workers never meet"
        elif _HERE.search(value) and several:
            problem, why = f"the address is {value}, and there are several nodes", "each node waits for itself"
        if problem and (line, problem) not in told:
            told.add((line, problem))
            yield line, problem, why, _FIRST


def squared_workers(script: Script) -> Iterator[Told]:
    """A launcher that starts a worker for each GPU, started once for each GPU."""
    for call in script.called(*_MEETING):
        inside = step(call)
        each = tasks_each(script, inside) if inside else 1
        workers = next((call.options[name].value for name in _WORKERS if name in call.options), "")
        many = call.program != "torchrun" or workers not in ("", "1")
        if each > 1 and many:
            line = (asked(script, inside, "ntasks-per-node") or asked(script, inside, "ntasks") or call).line
            yield (
                line,
                f"{each} tasks on a node, and each starts {call.program} with a worker for every GPU",
                f"{each} times as many workers as GPUs, which take each other's ports and memory",
                f"--ntasks-per-node=1 with {call.program}; or srun python, which takes its rank from Slurm's variables",
            )


_WORKERS = ("nproc-per-node", "num-gpus", "num-processes", "num-local-procs")


def separate_jobs(script: Script) -> Iterator[Told]:
    """torchrun on several nodes that are not told of each other."""
    for call in script.called("torchrun"):
        options, inside = call.options, step(call)
        several = nodes(script, inside) > 1 if script.batch else number(options.get("nnodes")) != 1
        if not several or not (inside or not script.batch):
            continue
        if "standalone" in options or "nnodes" not in options:
            missing = "--standalone" if "standalone" in options else "no --nnodes"
            yield call.line, f"torchrun with {missing}, on several nodes", _APART, _TOGETHER
        elif options.get("rdzv-backend") and options["rdzv-backend"].value != "static":
            if "rdzv-id" not in options:
                problem = "--rdzv-backend without --rdzv-id: the id of every job is 'none'"
                yield call.line, problem, "jobs that meet at one address are taken for one", "--rdzv-id=$SLURM_JOB_ID"
        elif "node-rank" not in options and not any(assigned(script, "PET_NODE_RANK")):
            yield call.line, "torchrun without --node-rank: every node is the first", _APART, _TOGETHER


_APART = "as many jobs of one node as there are nodes, each with a model of its own"
_TOGETHER = "--nnodes=$SLURM_JOB_NUM_NODES --node-rank=$SLURM_NODEID --master-addr=... --master-port=..., in the step"


def one_thread(script: Script) -> Iterator[Told]:
    """A launcher that sets OMP_NUM_THREADS to 1 where nobody has."""
    values = [(line, value) for line, _, value in assigned(script, "OMP_NUM_THREADS")]
    cores = number(script.directives.get("cpus-per-task"))
    better = "export OMP_NUM_THREADS=$((SLURM_CPUS_PER_TASK / GPUs of the node))"
    for line, value in values:
        if value == "1" and (cores or 2) > 1:
            yield line, "OMP_NUM_THREADS=1", "what runs on the processor, as loading data does, has one core", better
    own = "OMP_NUM_THREADS" in script.text or "torchrun-slurm" in script.text  # which sets it by the job's cores
    if not values and not own and (call := next(script.called(*_MEETING), None)):
        effect = f"{call.program} sets it to 1: what runs on the processor has one core for each worker"
        yield call.line, "OMP_NUM_THREADS is not set", effect, better


def cpus_not_inherited(script: Script) -> Iterator[Told]:
    """Cores that are asked for the job and not for its steps."""
    asked_for = script.directives.get("cpus-per-task")
    if asked_for is None or any(assigned(script, "SRUN_CPUS_PER_TASK")):
        return
    for call in steps(script):
        if not {"cpus-per-task", "exclusive", "cpu-bind", "cpus-per-gpu"} & call.options.keys():
            yield (
                call.line,
                f"srun is not told of the {asked_for.value} cores that line {asked_for.line} asks for",
                "a task has one core with Slurm 22.05 to 23.11, and all of them with others",
                "export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK",
            )
            return
