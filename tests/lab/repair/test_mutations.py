"""Whatever is broken by hand is seen, told of by plan, and repaired by provision: that alone, and whole."""

from __future__ import annotations

import re
from shlex import quote

import labs
import managed_things
import pytest
import snapshots
from breaking import (
    BY_THEMSELVES,
    anew,
    apply,
    differences,
    done_by_provision,
    no_jobs,
    on_all,
    seen_by_verify,
    starts,
    told_by_plan,
    without_a_diff,
)
from mutation import Batch
from mutations import BATCHES, REFUSED


# Beside other tests, on a busy computer, all roles take that long to repair fifty things on four machines.
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "batch",
    [pytest.param(batch, id=batch.name, marks=[pytest.mark.night] if batch.rare else []) for batch in BATCHES],
)
def test_what_is_broken_is_told_and_repaired_alone(provisioned_lab: labs.Lab, batch: Batch) -> None:
    lab, rows, wrong = provisioned_lab, (*batch.verified, *batch.rows), []
    look = snapshots.wide if batch.rare else snapshots.files
    whole, running = on_all(lab, look), on_all(lab, starts)

    no_jobs(lab)
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
        if name not in BY_THEMSELVES:
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
@pytest.mark.parametrize("after", ["every day", pytest.param("the rare ones", marks=pytest.mark.night)])
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
@pytest.mark.night
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
