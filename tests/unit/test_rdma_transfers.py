"""Transfers between machines: both sides' agreement for real, with stand-ins for the tools; and the judgement."""

from __future__ import annotations

import contextlib
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml
from machines import plugin, run_module
from rdma_machines import rdma  # noqa: F401 - the module imports it from Ansible's place
from waiting import PATIENCE
from worker import free_port

from provision.judge.rdma_transfers import SUBJECT, Seen
from provision.judge.rdma_transfers import checks as of_module
from provision.judge.rdma_transfers import judged as checks
from provision.model.checks import Check
from provision.rdma.perftest import carried, gigabits
from provision.rdma.rounds import Rail, bound
from provision.rdma.rounds import schedule as scheduled

tool = plugin("plugins/module_utils/rdma_tools.py", "ansible.module_utils.rdma_tools")
agent = plugin("plugins/module_utils/rdma_agent.py", "ansible.module_utils.rdma_agent")
OUTPUTS = yaml.safe_load((Path(__file__).parent / "fixtures/transfers/outputs.yml").read_text(encoding="utf-8"))
HOSTS = {"node1": "127.0.0.1", "node2": "127.0.0.2", "node3": "127.0.0.3"}

#: Listens, takes one connection, and says what it was asked; the other side connects. FAIL makes the server refuse.
TOOL = """#!/usr/bin/env python3
import socket, sys
words = sys.argv[1:]
port = int(words[words.index("-p") + 1])
if "{fail}" and "{fail}" in sys.argv[0]:
    sys.exit("Couldn't register MR")
peer = words[-1] if words[-1].startswith("127.") else ""
if "-a" in words:
    peer = words[words.index("-a") + 1] if "-c" in words else ""
if peer:
    socket.create_connection(("127.0.0.1", port), 60).close()
    print(" 65536      200              0.26               0.25               0.000483")
else:
    server = socket.create_server(("127.0.0.1", port))
    server.settimeout(60)
    server.accept()
print(" ".join(words))
"""


@pytest.fixture
def port() -> int:
    """A port of this worker whose successor is free too."""
    return free_port()


def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fail: str = "") -> None:
    for name in ("ibv_rc_pingpong", "ib_write_bw", "ib_read_bw", "rping"):
        (tmp_path / name).write_text(TOOL.format(fail=fail))
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(tool.os, "geteuid", lambda: 1000)
    moved = iter(range(0, 10**9, 1000))
    monkeypatch.setattr(tool, "counters", lambda *_: {"port_xmit_data": next(moved)})
    monkeypatch.setattr(tool, "gids", lambda *_: [])


def settings(port: int, name: str, steps: Any, **more: Any) -> dict[str, Any]:
    base = {"token": "secret", "port": port, "user": "nobody", "seconds": 1, "timeout": 60, "patience": 60}
    return {**base, "name": name, "address": HOSTS[name], "steps": steps, **more}


def run(everyone: dict[str, dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    results: dict[str, list[dict[str, Any]]] = {}

    def one(name: str) -> None:
        results[name] = agent.Agent(everyone[name]).run()

    threads = [threading.Thread(target=one, args=(name,)) for name in everyone]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in threads)
    return results


def schedule(*given: Any, patience: int = 60) -> dict[str, list[dict[str, Any]]]:
    """Return the steps as the plan has them."""
    steps = scheduled(*given)
    bound(steps, patience, 60)
    return steps


def rails(*names: str) -> dict[str, list[Rail]]:
    return {name: [Rail("rxe0", 1, None, software=True)] for name in names}


def test_two_machines_do_all_tests_and_each_reports_its_own_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, port: int
) -> None:
    tools(tmp_path, monkeypatch)
    steps = schedule(rails("node1", "node2"), HOSTS)

    results = run({name: settings(port, name, steps[name]) for name in steps})

    for name, found in results.items():
        assert [result["test"] for result in found] == ["pingpong", "write", "read"], name
        assert [result["rc"] for result in found] == [0, 0, 0], found
        assert all(result["moved"]["port_xmit_data"] > 0 for result in found)
    assert {check.verdict for check in judged(results["node2"], ["node1"])} == {"pass", "skip"}


@pytest.mark.slow
def test_a_machine_that_never_comes_costs_the_others_one_wait_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, port: int
) -> None:
    tools(tmp_path, monkeypatch)
    steps = schedule(rails(*HOSTS), HOSTS)
    there = ("node1", "node2")

    results = run({name: settings(port, name, steps[name], patience=4) for name in there})

    for name in there:
        (lost,) = [result for result in results[name] if result["problem"]]
        assert lost["peer"] == "node3"
        assert "connect to 127.0.0.3" in lost["problem"]
        assert [result["test"] for result in results[name] if not result["problem"]][:1] == ["pingpong"]


def test_what_the_serving_side_says_reaches_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, port: int
) -> None:
    tools(tmp_path, monkeypatch, fail="ibv_rc_pingpong")
    steps = schedule(rails("node1", "node2"), HOSTS)

    results = run({name: settings(port, name, steps[name]) for name in steps})

    for name, found in results.items():
        check = judged(found, ["peer"])[0]
        assert (check.id, check.verdict) == ("rdma.transfer", "fail"), name
        assert "memlock" in check.cause, name


def test_a_stranger_without_the_word_of_this_run_is_not_served(port: int) -> None:
    door = agent.Door("127.0.0.1", port, "secret")
    try:
        line = agent.Line(socket.create_connection(("127.0.0.1", port), 60))
        line.send(token="guess", round=0, name="node2")

        assert door.wait("node2", 0, 1) is None
        with pytest.raises(agent.GoneError):
            line.receive(PATIENCE)
    finally:
        door.close()


#: What another machine may say, once it has been let in.
SAID = [
    *(b"[1]\n", b"[" * 4000 + b"\n", b"x" * 5000, b"\xff\n", b'{"next": {}}\n'),
    *(b'{"next": "0"}\n', b'{"next": -1}\n', b'{"next": 99}\n'),
]


@pytest.mark.parametrize("said", SAID, ids=range(len(SAID)))
@pytest.mark.parametrize("me", ["node1", "node2"])
def test_a_machine_that_says_anything_spoils_its_own_step_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, port: int, said: bytes, me: str
) -> None:
    tools(tmp_path, monkeypatch)
    other = {"node1": "node2", "node2": "node1"}[me]
    steps = schedule(rails("node1", "node2"), HOSTS)[me]
    results: list[dict[str, Any]] = []
    honest = agent.Agent(settings(port, me, steps, patience=2))
    thread = threading.Thread(target=lambda: results.extend(honest.run()))
    with socket.create_server((HOSTS[other], port)) as server:
        thread.start()
        if steps[0]["serves"]:
            line = agent.Line(socket.create_connection((HOSTS[me], port), 60))
            line.send(token="secret", name=other, round=0)
        else:
            line = agent.Line(server.accept()[0])
        line.connection.sendall(said)
        # Who is told nonsense may have hung up already.
        with contextlib.suppress(OSError):
            line.connection.shutdown(socket.SHUT_WR)
        thread.join(PATIENCE)
        line.close()

    assert not thread.is_alive()
    assert {(one["peer"], bool(one["problem"])) for one in results} == {(other, True)}


#: A machine that never comes, and one that comes and says a byte now and then, each for as long as anybody listens.
DRAG = [b"", b"{"]


@pytest.mark.parametrize(
    "said", [pytest.param(DRAG[0], marks=pytest.mark.slow), DRAG[1]], ids=["never comes", "says a byte a second"]
)
def test_a_machine_that_is_there_for_ever_costs_its_own_step_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, port: int, said: bytes
) -> None:
    tools(tmp_path, monkeypatch)
    steps = schedule(rails("node1", "node2"), HOSTS, patience=1)
    me, other = sorted(steps, key=lambda name: not steps[name][0]["serves"])
    steps[me][0] |= {"by": 2, "within": 3}
    honest = agent.Agent(settings(port, me, steps[me], patience=2))
    thread = threading.Thread(target=honest.run)
    theirs = agent.Door(HOSTS[other], port, "secret")  # says that it is alive, whenever it is asked
    thread.start()
    if said:
        line = agent.Line(socket.create_connection((HOSTS[me], port), 60))
        line.send(token="secret", name=other, round=0)
        while thread.is_alive():
            thread.join(1)
            with contextlib.suppress(OSError):
                line.connection.sendall(said)
    thread.join(PATIENCE)
    theirs.close()

    assert not thread.is_alive()
    (lost,) = honest.results
    assert lost["peer"] == other
    assert lost["problem"] in (
        "it is there, and did not come for its transfers in 2 s",
        "the other machine says nothing: timed out",
    )


@pytest.mark.parametrize("address", [None, "", "-v", "10.0.0.1; id", ["10.0.0.1"], {"a": 1}])
def test_an_address_that_another_machine_names_is_one(address: Any) -> None:
    assert agent.address_in({"address": "10.99.0.2"}) == "10.99.0.2"
    with pytest.raises(agent.GoneError):
        agent.address_in({"address": address})


def test_a_machine_that_asks_for_the_same_transfer_again_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, port: int
) -> None:
    tools(tmp_path, monkeypatch, fail="ibv_rc_pingpong")
    steps = schedule(rails("node1", "node2"), HOSTS)
    server, _ = sorted(steps, key=lambda name: not steps[name][0]["serves"])
    honest = agent.Agent(settings(port, server, steps[server]))
    thread = threading.Thread(target=honest.run)
    thread.start()
    line = agent.Line(socket.create_connection((HOSTS[server], port), 60))
    line.send(token="secret", name=steps[server][0]["peer"], round=0)
    for _ in range(2):
        line.send(next=0)
        answer = line.connection.recv(4096)
    thread.join(PATIENCE)

    assert not thread.is_alive()
    assert answer == b""
    assert [one["problem"] for one in honest.results][-1] == "the other machine asks for what is not in the plan"


def test_nothing_is_left_behind_when_the_other_side_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, port: int
) -> None:
    tools(tmp_path, monkeypatch)
    rail = {"device": "rxe0", "port": 1, "peer_device": "rxe0", "software": True}
    words = tool.command("write", rail, None, port, "", 1)

    with tool.Tool(words, settings(port, "node1", []), rail) as mine:
        assert mine.ready(port, PATIENCE)

    assert mine.process.poll() is not None
    assert not tool.listening(port)


def test_commands_are_those_that_people_type() -> None:
    rail = {"device": "mlx5_0", "port": 1, "peer_device": "mlx5_0", "software": False}
    gid = {"index": 3, "gid": "0000:0000:0000:0000:0000:ffff:0a63:0002", "type": "RoCE v2", "netdev": "eth1"}

    assert " ".join(tool.command("write", rail, gid, 18515, "node2", 3)) == (
        "ib_write_bw -d mlx5_0 -i 1 -p 18515 -x 3 -D 3 -q 4 -s 65536 -F --report_gbits node2"
    )
    assert " ".join(tool.command("pingpong", rail, None, 18515, "", 3)) == (
        "ibv_rc_pingpong -d mlx5_0 -i 1 -p 18515 -s 4096 -n 1000"
    )
    assert " ".join(tool.command("rping", rail, gid, 18515, "", 3)) == "rping -s -a 10.99.0.2 -p 18515 -C 10 -v"
    assert " ".join(tool.command("read", {**rail, "software": True}, None, 18515, "node2", 3)) == (
        "ib_read_bw -d mlx5_0 -i 1 -p 18515 -n 200 -s 65536 -F --report_gbits node2"
    )


def test_on_ethernet_version_two_over_ipv4_is_chosen_and_on_infiniband_nothing() -> None:
    def gid(index: int, text: str, kind: str, netdev: str = "eth1") -> dict[str, Any]:
        return {"index": index, "gid": text, "type": kind, "netdev": netdev}

    four = "0000:0000:0000:0000:0000:ffff:0a63:0002"
    several = [gid(0, "fe80::1", "IB/RoCE v1"), gid(1, "fe80::1", "RoCE v2"), gid(2, four, "IB/RoCE v1")]

    assert tool.gid_index([*several, gid(3, four, "RoCE v2")])["index"] == 3
    assert tool.gid_index(several)["index"] == 1
    assert tool.gid_index([gid(0, "fe80::1", "IB/RoCE v1", netdev="")]) is None
    assert tool.gid_index([]) is None
    assert (tool.ipv4(four), tool.ipv4("fe80::1")) == ("10.99.0.2", "")


def result(test: str, **more: Any) -> dict[str, Any]:
    about = {"peer": "node1", "serves": False, "test": test, "problem": "", "device": "mlx5_0", "port": 1}
    return {**about, "software": False, "rc": 0, "output": "", "moved": {"port_xmit_data": 10**7}, **more}


def judged(results: list[dict[str, Any]], expected: list[str], rail: Rail | None = None, **more: Any) -> list[Check]:
    ports = [rail or Rail("rxe0", 1, None, software=True)]
    peers = [str(one["peer"]) for one in results] if expected == ["peer"] else expected
    return checks(Seen(results, peers, ports), **more)


HARDWARE = Rail("mlx5_0", 1, 400.0)


@pytest.mark.parametrize("name", sorted(OUTPUTS))
def test_what_the_tools_say_is_given_its_cause(name: str) -> None:
    sample = OUTPUTS[name]
    told = result(sample["test"], rc=sample["rc"], output=sample["output"], problem=sample.get("problem", ""))

    check = judged([told], ["node1"], HARDWARE)[0]

    assert check.verdict == ("pass" if sample["rc"] == 0 else "fail")
    assert sample.get("cause", "") in check.cause
    if "gigabits" in sample:
        assert gigabits(sample["output"]) == sample["gigabits"]


@pytest.mark.parametrize(("rate", "verdict"), [(380.0, "pass"), (320.0, "pass"), (190.0, "fail")])
def test_a_real_adapter_must_reach_its_share_of_the_line_rate(rate: float, verdict: str) -> None:
    row = f" 65536  1000  {rate}  {rate}  0.7\n"
    found = {check.id: check for check in judged([result("write", output=row)], ["node1"], HARDWARE)}

    assert found["rdma.write_bandwidth"].verdict == verdict
    assert f"{rate:g} Gb/s of 400" in found["rdma.write_bandwidth"].observed


def test_a_software_adapter_is_not_measured_against_its_rate_and_marked() -> None:
    row = " 65536  200  0.26  0.25  0.0005\n"
    told = result("write", output=row, device="rxe0", moved={"sent_pkts": 12800})
    found = {check.id: check for check in judged([told], ["node1"], Rail("rxe0", 1, 2.5, software=True))}

    assert found["rdma.write_bandwidth"].verdict == "pass"
    assert found["rdma.counters"].verdict == "pass"
    assert all(check.simulated for check in found.values())


@pytest.mark.parametrize("moved", [{}, {"port_xmit_packets": 12}])
def test_data_that_the_device_has_not_counted_went_another_way(moved: dict[str, int]) -> None:
    found = {check.id: check for check in judged([result("pingpong", moved=moved)], ["node1"], HARDWARE)}

    assert found["rdma.transfer"].verdict == "pass"
    assert found["rdma.counters"].verdict == "fail"
    assert "mlx5_0 0 MB" in found["rdma.counters"].observed


def test_bytes_are_words_of_four_on_adapters() -> None:
    assert carried({"moved": {"port_xmit_data": 100, "port_rcv_data": 50}}) == 600
    assert carried({"moved": {"link_downed": 1}}) is None


def test_error_counters_that_rise_are_a_failure_on_hardware_only() -> None:
    moved = {"port_xmit_data": 10**6, "symbol_error": 3}
    (hardware,) = [
        one for one in judged([result("write", moved=moved)], ["node1"], HARDWARE) if one.id == "rdma.errors"
    ]
    assert (hardware.verdict, hardware.observed) == ("fail", "mlx5_0 symbol_error +3")


def test_a_rail_that_took_no_part_is_named() -> None:
    seen = Seen([result("pingpong")], ["node1"], [HARDWARE, Rail("mlx5_1", 1, 400.0)])

    (check,) = [one for one in checks(seen) if one.id == "rdma.counters"]

    assert check.verdict == "fail"
    assert "mlx5_1 took no part" in check.observed


def test_no_answer_is_no_pass() -> None:
    check, *rest = checks(Seen([], ["node1"], [HARDWARE]))
    assert check.verdict == "unknown"
    assert {one.verdict for one in rest} == {"skip"}

    check, *rest = checks(Seen([], ["node1"], [HARDWARE], problem="async task did not complete"))
    assert (check.verdict, check.observed) == ("unknown", "async task did not complete")
    assert any(one.unproven for one in rest)


def test_memory_of_gpus_is_said_not_to_be_proven() -> None:
    told = [check for check in judged([result("write")], ["node1"], HARDWARE, gpus=8) if check.id == "rdma.gpu_memory"]

    assert [check.verdict for check in told] == ["skip"]
    assert "not proven" in told[0].observed


@pytest.mark.parametrize(
    "text", ["\n" * 10**6, " " * 10**6, "1 1 " * 250_000, "1 1 1.2.3 4.5.6 7..8\n", "1 " * 500_000]
)
def test_whatever_a_tool_prints_is_read_at_once(text: str) -> None:
    """It would take hours, where each piece is compared with each other."""
    assert gigabits(text) is None


@pytest.mark.parametrize("output", ["", "garbled", " 65536  1000  380.0  380.0  0.7  17\n", " 65536 1000 12.0 Gb/s\n"])
def test_a_rate_that_cannot_be_read_is_no_pass(output: str) -> None:
    found = {check.id: check for check in judged([result("write", output=output)], ["node1"], HARDWARE)}

    assert found["rdma.write_bandwidth"].verdict == "unknown"


ROW = " 65536  1000  380.0  380.0  0.7\n"


def of_plan(results: object, *, bandwidth: bool = True, serves: bool = False) -> dict[str, Check]:
    """Judge an answer of node2, of which the plan wants this with node1."""
    adapter = {"name": "mlx5_0", "software": False, "ports": [{"number": 1, "state": "Active", "rate": 400.0}]}
    rails = [{"device": "mlx5_0", "port": 1, "peer_device": "mlx5_0", "software": False}]
    step = {"round": 0, "peer": "node1", "address": "::1", "serves": serves, "bandwidth": bandwidth, "rails": rails}
    plan = {"steps": {"node2": [step]}, "unused": {}, "pairs": ""}
    found = of_module({"results": results}, "node2", {"devices": [adapter]}, plan, {"simulated": False, "share": 0.8})
    return {check.id.removeprefix("rdma."): check for check in found}


def healthy() -> list[dict[str, Any]]:
    return [result("pingpong"), *(result(test, output=ROW) for test in ("write", "read"))]


def test_what_the_plan_has_measured_passes() -> None:
    assert {of_plan(healthy())[f"{test}_bandwidth"].verdict for test in ("write", "read")} == {"pass"}


@pytest.mark.parametrize(
    "results",
    [
        [result("pingpong")],
        [result("pingpong"), result("write", serves=True), result("read", serves=True)],
        [result("pingpong"), result("write", device="mlx5_9", output=ROW), result("read", device="mlx5_9", output=ROW)],
    ],
    ids=["left out", "says that the other side measured", "of another device"],
)
def test_a_machine_that_was_to_measure_and_did_not_is_no_pass(results: list[dict[str, Any]]) -> None:
    found = of_plan(results)

    for test in ("write", "read"):
        assert found[f"{test}_bandwidth"].verdict == "unknown"
        assert "mlx5_0 with node1" in found[f"{test}_bandwidth"].observed


@pytest.mark.parametrize("serves", [True, False])
def test_a_machine_that_was_not_to_measure_owes_no_rate(serves: bool) -> None:
    found = of_plan([result("pingpong", serves=serves)], bandwidth=serves, serves=serves)

    assert {found[f"{test}_bandwidth"].verdict for test in ("write", "read")} == {"skip"}


@pytest.mark.parametrize(
    "results",
    [
        None, 7, "x", {}, {"a": 1}, [None], ["x"], [[]], [{}], [{"test": "write"}], [result("write", peer=None)],
        [result("write", port="1; reboot")], [result("write", rc="0")], [result("write", moved=[1])],
        [result("write", moved={"port_xmit_data": "9"})], [result("write", output={"a": 1})], [*healthy(), 5],
        [result("write", port=True)], [result("write", moved={"port_xmit_data": float("nan")})],
    ],
    ids=lambda value: str(value)[:20],
)  # fmt: skip
def test_an_answer_that_is_no_list_of_results_is_unknown_and_stops_no_judgement(results: object) -> None:
    found = of_plan(results)

    assert sorted(found) == sorted(name.removeprefix("rdma.") for name in SUBJECT.ids)
    assert found["transfer"].verdict == "unknown"


def test_the_module_that_has_nobody_to_meet_ends_at_once() -> None:
    arguments = {"address": "127.0.0.9", "name": "node9", "steps": [], "token": "t", "port": 18614, "patience": 5}

    found = run_module("roles/rdma_userspace/library/rdma_transfers.py", arguments)

    assert (found["results"], found["changed"]) == ([], False)
