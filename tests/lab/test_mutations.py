"""Whatever is broken by hand is seen, told of by plan, and repaired by provision: that alone, and whole."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from shlex import quote
from typing import Any

import labs
import managed_things
import pytest
import snapshots
from mutation import Batch, Row, expected
from mutations import BATCHES, REFUSED

Places = set[tuple[str, str]]


def on_all(lab: labs.Lab, ask: Any) -> dict[str, Any]:
    """Return the answers of all machines, asked at once."""
    with ThreadPoolExecutor(len(lab.machines)) as pool:
        return dict(zip(lab.machines, pool.map(lambda machine: ask(lab, machine), lab.machines), strict=True))


STARTS = r"""
for unit in munge docker docker-registry docker-registry-write docker-registry-users docker-registry-tokens \
    clusterctl-mirror mariadb ssh; do
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


def restarts_told(checks: list[dict[str, Any]]) -> Places:
    """Return name and machine of what mending the checks starts anew, as a plan says it."""
    return {
        (one["of"], check["host"])
        for check in checks
        for one in check.get("consequences", ())
        if one["kind"] in ("restart", "replace")
    }


def apply(lab: labs.Lab, rows: tuple[Row, ...], script: Callable[[Row], str] = lambda row: row.how) -> None:
    """Break all rows, those of a machine in order."""
    # What a test before has left running would keep its account from being removed.
    left = "squeue --noheader --format=%A | xargs --no-run-if-empty scancel"
    lab.root(
        "head", f'{left}; for _ in $(seq 60); do [ -n "$(squeue --noheader)" ] || break; sleep 1; done', check=False
    )

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


def roles(checks: Places) -> Places:
    """Return whose checks these are: role and machine."""
    return {(JUDGED_AS.get(subject := name.partition(".")[0], subject), host) for name, host in checks}


def seen_by_verify(lab: labs.Lab, rows: tuple[Row, ...]) -> list[str]:
    """Return how what verify says differs from what the rows say."""
    told = labs.document(lab.inventory, "verify")
    bad = [check for check in told["checks"] if check["verdict"] in ("fail", "unknown") and not check["follows"]]
    ended = (told["exit_code"], told["verdict"])
    return [*differences(rows, bad), *([] if ended == (8, "fail") else [f"it ended with {ended}"])]


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
    acted = {(change["role"], host) for change in done["changes"] for host in change["hosts"]}
    wrong += [f"{role} had nothing to do on {host}" for role, host in sorted(acted - roles(said))]
    own = {key for row in rows for key in row.says if key not in row.consequences}
    wrong += [f"{role} did nothing on {host}" for role, host in sorted(roles(own) - acted)]
    felt = {(name, host) for name, host in anew(halted, on_all(lab, starts)) if name in halted[host]}
    wrong += [
        f"{name} of {host} was started anew, which plan did not say"
        for name, host in sorted(felt - restarts_told(plan["pending_checks"]))
    ]
    # What follows, if not alone, may be gone when its cause is: nobody knows before.
    own -= {key for row in rows for key in row.consequences}
    told = restarts_told([check for check in plan["pending_checks"] if (check["id"], check["host"]) in own])
    return wrong + [f"{name} of {host} was not started anew, as plan said" for name, host in sorted(told - felt)]


# Beside other tests, on a busy computer, all roles take that long to repair fifty things on four machines.
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "batch",
    [pytest.param(batch, id=batch.name, marks=[pytest.mark.faults] if batch.rare else []) for batch in BATCHES],
)
def test_what_is_broken_is_told_and_repaired_alone(provisioned_lab: labs.Lab, batch: Batch) -> None:
    lab, rows, wrong = provisioned_lab, (*batch.verified, *batch.rows), []
    look = snapshots.wide if batch.rare else snapshots.files
    whole, running = on_all(lab, look), on_all(lab, starts)

    apply(lab, batch.verified)
    if batch.verified:
        wrong += [f"verify: {line}" for line in seen_by_verify(lab, batch.verified)]
    apply(lab, batch.rows)
    plan, missed = told_by_plan(lab, rows)
    wrong += [f"plan: {line}" for line in missed]
    wrong += [f"provision: {line}" for line in done_by_provision(lab, rows, plan)]

    for machine, files in on_all(lab, look).items():
        wrong += [f"{path} of {machine} is not as it was" for path in snapshots.difference(whole[machine], files)]
    restarted = {key for row in rows for key in row.started_anew}
    for name, host in sorted(anew(running, on_all(lab, starts)) ^ restarted):
        wrong.append(f"{name} of {host} was {'not ' if (name, host) in restarted else ''}started anew")
    # What were left would be told by the plan of the next batch, and by the full run after the last.
    assert not wrong, "\n".join(wrong)


def test_what_only_a_person_can_mend_is_refused_and_nothing_is_done(provisioned_lab: labs.Lab) -> None:
    lab = provisioned_lab
    apply(lab, REFUSED)
    try:
        broken, running = on_all(lab, snapshots.files), on_all(lab, starts)

        done = labs.document(lab.inventory, "provision")

        refused = [check for check in done["checks"] if check["verdict"] in ("fail", "unknown")]
        assert differences(REFUSED, refused) == []
        assert (done["exit_code"], done["changed"]) == (3, 0), done["failures"]
        assert {
            name: snapshots.difference(broken[name], files) for name, files in on_all(lab, snapshots.files).items()
        } == {machine: [] for machine in lab.machines}
        assert anew(running, on_all(lab, starts)) == set()
    finally:
        apply(lab, REFUSED, lambda row: row.undo)


#: After which batches there is nothing left: those of every day, and, at night, the rare ones.
@pytest.mark.parametrize("after", ["every day", pytest.param("the rare ones", marks=pytest.mark.faults)])
def test_a_full_run_has_nothing_to_change_afterwards(provisioned_lab: labs.Lab, after: str) -> None:
    running = on_all(provisioned_lab, starts)

    done = labs.document(provisioned_lab.inventory, "provision", "--full")

    assert (done["exit_code"], done["changed"], done["changes"]) == (0, 0, [])
    assert anew(running, on_all(provisioned_lab, starts)) == set()


#: Ways to spoil a file, what a check says of it then, and whether it is one of those with a text that is compared.
EVERYWHERE = {
    "text": ("echo '# by hand' >>{path}", "has another text", True),
    "mode": ("chmod 0601 {path}", "has mode 0601, not", False),
    "owner": ("chown nobody {path}", "has owner nobody, not", False),
    "gone": ("rm {path}", "is absent", False),
}


# Each has all roles work on all machines for minutes; the rows of every day break each file in one of these ways.
@pytest.mark.faults
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("way", EVERYWHERE)
def test_all_files_of_all_machines_are_told_and_repaired_at_once(provisioned_lab: labs.Lab, way: str) -> None:
    lab, (how, says, of_texts) = provisioned_lab, EVERYWHERE[way]
    whole, wrong = on_all(lab, snapshots.wide), []
    managed = {
        machine: {role: [path for path, text in paths.items() if text or not of_texts] for role, paths in told.items()}
        for machine, told in managed_things.files(lab.inventory).items()
    }
    for machine, told in managed.items():
        lab.root(machine, "\n".join(how.format(path=quote(path)) for paths in told.values() for path in paths))

    plan = labs.document(lab.inventory, "plan")
    done = labs.document(lab.inventory, "provision")

    observed = {(check["id"], check["host"]): check["observed"] for check in plan["pending_checks"]}
    for machine, told in managed.items():
        for role, paths in ((role, paths) for role, paths in told.items() if paths):
            said = observed.get((f"{role}.files", machine), "nothing")
            # A check names some things and counts the others.
            counted = re.search(r"; and (\d+) more$", said)
            if sum(f"{path} {says}" in said for path in paths) + int(counted[1] if counted else 0) != len(paths):
                wrong.append(f"{role}.files@{machine} does not tell {paths}: {said}")
    wrong += without_a_diff(plan) if of_texts else []
    if done["exit_code"] != 0:
        wrong.append(f"provision ended with {done['exit_code']}: {done['failures']}")
    for machine, files in on_all(lab, snapshots.wide).items():
        wrong += [f"{path} of {machine} is not as it was" for path in snapshots.difference(whole[machine], files)]
    left = labs.document(lab.inventory, "plan")["pending_checks"]
    wrong += [f"{check['id']}@{check['host']} is red still: {check['observed']}" for check in left]
    assert not wrong, "\n".join(wrong)
