"""Templates are compiled once, before there are workers: what is kept is what would have been compiled."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from ansible.errors import AnsibleActionFail
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template
from jinja2 import Environment
from machines import plugin

from provision.runner import compiled


@pytest.fixture
def kind() -> type[Environment]:
    class Counting(Environment):
        parsed: ClassVar[list[str]] = []

        def _parse(self, source: str, *words: Any, **options: Any) -> Any:
            self.parsed.append(source)
            return super()._parse(source, *words, **options)

    compiled.keep(Counting)
    return Counting


def test_a_text_is_compiled_once_for_all_environments_of_a_kind(kind: Any) -> None:
    compiled.prepare(kind(), ["{{ name }}!"])

    assert [kind().from_string("{{ name }}!").render(name=name) for name in "ab"] == ["a!", "b!"]
    assert kind.parsed == ["{{ name }}!"]


def test_a_text_that_another_environment_reads_otherwise_is_another_one(kind: Any) -> None:
    text = "{% if true %}\n{% endif %}\n."

    assert kind().from_string(text).render() == "\n\n."
    assert kind(trim_blocks=True).from_string(text).render() == "."


def test_other_kinds_of_environments_are_left_alone(kind: Any) -> None:
    kept = compiled.keep(kind)
    Environment().from_string("{{ other }}")  # noqa: S701 - nothing of it goes to a browser

    assert not kept


def test_a_backslash_is_read_anew_each_time(kind: Any) -> None:
    for _ in range(2):
        kind().from_string("{{ '\\n' }}")

    assert len(kind.parsed) == 2


def test_a_text_that_is_wrong_says_so_where_it_is_used_and_spoils_no_other(kind: Any) -> None:
    compiled.prepare(kind(), ["{{ wrong", "{{ right }}"])

    assert kind().from_string("{{ right }}").render(right=1) == "1"
    with pytest.raises(Exception, match="unexpected end"):
        kind().from_string("{{ wrong")


def test_every_template_in_nested_data_is_found() -> None:
    data = {"a": "{{ one }}", "b": [1, "no", {"c": "{% if x %}two{% endif %}"}], "d": None}

    assert list(compiled.texts([data])) == ["{{ one }}", "{% if x %}two{% endif %}"]


def test_no_worker_compiles_what_roles_leave_behind() -> None:
    observe = plugin("plugins/action/observe.py")
    kept = {source for _, source, *_ in observe._COMPILED}
    data = [*compiled.texts(observe._CONSTANTS), *compiled.texts(observe._DEFAULTS)]

    assert len(data) > 300
    assert {text for text in data if "\\" not in text} <= kept
    assert any("RuntimeDirectoryPreserve" in source for source in kept if source not in data)


def test_a_variable_is_resolved_once_however_many_rest_on_it() -> None:
    observe = plugin("plugins/action/observe.py")
    texts = {"moment": "{{ now().timestamp() }}", "of_it": "{{ moment }}", "both": "{{ of_it }} {{ moment }}"}
    variables = {name: trust_as_template(text) for name, text in texts.items()}

    shared = observe._sharing(Templar(loader=DataLoader()), variables)
    moments = [shared.template(trust_as_template(text)) for text in ("{{ both }} {{ of_it }}", "{{ moment }}")]

    assert len(set(" ".join(str(moment) for moment in moments).split())) == 1


def test_a_variable_of_a_type_that_its_role_does_not_take_is_told_with_the_role() -> None:
    naming = plugin("plugins/action/observe.py")._naming

    with pytest.raises(AnsibleActionFail, match=r"role base_system.*Fix: .*base_system_\*"), naming("base_system"):
        Templar(DataLoader()).template(trust_as_template("{{ 'tree' + ['chrony'] }}"))
