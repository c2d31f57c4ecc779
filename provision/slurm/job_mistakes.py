"""Mistakes that people posted as the cause of their failure, looked for in a user's own job script.

A rule says nothing where it would have to guess: what a variable from elsewhere holds, nobody knows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from provision.slurm.job_script import EARLY, Command, Parse, Script, Start, Word, base


@dataclass(frozen=True)
class Finding:
    """One mistake: in which line (from 1), its name, what stands there, what comes of it, and what to write instead."""

    line: int
    name: str
    problem: str
    effect: str
    better: str


#: Of each mistake in a script: the line, and what stands there.
Told = Iterator[tuple[int, str]]


@dataclass(frozen=True)
class Rule:
    """What finds a mistake, what comes of it, and what to write instead."""

    found: Callable[[Script], Told]
    effect: str
    better: str


_LAUNCHERS = ("torchrun", "accelerate", "deepspeed")
#: Programs that only look, prepare or clean up.
_ASIDE = frozenset({
    "hostname", "true", "false", "echo", "printf", "date", "env", "ls", "cp", "mv", "rm", "mkdir", "chmod", "test",
    "cat", "id", "uptime", "nvidia-smi", "ibstat", "stat", "df", "sync", "tar", "rsync", "find", "which", "pkill",
    "kill", "killall", "touch", "ln", "du", "ping", "curl", "wget", "pip", "cd", "set", "scontrol", "squeue", "",
})  # fmt: skip
#: Programs that start others on other nodes, or may do so.
_STARTERS = frozenset({
    "srun", "mpirun", "mpiexec", "horovodrun", "ssh", "pdsh", "clush", "parallel", "ray", "dask", "ibrun", "prun",
    "deepspeed", "sbatch", "salloc", "bash", "sh", "eval", "xargs",
})  # fmt: skip
#: What a training whose workers talk to each other says somewhere.
_TRAINS = re.compile(r"MASTER_(ADDR|PORT)|NCCL_|WORLD_SIZE|distributed|\bddp\b|fsdp|torchrun|deepspeed", re.IGNORECASE)


# How much the script asks for.


def _asked(script: Script, step: Start | None, name: str) -> Word | None:
    """Return an option of a step, else of its job."""
    return (step.options.get(name) if step else None) or script.asked.get(name)


def _number(script: Script, option: Word | None) -> int | None:
    """Return the number that an option has, the least of a range; None where the script does not say it."""
    text = option.text if option else ""
    if re.fullmatch(rf"[${EARLY}]SLURM_(NNODES|JOB_NUM_NODES)", text) and "nodes" in script.asked:
        text = script.asked["nodes"].text
    found = re.fullmatch(r"(\d{1,6})(-\d+)?", text)
    return int(found[1]) if found else None


def _nodes(script: Script, step: Start | None = None) -> int:
    """Return on how many nodes a step runs, 1 where the script does not say it."""
    alone = step and "nodes" not in step.options and _number(script, step.options.get("ntasks")) == 1
    return (not alone and _number(script, _asked(script, step, "nodes"))) or 1


def _tasks_each(script: Script, step: Start | None) -> int:
    """Return how many tasks a step has on a node, 1 where the script does not say it."""
    own = step.options if step else {}
    for given in (own, script.asked):
        if "ntasks-per-node" in given and "ntasks" not in own:
            return _number(script, given["ntasks-per-node"]) or 1
        if "ntasks" in given:
            total = _number(script, given["ntasks"]) if _asked(script, step, "nodes") else 0
            return max(1, (total or 1) // _nodes(script, step))
    return 1


def _gpus_each(script: Script, step: Start | None) -> int | None:
    """Return how many GPUs of a node a step has, None where the script does not say it."""
    names = ("gpus-per-node", "gres", *(("gpus",) if _nodes(script, step) == 1 else ()))
    given = [option.text for name in names if (option := _asked(script, step, name))]
    found = [re.search(r"^(?:gpu:)?(?:[\w.-]+:)?(\d+)$", text) for text in given]
    return next((int(one[1]) for one in found if one), None)


# What the work is.


def _steps(script: Script) -> list[Start]:
    """Return the steps that are the job itself, and none that only looks or prepares."""
    works = {id(start.step) for start in script.starts if start.program != "scontrol"}
    works |= {id(one.step) for one in script.commands if one.outer and one.program not in _ASIDE}
    aside = {*_ASIDE, "bash", "sh", "sleep"}
    works |= {id(step) for step in script.named("srun") if step.rest and base(step.rest[0].text) not in aside}
    return [step for step in script.named("srun") if id(step) in works and not step.command.captured]


def _works(script: Script) -> list[Command]:
    """Return the commands that are the work: steps, and what the batch script runs on its own node."""
    own = [start for start in script.named("python", *_LAUNCHERS) if start.step is None and not start.command.captured]
    return [start.command for start in (*_steps(script), *own)]


def _trains(script: Script) -> bool:
    """Tell whether the script's workers talk to each other."""
    return any(
        _TRAINS.search(text)
        for one in script.commands
        for text in (*(word.text for word in one.words), *(name for name, _ in one.assigns))
    )


def _on_each(command: Command, text: str = "$") -> bool:
    """Tell whether the shell of each task expands what stands in a command."""
    return command.step is not None and command.outer is not None and "$" in text


def _told(script: Script, options: tuple[str, ...], *variables: str) -> Iterator[tuple[Command, Word]]:
    """Yield what variables and launchers' options say, each with its command."""
    yield from script.assigned(*variables)
    for start in script.named(*_LAUNCHERS):
        yield from ((start.command, start.options[name]) for name in options if name in start.options)


def _rank(start: Start) -> Word | None:
    """Return what a launcher is told of its node's rank."""
    return start.options.get("node-rank") or start.options.get("machine-rank")


# The rules.


def _unread_directive(script: Script) -> Told:
    for one in script.directives:
        shown = " ".join(word.text for word in one.words)
        if one.unread:
            yield one.line, f"sbatch does not read {shown}: {one.unread}"
        elif one.stray:
            yield (
                one.line,
                f"{one.stray!r} belongs to no option, and sbatch reads none behind it, in later lines neither",
            )
        elif re.search(r"\$[{(A-Za-z]|`", shown):
            yield one.line, f"sbatch expands no variable in {shown}"


def _output_directory(script: Script) -> Told:
    made = {word.text.strip("./") for one in script.commands if one.program == "mkdir" for word in one.words[1:]}
    options = [script.asked[name] for name in ("error", "output") if name in script.asked]
    for directory, option in {option.text.rpartition("/")[0]: option for option in options}.items():
        if directory and directory.strip("./") in made:
            yield option.line, f"the script makes {directory} itself"
        elif re.search("%[jJAa]", directory):
            yield option.line, f"before a job begins, no directory has its number: {directory}"


def _one_node(script: Script) -> Told:
    other = any(
        one.program in _STARTERS or re.search(r"[/$]", one.words[0].text) for one in script.commands if one.words
    )
    programs = ("torchrun", "accelerate", *(("python",) if _gpus_each(script, None) else ()))
    for start in script.named(*programs) if _nodes(script) > 1 and not other else ():
        if not start.command.captured and "deepspeed-hostfile" not in start.options:
            yield start.command.line, f"{start.program} is started without srun, and there are {_nodes(script)} nodes"
            return


def _double_launch(script: Script) -> Told:
    for start in script.named(*_LAUNCHERS, "mpirun"):
        each = _tasks_each(script, start.step) if start.step else 1
        counts = ("nproc-per-node", "num-processes", "num-gpus", "multi-gpu")
        default = "all" if start.program in ("deepspeed", "mpirun") else "1"
        workers = next((start.options[name].text for name in counts if name in start.options), default)
        if each > 1 and workers != "1":
            yield start.command.line, f"{each} tasks on a node, and each starts {start.program} with all of its workers"


def _one_after_another(script: Script) -> Told:
    ranked = [
        (step, rank.text) for start in script.named(*_LAUNCHERS) if (step := start.step) and (rank := _rank(start))
    ]
    found = [(step, rank) for step, rank in ranked if "SLURM_" not in rank and not step.command.background]
    differ = len({rank for _, rank in found}) > 1
    for step, _ in found:
        alone = _nodes(script) > 1 and (_nodes(script, step) == 1 or "nodelist" in step.options)
        if differ or (step.command.looped and alone):
            yield step.command.line, "srun in the foreground for each node's launcher"
            return


def _same_rank(script: Script) -> Told:
    ranks = {rank.text for start in script.named("torchrun", "accelerate") if (rank := _rank(start))}
    found = []
    for start in script.named("torchrun", "accelerate"):
        several = (
            start.step and _nodes(script, start.step) > 1 and not {"nodelist", "relative"} & start.step.options.keys()
        )
        backend = start.options.get("rdzv-backend")
        if not several or start.vague or (backend and backend.text != "static"):
            continue
        rank, torchrun, line = _rank(start), start.program == "torchrun", start.command.line
        if rank and re.match(rf"{EARLY}SLURM_" if start.command.outer else r"\$SLURM_", rank.text):
            found.append((rank.line, f"the batch script expands ${rank.text[1:]}, which is 0 there"))
        elif rank and rank.text.isdigit() and len(ranks) == 1:
            found.append((rank.line, f"the rank {rank.text} is every node's"))
        elif torchrun and ("standalone" in start.options or "nnodes" not in start.options):
            found.append((line, f"torchrun without --nnodes on {_nodes(script, start.step)} nodes"))
        elif torchrun and rank is None and not any(script.assigned("PET_NODE_RANK")):
            found.append((line, "torchrun without --node-rank"))
    if (
        not found
        and script.batch
        and any(_nodes(script, step) * _tasks_each(script, step) > 1 for step in _steps(script))
    ):
        for command, value in script.assigned("RANK", "LOCAL_RANK", "NODE_RANK", "MACHINE_RANK"):
            if command.outer is None and re.fullmatch(r"\$SLURM_(PROCID|NODEID|LOCALID)", value.text):
                found.append((command.line, f"the batch script expands {value.text}, which is 0 there"))
    yield from found


def _meeting_place(script: Script) -> Told:
    several = _nodes(script) > 1
    addresses = _told(script, ("master-addr", "main-process-ip", "rdzv-endpoint"), "MASTER_ADDR", "PET_MASTER_ADDR")
    for command, option in addresses if several else ():
        place = re.sub(r":[^:\]]*$", "", option.text)
        if re.fullmatch(r"localhost|127\.\d+\.\d+\.\d+|\[?::1\]?|0\.0\.0\.0", place):
            yield option.line, f"the address is {place}, and there are {_nodes(script)} nodes"
        elif _on_each(command) and re.match(r"\$(\(\s*hostname|HOSTNAME|SLURMD_NODENAME)", place):
            yield option.line, "the address is the name of the node that asks"
        elif re.fullmatch(rf"[${EARLY}]SLURM_(JOB_)?NODELIST", place):
            yield option.line, "the address is a list, such as gpu[01-04]"
    for command, option in _told(script, ("master-port", "main-process-port"), "MASTER_PORT"):
        if _on_each(command, option.text) and re.search(r"\bS?RANDOM\b|\bshuf\b", option.text):
            yield option.line, "each task throws its own dice for the port"
    for _, value in script.assigned("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
        if re.fullmatch(
            r"=?\d+\.\d+\.\d+\.\d+|\$\(\s*hostname\s+(-[iI]\b|--ip-address|--all-ip-addresses).*\)", value.text
        ):
            yield value.line, f"{value.text} is an address, and no interface"
        elif several and re.fullmatch(r"=?(lo|docker0)", value.text):
            yield value.line, f"the interface {value.text} leads to no other node"


def _fixed_port(script: Script) -> Told:
    told = _told(script, ("master-port", "main-process-port", "rdzv-endpoint"), "MASTER_PORT")
    ports = {option.text.rpartition(":")[2]: option.line for _, option in reversed(list(told))}
    for port, line in ports.items() if "exclusive" not in script.asked else ():
        if port.isdigit() and port != "0":
            yield line, f"the port {port} is every job's"


#: Variables that an environment has, so that programs see what is assigned; and those that programs read.
_ALREADY = re.compile(r"SLURM_\w+|CUDA_VISIBLE_DEVICES|(LD_LIBRARY_)?PATH|HOME|TMPDIR|USER|SHELL|PWD|LANG|LC_\w+|IFS")
_FOR_PROGRAMS = re.compile(r"MASTER_(ADDR|PORT)|WORLD_SIZE|OMP_NUM_THREADS|SRUN_CPUS_PER_TASK|(NCCL|GLOO|TORCH)_\w+")


def _not_exported(script: Script) -> Told:
    shell = [one for one in script.commands if one.outer is None and not one.words and not one.exports]
    # A launcher tells its workers where to meet.
    launched = any(script.named(*_LAUNCHERS))
    for command in shell if _steps(script) else ():
        for name, value in command.assigns:
            if name in script.exported or _ALREADY.fullmatch(name) or re.search(rf"\${name}\b", value.text):
                continue
            unread = not launched and _FOR_PROGRAMS.fullmatch(name) and not re.search(rf"\$\{{?{name}\b", script.text)
            reader = next((one.line for one in script.commands if _reads(one, name)), None)
            if reader or unread:
                yield (
                    command.line,
                    f"{name} is not exported, and {f'line {reader}' if reader else 'a program'} reads it",
                )


def _reads(command: Command, name: str) -> bool:
    """Tell whether a command in a step reads a variable that nobody gives the step."""
    outer = command.outer if _on_each(command) else None
    while outer:
        if name in dict(outer.assigns) or any(re.search(rf"(^|[,=]){name}=", word.text) for word in outer.words):
            return False
        outer = outer.outer
    texts = (*(word.text for word in command.words), *(value.text for _, value in command.assigns))
    return _on_each(command) and any(re.search(rf"\$\{{?{name}\b", text) for text in texts)


def _no_wait(script: Script) -> Told:
    behind = [one.line for one in _works(script) if one.background and one.outer is None]
    if behind and not re.search(r"\bwait\b", script.text):
        later = [one for one in script.commands if one.outer is None and one.line > behind[-1] and not one.background]
        if all(one.program in _ASIDE or (one.program == "sleep" and one.looped) for one in later if not one.captured):
            yield behind[-1], "& without a wait behind it"


def _hidden_failure(script: Script) -> Told:
    if not re.search("pipefail|PIPESTATUS", script.text):
        yield from ((one.line, "a pipe behind the work") for one in _works(script)[:1] if one.piped)


def _hidden_peers(script: Script) -> Told:
    for step in _steps(script) if _trains(script) else ():
        bound = _asked(script, step, "gpu-bind") or _asked(script, step, "tres-bind")
        alone = bound if bound and re.search(r"(single|per_task):1$", bound.text) else None
        each = _asked(script, step, "gpus-per-task")
        if each and each.text.rpartition(":")[2] == "1" and bound is None:
            alone = each
        if alone and _tasks_each(script, step) > 1:
            name = "--gpus-per-task=1" if alone is each else f"a binding to {alone.text}"
            yield alone.line, f"{name} hides the GPUs of a node's other tasks"
            return


def _gpu_count(script: Script) -> Told:
    given = [script.asked, *(step.options for step in script.named("srun"))]
    asks = any(
        re.match("gpus|tres", name) or (name == "gres" and "gpu" in one[name].text) for one in given for name in one
    )
    if script.asked and not asks and "exclusive" not in script.asked:
        wants = [start.command.line for start in script.named(*_LAUNCHERS) if _wants_gpus(start)]
        wants += [one.line for one in script.commands if one.program == "nvidia-smi"]
        if wants:
            yield min(wants), "no GPU is asked for"
    total, each = (_number(script, script.asked.get(name)) for name in ("ntasks", "ntasks-per-node"))
    for step in _steps(script):
        gpus, tasks = _gpus_each(script, step), _tasks_each(script, step)
        if gpus and tasks > gpus and _trains(script):
            yield step.command.line, f"{tasks} tasks on a node, and {gpus} GPUs"
        elif gpus and each == gpus and total and total < _nodes(script) * each and "ntasks" not in step.options:
            yield script.asked["ntasks"].line, f"--ntasks={total} goes before --ntasks-per-node={each}"
    granted = _gpus_each(script, None)
    for _, value in script.assigned("CUDA_VISIBLE_DEVICES") if granted else ():
        if re.fullmatch(r"\d+(,\d+)*", value.text) and granted and max(map(int, value.text.split(","))) >= granted:
            yield value.line, f"CUDA_VISIBLE_DEVICES={value.text}, and a node's GPUs of the job are 0 to {granted - 1}"


def _wants_gpus(start: Start) -> bool:
    """Tell whether a launcher is told to use GPUs."""
    told = start.options.get("nproc-per-node", start.options.get("num-gpus"))
    return "multi-gpu" in start.options or (told is not None and told.text not in ("1", "cpu", "auto"))


def _cpus_not_inherited(script: Script) -> Told:
    cores = script.asked.get("cpus-per-task")
    if cores is None or cores.text == "1" or any(script.assigned("SRUN_CPUS_PER_TASK")):
        return
    for step in _steps(script):
        if not {"cpus-per-task", "exclusive", "cpu-bind", "cpus-per-gpu"} & step.options.keys() and not step.vague:
            yield step.command.line, f"srun is not told of the {cores.text} cores that line {cores.line} asks for"
            return


def _conda_activate(script: Script) -> Told:
    reads = ("source", ".", "eval", "module", "ml", "spack")
    activates = [one.line for one in script.commands if [word.text for word in one.words[:2]] == ["conda", "activate"]]
    before = any(one.program in reads and one.line < activates[0] for one in script.commands if activates)
    if activates and not before and not re.match(r"#!.*\s(-\w*[li]|--login)", script.text):
        yield activates[0], "conda activate, and nothing before it reads conda's functions"


_IN_STEP = "srun bash -c '... --node-rank=$SLURM_NODEID ...', in single quotes: the shell of each task expands it"
#: Each mistake by its name.
RULES: Mapping[str, Rule] = {
    "unread-directive": Rule(
        _unread_directive,
        "the job does not get what it asks for, and sbatch says nothing",
        "#SBATCH --option=VALUE before all commands, blanks in quotes; a variable: sbatch --option=$VALUE FILE",
    ),
    "output-directory": Rule(
        _output_directory,
        "Slurm opens the file before the script begins: the job fails without a log",
        "--output=FILE in the directory that you submit from; or make the other one before sbatch",
    ),
    "one-node": Rule(
        _one_node,
        "the script runs on the first node alone: the others wait, or have nothing to do",
        "srun --ntasks-per-node=1 before a launcher, srun before a program that reads Slurm's variables",
    ),
    "double-launch": Rule(
        _double_launch,
        "as many times too many workers, which take each other's ports, GPUs and memory",
        "--ntasks-per-node=1 with a launcher; or srun python without it",
    ),
    "one-after-another": Rule(
        _one_after_another,
        "the first waits for the others in vain: they begin when it has ended",
        f"one srun for all nodes: {_IN_STEP}; or & behind each, and wait at the end",
    ),
    "same-rank": Rule(
        _same_rank, "every node is the first: a training of its own on each, or all wait for the others", _IN_STEP
    ),
    "meeting-place": Rule(
        _meeting_place,
        "each node waits for itself: the workers never meet",
        'export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1), a port that is made once, '
        "both in the batch script; no NCCL_SOCKET_IFNAME",
    ),
    "fixed-port": Rule(
        _fixed_port,
        "of two such jobs on a node the second ends with 'address already in use', or meets the first",
        "export MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000)), in the batch script",
    ),
    "not-exported": Rule(_not_exported, "it is empty in the step", "export NAME=VALUE"),
    "no-wait": Rule(
        _no_wait,
        "the script ends at once, and Slurm ends what still runs",
        "wait, in a line of its own at the end",
    ),
    "hidden-failure": Rule(
        _hidden_failure,
        "the status is that of the pipe's last program: the job is COMPLETED when the training fails",
        "set -o pipefail, before it",
    ),
    "hidden-peers": Rule(
        _hidden_peers,
        "NCCL cannot reach the others' GPUs: it ends with 'invalid device', or goes through the host's memory",
        "--gpus-per-node=N, and no --gpu-bind",
    ),
    "gpu-count": Rule(
        _gpu_count,
        "no CUDA, two workers on a GPU ('duplicate GPU', 'invalid device ordinal'), or workers that wait for more",
        "--gpus-per-node=N --ntasks-per-node=N, no --ntasks, and no CUDA_VISIBLE_DEVICES: Slurm sets it",
    ),
    "cpus-not-inherited": Rule(
        _cpus_not_inherited,
        "a task has one core with Slurm 22.05 to 23.11, and all of them with others",
        "export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK",
    ),
    "conda-activate": Rule(
        _conda_activate,
        "a batch script reads no .bashrc: conda asks for 'conda init', and another Python runs",
        'source "$(conda info --base)/etc/profile.d/conda.sh", before it',
    ),
}
#: Of a script that shfmt cannot read.
_UNREADABLE = Rule(
    lambda _: iter(()),
    "bash stops there, too, or reads on as nobody meant; only the #SBATCH lines were looked at",
    "bash -n FILE says where it begins",
)

#: Of a script that knows better: "# lint-job: ignore NAME, NAME", anywhere in it.
_IGNORE = re.compile(r"^[ \t]*#.*\blint-job: ignore ([a-z-]+(?:[ \t]*,[ \t]*[a-z-]+)*)", re.MULTILINE)


def findings(text: str, parse: Parse) -> list[Finding]:
    """Return the mistakes in a job script, by line; the same mistake of a line once. What it says to ignore is none."""
    script = Script(text, parse)
    ignored = {name.strip() for names in _IGNORE.findall(text) for name in names.split(",")}
    told = {
        (line, name, problem)
        for name, rule in RULES.items()
        if name not in ignored
        for line, problem in rule.found(script)
    }
    if script.unreadable:
        told.add((script.unreadable.line, "unreadable", f"it cannot be read: {script.unreadable.why}"))
    rules = {**RULES, "unreadable": _UNREADABLE}
    return [
        Finding(line, name, problem, rules[name].effect, rules[name].better)
        for line, name, problem in sorted(told, key=lambda one: (one[0], list(rules).index(one[1]), one[2]))
    ]
