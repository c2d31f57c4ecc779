"""Do Slurm's daemons run, answer, and run with what was built and written? Pure judgement of one machine's answers."""

from __future__ import annotations

import re

from provision.judge.slurm_answers import line
from provision.judge.slurm_facts import Facts, Wants, answered
from provision.model.checks import Check, Subject, Verdict

SUBJECT = Subject(
    "slurm",
    ("daemons", "answers", "configuration", "version", "memlock"),
    fix="clusterctl provision slurm",
)


def checks(facts: Facts, wants: Wants) -> list[Check]:
    """Return the checks of one machine's daemons."""
    if not wants.daemons:
        return SUBJECT.all_skipped("none of Slurm's daemons belongs on this machine")
    return [
        _daemons(facts, wants),
        _answers(facts, wants),
        _configuration(facts, wants),
        _version(facts, wants),
        _memlock(facts, wants),
    ]


def _daemons(facts: Facts, wants: Wants) -> Check:
    names = " and ".join(wants.daemons)
    if silent := facts.engine_silent:
        return SUBJECT.unknown(
            "daemons", silent, cause="the container engine does not answer", fix="systemctl status docker"
        )
    wrong = [trouble for name in wants.daemons if (trouble := facts.trouble(name))]
    images = {name: facts.containers[name].image for name in wants.daemons if name in facts.containers}
    wrong += [f"{name} runs another image" for name, image in images.items() if wants.image and image != wants.image]
    expected = f"{names} running from the image that was built"
    if not wrong and not wants.image:
        return SUBJECT.unknown(
            "daemons",
            f"{names} running; which image was built is not known",
            cause=facts.silent or "the registry lost the image, or it was never built",
        )
    return SUBJECT.check(
        "daemons",
        not wrong,
        "; ".join(wrong) or f"{names} running",
        expected,
        source="slurm_service",
        cause="the container was stopped or paused, keeps failing, or was left from an earlier image",
        fix=f"docker ps --all; docker logs --tail 20 {wants.daemons[0]}; then clusterctl provision slurm",
    )


def _answers(facts: Facts, wants: Wants) -> Check:
    silent = {}
    if wants.compute and (why := facts.slurmd_silent):
        silent["slurmd"] = why
    if wants.controller and facts.silent:
        silent["slurmctld"] = facts.trouble("slurmctld") or facts.silent
    daemon = next(iter(silent), "")
    # A daemon whose container does not run is silent for that; every other one, where munge does not work, for munge.
    if facts.munge_broken and silent and not any(facts.trouble(name) for name in silent):
        return SUBJECT.unknown(
            "answers",
            "; ".join(silent.values()),
            cause="munge does not work on this machine",
            fix="systemctl status munge; then clusterctl provision munge",
        )
    return SUBJECT.check(
        "answers",
        Verdict.PASS if not silent else Verdict.UNKNOWN if facts.engine_silent else Verdict.FAIL,
        "; ".join(silent.values()) or f"{' and '.join(wants.daemons)} answered",
        f"{' and '.join(wants.daemons)} answer on their own machine",
        source="scontrol, inside the daemon's container",
        cause=f"{daemon} is stopped, paused or hung",
        fix=f"docker ps --all; docker logs --tail 20 {daemon}; docker restart {daemon}",
    )


def _configuration(facts: Facts, wants: Wants) -> Check:
    """Compare what daemons run with: slurmd's fetched files, and slurmctld's own word about its file."""
    wrong, missing = [], []
    if wants.controller:
        said = re.search(r"(?m)^HASH_VAL\s*=\s*(\S.*)$", facts.controller.get("config", ""))
        if not said:
            missing.append("slurmctld did not say which configuration it runs with")
        elif said[1].strip() != "Match":
            wrong.append("slurmctld runs with another slurm.conf than the one on disk")
    if wants.compute:
        fetched, written = _sums(facts.machine.get("files", "")), _sums(facts.controller.get("files", ""))
        if not fetched:
            missing.append("slurmd has fetched no configuration, or it could not be read")
        elif not written:
            missing.append(facts.silent or "the controller's files could not be read")
        elif changed := sorted(name for name in written if written[name] != fetched.get(name)):
            wrong.append(f"slurmd runs with another {', '.join(changed)} than the controller's")
    return SUBJECT.check(
        "configuration",
        Verdict.FAIL if wrong else Verdict.UNKNOWN if missing else Verdict.PASS,
        "; ".join(wrong or missing) or "as on the controller's disk",
        "daemons run with the files on the controller's disk",
        source="checksums of slurmd's copies; scontrol show config",
        cause="the files changed, and the daemons have not read them again" if wrong else facts.silent,
    )


def _sums(text: str) -> dict[str, str]:
    return {
        name: digest for digest, name in re.findall(r"(?m)^([0-9a-f]{40}) [ *](?:\S*/)?([A-Za-z0-9_.-]+\.conf)$", text)
    }


def _version(facts: Facts, wants: Wants) -> Check:
    """Compare the release that each daemon says of itself."""
    seen, silent = {}, []
    own, _ = answered(facts.machine.get("slurmd", ""))
    for daemon, text, pattern in (
        ("slurmd", own, r"(?m)^Version\s*=\s*(\S+)$"),
        ("slurmctld", facts.controller.get("config", ""), r"(?m)^SLURM_VERSION\s*=\s*(\S+)$"),
    ):
        if daemon in wants.daemons:
            found = re.search(pattern, text)
            if found:
                seen[daemon] = line(found[1])[:40]
            else:
                silent.append(f"{daemon} did not say its version")
    wrong = [daemon for daemon, version in seen.items() if not version.startswith(f"{wants.version}.")]
    return SUBJECT.check(
        "version",
        Verdict.FAIL if wrong else Verdict.UNKNOWN if silent else Verdict.PASS,
        "; ".join([*(f"{daemon} {version}" for daemon, version in seen.items()), *silent]),
        f"{wants.version}.x",
        source="slurm_version",
        cause="the daemon runs from another image than slurm_version asks for"
        if wrong
        else "the daemon does not answer",
    )


def _memlock(facts: Facts, wants: Wants) -> Check:
    """Judge whether slurmd may give jobs the locked memory that RDMA needs."""
    if not wants.compute:
        return SUBJECT.skip("memlock", "no jobs run on this machine")
    slurmd = facts.containers.get("slurmd")
    if slurmd is None:
        return SUBJECT.unknown("memlock", facts.trouble("slurmd"))
    expected = limit(wants.memlock)
    if slurmd.memlock is None:
        return SUBJECT.check(
            "memlock",
            Verdict.WARN,
            "the machine's own limit",
            expected,
            source="slurm_service_memlock",
            cause="the machine lacks CAP_SYS_RESOURCE, as containers do",
            fix="simulated machines need no fix; do not run a real machine in a container",
        )
    soft, hard = slurmd.memlock
    return SUBJECT.check(
        "memlock",
        all(enough(value, wants.memlock) for value in (soft, hard)),
        limit(min(soft, hard) if min(soft, hard) >= 0 else max(soft, hard)),
        expected,
        source="slurm_service_memlock",
        cause="slurmd's container was started with another limit",
    )


def enough(bytes_: int, wanted: int) -> bool:
    """Tell whether a limit is as high as wanted; negative is without limit."""
    return bytes_ < 0 or 0 <= wanted <= bytes_


def limit(bytes_: int) -> str:
    """Return a limit for people."""
    return "unlimited" if bytes_ < 0 else f"{bytes_} bytes"
