"""Whether a machine's own firewall lets the cluster's other machines in: the same before and after. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from provision.model.checks import Check, Subject, Verdict
from provision.model.facts import FirewallFacts, MachineFacts, StoppedWay
from provision.model.text import brief

#: Those into which the stage base writes. A site's own rules, of nftables and iptables, are the site's files.
WRITABLE = ("firewalld", "ufw")
_SHOWN = 8
#: In each program's own words, for now and for the next boot: of one address, or of all.
_RULES = {
    "ufw": "ufw allow from {address}",
    "firewalld": "firewall-cmd --permanent --zone=trusted {sources}; firewall-cmd --reload",
    "iptables": "iptables -I INPUT -s {list} -j ACCEPT, and keep it (netfilter-persistent save)",
    "nftables": "nft insert rule {place} ip saddr {{ {list} }} accept, and the same in /etc/nftables.conf",
}


def firewall(subject: Subject, facts: MachineFacts, wants: Mapping[str, Any], *, mended_later: bool = False) -> Check:
    """Judge what ``machine_facts`` reports of ``firewall``.

    ``wants``: ``handling`` (``check``, ``open``, ``ignore``) and ``machines``, the addresses of the others.
    ``mended_later``: a stage that comes lets them in, where that is wanted.
    """
    told = facts.get("firewall")
    if wants["handling"] == "ignore":
        return subject.skip("firewall", "left to the site by cluster_firewall")
    if not told:
        return subject.unknown("firewall", "the machine did not say what its firewall lets in")
    if told["problem"]:
        return subject.skip("firewall", told["problem"], unproven=True)
    if not (stopped := told["stopped"]):
        good = "lets the cluster's machines in" if told["filtered"] else "incoming traffic is not filtered"
        return subject.check("firewall", True, good, source="cluster_firewall")
    programs = stops(told)
    writable = set(programs) <= set(WRITABLE)
    rules = [_rule(one, wants["machines"]) for one in {way["program"]: way for way in stopped}.values()]
    if wants["handling"] == "open" and writable:
        fix = "clusterctl provision base"
    else:
        fix = f"on the machine: {'; '.join(rules)}" + ("; or set cluster_firewall=open" if writable else "")
    return subject.check(
        "firewall",
        Verdict.WARN if mended_later and wants["handling"] == "open" and writable else Verdict.FAIL,
        brief([_stopped(one) for one in stopped], 3),
        "the cluster's machines are let in",
        source="cluster_firewall; nft list ruleset; clusterctl check --ports",
        cause=f"{' and '.join(programs)} is up and has no rule for them: Slurm, images and jobs would not get through",
        fix=fix,
    )


def stops(told: FirewallFacts) -> list[str]:
    """Return whose rules stop something."""
    return sorted({one["program"] for one in told["stopped"]})


def _stopped(one: StoppedWay) -> str:
    return f"{one['program']} stops {one['source']} at port {one['port']}/{one['protocol']} ({one['purpose']})"


def _rule(one: StoppedWay, machines: Sequence[str]) -> str:
    """Return the command that lets all machines in, in the program's own words."""
    shown = machines[:_SHOWN]
    more = f" (and {len(machines) - _SHOWN} more addresses)" if len(machines) > _SHOWN else ""
    place = f"{one['family']} {one['table']} {one['chain']}"
    text, sources = _RULES[one["program"]], " ".join(f"--add-source={address}" for address in shown)
    each = shown if "{address}" in text else [""]
    lines = [text.format(address=address, sources=sources, list=",".join(shown), place=place) for address in each]
    return "; ".join(lines) + more
