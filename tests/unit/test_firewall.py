"""A machine's own firewall: what its rules stop, read as the kernel would, and what is said of it before and after."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from machines import plugin

from provision.judge import firewall as judge
from provision.judge.road import handed_on
from provision.model.checks import Subject
from provision.model.facts import facts_from

firewall = plugin("plugins/module_utils/machine_firewall.py")

FIXTURES = Path(__file__).with_name("fixtures") / "firewall"
SUBJECT = Subject("base_system", ("firewall",), fix="clusterctl provision base")
#: Of nodes, of the controller's two, one is beyond the networks that are let in.
SOURCES = {"slurm_compute": "10.0.18.8/30 10.0.18.12", "slurm_controller": "10.0.30.1", "slurm_login": "10.0.18.16/29"}
BOTH = ("slurm_compute", "slurm_controller")
COMMAND = ["nft", "-j", "list", "ruleset"]


def way(port: str, *sources: str, protocol: str = "tcp") -> dict[str, Any]:
    return {"port": port, "protocol": protocol, "sources": list(sources or BOTH), "purpose": "slurmd"}


def asked(
    monkeypatch: pytest.MonkeyPatch, *ways: dict[str, Any], nft: object = None, saved: str = ""
) -> dict[str, Any]:
    """Return what a machine tells whose programs print this: a fixture's name, an exit code and a text, or nothing."""

    def run(command: list[str], seconds: int, errors: bool = True) -> tuple[int | None, str]:
        if command[0] == "iptables-save":
            return (0, (FIXTURES / f"{saved}.iptables-save").read_text()) if saved else (None, "")
        if isinstance(nft, str) and command == COMMAND:
            return 0, (FIXTURES / f"{nft}.nft.json").read_text()
        return nft if isinstance(nft, tuple) and command == COMMAND else (None, "")

    monkeypatch.setattr(firewall, "run", run)
    told = firewall.collect({"sources": SOURCES, "ways": list(ways)})
    return dict(facts_from({"firewall": told})["firewall"])


def stopped(told: dict[str, Any]) -> list[tuple[str, str]]:
    return [(one["port"], one["source"]) for one in told["stopped"]]


NODES = "slurm_compute"


@pytest.mark.parametrize(
    ("programs", "ways", "expected"),
    [
        # What is not opened is stopped, what is open to everybody is not.
        ({"nft": "nftables-plain"}, [way("22"), way("6820", NODES)], [("6820", "10.0.18.8/30")]),
        # All traffic of some addresses is let in, and of one nothing but three ports.
        *(
            ({program: f"{name}-open"}, [way("all"), way("6817"), way("111", protocol="udp")], [("all", "10.0.30.1"),
                                                                                                 ("111", "10.0.30.1")])
            for program, name in (("saved", "ufw"), ("nft", "firewalld"))
        ),
        # A range counts at both of its ends.
        ({"nft": "firewalld-open"}, [way("6817-6820", "slurm_controller")], [("6817-6820", "10.0.30.1")]),
        # Where a rule goes by the interface, nobody knows that it is not the cluster's.
        ({"nft": "nftables-open"}, [way("all")], []),
        # A network counts at both ends: the range that is let in begins within one of these, and ends in the other.
        ({"saved": "iptables"}, [way("all", NODES), way("all", "slurm_login")], [("all", "10.0.18.8/30"),
                                                                                ("all", "10.0.18.16/29")]),
        # A negated address, a limit, and a port for all.
        ({"saved": "iptables"}, [way("6817"), way("80", "slurm_controller")], [("80", "10.0.30.1")]),
        ({"saved": "docker"}, [way("all"), way("4789", protocol="udp")], []),
    ],
)  # fmt: skip
def test_rules_are_followed_as_the_kernel_would(
    programs: dict[str, str], ways: list[dict[str, Any]], expected: list[tuple[str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    assert stopped(asked(monkeypatch, *ways, **programs)) == expected


@pytest.mark.parametrize(
    ("rules", "open_to_us"),
    [
        # Who returns from a jump goes on behind it; who was sent by goto does not, and meets the policy.
        (["INPUT -j sub", "INPUT -s 10.0.0.0/8 -j ACCEPT", "sub -j RETURN", "sub -j DROP"], True),
        (["INPUT -g sub", "INPUT -s 10.0.0.0/8 -j ACCEPT", "sub -j RETURN"], False),
        (["INPUT -j sub", "INPUT -s 10.0.0.0/8 -j ACCEPT", "sub -j DROP"], False),
        # What nobody knows of the packet neither lets it in nor keeps it out.
        (["INPUT -m limit --limit 3/min -j sub", "INPUT -s 10.0.0.0/8 -j ACCEPT", "sub -j DROP"], True),
        (["INPUT -m mark --mark 0x1 -j DROP", "INPUT -s 10.0.0.0/8 -j ACCEPT"], True),
        (["INPUT -m mark --mark 0x1 -j ACCEPT"], False),
        # A set that nobody shows may be the cluster's.
        (["INPUT -m set --match-set cluster src -j ACCEPT"], True),
        (["INPUT -i eth1 -j DROP", "INPUT -s 10.0.0.0/8 -j ACCEPT"], True),
        (["INPUT -s 10.0.0.0/8 -j REJECT --reject-with icmp-port-unreachable", "INPUT -j ACCEPT"], False),
    ],
)
def test_the_way_of_a_packet_through_chains(rules: list[str], open_to_us: bool) -> None:
    text = "\n".join(["*filter", ":INPUT DROP [0:0]", ":sub - [0:0]", *(f"-A {rule}" for rule in rules), "COMMIT", ""])
    chains = firewall.of_iptables(text)

    assert firewall._let_in(chains["ip", "filter", "INPUT"], chains, "10.0.18.1", way("6818")) is open_to_us


@pytest.mark.parametrize(
    ("programs", "program", "place"),
    [
        # nft does not show what extensions of iptables look at.
        ({"nft": "ufw-open", "saved": "ufw-open"}, "ufw", "ip filter INPUT"),
        ({"nft": "firewalld-open"}, "firewalld", "inet firewalld filter_INPUT"),
        ({"nft": "nftables-plain"}, "nftables", "inet filter input"),
        ({"saved": "iptables"}, "iptables", "ip filter INPUT"),
    ],
)
def test_whose_rules_stop_something_is_known(
    programs: dict[str, str], program: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (told,) = asked(monkeypatch, way("6820", "slurm_controller"), **programs)["stopped"]

    assert (told["program"], f"{told['family']} {told['table']} {told['chain']}") == (program, place)
    facts = facts_from({"firewall": {"problem": "", "filtered": True, "stopped": [told]}})
    assert handed_on(facts)["cluster_machine"] == {"firewalls": [program]}


def test_a_machine_without_any_of_the_programs_filters_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked(monkeypatch, way("6818")) == {"problem": "", "filtered": False, "stopped": []}


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ((1, "Operation not permitted (you must be root)\n"), "nft list ruleset: Operation not permitted"),
        ((None, "did not answer in 10 s"), "nft list ruleset: did not answer in 10 s"),
        ((0, "none"), "rules that cannot be read: JSONDecodeError"),
        ((0, '{"nftables": [{"rule": {"family": "ip", "table": "a", "chain": "b", "expr": []}}]}'), "rules that"),
    ],
)
def test_rules_that_nobody_can_read_are_not_proven(
    answer: tuple[int | None, str], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = asked(monkeypatch, way("6818"), nft=answer)
    check = judged(told)

    assert told["problem"].startswith(why)
    assert (check["verdict"], check["unproven"]) == ("skip", True)


def test_a_question_of_the_rules_changes_none(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[list[str]] = []
    monkeypatch.setattr(firewall, "run", lambda command, *_, **__: called.append(command) or (None, ""))

    firewall.collect({"sources": {}, "ways": []})

    assert [command[0] for command in called] == ["nft", "/usr/bin/python3", "iptables-save"]
    assert called[0] == COMMAND


#: What is stopped, by whom.
BY: dict[str, dict[str, str]] = {
    "ufw": {"family": "ip", "table": "filter", "chain": "INPUT"},
    "firewalld": {"family": "inet", "table": "firewalld", "chain": "filter_INPUT"},
    "iptables": {"family": "ip", "table": "filter", "chain": "INPUT"},
    "nftables": {"family": "inet", "table": "filter", "chain": "input"},
}


def by(program: str) -> dict[str, Any]:
    found = {"port": "6818", "protocol": "tcp", "purpose": "slurmd", "source": "10.0.18.1"}
    return {"problem": "", "filtered": True, "stopped": [{"program": program, **BY[program], **found}]}


def judged(told: dict[str, Any] | None, handling: str = "check", **options: bool) -> dict[str, Any]:
    facts = facts_from({"firewall": told} if told else {})
    wants = {"handling": handling, "machines": ["10.0.18.1", "10.0.18.8/30"]}
    return judge.firewall(SUBJECT, facts, wants, **options).as_dict()


@pytest.mark.parametrize(
    ("program", "rule"),
    [
        ("ufw", "on the machine: ufw allow from 10.0.18.1; ufw allow from 10.0.18.8/30; or set cluster_firewall=open"),
        (
            "firewalld",
            "on the machine: firewall-cmd --permanent --zone=trusted --add-source=10.0.18.1 --add-source=10.0.18.8/30; "
            "firewall-cmd --reload; or set cluster_firewall=open",
        ),
        (
            "iptables",
            "on the machine: iptables -I INPUT -s 10.0.18.1,10.0.18.8/30 -j ACCEPT, and keep it "
            "(netfilter-persistent save)",
        ),
        (
            "nftables",
            "on the machine: nft insert rule inet filter input ip saddr { 10.0.18.1,10.0.18.8/30 } accept, and the "
            "same in /etc/nftables.conf",
        ),
    ],
)
def test_a_firewall_that_keeps_the_others_out_is_named_with_the_rule_in_its_own_words(program: str, rule: str) -> None:
    check = judged(by(program))

    assert (check["verdict"], check["fix"]) == ("fail", rule)
    assert check["observed"] == f"{program} stops 10.0.18.1 at port 6818/tcp (slurmd)"


def test_only_what_the_stage_base_can_open_is_left_to_it() -> None:
    later = judged(by("ufw"), "open", mended_later=True)

    assert (later["verdict"], later["fix"]) == ("warn", "clusterctl provision base")
    assert judged(by("ufw"), "open")["verdict"] == "fail", "it is what base acts on"
    assert judged(by("nftables"), "open", mended_later=True)["verdict"] == "fail"
    assert "cluster_firewall" not in judged(by("nftables"), "open")["fix"]


def test_a_site_may_keep_it_to_itself_and_silence_is_no_pass() -> None:
    assert judged(by("ufw"), "ignore")["verdict"] == "skip"
    assert judged(None)["verdict"] == "unknown"
