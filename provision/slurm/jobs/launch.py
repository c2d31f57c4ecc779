"""Mistakes of who meets whom, and of how many workers there are."""

from __future__ import annotations

import re
from collections.abc import Iterator

from provision.slurm.jobs.finding import Told, assigned, distributed, nodes, number, step, steps, tasks_each
from provision.slurm.jobs.script import Script
from provision.slurm.jobs.words import BETWEEN, EARLY

_MEETING = ("torchrun", "deepspeed", "accelerate")
_PORT = "MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))"
_FIRST = 'MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1), in the batch script'

#: What is another number, or another name, each time and on each machine that it is asked.
_CHANCE = re.compile(
    r"\bS?RANDOM\b|\bshuf\b|\buuidgen\b|/dev/u?random|(import|from) (random|socket|uuid)|mktemp -u|date \+%[sN]"
    r"|\$\$|\bBASHPID\b|\bs?rand\(|\bjot -r|\bEPOCH(SECONDS|REALTIME)\b"
)
_OWN_NAME = re.compile(
    r"\$\(\s*(/[^\s(]*/)?(hostname|hostnamectl)\b|\$\{?(HOSTNAME|HOST|SLURMD_NODENAME|SLURM_LAUNCH_NODE_IPADDR)\b"
    r"|\$\(\s*(uname -n|cat /etc/hostname|ip (-\S+ )*(addr|a|address|r|route)\b|curl\b)|\$\(</etc/hostname"
)
_LIST = re.compile(r"^\$\{?SLURM_(JOB_)?NODELIST\}?$")
#: The list's text up to a comma (gpu[01), or all of its names.
_CUT = re.compile(
    r"^\$\{SLURM_(JOB_)?NODELIST\b[^}]*\}$|^\$\(\s*(echo|printf)\b(?=[^|]*\|\s*(cut|awk|sed|tr)\b)"
    r"(?:(?!scontrol)[^|])*SLURM_(JOB_)?NODELIST|^\$\(\s*scontrol show hostnames?\b[^|]*\)$"
)
#: An address alone; what a variable of another name holds, nobody knows.
_NO_PORT = re.compile(r"\$\{?\w*(ADDR|HOST|NODE|IP)\w*\}?|[\w.-]+|\$\(\s*(scontrol|hostname)\b[^:]*\)", re.I)
#: An array's name is its first word.
_ARRAY = re.compile(r"=\(\s*(?:[\"'`$]{0,2}\(\s*|[\"'`$]{1,2})?scontrol\b|\b(mapfile|readarray)\b")
_HERE = re.compile(r"^(localhost|127\.\d+\.\d+\.\d+|::1|\[::1\]|0\.0\.0\.0)$")


def _ports(script: Script) -> Iterator[tuple[int, str]]:
    """Yield line and value of each port at which workers meet."""
    yield from _meeting(script, "PORT", ("master-port", "main-process-port"), re.compile(r":([^:\]]+)$"))


def _addresses(script: Script) -> Iterator[tuple[int, str]]:
    """Yield line and value of each address at which workers meet."""
    yield from _meeting(script, "ADDR", ("master-addr", "main-process-ip"), re.compile(r"^(.*?)(?::[^:\]]*)?$", re.S))


def _meeting(script: Script, what: str, names: tuple[str, ...], part: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    """Yield line and value of what variables, launchers' options and that part of an endpoint say of the place."""
    told = _said(script, what, names, part)
    yield from ((line, value) for line, value in told if len(value) <= _LONGEST)


#: No place has a longer one.
_LONGEST = 1000


def _said(script: Script, what: str, names: tuple[str, ...], part: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    yield from ((line, value) for line, _, value in assigned(script, f"MASTER_{what}", f"PET_MASTER_{what}"))
    for call in script.called(*_MEETING):
        yield from ((call.options[name].line, call.options[name].value) for name in names if name in call.options)
        endpoint = call.options.get("rdzv-endpoint")
        if endpoint and (found := part.search(endpoint.value)):
            yield endpoint.line, found[1]
    for call in script.called("python", "python3"):
        words = [word.text for word in call.rest]
        for at, word in enumerate(call.rest):
            name, has, value = word.text.partition("=")
            value = value if has else "".join(words[at + 1 : at + 2])
            if name.lstrip("-").replace("_", "-") in names and name.startswith("--"):
                yield word.line, value
            elif re.fullmatch(r"--(dist[-_]url|init[-_]method)", name) and value.startswith("tcp://"):
                yield from ((word.line, found[1]) for found in [part.search(value.removeprefix("tcp://"))] if found)


def fixed_port(script: Script) -> Iterator[Told]:
    """A port that stands in the script, or is the launcher's default."""
    effect = "two such jobs on a node meet each other, or the second ends with 'address already in use'"
    told = set()
    for line, value in _ports(script):
        if re.fullmatch(r"\d+", value) and value not in told:
            told.add(value)
            yield line, f"the port {value} is every job's", effect, f"{_PORT}, in the batch script"
    for call in script.called(*_MEETING):
        options = call.options.keys()
        several = nodes(script, step(call)) > 1 or (number(call.options.get("nnodes")) or 1) > 1
        named = bool({"master-port", "rdzv-endpoint", "main-process-port"} & options)
        given = call.program == "accelerate" and any(assigned(script, "MASTER_PORT"))
        better = f"{_PORT}; {'--main-process-port' if call.program == 'accelerate' else '--master-port'}=$MASTER_PORT"
        if several and {"master-addr", "main-process-ip"} & options and not named and not given:
            yield call.line, f"no port is named, so it is {call.program}'s 29500", effect, better
        endpoint = call.options.get("rdzv-endpoint")
        if several and endpoint and len(endpoint.value) <= _LONGEST and _NO_PORT.fullmatch(endpoint.value):
            problem = "no port is behind --rdzv-endpoint, so it is torchrun's 29400"
            yield endpoint.line, problem, effect, f"{_PORT}; --rdzv-endpoint=$MASTER_ADDR:$MASTER_PORT"


_PUT_IN = re.compile(rf"{EARLY}(\w+|\{{[^{{}}]*(\{{[^{{}}]*\}}[^{{}}]*)*\}}|\$|\([^()]*\)|\(\([^()]*\)\))")


def port_per_node(script: Script) -> Iterator[Told]:
    """A port or an id by chance, made where each node makes its own."""
    meeting = re.compile(r"PORT|RDZV|ENDPOINT|JOB_?ID|RUN_?ID", re.I)
    for command in script.commands:
        if not script.each_node(command):
            continue
        for before, word in zip(("", *command.texts), command.words, strict=False):
            name, _, value = word.text.partition("=")
            meets = meeting.search(name) or (name.startswith("--") and re.search(r"port|rdzv", name))
            # What the batch script has put in is the same everywhere.
            own = _PUT_IN.sub("", value or word.text)
            if (meets or re.search(r"port|rdzv", before)) and _CHANCE.search(own):
                yield (
                    word.line,
                    f"each node throws its own dice for {name or before}",
                    "the nodes wait for each other at different places until the time-out",
                    f"once, in the batch script: {_PORT}; export it",
                )


def hostname_endpoint(script: Script) -> Iterator[Told]:
    """An address that is another one on each node, is no address, or is every node's own."""
    effect = "each node that expands it waits for itself; it is right only where it happens to be expanded once"
    told, several = set(), distributed(script) and nodes(script) > 1
    cut = several and not _ARRAY.search(script.text)
    for line, value in _addresses(script):
        problem = ""
        if _OWN_NAME.search(value):
            problem, why = "the address is the name of whoever asks", effect
        elif _LIST.search(value):
            problem, why = "the address is a list, such as gpu[01-04]", "no such host: the workers never meet"
        elif cut and _CUT.search(value):
            problem = "the address is a piece of a list such as gpu[01-04], or all of its names"
            why = "no such host: the workers never meet"
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
            own = inside.options if inside else {}
            names = ("ntasks-per-node", "ntasks", "ntasks-per-gpu")
            line = next((at[name].line for at in (own, script.directives) for name in names if name in at), call.line)
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
    yield from _same_rank(script)


def _same_rank(script: Script) -> Iterator[Told]:
    """A rank that the batch script's shell has put in, before srun starts anything: the same one in every task."""
    # A script that starts itself is both.
    started = (word.text for call in script.called("srun") for word in (*call.command.words, *call.rest))
    if not script.batch or any(map(_ITSELF.search, started)):
        return
    told = False
    for call in script.called(*_MEETING):
        rank, inside = call.options.get("machine-rank" if call.program == "accelerate" else "node-rank"), step(call)
        backend = call.options.get("rdzv-backend")
        if rank is None or rank.varies or inside is None or (backend and backend.value != "static"):
            continue
        if nodes(script, inside) > 1 and not {"nodelist", "relative"} & inside.options.keys():
            told = True
            problem = f"the batch script expands {rank.value}: every node is the first"
            if not rank.value.startswith("$"):
                problem = f"the rank {rank.value} is every node's"
            yield rank.line, problem, _APART, _IN_THE_STEP
    several = distributed(script) or any(distributed(script, call) for call in steps(script))
    for line, name, value in script.once() if several and not told else ():
        if name in _RANKS and re.search(r"\$\{?SLURM_(PROCID|NODEID|LOCALID)\b", value):
            yield line, f"the batch script expands {name}={value}: 0 in every task", _APART, _IN_THE_STEP


_ITSELF = re.compile(rf"[${EARLY}{BETWEEN}](0\b|\{{0\}}|\{{?BASH_SOURCE\b)")
_RANKS = ("RANK", "LOCAL_RANK", "NODE_RANK", "PET_NODE_RANK", "MACHINE_RANK", "GROUP_RANK")
_IN_THE_STEP = "srun bash -c '... $SLURM_NODEID ...', in single quotes: the shell of each task expands it"

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
    # torchrun-slurm sets it by the job's cores.
    own = any("OMP_NUM_THREADS" in word or "torchrun-slurm" in word for one in script.commands for word in one.texts)
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
