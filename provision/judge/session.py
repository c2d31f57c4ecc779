"""Does a user's session work where users log in: steps, a script from home, an allocation, a signal, accounting? Pure.

The script ``prove-session`` has done it once for each kind of hardware in each partition, as an ordinary user.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from provision.judge import side_by_side
from provision.judge.job_plan import MEMORY, gpus_in
from provision.judge.slurm_answers import line, nodes_in, pairs, partitions_in
from provision.judge.slurm_facts import Facts
from provision.model.checks import Check, Level, Subject, Verdict
from provision.slurm.admission import Submitter

SUBJECT = Subject(
    "session",
    ("step", "batch", "allocation", "signal", "side_by_side", "accounting"),
    fix="as that user on that machine: srun --chdir=/ env",
    level=Level.JOB,
)

#: What the script's step, its batch script and its allocation's command end with.
STEP_CODE, BATCH_CODE, ALLOCATION_CODE = "5", "6", "4"
#: What sacct is asked of one of its jobs.
ACCOUNTED = ("JobIDRaw", "State", "ExitCode", "User", "Account", "QOS", "Partition", "ElapsedRaw", "AllocTRES")
#: What need not be shown on each machine on which users log in.
ELSEWHERE = "the session on the controller shows it"
#: Cores that two jobs side by side need; each gets a whole one.
_PAIR = 2
#: What commands say whom slurmctld does not answer: slurm_strerror(3). A reason has no blanks.
_SILENT = re.compile(r"Unable[ _]to[ _]contact[ _]slurm[ _]controller")
#: With it a job has whole nodes, whatever it asks for: slurm.conf(5), SelectType.
_LINEAR = re.compile(r"(?m)^SelectType\s*=\s*select/linear\s*$")


@dataclass(frozen=True)
class Wants:
    """What a session should show: of the proof's user, whether accounting is on, and whether the home is shared.

    ``account`` and ``qos`` are what the jobs are submitted with, empty where nothing is said of it. ``installed``:
    users have Slurm's commands there. ``login``: it is another machine than the controller, whose session has shown
    already what does not depend on where one is.
    """

    uid: int
    user: str = ""
    account: str = ""
    qos: str = ""
    accounting: bool = False
    shared_home: bool = False
    installed: bool = True
    login: bool = False


def targets(controller: str, fit: Sequence[str], who: Submitter) -> list[tuple[str, str, str, str]]:
    """Return partition, node, GRES ("-" for none) and how two jobs fit there, for each kind in each partition.

    That is "pair" where they do, "alone" where they have not the cores, and "exclusive" where a site gives whole nodes
    to jobs. ``controller`` is what its script printed about nodes, partitions and the configuration, ``fit`` the nodes
    that can take a job now, ``who`` submits.
    """
    said = Facts.of("", controller, "").controller
    nodes, partitions = nodes_in(said.get("nodes", "")), partitions_in(said.get("partitions", ""))
    whole = _LINEAR.search(said.get("config", "")) is not None
    found: dict[tuple[str, int, int, str], tuple[str, str, str, str]] = {}
    for name in fit:
        if (node := nodes.get(name)) is None:
            continue
        for partition in node.partitions:
            known = partitions.get(partition)
            if known is None or not known.up or known.admission.keeps_out(who):
                continue
            free = gpus_in(node.gres) > gpus_in(node.gres_used)
            fits = "pair" if node.cpus - node.cpus_used >= _PAIR * max(1, node.threads) else "alone"
            target = (partition, name, "gpu:1" if free else "-", "exclusive" if whole or known.exclusive else fits)
            # Slurm adds to a GRES to which sockets it belongs.
            found.setdefault((partition, node.cpus, node.memory, re.sub(r"\(.*?\)", "", node.gres)), target)
    return list(found.values())


def checks(printed: str, problem: str, asked: Sequence[Sequence[str]], wants: Wants) -> list[Check]:
    """Return the checks: ``printed`` by the script, ``problem`` why it printed nothing, ``asked`` what it was to do."""
    if not wants.installed:
        return SUBJECT.all_skipped("users have no commands here (slurm_client_install)")
    if not asked:
        return SUBJECT.all_skipped("no node can take a job", unproven=True)
    said: dict[str, list[str]] = {}
    for key, text in re.findall(r"(?m)^([\w.-]+:[\w.-]+|session)\| (.*)$", printed):
        said.setdefault(key, []).append(line(text))
    if not said:
        return SUBJECT.all_unknown(f"no job was submitted: {line(problem) or 'the machine did not answer'}")
    first = f"{asked[0][0]}:{asked[0][1]}"
    own = side_by_side.told(said.get(first, []))
    found = [
        _steps(said, asked, wants),
        _batch(own, wants),
        _allocation(own, asked[0][1]),
        _signal(own),
        SUBJECT.skip("side_by_side", ELSEWHERE) if wants.login else _pairs(said, asked),
        _accounting(own, asked[0], wants),
    ]
    if silence := _SILENT.search(printed):
        # Of a session whose slurmctld went away nothing is proven, and nothing of it is the machine's fault.
        return [check if check.ok else _undecided(check, silence[0]) for check in found]
    return found


def _undecided(check: Check, why: str) -> Check:
    name, told = check.id.removeprefix(f"{SUBJECT.name}."), f"slurmctld did not answer: {why.replace('_', ' ')}"
    cause = "it is silent, or this machine does not reach it"
    return SUBJECT.unknown(name, told, cause=cause, fix="on that machine: scontrol ping")


def _kinds(asked: Sequence[Sequence[str]]) -> str:
    """Name the nodes that stand for each kind in each partition."""
    return ", ".join(f"{node} in {partition}" for partition, node, *_ in asked)


def _waits(name: str, told: str) -> Check | None:
    """Return a skip where others have what the job needs: it was not to wait for them."""
    if side_by_side.BUSY.search(told):
        return SUBJECT.skip(name, f"other jobs have what it needs: {told[:200]}", unproven=True)
    return None


def _steps(said: Mapping[str, Sequence[str]], asked: Sequence[Sequence[str]], wants: Wants) -> Check:
    mark = side_by_side.told(said.get("session", [])).get("mark", "")
    wrong: list[str] = []
    busy: list[str] = []
    for partition, node, *_ in asked:
        own = side_by_side.told(said.get(f"{partition}:{node}", []))
        seen, where = pairs(own.get("step", "")), f"{node} in {partition}"
        if "step" not in own:
            (busy if side_by_side.BUSY.search(own.get("error", "")) else wrong).append(
                f"{where}: {own.get('error', 'nothing ran')[:200]}"
            )
            continue
        expected = {"node": node, "uid": str(wants.uid), "umask": "0027", "mark": mark}
        if differs := [
            f"{key} {seen.get(key) or 'none'}, not {value}" for key, value in expected.items() if seen.get(key) != value
        ]:
            wrong.append(f"{where}: {', '.join(differs)}")
        if own.get("exit") != STEP_CODE:
            wrong.append(f"{where}: srun ended with {own.get('exit') or 'nothing'}, the program with {STEP_CODE}")
    if busy and not wrong:
        return SUBJECT.skip("step", f"other jobs have what it needs: {'; '.join(busy)}", unproven=True)
    return SUBJECT.check(
        "step",
        not wrong,
        "; ".join(wrong) or f"right on {_kinds(asked)}",
        "environment, umask, user and exit code are those of the user who runs srun",
        source="srun, once for each kind of node in each partition",
        cause="the job's environment differs from its user's",
    )


def _batch(own: Mapping[str, str], wants: Wants) -> Check:
    told = own.get("batch", "")
    if not told:
        return SUBJECT.unknown("batch", "the script ended before that")
    seen = pairs(told)
    if seen.get("state") == "PENDING":
        return SUBJECT.skip("batch", f"the job waits: {seen.get('reason', '')}", unproven=True)
    ran, read = seen.get("exit") == BATCH_CODE, seen.get("output") == "here"
    if ran and not read and not wants.shared_home:
        return SUBJECT.check(
            "batch",
            Verdict.WARN,
            "the job ran, and its output is on the node alone",
            "a job that is submitted at home leaves its output there",
            source="sbatch --wait at home",
            cause="homes are not shared between the machines",
            fix="declare the file system of the homes in cluster_mounts",
        )
    return SUBJECT.check(
        "batch",
        ran and read,
        f"ended with {seen.get('exit') or 'nothing'}, its output is {'there' if read else 'not there'}",
        f"ends with {BATCH_CODE}, and its output is where it was submitted",
        source="sbatch --wait at home",
        cause="the job did not run to its end" if not ran else "the node has another home than the controller",
        fix="sacct, or scontrol show job; the job's output is slurm-ID.out in the user's home" if not ran else None,
    )


def _allocation(own: Mapping[str, str], node: str) -> Check:
    told = own.get("allocation", "")
    if waits := _waits("allocation", told):
        return waits
    seen = pairs(told)
    return SUBJECT.check(
        "allocation",
        seen.get("node") == node and seen.get("exit") == ALLOCATION_CODE,
        f"srun in it ran on {seen.get('node') or 'no node'}, salloc ended with {seen.get('exit') or 'nothing'}",
        f"srun in it runs on {node}, and salloc ends with {ALLOCATION_CODE}",
        source="salloc",
        cause="salloc gave no allocation, or its command could not use it",
    )


def _signal(own: Mapping[str, str]) -> Check:
    told = own.get("signal", "")
    if waits := _waits("signal", told):
        return waits
    gone = re.fullmatch(r"gone after (\d{1,6})", told)
    return SUBJECT.check(
        "signal",
        gone is not None,
        f"the job was gone after {gone[1]} s" if gone else told or "nothing was seen",
        "a terminated srun ends its job",
        source="kill -TERM of srun",
        cause="the step outlives its srun",
        fix="scancel --me",
    )


def _pairs(said: Mapping[str, Sequence[str]], asked: Sequence[Sequence[str]]) -> Check:
    wrong, unproven = side_by_side.tried(said, asked)
    if unproven and not wrong:
        return SUBJECT.skip("side_by_side", "; ".join(unproven), unproven=True)
    return SUBJECT.check(
        "side_by_side",
        not wrong,
        "; ".join(wrong) or f"at the same time on {_kinds(asked)}",
        "two jobs that ask for no memory run on one node at a time",
        source="two srun without --mem, once for each kind of node in each partition",
        cause="a job without --mem takes the whole node's memory or cores",
        fix="see DefMemPerCPU, DefMemPerGPU and SelectTypeParameters in slurm.conf",
    )


def _accounting(own: Mapping[str, str], asked: Sequence[str], wants: Wants) -> Check:
    """Compare the row of the first step's job with what it was submitted with and how it ended."""
    if wants.login:
        return SUBJECT.skip("accounting", ELSEWHERE)
    if not wants.accounting:
        return SUBJECT.skip("accounting", "no accounting database is declared")
    job = pairs(own.get("step", "")).get("job", "")
    if not job:
        return SUBJECT.skip("accounting", "no job ran", unproven=True)
    partition, _, gres, _ = asked
    cells = own.get("accounted", "").split("|")
    there = dict(zip(ACCOUNTED, cells, strict=True)) if len(cells) == len(ACCOUNTED) and cells[0] == job else {}
    expected = {"State": "FAILED", "ExitCode": f"{STEP_CODE}:0", "Partition": partition}
    expected |= {"User": wants.user, "Account": wants.account, "QOS": wants.qos}
    counted = {"node": "1", "mem": f"{MEMORY}M"} | ({"gres/gpu": gres.rpartition(":")[2]} if gres != "-" else {})
    told = pairs(there.get("AllocTRES", ""), ",")
    wrong = [
        f"{name} {there[name] or 'none'}, not {value}"
        for name, value in expected.items()
        if there and value and there[name] != value
    ]
    # A site may leave GPUs out of what is counted; then there are none, and no other number.
    wrong += [
        f"{name} {told.get(name, 'none')}, not {value}"
        for name, value in counted.items()
        if there and told.get(name, value if name == "gres/gpu" else "") != value
    ]
    if there and not there["ElapsedRaw"].isdecimal():
        wrong.append(f"elapsed {there['ElapsedRaw'] or 'nothing'}")
    as_who = ", ".join(filter(None, (wants.user, wants.account and f"account {wants.account}", wants.qos)))
    return SUBJECT.check(
        "accounting",
        bool(there) and not wrong,
        "; ".join(wrong) or (f"job {job}, as submitted" if there else f"job {job} is not there"),
        f"job {job} of {as_who or 'the user'} in {partition}: FAILED with exit code {STEP_CODE}:0",
        source="sacct, as the user",
        cause="slurmctld does not reach slurmdbd, or the database is down"
        if not there
        else "the job's record differs from what was submitted or how it ended",
        fix="sacctmgr ping; docker logs --tail 20 slurmdbd" if not there else f"sacct --jobs={job} --long",
    )
