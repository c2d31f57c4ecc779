"""Mistakes in job scripts that people have posted as the cause of their failure, looked for in a user's own script.

A rule says nothing where it would have to guess: what a variable from elsewhere holds, nobody knows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from provision.slurm.job_script import EARLY, Command, Parse, Script, Start, Word, base, stray


@dataclass(frozen=True)
class Finding:
    """One mistake: in which line (from 1), its name, what stands there, what comes of it, and what to write instead."""

    line: int
    name: str
    problem: str
    effect: str
    better: str


#: What a rule says of a mistake: line, problem, effect, better.
Told = tuple[int, str, str, str]
Rule = Callable[[Script], Iterator[Told]]

_LAUNCHERS = ("torchrun", "accelerate", "deepspeed")
#: Programs that only look, prepare or clean up.
_ASIDE = frozenset({
    "hostname", "true", "false", "echo", "printf", "date", "env", "ls", "cp", "mv", "rm", "mkdir", "chmod", "test",
    "cat", "id", "uptime", "nvidia-smi", "ibstat", "stat", "df", "sync", "tar", "rsync", "find", "which", "pkill", "kill",
    "killall", "touch", "ln", "du", "ping", "curl", "wget", "pip", "cd", "set", "scontrol", "squeue", "",
})  # fmt: skip
#: Programs that start others on other nodes, or may do so.
_STARTERS = frozenset({
    "srun", "mpirun", "mpiexec", "horovodrun", "ssh", "pdsh", "clush", "parallel", "ray", "dask", "ibrun", "prun", "eval",
    "deepspeed", "sbatch", "salloc", "bash", "sh", "xargs",
})  # fmt: skip
#: What a training on several GPUs says somewhere.
_TRAINS = re.compile(r"\b(MASTER_ADDR|MASTER_PORT|NCCL_\w+|WORLD_SIZE)\b|distributed|\bddp\b|fsdp|torchrun|deepspeed", re.I)
_PORT = "export MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000)), in the batch script"
_ADDRESS = 'export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1), in the batch script'
_IN_STEP = "srun bash -c '... --node-rank=$SLURM_NODEID ...', in single quotes: the shell of each task expands it"


# -- how much the script asks for; None where it does not say


def _asked(script: Script, step: Start | None, name: str) -> Word | None:
    """Return an option of a step, else of its job."""
    return (step.options.get(name) if step else None) or script.asked.get(name)


def _number(script: Script, option: Word | None) -> int | None:
    """Return the number that an option has, the least of a range."""
    text = option.text if option else ""
    of_slurm = {"NNODES": "nodes", "JOB_NUM_NODES": "nodes", "NTASKS": "ntasks", "NTASKS_PER_NODE": "ntasks-per-node"}
    if (name := re.fullmatch(rf"[${EARLY}]SLURM_(\w+)", text)) and name[1] in of_slurm:
        text = script.asked[of_slurm[name[1]]].text if of_slurm[name[1]] in script.asked else ""
    found = re.fullmatch(r"(\d{1,6})(-\d+)?", text)
    return int(found[1]) if found else None


def _nodes(script: Script, step: Start | None = None) -> int:
    """Return on how many nodes a step runs, 1 where the script does not say it."""
    own = step.options if step else {}
    if "nodes" not in own and _number(script, own.get("ntasks")) == 1:
        return 1
    return _number(script, _asked(script, step, "nodes")) or 1


def _tasks_each(script: Script, step: Start | None = None) -> int:
    """Return how many tasks a step has on a node, 1 where the script does not say it."""
    own = step.options if step else {}
    if each := _number(script, own.get("ntasks-per-node")):
        return each
    total = _number(script, own.get("ntasks"))
    if total is None and (each := _number(script, script.asked.get("ntasks-per-node"))):
        return each
    total = total or _number(script, script.asked.get("ntasks"))
    return max(1, total // _nodes(script, step)) if total else 1


def _gpus_each(script: Script, step: Start | None = None) -> int | None:
    """Return how many GPUs of a node a step has."""
    names = ("gpus-per-node", "gres", *(("gpus",) if _nodes(script, step) == 1 else ()))
    found = [re.search(r"^(?:gpu:)?(?:[\w.-]+:)?(\d+)$", one.text) for name in names if (one := _asked(script, step, name))]
    return next((int(one[1]) for one in found if one), None)


def _steps(script: Script) -> list[Start]:
    """Return the steps that are the job itself, and not one that looks or prepares."""
    inner = {id(start.step) for start in script.starts if start.program != "scontrol"}
    shells = {id(one.step) for one in script.commands if one.outer and base(one.program) not in _ASIDE}
    return [
        step
        for step in script.named("srun")
        if not step.command.captured
        and (id(step) in inner | shells or (step.rest and base(step.rest[0].text) not in {*_ASIDE, "bash", "sh", "sleep"}))
    ]


def _trains(script: Script) -> bool:
    """Tell whether the script's workers talk to each other."""
    words = (word.text for one in script.commands for word in (*one.words, *(value for _, value in one.assigns)))
    names = (name for one in script.commands for name, _ in one.assigns)
    return any(_TRAINS.search(text) for text in (*words, *names))


def _each_node(command: Command, text: str = "$") -> bool:
    """Tell whether each task or node expands what stands in a command."""
    return command.step is not None and command.outer is not None and "$" in text


# -- what sbatch reads


def unread_directive(script: Script) -> Iterator[Told]:
    """A line for sbatch that it does not read, or not as it was meant."""
    effect = "sbatch takes it for a comment: the job does not get what it asks for"
    for one in script.directives:
        shown = " ".join(word.text for word in one.words)
        if one.unread:
            yield one.line, f"sbatch does not read {shown}: {one.unread}", effect, f"#SBATCH {shown}, before all commands"
        elif (left := stray(one)) and left.split()[0] not in ("hetjob", "packjob"):
            why = "it reads no option behind that, in later lines neither"
            yield one.line, f"{left!r} belongs to no option", why, "put a value with blanks in quotes; leave the rest out"
        elif any(re.search(r"\$[{(A-Za-z]|`", word.text) for word in one.words):
            why = "sbatch expands no variable there: it takes the text as it stands"
            yield one.line, f"a variable in {shown}", why, "say it to sbatch: sbatch --option=\"$VARIABLE\" FILE; %j, %x, %u"


def output_directory(script: Script) -> Iterator[Told]:
    """An output in a directory that is not there yet when Slurm opens the file."""
    made = {word.text.rstrip("/") for one in script.commands if one.program == "mkdir" for word in one.words[1:]}
    for name in ("output", "error"):
        option = script.asked.get(name)
        directory = option.text.rpartition("/")[0] if option else ""
        late = directory.removeprefix("./") in {one.removeprefix("./") for one in made} or re.search("%[jJAa]", directory)
        if option and directory and late:
            effect = "Slurm opens the file before the script begins: the job fails without a log"
            better = f"--{name}={option.text.rpartition('/')[2]}; or make {directory} before sbatch"
            yield option.line, f"{directory} is made by nobody before the job begins", effect, better


# -- what starts where


def one_node(script: Script) -> Iterator[Told]:
    """Several nodes, and nothing that starts anything on the others."""
    many = _nodes(script) > 1
    other = any(base(one.program) in _STARTERS or re.search(r"[/$]", one.program) for one in script.commands)
    if not many or other or any("/" in one.words[0].text for one in script.commands if one.words):
        return
    for start in script.named("torchrun", "accelerate", *(("python",) if _gpus_each(script) else ())):
        if not start.command.captured and "deepspeed-hostfile" not in start.options:
            effect = "the script runs on the first node alone: the others wait, or have nothing to do"
            problem = f"{start.program} is started without srun, and there are {_nodes(script)} nodes"
            yield start.command.line, problem, effect, f"srun --ntasks-per-node=1 {start.program} ..."
            return


def double_launch(script: Script) -> Iterator[Told]:
    """A launcher that starts all workers of a node, started once for each of them."""
    for start in script.named(*_LAUNCHERS, "mpirun"):
        each = _tasks_each(script, start.step) if start.step else 1
        names = ("nproc-per-node", "num-processes", "num-gpus", "multi-gpu")
        workers = next((start.options[name].text for name in names if name in start.options), None)
        many = workers not in (None, "1") or start.program in ("deepspeed", "mpirun")
        if each > 1 and many and workers != "1":
            problem = f"{each} tasks on a node, and each starts {start.program} with all of the node's workers"
            effect = "as many times too many workers, which take each other's ports, GPUs and memory"
            better = f"--ntasks-per-node=1 with {start.program}; or srun python without it"
            yield start.command.line, problem, effect, better


def one_after_another(script: Script) -> Iterator[Told]:
    """Steps of one training, each of which begins when the one before has ended."""
    found = []
    for start in script.named(*_LAUNCHERS):
        rank, step = _rank(start), start.step
        if rank and step and not step.command.background and "SLURM_" not in rank.text:
            found.append((start, step, rank))
    differ = len({rank.text for _, _, rank in found}) > 1
    for _, step, _ in found:
        alone = _nodes(script, step) == 1 and _nodes(script) > 1
        if differ or (step.command.looped and (alone or "nodelist" in step.options)):
            effect = "the first waits for the others in vain, and they wait until it has ended"
            better = f"one srun for all nodes: {_IN_STEP}; or & behind each and wait at the end"
            yield step.command.line, "srun in the foreground for each node's launcher", effect, better
            return


def _rank(start: Start) -> Word | None:
    """Return what a launcher is told of its node's rank."""
    return start.options.get("node-rank") or start.options.get("machine-rank")


def same_rank(script: Script) -> Iterator[Told]:
    """A rank that is every node's, or none."""
    effect = "every node is the first: as many jobs of one node each, or all wait for the others"
    told, several = False, [start for start in script.named("torchrun", "accelerate") if start.step]
    ranks = {rank.text for start in several if (rank := _rank(start))}
    for start in several:
        rank, backend = _rank(start), start.options.get("rdzv-backend")
        one = _nodes(script, start.step) == 1 or (start.step and {"nodelist", "relative"} & start.step.options.keys())
        if one or start.vague or (backend and backend.text != "static"):
            continue
        early = rank and re.search(rf"{EARLY}|^\$" if start.command.outer is None else EARLY, rank.text)
        if rank and "SLURM_" in rank.text and early:
            problem = f"the batch script expands ${rank.text.strip(EARLY + '$')}, which is 0 there"
        elif rank and rank.text.isdigit() and len(ranks) == 1:
            problem = f"the rank {rank.text} is every node's"
        elif start.program == "torchrun" and ("standalone" in start.options or "nnodes" not in start.options):
            problem = f"torchrun without --nnodes on {_nodes(script, start.step)} nodes"
        elif start.program == "torchrun" and rank is None and not any(script.assigned("PET_NODE_RANK")):
            problem = "torchrun without --node-rank"
        else:
            continue
        told = True
        yield (rank.line if rank else start.command.line), problem, effect, _IN_STEP
    steps = [step for step in _steps(script) if _nodes(script, step) * _tasks_each(script, step) > 1]
    if told or not script.batch or not steps:
        return
    for command, value in script.assigned("RANK", "LOCAL_RANK", "NODE_RANK", "MACHINE_RANK"):
        if command.outer is None and re.fullmatch(r"\$SLURM_(PROCID|NODEID|LOCALID)", value.text):
            yield command.line, f"the batch script expands {value.text}, which is 0 there", effect, _IN_STEP


# -- where workers meet


def _told(script: Script, names: tuple[str, ...], variables: tuple[str, ...]) -> Iterator[tuple[Command, Word]]:
    """Yield what variables and launchers' options say, each with its command."""
    for command, value in script.assigned(*variables):
        yield command, value
    for start in script.named(*_LAUNCHERS):
        yield from ((start.command, start.options[name]) for name in names if name in start.options)


def meeting_place(script: Script) -> Iterator[Told]:
    """An address, port or interface at which each node meets itself alone."""
    alone = "each node waits for itself: the workers never meet"
    names, variables = ("master-addr", "main-process-ip", "rdzv-endpoint"), ("MASTER_ADDR", "PET_MASTER_ADDR")
    for command, option in _told(script, names, variables) if _nodes(script) > 1 else ():
        place, problem = re.sub(r":[^:\]]*$", "", option.text), ""
        if re.fullmatch(r"localhost|127\.\d+\.\d+\.\d+|\[?::1\]?|0\.0\.0\.0", place):
            problem = f"the address is {place}, and there are {_nodes(script)} nodes"
        elif _each_node(command) and re.search(r"^\$(\(\s*hostname|HOSTNAME|SLURMD_NODENAME)", place):
            problem = "the address is the name of the node that asks"
        elif re.fullmatch(rf"[${EARLY}]SLURM_(JOB_)?NODELIST", place):
            problem = "the address is a list, such as gpu[01-04]"
        if problem:
            yield option.line, problem, alone, _ADDRESS
    for command, option in _told(script, ("master-port", "main-process-port"), ("MASTER_PORT",)):
        if _each_node(command, option.text) and re.search(r"\bS?RANDOM\b|\bshuf\b", option.text):
            yield option.line, "each task throws its own dice for the port", alone, _PORT
    for _, value in script.assigned("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
        name = value.text.lstrip("=")
        address = re.fullmatch(r"\d+\.\d+\.\d+\.\d+|\$\(\s*hostname\s+(-i|-I|--ip-address|--all-ip-addresses)\b.*\)", name)
        if address or (name in ("lo", "docker0") and _nodes(script) > 1):
            problem = f"{value.text} is {'an address, and no interface' if address else 'an interface of this node alone'}"
            yield value.line, problem, "NCCL and Gloo find nobody there", "leave it out: they find the interface themselves"


def fixed_port(script: Script) -> Iterator[Told]:
    """A port that is every job's."""
    names = ("master-port", "main-process-port", "rdzv-endpoint")
    seen = set[str]()
    for _, option in _told(script, names, ("MASTER_PORT",)) if "exclusive" not in script.asked else ():
        port = option.text.rpartition(":")[2]
        if port.isdigit() and port != "0" and port not in seen:
            seen.add(port)
            effect = "of two such jobs on a node the second ends with 'address already in use', or meets the first"
            yield option.line, f"the port {port} is every job's", effect, _PORT


def not_exported(script: Script) -> Iterator[Told]:
    """A variable that only the batch script's own shell has, and a step reads."""
    effect = "it is empty in the step"
    shell = [one for one in script.commands if one.outer is None and not one.words and not one.exports]
    steps = _steps(script)
    for command in shell if steps else ():
        for name, value in command.assigns:
            if name in script.exported or re.search(rf"\${name}\b", value.text) or _ALREADY.match(name):
                continue
            reader = next((one for one in script.commands if _reads(one, name)), None)
            if reader or (_FOR_PROGRAMS.match(name) and not re.search(rf"\$\{{?{name}\b", script.text)):
                where = f"line {reader.line} reads it" if reader else "only programs read it"
                yield command.line, f"{name} is not exported, and {where}", effect, f"export {name}=..."


#: Variables that an environment has: who assigns to one changes what programs see. And those that programs read.
_ALREADY = re.compile(r"(SLURM_\w+|CUDA_VISIBLE_DEVICES|PATH|LD_LIBRARY_PATH|HOME|TMPDIR|USER|SHELL|PWD|LANG|LC_\w+|IFS)$")
_FOR_PROGRAMS = re.compile(r"(MASTER_(ADDR|PORT)|WORLD_SIZE|OMP_NUM_THREADS|SRUN_CPUS_PER_TASK|(NCCL|GLOO|TORCH)_\w+)$")


def _reads(command: Command, name: str) -> bool:
    """Tell whether a command in a step reads a variable that nobody gives the step."""
    if not _each_node(command):
        return False
    outer, given = command.outer, re.compile(rf"(^|[,=]){name}=")
    while outer:
        if any(given.search(word.text) for word in outer.words) or name in dict(outer.assigns):
            return False
        outer = outer.outer
    return any(re.search(rf"\$\{{?{name}\b", word.text) for word in (*command.words, *(one for _, one in command.assigns)))


# -- how it ends


def _works(script: Script) -> Iterator[Command]:
    """Yield the commands that are the work, each once."""
    steps = {id(step) for step in _steps(script)}
    own = (start for start in script.named("python", *_LAUNCHERS) if start.step is None)
    starts = [*(step for step in script.named("srun") if id(step) in steps), *own]
    yield from {id(start.command): start.command for start in starts}.values()


def no_wait(script: Script) -> Iterator[Told]:
    """Work in the background that the end of the script ends."""
    shell = [one for one in script.commands if one.outer is None and not one.captured]
    behind = [one for one in _works(script) if one.background and one.outer is None]
    if not behind or any(one.program == "wait" or "wait" in script.text.split() for one in shell):
        return
    last = behind[-1]
    later = [one for one in shell if one.line > last.line and not one.background]
    if all(one.program in _ASIDE or (one.program == "sleep" and one.looped) for one in later):
        effect = "the script ends at once, and Slurm ends what still runs"
        yield last.line, "& without a wait behind it", effect, "wait, in a line of its own at the end"


def hidden_failure(script: Script) -> Iterator[Told]:
    """Work whose failure a pipe hides."""
    if re.search("pipefail|PIPESTATUS", script.text):
        return
    for command in _works(script):
        if command.piped and not command.captured:
            effect = "the status is that of the pipe's last program: the job is COMPLETED when the training fails"
            yield command.line, "a pipe behind the work", effect, "set -o pipefail, before it"
            return


# -- cores and GPUs


def hidden_peers(script: Script) -> Iterator[Told]:
    """Tasks of one training of which each sees its own GPU alone."""
    for step in _steps(script) if _trains(script) else ():
        bound = _asked(script, step, "gpu-bind") or _asked(script, step, "tres-bind")
        each, several = _asked(script, step, "gpus-per-task"), _tasks_each(script, step) > 1
        alone = each if each and re.search(r"(^|:)1$", each.text) and not (bound and "none" in bound.text) else None
        if bound and re.search(r"(single|per_task):1$", bound.text):
            alone = bound
        if alone and several:
            name = "--gpus-per-task=1" if alone is each else f"--gpu-bind={alone.text}"
            effect = "NCCL cannot reach the others' GPUs: it ends with 'invalid device', or goes through the host's memory"
            yield alone.line, f"{name} hides the GPUs of a node's other tasks", effect, "--gpus-per-node=N, and no --gpu-bind"
            return


def gpu_count(script: Script) -> Iterator[Told]:
    """GPUs that nobody asked for, or as many tasks as there are no GPUs."""
    given = [script.asked, *(step.options for step in script.named("srun"))]
    asks = any(re.match("gpus|tres", name) or (name == "gres" and "gpu" in one[name].text) for one in given for name in one)
    better = "#SBATCH --gpus-per-node=N"
    if script.batch and script.asked and not asks and "exclusive" not in script.asked:
        wants = [start.command.line for start in script.named(*_LAUNCHERS) if _wants_gpus(start)]
        wants += [one.line for one in script.commands if one.program == "nvidia-smi"]
        if wants:
            yield min(wants), "no GPU is asked for", "the job sees none: torch.cuda.is_available() is False", better
    for step in [*_steps(script), None]:
        gpus, tasks = _gpus_each(script, step), _tasks_each(script, step)
        if step and gpus and tasks > gpus and _trains(script):
            problem = f"{tasks} tasks on a node, and {gpus} GPUs"
            effect = "two workers take one GPU: 'duplicate GPU detected', or 'invalid device ordinal'"
            yield step.command.line, problem, effect, f"--ntasks-per-node={gpus}"
            break
        own = step.options.keys() & {"ntasks", "ntasks-per-node", "nodes"} if step else {}
        total, each = _number(script, script.asked.get("ntasks")), _number(script, script.asked.get("ntasks-per-node"))
        if step and total and each and each == gpus and not own and total < _nodes(script) * each:
            problem = f"--ntasks={total} goes before --ntasks-per-node={each}"
            effect = f"there are {total} tasks, and programs that read SLURM_NTASKS_PER_NODE wait for more"
            yield script.asked["ntasks"].line, problem, effect, "leave --ntasks out"
            break
    granted = _gpus_each(script)
    for _, value in script.assigned("CUDA_VISIBLE_DEVICES") if granted else ():
        if re.fullmatch(r"\d+(,\d+)*", value.text) and granted and max(map(int, value.text.split(","))) >= granted:
            problem = f"CUDA_VISIBLE_DEVICES={value.text}, and the job has {granted} GPUs of a node, from 0 on"
            yield value.line, problem, "'invalid device ordinal', or no GPU", "leave it out: Slurm sets it"


def _wants_gpus(start: Start) -> bool:
    """Tell whether a launcher is told to use GPUs."""
    told = start.options.get("nproc-per-node", start.options.get("num-gpus"))
    return "multi-gpu" in start.options or (told is not None and told.text not in ("1", "cpu", "auto"))


def cpus_not_inherited(script: Script) -> Iterator[Told]:
    """Cores that are asked for the job and not for its steps."""
    asked = script.asked.get("cpus-per-task")
    if asked is None or asked.text == "1" or any(script.assigned("SRUN_CPUS_PER_TASK")):
        return
    for step in _steps(script):
        if not {"cpus-per-task", "exclusive", "cpu-bind", "cpus-per-gpu"} & step.options.keys() and not step.vague:
            problem = f"srun is not told of the {asked.text} cores that line {asked.line} asks for"
            effect = "a task has one core with Slurm 22.05 to 23.11, and all of them with others"
            yield step.command.line, problem, effect, "export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK"
            return


# -- the environment


def conda_activate(script: Script) -> Iterator[Told]:
    """conda activate in a shell that has not read conda's functions."""
    if re.match(r"#!.*\s(-\w*[li]|--login)", script.text):
        return
    for command in script.commands:
        if command.program in ("source", ".", "eval", "module", "ml", "spack"):
            return
        if command.program == "conda" and [word.text for word in command.words[1:2]] == ["activate"]:
            effect = "a batch script reads no .bashrc: conda says \"run 'conda init'\", and the work runs with another Python"
            yield command.line, "conda activate, and nothing before it reads conda's functions", effect, _CONDA
            return


_CONDA = 'source "$(conda info --base)/etc/profile.d/conda.sh", before it'

#: Each mistake by its name.
RULES: dict[str, Rule] = {
    "unread-directive": unread_directive,
    "output-directory": output_directory,
    "one-node": one_node,
    "double-launch": double_launch,
    "one-after-another": one_after_another,
    "same-rank": same_rank,
    "meeting-place": meeting_place,
    "fixed-port": fixed_port,
    "not-exported": not_exported,
    "no-wait": no_wait,
    "hidden-failure": hidden_failure,
    "hidden-peers": hidden_peers,
    "gpu-count": gpu_count,
    "cpus-not-inherited": cpus_not_inherited,
    "conda-activate": conda_activate,
}

#: Of a script that knows better: "# lint-job: ignore NAME, NAME", anywhere in it.
_IGNORE = re.compile(r"^[ \t]*#.*\blint-job: ignore ([a-z-]+(?:[ \t]*,[ \t]*[a-z-]+)*)", re.MULTILINE)


def findings(text: str, parse: Parse) -> list[Finding]:
    """Return the mistakes in a job script, by line; the same mistake of a line once. What it says to ignore is none."""
    script = Script(text, parse)
    ignored = {name.strip() for names in _IGNORE.findall(text) for name in names.split(",")}
    found: dict[tuple[int, str, str], Finding] = {}
    if script.unreadable:
        why = f"it cannot be read: {script.unreadable.why}"
        effect = "bash stops there, too, or reads on as nobody meant; only the #SBATCH lines were looked at"
        found[0, "", ""] = Finding(script.unreadable.line, "unreadable", why, effect, "bash -n FILE says where it begins")
    for name in [name for name in RULES if name not in ignored]:
        for line, problem, effect, better in RULES[name](script):
            found.setdefault((line, name, problem), Finding(line, name, problem, effect, better))
    return sorted(found.values(), key=lambda one: one.line)
