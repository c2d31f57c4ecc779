"""Names that are Ansible's own: there in the release that is installed; without one, missed aloud or done without."""

from __future__ import annotations

import re
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from machines import act, plugin

from provision import content

PLUGIN = "plugins/action/delegated_answer.py"
PRIVATE = "ansible._internal._errors._task_timeout"


def answer(module: ModuleType, machine: Any, facts: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """Return what the action answers about a machine that does what ``machine`` does; ``facts`` of it are known."""
    variables = {"ansible_delegated_vars": {"head": {"ansible_facts": facts or {}}}, **more}
    return act(module, {"module": "ping", "fact": "cluster_said"}, machine, delegate_to="head", **variables)


def raising(error: BaseException) -> Any:
    def machine(*_: Any, **__: Any) -> Any:
        raise error

    return machine


def test_a_task_that_is_out_of_time_is_an_answer_and_is_kept_in_mind() -> None:
    module = plugin(PLUGIN)
    late = module.TaskTimeoutError.__new__(module.TaskTimeoutError)
    late.timeout = 3

    found = answer(module, raising(late))

    again = answer(module, raising(AssertionError("asked again")), found["ansible_facts"])

    assert (found["unreached"], found["asked"]) == ("it did not answer within 3 s", "head")
    assert again["unreached"] == found["unreached"]
    assert "asked" not in again  # the report names it once


def test_what_the_machine_says_is_its_fact_and_what_it_calls_a_fact_is_none() -> None:
    said = {
        "stdout": "idle",
        "rc": 0,
        "asked": "node2",
        "unreached": "gone",
        "ansible_facts": {"cluster_unreached": "no", "ansible_python_interpreter": "/x"},
    }

    found = answer(plugin(PLUGIN), lambda *_, **__: said)

    assert found["ansible_facts"] == {"cluster_said": {"stdout": "idle"}}
    assert not {"asked", "unreached"} & found.keys()


def test_one_that_could_not_be_entered_before_the_run_is_not_asked() -> None:
    found = answer(plugin(PLUGIN), raising(AssertionError("asked")), clusterctl_left_out=["head"])

    assert found["unreached"] == "head could not be reached before the run"
    assert found["ansible_facts"] == {"cluster_said": {"unreached": found["unreached"]}}


def test_a_machine_that_cannot_be_reached_is_an_answer_and_any_other_error_is_none() -> None:
    module = plugin(PLUGIN)

    assert answer(module, raising(AnsibleConnectionFailure("no route")))["unreached"] == "no route"
    with pytest.raises(KeyboardInterrupt):
        answer(module, raising(KeyboardInterrupt()))


def test_a_release_without_that_name_is_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, PRIVATE, None)
    module = plugin(PLUGIN)

    with pytest.raises(AnsibleActionFail, match=r"ansible-core \d.* out of time .* Fix: install ansible-core 2\.19"):
        answer(module, lambda *_, **__: {})


def test_a_release_without_what_only_makes_observation_faster_does_without(monkeypatch: pytest.MonkeyPatch) -> None:
    room = "ansible._internal._templating"
    monkeypatch.delattr(f"{room}._lazy_containers")
    monkeypatch.setitem(sys.modules, f"{room}._lazy_containers", None)

    observe = plugin("plugins/action/observe.py")

    assert observe._COMPILED == {}
    plain = SimpleNamespace(copy_with_new_env=lambda **words: words)
    assert observe._sharing(plain, {"name": 1}) == {"available_variables": {"name": 1}}


def test_no_other_file_needs_what_is_private_to_ansible() -> None:
    private = re.compile(r"^\s*(from|import) ansible(\.\w+)*\._", re.MULTILINE)
    files = [path for place in ("plugins", "provision", "roles") for path in (content.ROOT / place).rglob("*.py")]

    found = {path.name for path in files if private.search(path.read_text("utf-8"))}
    assert found == {"cluster_lease.py", "delegated_answer.py", "observe.py"}
