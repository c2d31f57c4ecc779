"""What is broken by hand is seen, told of and mended: how tests break machines, and compare what they are told."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from shlex import quote
from typing import Any

import labs
import snapshots
from mutation import Row, expected

Places = set[tuple[str, str]]

OTHER_KEY = (
    "cp -p /etc/munge/munge.key /root/munge.key && dd if=/dev/urandom of=/etc/munge/munge.key bs=1024 count=1"
    " && systemctl restart munge"
)
OWN_KEY = "cp -p /root/munge.key /etc/munge/munge.key && rm /root/munge.key && systemctl restart munge"

#: A job that cannot start is waited for; where it never will, not for long.
NO_WAIT = ("-e", "ddp_validation_start_timeout=10")


def on_all(lab: labs.Lab, ask: Any) -> dict[str, Any]:
    """Return the answers of all machines, asked at once."""
    with ThreadPoolExecutor(len(lab.machines)) as pool:
        return dict(zip(lab.machines, pool.map(lambda machine: ask(lab, machine), lab.machines), strict=True))


STARTS = r"""
for unit in munge docker docker-registry docker-registry-write clusterctl-mirror mariadb ssh; do
    if systemctl is-active --quiet $unit; then
        echo "$unit $(systemctl show --property=ActiveEnterTimestampMonotonic --value $unit)"
    fi
done
docker ps --all --format '{{.Names}}' |
    xargs -r docker inspect --format '{{.Name}} {{if .State.Running}}{{.State.StartedAt}}{{end}}'
"""


def starts(lab: labs.Lab, machine: str) -> dict[str, str]:
    """Return since when each service and container of a machine runs; of one that does not, nothing."""
    lines = [line.split() for line in lab.root(machine, STARTS, check=False).splitlines()]
    return {line[0].lstrip("/"): line[1] for line in lines if len(line) == 2}


def anew(before: dict[str, dict[str, str]], after: dict[str, dict[str, str]]) -> Places:
    """Return name and machine of what runs since another moment than before."""
    return {
        (name, machine) for machine, told in after.items() for name in told if told[name] != before[machine].get(name)
    }


#: Daemons that may start anew by themselves: sackd does, where slurmctld has forgotten it while it was replaced.
BY_THEMSELVES = {"sackd"}


def restarts_told(checks: list[dict[str, Any]]) -> Places:
    """Return name and machine of what mending the checks starts anew, as a plan says it."""
    return {
        (one["of"], check["host"])
        for check in checks
        for one in check.get("consequences", ())
        if one["kind"] in ("restart", "replace")
    }


def no_jobs(lab: labs.Lab) -> None:
    """End all jobs, and wait until they are gone: one that is left would keep its account from being removed."""
    lab.root("head", "squeue --noheader --format=%A | sort -u | xargs --no-run-if-empty scancel --full")
    labs.until(lambda: not lab.root("head", "squeue --noheader"), lambda: lab.root("head", "squeue --all"))


def apply(lab: labs.Lab, rows: tuple[Row, ...], script: Callable[[Row], str] = lambda row: row.how) -> None:
    """Break all rows, those of a machine in order."""

    def apply_on(lab: labs.Lab, machine: str) -> None:
        mine = [f"sh -ec {quote(script(row))} || echo not done: {quote(row.what)}" for row in rows if row.on == machine]
        done = labs.run(["docker", "exec", lab.container(machine), "sh", "-c", "\n".join(mine)])
        assert "not done: " not in done.stdout, done.stdout + done.stderr

    on_all(lab, apply_on)


def differences(rows: tuple[Row, ...], told: list[dict[str, Any]]) -> list[str]:
    """Return how what failed differs from what the rows say."""
    wanted = expected(rows)
    found = {(check["id"], check["host"]): check for check in told}
    wrong = [f"{name}@{host} is red: {found[name, host]['observed']}" for name, host in sorted(found.keys() - wanted)]
    wrong += [f"{name}@{host} is not red" for name, host in sorted(wanted.keys() - found)]
    for key in sorted(wanted.keys() & found):
        said = found[key]["observed"]
        unsaid = [words for words in wanted[key] if words not in said]
        # A check names some things and counts the others; each is seen to be as it was, in the end.
        counted = re.search(r"; and (\d+) more$", said)
        if len(unsaid) > (int(counted[1]) if counted else 0):
            wrong += [f"{'@'.join(key)} does not say '{words}': {said}" for words in unsaid]
    return wrong


def unexplained(rows: tuple[Row, ...], pending: list[dict[str, Any]]) -> list[str]:
    """Return what only follows, by the rows, and does not name a check of such a row as its cause."""
    causes: dict[tuple[str, str], set[str]] = {}
    for row in rows:
        for key in row.consequences:
            own = {"@".join(one) for one in row.says if one not in row.consequences}
            causes.setdefault(key, set()).update(own)
    stands = {key for row in rows for key in row.says if key not in row.consequences}
    wrong = []
    for check in pending:
        key, named = (check["id"], check["host"]), set(check["follows"])
        if key in stands - causes.keys() and named:
            wrong.append(f"{'@'.join(key)} stands for itself, but follows {named}")
        if key in causes.keys() - stands and not named & causes[key]:
            wrong.append(f"{'@'.join(key)} follows {named or 'nothing'}, not one of {causes[key]}")
    return wrong


#: Roles of which a judge has a name of its own.
JUDGED_AS = {"engine": "container_engine", "images": "container_images"}
#: A role that others include. What it changes they are judged for, and they act, too.
INCLUDED = {"shared_key"}


def roles(checks: Places) -> Places:
    """Return whose checks these are: role and machine."""
    return {(JUDGED_AS.get(subject := name.partition(".")[0], subject), host) for name, host in checks}


@contextmanager
def broken(lab: labs.Lab, machine: str, how: str, repair: str) -> Iterator[None]:
    """Break a machine, and repair it after the block."""
    lab.root(machine, how)
    try:
        yield
    finally:
        lab.root(machine, repair)


def verified(lab: labs.Lab, *words: str) -> tuple[int, dict[str, Any]]:
    """Return the exit code of a verify, and its document."""
    done = labs.clusterctl("verify", lab.inventory, "--json", *words, check=False)
    assert done.stdout.strip(), done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, document


def bad(document: dict[str, Any]) -> dict[str, set[str]]:
    """Return the hosts of each check that is neither pass, warn nor skip."""
    found: dict[str, set[str]] = {}
    for check in document["checks"]:
        if check["verdict"] in ("fail", "unknown"):
            found.setdefault(check["id"], set()).add(check["host"])
    return found


def seen_by_verify(lab: labs.Lab, rows: tuple[Row, ...]) -> list[str]:
    """Return how what verify says differs from what the rows say."""
    told = labs.document(lab.inventory, "verify")
    wrong = [check for check in told["checks"] if check["verdict"] in ("fail", "unknown") and not check["follows"]]
    ended = (told["exit_code"], told["verdict"])
    return [*differences(rows, wrong), *([] if ended == (8, "fail") else [f"it ended with {ended}"])]


#: What is wrong with a file in the words of a check: its text, perhaps beside its mode and owner.
_ANOTHER_TEXT = re.compile(r"(?:^|; )(/\S+) has another text")


def without_a_diff(plan: dict[str, Any]) -> list[str]:
    """Return the files of which a check says that they have another text, and plan does not show in what they differ.

    Of a program it says how many lines it has; a secret is never shown.
    """
    shown = {(host, diff["path"]) for diff in plan["diffs"] for host in diff["hosts"]}
    told = {
        (check["host"], path) for check in plan["pending_checks"] for path in _ANOTHER_TEXT.findall(check["observed"])
    }
    return [
        f"it does not show how {path} of {host} differs"
        for host, path in sorted(told - shown)
        if not path.endswith(snapshots.SECRET)
    ]


def told_by_plan(lab: labs.Lab, rows: tuple[Row, ...]) -> tuple[dict[str, Any], list[str]]:
    """Return what plan says, and how that differs from what the rows say, or what plan has started."""
    running = on_all(lab, starts)
    plan = labs.document(lab.inventory, "plan")
    wrong = differences(rows, plan["pending_checks"]) + unexplained(rows, plan["pending_checks"]) + without_a_diff(plan)
    if (plan["exit_code"], plan["pending"], plan["changed"]) != (0, bool(rows), 0):
        wrong.append(f"it ended with {plan['exit_code']}, pending {plan['pending']}: {plan['failures']}")
    return plan, wrong + [f"it started {name} of {host} anew" for name, host in anew(running, on_all(lab, starts))]


def done_by_provision(lab: labs.Lab, rows: tuple[Row, ...], plan: dict[str, Any]) -> list[str]:
    """Return how what provision does differs from what plan has said, by the roles that change something."""
    halted = on_all(lab, starts)
    done = labs.document(lab.inventory, "provision")
    said, found = ({(check["id"], check["host"]) for check in told["pending_checks"]} for told in (plan, done))
    wrong = [f"plan and it do not agree on {'@'.join(key)}" for key in sorted(said ^ found)]
    if done["exit_code"] != 0:
        wrong.append(f"it ended with {done['exit_code']}: {done['failures']}")
    changes = [change for change in done["changes"] if change["role"] not in INCLUDED]
    acted = {(change["role"], host) for change in changes for host in change["hosts"]}
    wrong += [f"{role} had nothing to do on {host}" for role, host in sorted(acted - roles(said))]
    own = {key for row in rows for key in row.says if key not in row.consequences}
    wrong += [f"{role} did nothing on {host}" for role, host in sorted(roles(own) - acted)]
    felt = {(name, host) for name, host in anew(halted, on_all(lab, starts)) if name in halted[host]}
    wrong += [
        f"{name} of {host} was started anew, which plan did not say"
        for name, host in sorted(felt - restarts_told(plan["pending_checks"]))
        if name not in BY_THEMSELVES
    ]
    # What follows, if not alone, may be gone when its cause is: nobody knows before.
    own -= {key for row in rows for key in row.consequences}
    told = restarts_told([check for check in plan["pending_checks"] if (check["id"], check["host"]) in own])
    return wrong + [f"{name} of {host} was not started anew, as plan said" for name, host in sorted(told - felt)]
