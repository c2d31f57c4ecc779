"""One run at a time changes the cluster: what the lease on the controller says, who may take it, and who is told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleConnectionFailure
from machines import act, plugin

from provision.events.fold import RunReport
from provision.judge.lease import BOUND, LONGEST, Answer, Lease, answer, holder, lease_from, refusal
from provision.runner.process import gone, named

ADA = Lease(
    run="20261128-140200-0001abcd", user="ada", host="desk", directory="/srv/ada", command="clusterctl provision gpu",
    process="boot:4026531836:7:9", since=1_795_874_520, renewed=1_795_874_700, bound=7440,
)  # fmt: skip
BOB = Lease(run="20261128-140500-0001abcd", user="bob", host="laptop", process="boot:1:8:9", bound=7440)


@pytest.mark.parametrize(
    ("lease", "how", "expected"),
    [
        (None, {}, Answer.FREE),
        (ADA, {}, Answer.HELD),
        (ADA, {"age": ADA.bound}, Answer.HELD),
        (ADA, {"age": ADA.bound + 1}, Answer.FREE),
        (ADA, {"dead": True}, Answer.FREE),
        (ADA, {"take": True}, Answer.FREE),
        (Lease(**{**vars(ADA), "bound": 2**39}), {"age": LONGEST + 1}, Answer.FREE),
        (BOB, {"age": 2 * BOB.bound}, Answer.MINE),
        # clusterctl that lets others in has another process than its run had; ansible-playbook has no number.
        (Lease(run=BOB.run, process="boot:1:9:9"), {}, Answer.MINE),
        (Lease(process=BOB.process), {}, Answer.MINE),
        (Lease(), {}, Answer.HELD),
    ],
)
def test_a_lease_is_free_mine_or_somebody_elses(lease: Lease | None, how: dict[str, Any], expected: Answer) -> None:
    assert answer(lease, how.pop("age", 0), BOB, **how) is expected


def test_two_runs_of_ansible_playbook_are_not_one() -> None:
    assert answer(Lease(run="", process="boot:1:9:9"), 0, Lease(run="", process="boot:1:8:9")) is Answer.HELD
    assert answer(Lease(), 0, Lease()) is Answer.HELD


def test_a_lease_is_read_as_input() -> None:
    assert lease_from(ADA.text) == ADA
    assert lease_from("") is lease_from("\n") is None
    for text in ("no lease", "[]", "17", '{"user": 3, "bound": -1, "since": "now"}', '{"bound": true'):
        assert lease_from(text) == Lease()
    hostile = lease_from(json.dumps({"user": "ada\n\x1b[2Jroot", "command": "x" * 10**5, "bound": 10**30}))
    assert hostile is not None
    assert (hostile.user, len(hostile.command) < 300, hostile.bound) == ("ada root", True, BOUND)


def test_who_is_refused_reads_who_it_is_where_since_when_and_what_to_do() -> None:
    problem, fix = refusal(ADA, 60, cluster="small", now=1_795_874_760)

    assert problem == (
        "the cluster small is being changed by ada@desk ('clusterctl provision gpu' in /srv/ada, run "
        "20261128-140200-0001abcd, since 2026-11-28 14:02 UTC, last sign of life 2026-11-28 14:05 UTC)"
    )
    assert fix == (
        "wait for its end, or ask ada. If that run is dead, add -e cluster_lease_take=true to this command, or wait "
        "until 2026-11-28 16:09 UTC"
    )


def test_a_process_is_gone_where_it_was_here_and_is_no_more() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    name = named(child.pid)

    alive = gone(name)
    child.communicate(b"\n")

    assert (alive, gone(name), gone(named(os.getpid()))) == (False, True, False)
    # Of another computer, container or start of the kernel nothing is known; nor where a number has a new owner.
    boot, place, number, start = name.split(":")
    for other in (
        f"other:{place}:{number}:{start}",
        f"{boot}:1:{number}:{start}",
        "",
        "a:b",
        "::::",
        f"{boot}:{place}:x:1",
    ):
        assert not gone(other)
    assert gone(f"{boot}:{place}:{os.getpid()}:1")


lease_file = plugin("plugins/module_utils/lease_file.py", "ansible.module_utils.lease_file")


def test_of_two_who_have_seen_the_same_lease_one_writes_his(tmp_path: Path) -> None:
    path = tmp_path / "lease"
    assert lease_file.look(path) == {"text": "", "age": 0.0}

    first, there = lease_file.exchange(path, "", ADA.text)
    second, still = lease_file.exchange(path, "", BOB.text)
    released, none = lease_file.exchange(path, ADA.text, "")

    assert (first, second, released) == (True, False, True)
    assert (there["text"], still["text"], none["text"], lease_file.look(path)["text"]) == (ADA.text, ADA.text, "", "")
    assert path.stat().st_mode & 0o777 == 0o644
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(OSError, match="symbolic"):
        lease_file.exchange(tmp_path / "link", "", ADA.text)


def test_how_long_ago_the_last_sign_of_life_was_is_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "lease"
    lease_file.exchange(path, "", ADA.text)
    os.utime(path, (1, 1))

    assert lease_file.look(path)["age"] > 10**9
    assert lease_file.exchange(path, ADA.text, ADA.text)[1]["age"] < 10**6


class Controller:
    """A controller that keeps a lease, and counts its calls."""

    def __init__(self, text: str = "", **answer: Any) -> None:
        self.text, self.answer, self.calls = text, answer, 0

    def __call__(self, module_args: dict[str, Any], **_: Any) -> dict[str, Any]:
        self.calls += 1
        written = "text" in module_args and module_args["seen"] == self.text
        if written:
            self.text = module_args["text"]
        return {"written": written, "lease": {"text": self.text, "age": 1}} | self.answer


def asked(machine: Any, state: str, known: str | None = None, roles: Any = ("munge",), **more: Any) -> dict[str, Any]:
    """Return what the action answers where ``known`` is the lease that the controller has told."""
    facts = {} if known is None else {"cluster_lease": {"text": known, "age": 1}}
    variables = {"ansible_delegated_vars": {"head": {"ansible_facts": facts}}, "cluster_name": "small", **more}
    args = {"state": state} | ({"roles": list(roles)} if state == "seen" else {})
    return act(plugin("plugins/action/cluster_lease.py"), args, machine, delegate_to="head", **variables)


def test_a_lease_is_taken_renewed_and_released_by_one_call_each() -> None:
    head = Controller()

    taken = asked(head, "held")
    renewed = asked(head, "held", known=head.text)
    mine = lease_from(head.text)
    released = asked(head, "released", known=head.text)

    assert (head.calls, head.text) == (3, "")
    assert mine is not None
    assert (mine.process, mine.bound) == (named(os.getppid()), 7200)
    assert [found["cluster_lease"] for found in (taken, renewed, released)] == [{"held": True}] * 2 + [{"held": False}]


def test_what_somebody_else_holds_stays_and_refuses_also_where_it_was_free_a_moment_ago() -> None:
    head = Controller(ADA.text)

    for found in (
        asked(head, "seen", known=ADA.text),
        asked(head, "held", known=ADA.text),
        asked(head, "held", known=""),
    ):
        assert found["failed"]
        assert "ada@desk" in found["cluster_lease"]["refused"]
    assert asked(head, "released")["cluster_lease"] == {"held": False}
    assert head.text == ADA.text
    asked(head, "held", known=ADA.text, cluster_lease_take="true")
    assert head.text != ADA.text


def test_who_only_reads_is_refused_by_nobody_and_asks_nobody() -> None:
    head = Controller(ADA.text)

    assert "failed" not in asked(head, "seen", known=ADA.text, roles=["preflight", "cluster_users"])
    assert "failed" not in asked(head, "seen")  # the controller has told nothing
    assert head.calls == 0


def test_status_tells_who_changes_the_cluster_and_keeps_nobody() -> None:
    head = Controller(ADA.text)

    told = asked(head, "told")["cluster_lease"]

    assert (told["held"], head.text, head.calls) == (False, ADA.text, 1)
    assert holder(Lease(**told["holder"]), 60, now=told["holder"]["renewed"] + 60).startswith(
        "ada@desk ('clusterctl provision gpu' in /srv/ada, run 20261128-140200-0001abcd, since 2026-11-28 14:02 UTC"
    )
    assert "cluster_lease" not in asked(Controller(""), "told")
    assert "cluster_lease" not in asked(Controller(Lease(process="boot:1:2:3", bound=0).text), "told")
    assert asked(Controller(lease=3), "told")["failed"]


def test_a_controller_that_is_away_keeps_nobody_and_that_is_said() -> None:
    def silent(**_: Any) -> Any:
        raise AnsibleConnectionFailure("no route")

    for found in (asked(silent, "held"), asked(Controller(), "held", clusterctl_left_out=["head"])):
        assert "failed" not in found
        assert "nobody is kept from changing the cluster at the same time: head" in found["warnings"][0]


@pytest.mark.parametrize("answered", [{"lease": 3}, {"lease": {"age": "old"}}, {"failed": True, "msg": "no room"}])
def test_an_answer_that_is_none_is_no_lease(answered: dict[str, Any]) -> None:
    found = asked(Controller(**answered), "held")

    assert found["failed"]
    assert "head" in found["msg"]


def test_a_run_that_was_refused_after_it_had_changed_something_is_no_refusal() -> None:
    result = {"failed": True, "msg": "x", "cluster_lease": {"refused": "ada", "fix": "wait"}}
    event = {"event": "runner_on_failed", "event_data": {
        "host": "head", "task": "Take", "resolved_action": "ansible.legacy.cluster_lease", "res": result}}  # fmt: skip
    changed = {"event": "runner_on_ok", "event_data": {"host": "head", "task": "Write", "res": {"changed": True}}}
    first, later = RunReport(), RunReport()

    first.add(event)
    for one in (changed, event):
        later.add(one)

    assert (first.refused, later.refused) == (("ada", "wait"), None)
