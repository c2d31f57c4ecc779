"""What ibstat prints becomes data, and the data a judgement that says what to do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provision.judge.rdma_ports import PORTS, checks
from provision.model.checks import Check, Verdict
from provision.rdma.expected import Expected, expected, majority
from provision.rdma.ibstat import Adapter, parse

SAMPLES = Path(__file__).parent / "fixtures" / "ibstat"
NAMES = sorted(path.stem for path in SAMPLES.glob("*.txt"))


def sample(name: str) -> tuple[Adapter, ...]:
    return parse((SAMPLES / f"{name}.txt").read_text(encoding="utf-8"))


def judged(name: str, **expected: Any) -> dict[str, Check]:
    return named(checks(sample(name), Expected(**expected)))


def named(found: list[Check]) -> dict[str, Check]:
    return {check.id.removeprefix("rdma."): check for check in found}


def test_every_line_of_an_adapter_arrives() -> None:
    first, second = sample("infiniband_active")
    (port,) = first.ports

    assert (first.name, first.type, first.firmware, second.name) == ("mlx5_0", "MT4129", "28.39.1002", "mlx5_1")
    assert (port.name, port.state, port.physical_state, port.rate) == ("mlx5_0:1", "Active", "LinkUp", 400)
    assert (port.subnet_manager, port.link_layer) == (1, "InfiniBand")
    assert port.values["Base lid"] == "17"
    assert first.complete


@pytest.mark.parametrize(
    ("name", "rate"),
    [("fdr10", 40), ("rate_as_ibstatus", 100), ("soft_roce", 2.5), ("effective_speed", 400), ("no_link_layer", 2.5)],
)
def test_a_rate_is_read_however_it_is_written(name: str, rate: float) -> None:
    assert [port.rate for adapter in sample(name) for port in adapter.ports] == [rate]


def test_software_adapters_have_empty_lines_and_are_read_all_the_same() -> None:
    (adapter,) = sample("soft_roce")

    assert (adapter.type, adapter.firmware, adapter.complete) == ("", "", True)
    assert {check.verdict for check in checks([adapter], Expected())} <= {"pass", "skip"}


def test_an_answer_about_one_port_has_no_indentation() -> None:
    (adapter,) = sample("one_port_asked")

    assert [(port.name, port.state) for port in adapter.ports] == [("mlx5_0:1", "Active")]


@pytest.mark.parametrize("name", ["no_device", "empty"])
def test_an_error_message_is_no_adapter(name: str) -> None:
    assert sample(name) == ()


@given(st.text(alphabet="CA':Port 1\n\tState Active0x.", max_size=200))
def test_no_text_is_too_broken(text: str) -> None:
    checks(parse(text), Expected(ports=1, rate=400.0, link_layer="InfiniBand"))


@pytest.mark.parametrize("name", NAMES)
def test_a_text_that_ends_anywhere_is_never_an_error_and_never_proof_of_all_ports(name: str) -> None:
    text = (SAMPLES / f"{name}.txt").read_text(encoding="utf-8")
    whole = sum(len(adapter.ports) for adapter in parse(text))

    for end in range(len(text)):
        found = named(checks(parse(text[:end]), Expected(ports=whole + 1)))
        assert found["ports"].verdict in ("fail", "unknown")


@pytest.mark.parametrize("name", ["infiniband_active", "effective_speed", "fdr10", "rate_as_ibstatus"])
def test_ports_that_are_as_they_should_be_pass(name: str) -> None:
    found = judged(name, link_layer="InfiniBand")

    assert {check.verdict for name, check in found.items() if name != "width"} == {"pass"}
    assert set(found) == set(PORTS)
    assert not any(check.fix or check.cause for check in found.values())


def test_ethernet_needs_no_subnet_manager() -> None:
    found = judged("roce_active", link_layer="Ethernet", rate=200, ports=1)

    assert (found["subnet_manager"].verdict, found["subnet_manager"].observed) == ("skip", "Ethernet needs none")
    assert {check.verdict for name, check in found.items() if name not in ("subnet_manager", "width")} == {"pass"}


@pytest.mark.parametrize(
    ("name", "expected", "check", "observed", "fix"),
    [
        ("no_subnet_manager", {}, "state", "mlx5_0:1 Initializing/LinkUp", "opensm"),
        ("subnet_manager_gone", {}, "subnet_manager", "mlx5_0:1 has none", "opensm"),
        ("polling", {"ports": 2}, "state", "mlx5_1:1 Down/Polling", "reseat the cable"),
        ("disabled", {}, "state", "mlx5_0:1 Down/Disabled", "enable"),
        ("half_rate", {"rate": 400}, "rate", "mlx5_1:1 200", "mlxlink -d mlx5_1"),
        ("two_ports_one_ethernet", {"link_layer": "InfiniBand"}, "link_layer", "mlx5_0:2 Ethernet", "LINK_TYPE_P2=1"),
        ("roce_active", {"link_layer": "InfiniBand"}, "link_layer", "mlx5_0:1 Ethernet", "LINK_TYPE_P1=1"),
        ("infiniband_active", {"ports": 8}, "ports", "2 (mlx5_0:1, mlx5_1:1)", "lspci"),
        ("no_device", {"ports": 1}, "ports", "no RDMA adapter", "lspci"),
        ("empty", {"ports": 1}, "ports", "no RDMA adapter", "lspci"),
    ],
)
def test_what_is_wrong_is_named_with_its_port_and_what_to_do(
    name: str, expected: dict[str, Any], check: str, observed: str, fix: str
) -> None:
    found = judged(name, **expected)

    assert [one for one, judgement in found.items() if not judgement.ok] == [check]
    assert found[check].verdict == "fail"
    assert found[check].observed == observed
    assert fix in found[check].fix
    assert found[check].cause


def test_the_rate_of_a_port_that_is_down_is_not_judged() -> None:
    rate = judged("disabled", rate=400)["rate"]

    assert (rate.verdict, rate.unproven) == ("skip", True)


def test_a_machine_without_adapters_of_which_none_is_expected_is_left_in_peace() -> None:
    assert {check.verdict for check in judged("empty").values()} == {"skip"}


@pytest.mark.parametrize("name", ["cut_off", "one_port_asked"])
def test_half_an_answer_proves_no_number_of_ports(name: str) -> None:
    assert judged(name)["ports"].verdict == "unknown"


def test_what_could_not_be_asked_is_unknown() -> None:
    first, *rest = checks((), Expected(), problem="ibstat: command not found")

    assert (first.verdict, first.observed) == ("unknown", "ibstat: command not found")
    assert all(check.unproven for check in rest)


def test_where_nothing_is_declared_the_odd_one_out_is_the_suspect() -> None:
    expected = majority([sample("infiniband_active"), sample("infiniband_active"), sample("half_rate")])

    assert (expected.ports, expected.rate, expected.link_layer) == (2, 400, "InfiniBand")
    assert named(checks(sample("half_rate"), expected))["rate"].verdict == "fail"


@pytest.mark.parametrize("machines", [["infiniband_active"], ["infiniband_active", "roce_active"], []])
def test_one_machine_or_a_tie_is_no_majority(machines: list[str]) -> None:
    assert majority([sample(name) for name in machines]).ports is None


def test_machines_without_any_port_have_no_say() -> None:
    assert majority([(), (), (), sample("infiniband_active"), sample("infiniband_active")]).ports == 2


def changed(adapters: tuple[Adapter, ...], port: str, **values: str) -> tuple[Adapter, ...]:
    """Return adapters of which one port prints other values."""
    return tuple(
        replace(
            adapter,
            ports=tuple(
                replace(one, values={**one.values, **values}) if one.name == port else one for one in adapter.ports
            ),
        )
        for adapter in adapters
    )


STORAGE = {"Rate": "200", "Link layer": "Ethernet", "SM lid": "0"}
UNPLUGGED = {"State": "Down", "Physical state": "Polling", "Rate": "10"}


@pytest.mark.parametrize("machines", [2, 16])
@pytest.mark.parametrize("other", [STORAGE, UNPLUGGED, {**UNPLUGGED, "Physical state": "Disabled"}])
def test_machines_that_all_have_a_storage_adapter_or_a_port_without_cable_raise_no_alarm(
    machines: int, other: dict[str, str]
) -> None:
    mine = changed(sample("infiniband_active"), "mlx5_1:1", **other)

    found = named(checks(mine, majority([mine] * machines)))

    assert all(check.ok for check in found.values()), found
    assert (other is STORAGE) != ("no cable on most machines: mlx5_1:1" in found["state"].observed)


def test_a_machine_that_alone_has_no_cable_there_is_the_suspect() -> None:
    healthy = sample("infiniband_active")
    mine = changed(healthy, "mlx5_1:1", **UNPLUGGED)

    assert named(checks(mine, majority([healthy, healthy, mine])))["state"].verdict == "fail"


def test_a_switch_that_is_off_for_everybody_is_no_unused_port() -> None:
    dark = changed(changed(sample("infiniband_active"), "mlx5_0:1", **UNPLUGGED), "mlx5_1:1", **UNPLUGGED)

    assert named(checks(dark, majority([dark, dark, dark])))["state"].verdict == "fail"


@pytest.mark.parametrize("unused", ["mlx5_1", ["mlx5_1:1"]])
def test_ports_that_jobs_do_not_use_can_be_named(unused: object) -> None:
    mine = changed(sample("infiniband_active"), "mlx5_1:1", **UNPLUGGED)

    assert "node_rdma_unused" in named(checks(mine, Expected()))["state"].fix
    assert all(check.ok for check in checks(mine, expected({"unused": unused, "rate": 400}, Expected())))


def test_a_slower_storage_adapter_is_compared_with_the_same_port_of_others() -> None:
    healthy = changed(sample("infiniband_active"), "mlx5_1:1", **STORAGE)
    mine = changed(healthy, "mlx5_1:1", Rate="100")

    rate = named(checks(mine, majority([healthy, healthy, mine])))["rate"]

    assert (rate.verdict, rate.observed, rate.expected) == ("fail", "mlx5_1:1 100", "200 Gb/s")


def test_every_check_of_ports_is_always_given() -> None:
    for name in NAMES:
        assert list(judged(name)) == list(PORTS), name
    assert Verdict.PASS in {check.verdict for check in judged("infiniband_active").values()}
