# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Does this machine's own firewall let the cluster's other machines in? Reads only. Standard library, Python 3.8.

The kernel's rules are read, not a program's settings: nft shows those of nftables and firewalld, iptables-save in full
those of ufw and iptables. Then the rules of each input chain are followed as the kernel would, for a connection's first
packet. Two things are not known of that packet, and the machine has the benefit of the doubt:

- on which interface it comes in, or what is in a set that nobody shows: a rule that accepts by that counts, one that
  drops by that does not,
- anything else (limits, marks, times, DNAT): such a rule neither accepts nor drops.

IPv4 alone. What is forwarded (containers' chains) is no business of ours.
"""

from __future__ import annotations

import ipaddress
import json
import shlex

from ansible.module_utils.machine_commands import run

#: Seconds for each of two questions.
SECONDS = 10
#: What firewalld needs of nftables is a library, which the distribution's Python has then.
_LIBRARY = [
    "/usr/bin/python3",
    "-c",
    "import nftables; n = nftables.Nftables(); n.set_json_output(True); print(n.cmd('list ruleset')[1])",
]
_ENDS = ("accept", "drop", "reject", "return", "jump", "goto")
#: Whether a rule is for a packet: beside True and False.
_MAYBE, _UNKNOWN = "maybe", "unknown"
#: Ports that stand for all of them: one that torchrun-slurm uses, and the ends of those that the kernel gives out.
_ALL = ("10000", "32768", "60999")


def collect(ask, patience=1):
    """Return who stops what of the cluster's.

    ``ask``: ``sources``, networks of each group of machines as a text by its name; ``ways``, each a mapping of
    ``port``, ``protocol``, ``sources`` (groups) and ``purpose``. ``problem``: why the rules are not known.
    """
    found: dict = {"problem": "", "filtered": False, "stopped": []}
    chains, found["problem"] = rules(patience)
    inputs = [chain for chain in chains.values() if chain["input"] and (chain["rules"] or chain["policy"] != "accept")]
    found["filtered"] = bool(inputs)
    for way in ask.get("ways") or ():
        networks = [one for group in way["sources"] for one in ask["sources"].get(group, "").split()]
        for chain in inputs:
            stopped = [one for one in dict.fromkeys(networks) if not _let_in(chain, chains, one, way)]
            if stopped:
                place = {"program": program(chain, chains), "family": chain["family"], "table": chain["table"]}
                told = {"port": way["port"], "protocol": way["protocol"], "purpose": way["purpose"]}
                found["stopped"].append({**place, **told, "chain": chain["name"], "source": stopped[0]})
    return found


def program(chain, chains):
    """Return whose rules these are: ``firewalld``, ``ufw``, ``iptables``, or ``nftables`` for a site's own."""
    if chain["table"] == "firewalld":
        return "firewalld"
    beside = (one for one in chains.values() if one["table"] == chain["table"] and one["family"] == chain["family"])
    if any(one["name"].startswith("ufw-") for one in beside):
        return "ufw"
    return "iptables" if chain["iptables"] else "nftables"


def rules(patience=1):
    """Return all chains by family, table and name, and why those are not known, empty where they are.

    Without any of the programs there is nobody who could have made rules.
    """
    code, text = run(["nft", "-j", "list", "ruleset"], SECONDS * patience)
    if code is None and not text:
        code, text = run(_LIBRARY, SECONDS * patience, errors=False)
        text = text if code == 0 else ""
    saved, listed = run(["iptables-save"], SECONDS * patience, errors=False)
    if text and code != 0:
        return {}, "nft list ruleset: " + " ".join(text.split())[:300]
    try:
        chains = of_nft(json.loads(text)["nftables"]) if text else {}
        if saved == 0 and "*filter" in listed:
            chains.update(of_iptables(listed))
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, StopIteration) as error:
        return {}, f"rules that cannot be read: {error!r}"[:300]
    return chains, ""


def _let_in(chain, chains, network, way):
    """Return whether a chain lets the first and the last address of a network in, at each end of the ports."""
    block = ipaddress.ip_network(network)
    ports = [int(port) for port in (_ALL if way["port"] == "all" else way["port"].split("-"))]
    packets = [(block[end], way["protocol"], port) for end in (0, -1) for port in ports]
    return all("accept" in _base(chain, chains, packet) for packet in dict.fromkeys(packets))


def _base(chain, chains, packet):
    found = _ends(chain, chains, packet)
    return found - {"return"} | ({chain["policy"]} if "return" in found else set())


def _ends(chain, chains, packet):
    """Return how a packet may leave a chain: ``accept``, ``drop``, ``return``; several where that is not known."""
    found = set()
    for matches, verdict, target in chain["rules"]:
        fits = _fits(matches, packet)
        if fits is False or (verdict == "accept" and fits == _UNKNOWN):
            continue
        ends = {verdict}
        if verdict in ("jump", "goto"):
            below = chains.get((chain["family"], chain["table"], target))
            ends = _ends(below, chains, packet) if below else {"return"}
        # Who returns from a jump goes on here, from a goto leaves with it.
        goes_on = verdict == "jump" and "return" in ends
        found |= ends - {"return"} if verdict == "jump" else ends
        if fits is True and not goes_on:
            return found
    return found | {"return"}


def _fits(matches, packet):
    """Return whether all conditions of a rule hold: False beats unknown beats maybe beats True."""
    found = [_holds(match, packet) for match in matches]
    return next((word for word in (False, _UNKNOWN, _MAYBE) if word in found), True)


def _holds(match, packet):
    """Return whether one condition holds: ``kind``, whether it is negated, and values."""
    kind, negated, values = match
    source, protocol, port = packet
    if kind == "interface" and values != ["lo"]:
        return _MAYBE
    if kind == "source":
        answer = any(_inside(source, value) for value in values)
    elif kind == "port":
        answer = any(low <= port <= high for low, high in values)
    elif kind == "protocol":
        answer = bool({protocol, "all"} & set(values))
    elif kind in ("state", "interface"):
        answer = "new" in values
    else:
        return kind
    return answer is not negated


def _inside(source, value):
    return value[0] <= source <= value[1]


def _network(text):
    block = ipaddress.ip_network(text, strict=False)
    return block[0], block[-1]


def _chain(family, table, name, *, at_input, policy, iptables):
    return {"family": family, "table": table, "name": name, "input": at_input, "policy": policy, "iptables": iptables,
            "rules": []}  # fmt: skip


def of_nft(listed):
    """Read what ``nft -j list ruleset`` lists (libnftables-json(5))."""
    chains: dict = {}
    sets = {(one["family"], one["table"], one["name"]): one.get("elem", ()) for entry in listed
            for one in [entry.get("set")] if one}  # fmt: skip
    for entry in listed:
        for kind, one in entry.items():
            if one.get("family") not in ("ip", "inet"):
                continue
            if kind == "chain":
                key = (one["family"], one["table"], one["name"])
                at_input = one.get("hook") == "input" and one.get("type") == "filter"
                chains[key] = _chain(*key, at_input=at_input, policy=one.get("policy", "accept"), iptables=False)
            elif kind == "rule":
                chain = chains[one["family"], one["table"], one["chain"]]
                chain["rules"] += _nft_rules(one["expr"], chain, sets)
    return chains


def _nft_rules(expressions, chain, sets):
    """Return the rules of one line: several where a map gives each value a verdict of its own."""
    matches: list = []
    for expression in expressions:
        kind, told = next(iter(expression.items()))
        if kind in _ENDS:
            return [_ruled(matches, kind, told)]
        if kind == "vmap":
            pairs = told["data"].get("set", ()) if isinstance(told["data"], dict) else ()
            return [
                _ruled([*matches, *_nft_match({"op": "==", "left": told["key"], "right": key}, chain, sets)],
                       *next(iter(verdict.items())))
                for key, verdict in pairs
            ]  # fmt: skip
        if kind == "match":
            matches += _nft_match(told, chain, sets)
        elif kind in ("limit", "xt", "quota", "connlimit", "ct count"):
            matches.append((_UNKNOWN, False, ()))
    return []


def _ruled(matches, verdict, told):
    target = told["target"] if verdict in ("jump", "goto") else ""
    return matches, "drop" if verdict == "reject" else verdict, target


def _nft_match(match, chain, sets):
    """Return the conditions of one match."""
    kind, left = next(iter(match["left"].items())) if isinstance(match["left"], dict) else ("", {})
    negated, right = match["op"] == "!=", match["right"]
    if isinstance(right, str) and right.startswith("@"):
        right = {"set": sets.get((chain["family"], chain["table"], right[1:]), ())}
    values = _flat(right)
    field = left.get("field") or left.get("key") if isinstance(left, dict) else ""
    layer = left.get("protocol") if kind == "payload" else ""
    if layer == "ip" and field == "saddr":
        return [("source", negated, [_addresses(value) for value in values])]
    if layer in ("ip6", "icmpv6") or (field == "nfproto" and values == ["ipv6"]):
        return [("protocol", False, ())]
    if field == "nfproto":
        return []
    if field in ("l4proto", "protocol"):
        return [("protocol", negated, [str(value) for value in values])]
    if kind == "ct" and field == "state":
        return [("state", negated, values)]
    if field in ("iif", "iifname", "iifgroup"):
        return [("interface", negated, values)]
    if layer in ("tcp", "udp", "th"):
        own = [] if layer == "th" else [("protocol", False, [layer])]
        rest = ("port", negated, [_span(value) for value in values]) if field == "dport" else (_UNKNOWN, False, ())
        return [*own, rest]
    return [("protocol", False, [layer])] if layer in ("icmp", "igmp") else [(_UNKNOWN, False, ())]


def _flat(value):
    if isinstance(value, dict) and "set" in value:
        value = value["set"]
    if isinstance(value, dict) and "elem" in value:
        return _flat(value["elem"]["val"])
    return [one for part in value for one in _flat(part)] if isinstance(value, (list, tuple)) else [value]


def _addresses(value):
    if isinstance(value, dict) and "range" in value:
        return tuple(ipaddress.ip_address(end) for end in value["range"])
    return _network("{addr}/{len}".format(**value["prefix"]) if isinstance(value, dict) else value)


def _span(value):
    """Return the first and the last of some ports; those that go by a name are never ours."""
    if isinstance(value, dict) and "range" in value:
        return tuple(value["range"])
    return (value, value) if isinstance(value, int) else (0, 0)


#: iptables-extensions(8): what is looked at, by option; modules that look at nothing else.
_OPTIONS = {"-s": "source", "--src-range": "source", "-p": "protocol", "-i": "interface", "--dport": "port",
            "--dports": "port", "--ctstate": "state", "--state": "state", "--match-set": _MAYBE}  # fmt: skip
_MODULES = ("tcp", "udp", "multiport", "conntrack", "state", "iprange", "set", "comment")


def of_iptables(text):
    """Read the table ``filter`` of what ``iptables-save`` prints."""
    chains: dict = {}
    table = text.partition("*filter\n")[2].partition("\nCOMMIT")[0]
    for line in table.splitlines():
        words = shlex.split(line)
        if line.startswith(":"):
            name, policy = words[0][1:], words[1].lower()
            at_input = name == "INPUT"
            policy = policy if at_input else "accept"
            chains["ip", "filter", name] = _chain("ip", "filter", name, at_input=at_input, policy=policy, iptables=True)
        elif words[0] == "-A":
            chain = chains["ip", "filter", words[1]]
            chain["rules"] += _iptables_rule(words[2:], {key[2] for key in chains})
    return chains


def _iptables_rule(words, names):
    """Return one rule; none where it only counts or logs."""
    matches: list = []
    negated, rule = False, []
    for option, value in zip(words, [*words[1:], ""]):  # noqa: B905 - Python 3.8
        if option in ("-j", "-g"):
            ends = {"ACCEPT": "accept", "DROP": "drop", "REJECT": "drop", "RETURN": "return"}
            verdict = ("jump" if option == "-j" else "goto") if value in names else ends.get(value, "")
            rule = [(matches, verdict, value if value in names else "")] if verdict else []
            break
        if option in _OPTIONS:
            matches.append((_OPTIONS[option], negated, _iptables_values(_OPTIONS[option], value)))
        elif option.startswith("-") and option != "--comment" and not (option == "-m" and value in _MODULES):
            matches.append((_UNKNOWN, False, ()))
        negated = option == "!"
    return rule


def _iptables_values(kind, value):
    if kind == "source":
        return [tuple(map(ipaddress.ip_address, one.split("-"))) if "-" in one else _network(one)
                for one in value.split(",")]  # fmt: skip
    if kind == "port":
        spans = [one.partition(":") for one in value.split(",")]
        return [(int(low), int(high or low)) for low, _, high in spans]
    return value.lower().split(",")
