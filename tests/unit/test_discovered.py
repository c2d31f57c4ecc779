"""What a machine says of its hardware passes the inventory's own rules before it becomes inventory."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provision.inventory.declared_hardware import hardware_from
from provision.model import discovered

GOOD: dict[str, Any] = {
    **{"cpus": 48, "sockets": 2, "cores_per_socket": 24, "threads_per_core": 1, "real_memory": 193000},
    **{"cgroup_version": 2, "gres": "gpu:a40:4", "gpu_count": 4, "gpu_source": "nvidia-smi", "gpus_on_bus": 4},
}

HOSTILE: dict[str, list[Any]] = {
    "cpus": [0, -1, 65536, 10**30, "4; x", "{{ 7 }}", True, 1.5, None, [4], {"a": 1}, float("nan")],
    "real_memory": [0, -5, 255, 2**41, 10**4000, "8000 MB", [], None],
    "cgroup_version": [0, 3, "two", None, "{# #}"],
    "gres": [
        *("{{ x }}", "{% x %}", "gpu:a40", "gpu:a40:0", "gpu:a40:1025", "gpu:a 40:1", 'gpu:"a":1', "gpu:a\x00:1"),
        *("fpga:x:1", "gpu:a40:1,gpu:a40:1", "gpu:1,gpu:a40:1", None, 4, "gpu:\u202ea40:1", "gpu:a40:1\n\n#"),
        ["gpu:a40:1"],
    ],
    "gpu_count": [-1, 1025, "many", "{{ 1 }}"],
    "rdma_ports": [-1, 1025, "x", 10**20, {"a": 1}],
}
CASES = [(key, value) for key, values in HOSTILE.items() for value in values]


@pytest.mark.parametrize(("key", "value"), CASES, ids=range(len(CASES)))
def test_a_value_that_no_inventory_may_hold_is_refused_by_name_and_its_text_is_harmless(key: str, value: Any) -> None:
    told = discovered.read({**GOOD, key: value}, {})

    assert told.refused, told.values
    for refused in told.refused:
        assert refused.name.startswith("node_")
        assert len(refused.observed) <= 80
        for text in (refused.observed, refused.reason):
            assert text.isascii()
            assert not set(text) & set("{}\n\r\x1b\x00")


def test_what_is_declared_is_not_asked_of_the_machine() -> None:
    told = discovered.read({**GOOD, "gres": "{{ x }}", "cpus": None}, {"node_gres": "gpu:a40:4", "node_cpus": 48})

    assert told.refused == ()


_anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from([*GOOD, "bus_gres", "bus_gpus", "rdma_ports"]), _anything))
def test_whatever_a_machine_answers_the_inventory_can_be_read_afterwards(answer: dict[str, Any]) -> None:
    told = discovered.read({**GOOD, **answer}, {})

    for name, value, source in told.values:
        hardware_from("node1", {name: value})
        assert "\n" not in source
        assert source.isascii()
        assert source.isprintable()
        assert "{" not in source
