"""Do jobs run on every node, see the GPU they asked for, tell their exit code, leave nothing? Pure judgement."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from provision.judge import job_containers, job_storage
from provision.judge.answers import mapping
from provision.judge.slurm_answers import line, pairs
from provision.judge.slurm_daemons import enough, limit
from provision.judge.slurm_facts import Wants, containers
from provision.model.checks import Check, Level, Subject, Verdict
from provision.model.gres import gpus
from provision.model.text import sections

SUBJECT = Subject(
    "job",
    ("run", "exit_code", "memlock", "gpu", "gpu_isolation", "cancel", *job_containers.NAMES, *job_storage.NAMES),
    fix="docker logs --tail 20 slurmd on the node; then clusterctl provision slurm",
    level=Level.JOB,
)

#: What the test job ends with, and what must therefore reach the caller.
EXIT_CODE = 7
#: Slurm's reasons for a job that waits its turn: others use what it needs. Any other reason is worth a look.
_TURN = frozenset({"Resources", "Priority"})


@dataclass(frozen=True)
class JobFacts:
    """What is known of one node's jobs.

    ``printed`` is what the script printed for all nodes, ``problem`` why it printed nothing; ``left`` what was found on
    the node afterwards; ``planned`` is :meth:`provision.judge.job_plan.Plan.as_dict`; ``machine`` what the node's own
    script printed about its containers.
    """

    printed: str = ""
    problem: str = ""
    left: str = ""
    planned: Mapping[str, Any] = field(default_factory=dict)
    machine: str = ""

    def said(self, name: str) -> dict[str, str]:
        """Return what the script printed about one node's jobs."""
        return said(self.printed, name)


def said(text: str, name: str) -> dict[str, str]:
    """Return what the script printed about one node: ``ran``, ``exit``, ``job``, ``container``, ``gone``, ``text``, ...

    Each of its lines begins with the node's name, so that a job cannot speak for another node than its own.
    """
    lines = re.findall(rf"(?m)^{re.escape(name)}\| (.*)$", text)
    found = {"text": "\n".join(line(one) for one in lines[:200])} if lines else {}
    for key, pattern in (
        ("ran", r"^ran (.*)$"),
        ("exit", r"^exit (\d{1,3})$"),
        ("wrote", r"^wrote ?(.*)$"),
        ("waits", r"^waits (\S.*)$"),
        ("hung", r"^hung after (\d{1,6})$"),
        ("job", r"^ready job=(\d{1,10}) "),
        ("container", r"^ready .*container=(\S+)$"),
        ("inside", r"^inside (.*)$"),
        ("contained", r"^contained (\d{1,3})$"),
        ("gone", r"^gone after (\d{1,6})$"),
        ("stuck", r"^still (\S.*)$"),
    ):
        if match := re.search(pattern, found.get("text", ""), re.M):
            found[key] = match[1]
    return found


def unfit(planned: Mapping[str, Any], printed: str, name: str) -> str:
    """Return why a node can take part in no other job, by what became of its own; empty where it can.

    ``planned`` is what was to be tried, by node. A node that is only busy, or not for the test user, is none. One of
    which nothing was planned was lost before that, and Slurm has not noticed yet.
    """
    if planned and name not in planned:
        return "it was lost in this run"
    own = mapping(planned.get(name))
    if refused := line(str(own.get("refused") or "")):
        return "" if own.get("ordinary") else refused
    found = said(printed, name)
    return "" if not found or "ran" in found else "its own job did not run (job.run)"


def checks(facts: JobFacts, wants: Wants, *, cgroup_version: int, uid: int) -> list[Check]:
    """Return the checks of one machine's jobs; ``uid`` is the test user's."""
    if not wants.compute:
        return SUBJECT.all_skipped("no jobs run on this machine")
    found = facts.said(wants.host)
    if "ran" not in found:
        first = _did_not_run(found, facts)
        rest = [SUBJECT.skip(name, "no job ran on the node", unproven=True) for name in SUBJECT.names[1:]]
        return [first, *rest]
    seen = pairs(found["ran"])
    return [
        _ran(seen, wants.host, str(uid)),
        _exit_code(found),
        _memlock(seen, facts, wants),
        *_gpus(seen, facts, wants, cgroup_version),
        _cancel(found, facts.left),
        job_containers.check(SUBJECT, found, wants.containers, str(uid)),
        *job_storage.checks(SUBJECT, seen, found.get("wrote"), facts.machine, wants),
    ]


def _did_not_run(found: Mapping[str, str], facts: JobFacts) -> Check:
    refused = line(str(facts.planned.get("refused") or ""))
    if refused and facts.planned.get("ordinary"):
        return SUBJECT.skip("run", f"no job was submitted: {refused}", unproven=True)
    if refused:
        return SUBJECT.unknown("run", f"no job was submitted: {refused}", cause=refused, fix="")
    if not found:
        why = line(facts.problem) or "the time limit for all jobs was reached, or the controller did not answer"
        return SUBJECT.unknown("run", f"no job was submitted: {why}", cause=why)
    if "waits" in found:
        return _waited(found["waits"], facts)
    lines = [one for one in found["text"].splitlines() if one.strip() and not re.match(r"exit \d+$|hung ", one)]
    errors = [one for one in lines if "error:" in one] or lines
    hung = f"the job's program did not end after {found['hung']} s" if "hung" in found else ""
    return SUBJECT.check(
        "run",
        False,
        hung or (errors[-1] if errors else "srun said nothing")[:200],
        "a job runs on the node",
        source="srun",
        cause="slurmd started no program, or never heard of its end" if hung else _no_program(found["text"]),
        fix="docker logs --tail 20 slurmd on the node",
    )


def _no_program(text: str) -> str:
    """Return why srun ended and no program had begun, by its own words."""
    if re.search(r"Unable to allocate resources|allocation failure|(?:submission|allocate) failed", text):
        return "Slurm refused the job"
    if "Communication connection failure" in text:
        return "the controller could not connect to slurmd: a firewall or a route between them, or slurmd ended"
    if re.search(r"step aborted|step creation|Task launch|Timed out waiting|Socket timed out", text):
        return "Slurm accepted the job, and the node did not start it"
    return "srun ended before the job's program began"


def _waited(words: str, facts: JobFacts) -> Check:
    """Judge a job that did not start in time, by the reason that Slurm gives for it: ``ID STATE REASON``."""
    _, state, reason = (*words.split(), "", "", "")[:3]
    jobs = ", ".join(line(str(job)) for job in list(facts.planned.get("holders") or ())[:5])
    if state == "PENDING" and reason in _TURN and jobs:
        return SUBJECT.skip("run", f"the job waits for {jobs}: {reason}", unproven=True)
    started = state in ("RUNNING", "CONFIGURING", "COMPLETING")
    return SUBJECT.check(
        "run",
        Verdict.FAIL if started else Verdict.UNKNOWN,
        f"the job is {state or 'not in the queue'}" + (f": {reason}" if reason not in ("", "None") else ""),
        "a job runs on the node",
        source="squeue, after slurm_service_job_wait",
        cause="slurmctld started the job, and its program never began"
        if started
        else f"Slurm says {reason or 'no reason'}",
        fix="docker logs --tail 20 slurmd on the node"
        if started
        else "scontrol show job; man squeue explains the reason",
    )


def _ran(seen: Mapping[str, str], name: str, uid: str) -> Check:
    return SUBJECT.check(
        "run",
        seen.get("node") == name and seen.get("uid") == uid,
        f"ran on {seen.get('node')} as uid {seen.get('uid')}",
        f"runs on {name} as uid {uid}",
        source="srun, as an ordinary user",
        cause="the job ran elsewhere or as another user",
        fix="clusterctl provision slurm",
    )


def _exit_code(found: Mapping[str, str]) -> Check:
    code = found.get("exit", "")
    if "hung" in found:
        return SUBJECT.check(
            "exit_code",
            False,
            f"srun did not end after {found['hung']} s",
            str(EXIT_CODE),
            source="the task's own exit code",
            cause="the end of the job's program did not reach slurmctld",
        )
    return SUBJECT.check(
        "exit_code",
        Verdict.UNKNOWN if not code else Verdict.PASS if code == str(EXIT_CODE) else Verdict.FAIL,
        code or "srun returned none",
        str(EXIT_CODE),
        source="the task's own exit code",
        cause="Slurm would report a failed job as completed, or the reverse",
    )


def _memlock(seen: Mapping[str, str], facts: JobFacts, wants: Wants) -> Check:
    """Compare the job's own limit, which is in KiB, with what jobs are to have."""
    text = seen.get("memlock", "")
    if text != "unlimited" and not re.fullmatch(r"[0-9]{1,15}", text):
        return SUBJECT.unknown("memlock", f"the job said {text or 'nothing'}")
    value = -1 if text == "unlimited" else int(text) * 1024
    slurmd = containers(sections(facts.machine).get("containers", "")).get("slurmd")
    right = enough(value, wants.memlock)
    if not right and slurmd and slurmd.memlock is None:
        return SUBJECT.skip("memlock", f"{limit(value)}, the machine's own limit, which slurm.memlock judges")
    return SUBJECT.check(
        "memlock",
        right,
        limit(value),
        limit(wants.memlock),
        source="slurm_service_memlock; ulimit -l in the job",
        cause="the submitter's limit was handed to the job (PropagateResourceLimits), or slurmd's own is lower",
        fix="scontrol show config | grep -i Propagate; then clusterctl provision slurm",
    )


def _gpus(seen: Mapping[str, str], facts: JobFacts, wants: Wants, cgroup_version: int) -> list[Check]:
    names = ("gpu", "gpu_isolation")
    try:
        declared = gpus(wants.gres)
    except ValueError as error:
        return [SUBJECT.unknown(name, f"node_gres cannot be read: {error}", fix="correct node_gres") for name in names]
    if not declared:
        return [SUBJECT.skip(name, "the node declares no GPUs") for name in names]
    if why := line(str(facts.planned.get("without_gpu") or "")):
        return [SUBJECT.skip(name, why, unproven=True) for name in names]
    simulated = "gpu" in wants.simulated
    shown = [part for part in seen.get("gpus", "").split(",") if part]
    gpu = SUBJECT.check(
        "gpu",
        len(shown) == 1 and shown != ["NoDevFiles"],
        f"CUDA_VISIBLE_DEVICES={seen.get('gpus', '')}",
        "one GPU for a job that asked for one",
        source="--gres=gpu:1",
        cause="gres.conf does not fit the node's devices",
        fix="clusterctl provision slurm",
        simulated=simulated,
    )
    return [gpu, _isolation(seen, cgroup_version, simulated)]


def _isolation(seen: Mapping[str, str], cgroup_version: int, simulated: bool) -> Check:
    if simulated:
        why = "the GPUs are simulated: nothing can be opened"
        return SUBJECT.check("gpu_isolation", Verdict.SKIP, why, simulated=True)
    if cgroup_version < 2:
        return SUBJECT.skip("gpu_isolation", "cgroup v1 cannot confine devices here", unproven=True)
    opened = seen.get("opened", "")
    return SUBJECT.check(
        "gpu_isolation",
        opened == "1",
        f"{opened or 'no'} GPUs can be opened",
        "the job can open one GPU and no other",
        source="opening /dev/nvidia* in the job",
        cause="ConstrainDevices is off, or gres.conf names no device files",
        fix="clusterctl provision slurm",
    )


def _cancel(found: Mapping[str, str], left: str) -> Check:
    """Judge what a cancelled job left: nothing, and soon."""
    lines = left[:100_000].split("\n")
    remaining = [line(one) for one in lines if one.startswith(("process ", "container "))]
    container = found.get("container", "none")
    cause = "processes escaped the job; the Epilog did not run, or there was no image to start a container from"
    if "stuck" in found:
        verdict, observed = Verdict.FAIL, f"still {found['stuck']} after scancel"
        cause = "the job's processes cannot be ended, or its Epilog hangs"
    elif remaining:
        verdict, observed = Verdict.FAIL, "; ".join(remaining[:5])
    elif "job" not in found or "gone" not in found or "looked" not in lines:
        last = found.get("text", "").splitlines()[-1:] or ["the job did not start"]
        verdict, observed = Verdict.UNKNOWN, f"no cancelled job could be looked at: {last[0]}"[:200]
    elif container in ("none", "failed"):
        why = "the node's store has no image" if container == "none" else "podman started no container"
        verdict, observed = Verdict.UNKNOWN, f"no process is left; no container was tried: {why}"
    else:
        verdict, observed = Verdict.PASS, f"gone after {found['gone']} s, nothing is left"
    return SUBJECT.check(
        "cancel",
        verdict,
        observed,
        "no process and no container of a cancelled job remains",
        source="squeue; /proc and the job's storage on the node, after scancel",
        cause=cause,
        fix="scontrol show config | grep Epilog; docker logs --tail 20 slurmd on the node",
    )
