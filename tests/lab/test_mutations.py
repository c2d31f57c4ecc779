"""Whatever is broken by hand is seen, told of by plan, and repaired by provision: that alone, and whole."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from shlex import quote
from typing import Any

import labs
import pytest
import snapshots
from mutation import Batch, Row, expected
from mutations import BATCHES

Places = set[tuple[str, str]]


def document(lab: labs.Lab, command: str, *words: str) -> dict[str, Any]:
    done = labs.clusterctl(command, lab.inventory, "--json", *words, check=False)
    assert done.stdout.strip(), done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def on_all(lab: labs.Lab, ask: Any) -> dict[str, Any]:
    """Return the answers of all machines, asked at once."""
    with ThreadPoolExecutor(len(lab.machines)) as pool:
        return dict(zip(lab.machines, pool.map(lambda machine: ask(lab, machine), lab.machines), strict=True))


STARTS = r"""
for unit in munge docker docker-registry docker-registry-write; do
    echo "$unit $(systemctl show --property=ActiveEnterTimestampMonotonic --value $unit)"
done
docker ps --all --format '{{.Names}}' | xargs -r docker inspect --format '{{.Name}} {{.State.StartedAt}}'
"""


def starts(lab: labs.Lab, machine: str) -> dict[str, str]:
    """Return since when each service and container of a machine runs."""
    lines = lab.root(machine, STARTS, check=False).splitlines()
    return {line.split()[0].lstrip("/"): line.partition(" ")[2] for line in lines}


def anew(before: dict[str, dict[str, str]], after: dict[str, dict[str, str]]) -> Places:
    """Return name and machine of what runs since another moment than before."""
    return {
        (name, machine) for machine, told in after.items() for name in told if told[name] != before[machine].get(name)
    }


def apply(lab: labs.Lab, rows: tuple[Row, ...]) -> None:
    """Break all rows, those of a machine in order."""

    def apply_on(lab: labs.Lab, machine: str) -> None:
        mine = [f"sh -ec {quote(row.how)} || echo not broken: {quote(row.what)}" for row in rows if row.on == machine]
        done = labs.run(["docker", "exec", lab.container(machine), "sh", "-c", "\n".join(mine)])
        assert "not broken: " not in done.stdout, done.stdout + done.stderr

    on_all(lab, apply_on)


def differences(rows: tuple[Row, ...], told: list[dict[str, Any]]) -> list[str]:
    """Return how what failed differs from what the rows say."""
    wanted = expected(rows)
    found = {(check["id"], check["host"]): check for check in told}
    wrong = [f"{name}@{host} is red: {found[name, host]['observed']}" for name, host in sorted(found.keys() - wanted)]
    wrong += [f"{name}@{host} is not red" for name, host in sorted(wanted.keys() - found)]
    for key in sorted(wanted.keys() & found):
        said = found[key]["observed"]
        wrong += [f"{'@'.join(key)} does not say '{words}': {said}" for words in wanted[key] if words not in said]
    return wrong


#: Roles of which a judge has a name of its own.
JUDGED_AS = {"engine": "container_engine", "images": "container_images"}


def roles(checks: Places) -> Places:
    """Return whose checks these are: role and machine."""
    return {(JUDGED_AS.get(subject := name.partition(".")[0], subject), host) for name, host in checks}


def acted(changes: list[dict[str, Any]]) -> Places:
    """Return role and machine of what a run has changed."""
    return {(change["role"], host) for change in changes for host in change["hosts"]}


@pytest.mark.parametrize("batch", BATCHES, ids=lambda batch: batch.name)
def test_what_is_broken_is_told_and_repaired_alone(provisioned_lab: labs.Lab, batch: Batch) -> None:
    lab, wrong = provisioned_lab, []
    whole, running = on_all(lab, snapshots.files), on_all(lab, starts)
    apply(lab, batch.rows)
    broken, halted = on_all(lab, snapshots.files), on_all(lab, starts)

    plan = document(lab, "plan")

    wrong += [f"plan: {line}" for line in differences(batch.rows, plan["pending_checks"])]
    if (plan["exit_code"], plan["pending"], plan["changed"]) != (0, True, 0):
        wrong.append(f"plan ended with {plan['exit_code']}, pending {plan['pending']}: {plan['failures']}")
    for machine, files in on_all(lab, snapshots.files).items():
        wrong += [f"plan changed {path} of {machine}" for path in snapshots.difference(broken[machine], files)]
    wrong += [f"plan started {name} of {host} anew" for name, host in anew(halted, on_all(lab, starts))]

    done = document(lab, "provision")

    said = {(check["id"], check["host"]) for check in plan["pending_checks"]}
    found = {(check["id"], check["host"]) for check in done["pending_checks"]}
    if said != found:
        wrong.append(f"plan and provision do not agree on {sorted(said ^ found)}")
    if done["exit_code"] != 0:
        wrong.append(f"provision ended with {done['exit_code']}: {done['failures']}")
    wrong += [f"{role} had nothing to do on {host}" for role, host in sorted(acted(done["changes"]) - roles(said))]
    broken_roles = roles({key for row in batch.rows for key in row.says if key not in row.consequences})
    wrong += [f"{role} did nothing on {host}" for role, host in sorted(broken_roles - acted(done["changes"]))]
    for machine, files in on_all(lab, snapshots.files).items():
        # Of passwd and its like, the tools that change them keep what was before.
        changed = [path for path in snapshots.difference(whole[machine], files) if not path.endswith("-")]
        wrong += [f"{path} of {machine} is not as it was" for path in changed]
    restarted = set().union(*(row.started_anew for row in batch.rows))
    for name, host in sorted(anew(running, on_all(lab, starts)) ^ restarted):
        wrong.append(f"{name} of {host} {'did not start' if (name, host) in restarted else 'was started'} anew")

    again = document(lab, "plan")

    wrong += [f"afterwards {line}" for line in differences((), again["pending_checks"])]
    assert not wrong, "\n".join(wrong)


def test_a_full_run_has_nothing_to_change_afterwards(provisioned_lab: labs.Lab) -> None:
    running = on_all(provisioned_lab, starts)

    done = document(provisioned_lab, "provision", "--full")

    assert (done["exit_code"], done["changed"], done["changes"]) == (0, 0, [])
    assert anew(running, on_all(provisioned_lab, starts)) == set()
