"""Do all machines share one munge key, and do their clocks agree? Pure judgement of what the machines answered."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from provision.judge.answers import mapping
from provision.judge.clocks import Consensus, Offset, consensus
from provision.judge.slurm_answers import line
from provision.model.checks import Check, Subject, Verdict
from provision.model.facts import MachineFacts

SUBJECT = Subject("munge", ("key_mode", "same_key", "round_trip", "clock"), fix="clusterctl provision munge")

#: Up to this many machines each one decodes the credentials of all others; beyond it, of its two neighbours and the
#: controller, so that the work grows with the machines and not with their square.
ALL_PAIRS = 16

#: What munge prints for an empty payload: some 130 characters. All other machines are given it to decode.
_CREDENTIAL = re.compile(r"MUNGE:[A-Za-z0-9+/=]{1,1000}:")


def credential_in(proof: Any) -> str:
    """Return the credential in a machine's answer, empty where it holds none: others are handed nothing else."""
    found = mapping(proof).get("credential")
    return found if isinstance(found, str) and _CREDENTIAL.fullmatch(found) else ""


@dataclass(frozen=True)
class Seen:
    """What one machine answered: about its key, its own credential, the others', its clock."""

    mode: str = ""
    owner: str = ""
    fingerprint: str = ""
    problem: str = ""
    encoded: bool = False
    decoded: Mapping[str, str] = field(default_factory=dict)
    clock: Offset | None = None

    @classmethod
    def from_results(cls, proof: Any, decoded: Any = None, clock: Any = None) -> Self:
        """Read the results of the role's questions; what is missing or of another shape is an empty answer."""
        proof, answers = mapping(proof), mapping(mapping(decoded).get("decoded"))
        key = mapping(proof.get("key"))
        strange = "its output is no credential" if proof.get("credential") and not credential_in(proof) else ""
        return cls(
            mode=line(key.get("mode")),
            owner=line(key.get("owner")),
            fingerprint=line(key.get("fingerprint")),
            problem=line(key.get("absent")) or line(proof.get("error")) or line(proof.get("msg")) or strange,
            encoded=bool(credential_in(proof)),
            decoded={str(host): line(mapping(one).get("status")) for host, one in answers.items()},
            clock=Offset.of(mapping(clock).get("clock_offset")),
        )

    def accepts(self, host: str) -> bool:
        """Tell whether the machine accepted the other's credential."""
        return self.decoded.get(host, "").startswith("Success")


@dataclass(frozen=True)
class Wants:
    """What is compared with: the key's mode, and from how many seconds on a clock is off.

    ``fingerprint`` is the salted hash of the controller's key, made with the salt that the machines used; "" where the
    controller did not answer.
    """

    controller: str
    fingerprint: str
    mode: str
    warn: int
    fail: int


def peers(hosts: Sequence[str], me: str, controller: str) -> tuple[str, ...]:
    """Return whose credentials ``me`` decodes, its own where it is alone.

    Both directions of every pair are covered, because the relation is symmetric.
    """
    others = [host for host in hosts if host != me]
    if not others:
        return (me,)
    if len(hosts) <= ALL_PAIRS or me == controller:
        return tuple(others)
    place = list(hosts).index(me)
    near = {hosts[place - 1], hosts[(place + 1) % len(hosts)]} | ({controller} & set(others))
    return tuple(host for host in others if host in near)


def hung(proof: Any) -> bool:
    """Tell whether a machine said that its munged does not answer: it is asked nothing else."""
    return mapping(proof).get("hung") is True


def credentials(proofs: Mapping[str, Any]) -> dict[str, str]:
    """Return the credential of each machine that made one, by host; ``proofs`` are the machines' first answers."""
    made = {host: credential_in(proof) for host, proof in proofs.items()}
    return {host: credential for host, credential in made.items() if credential}


def checks(seen: Mapping[str, Seen], wants: Wants) -> list[Check]:
    """Return the checks of all machines, each with its host: who is odd shows only beside the others."""
    asked = {host: peers(list(seen), host, wants.controller) for host in seen}
    refusing = {host: _refusing(seen, host, asked[host]) for host in seen}
    prints = {host: one.fingerprint for host, one in seen.items() if one.fingerprint}
    if wants.fingerprint:
        prints[wants.controller] = wants.fingerprint
    offsets = {host: one.clock for host, one in seen.items() if one.clock}
    agreed = consensus(offsets, wants.warn / 2)
    found = []
    for host, own in seen.items():
        found += [
            _key_mode(host, own, wants.mode),
            _same_key(host, own, prints, wants.controller),
            _round_trip(host, seen, asked[host], refusing),
            _clock(host, offsets, agreed, wants),
        ]
    return found


#: What a machine says of its own key, beside the controller's: judged before the role acts, and again afterwards. Who
#: may read it is a check of its own, because mending that restarts nothing.
MACHINE = Subject("munge", ("key", "key_file"), fix="clusterctl provision munge")


def machine_checks(facts: MachineFacts, wants: Mapping[str, Any]) -> list[Check]:
    """Judge one machine's key. ``wants``: ``controller`` (is it this one), ``fingerprint``, ``mode``, ``verified``.

    ``fingerprint`` is that of the controller's key with the salt that this machine used: empty where it has none
    yet, None where it did not answer. Whoever acts brings every machine the controller's key. Where the cluster is
    verified (``verified``), two keys that differ accuse neither: whose is the odd one shows only beside the others'
    (``munge.same_key``).
    """
    own, mode = facts["munge"], str(wants["mode"])
    if wants["fingerprint"] is None and not wants["controller"]:
        return MACHINE.all_unknown("the controller did not answer, so nothing can be compared with its key")
    expected, right = "the cluster's key", f"{mode} munge:munge"
    if absent := own.get("absent"):
        missing = MACHINE.check("key", False, f"no key: {absent}", expected, cause="never installed, or removed")
        return [missing, MACHINE.skip("key_file", "there is none; see munge.key")]
    seen = f"{own.get('mode', '')} {own.get('owner', '')}".strip()
    if not seen or not own.get("fingerprint"):
        return MACHINE.all_unknown("the machine did not say what it has")
    other = not wants["controller"] and own["fingerprint"] != wants["fingerprint"]
    problem = "another key than the controller's" if wants["fingerprint"] else "the controller has no key"
    return [
        MACHINE.check(
            "key",
            Verdict.PASS if not other else Verdict.UNKNOWN if wants.get("verified") else Verdict.FAIL,
            problem if other else expected,
            expected,
            source="the controller's key, compared by a hash with a salt made for this run",
            cause="somebody changed the key's file by hand, or the controller made a new key",
        ),
        MACHINE.check(
            "key_file",
            seen == right,
            seen,
            right,
            source="munge_key_mode",
            cause="somebody changed who may read the key's file",
        ),
    ]


def _key_mode(host: str, own: Seen, mode: str) -> Check:
    observed, expected = f"{own.mode} {own.owner}".strip(), f"{mode} munge:munge"
    if not observed:
        return SUBJECT.unknown("key_mode", own.problem or "nothing could be observed", host=host, cause=own.problem)
    return SUBJECT.check(
        "key_mode",
        observed == expected,
        observed,
        expected,
        host=host,
        source="munge_key_mode",
        cause="somebody changed the key's file by hand",
    )


def _same_key(host: str, own: Seen, prints: Mapping[str, str], controller: str) -> Check:
    """The key of most machines is the cluster's: one that differs from it is the odd one, the controller's too."""
    if not own.fingerprint:
        return SUBJECT.unknown("same_key", own.problem or "the key could not be read", host=host, cause=own.problem)
    mine = prints[host]
    if len(prints) == 1:
        if host == controller:
            return SUBJECT.skip("same_key", "no other machine is in this run's scope", host=host)
        return SUBJECT.unknown("same_key", f"no other key could be read, not even that of {controller}", host=host)
    (common, holders), *_ = Counter(prints.values()).most_common(1)
    majority = 2 * holders > len(prints)
    others = [name for name, key in prints.items() if key != mine]
    like = len(prints) - len(others)
    source = "the machines' keys, compared by a hash with a salt made for this run"
    if not others or (majority and mine == common):
        odd = f", and not by {', '.join(others[:5])}" if others else ""
        return SUBJECT.check(
            "same_key", True, f"shared by {like} of {len(prints)} machines{odd}", host=host, source=source
        )
    if majority:
        observed, cause = f"another key than {holders} of {len(prints)} machines", f"the key of {host} was changed"
    else:
        observed = f"another key than {', '.join(others[:5])}"
        cause = f"{host} or {', '.join(others[:5])} has a wrong key; with no majority nobody can say which"
    return SUBJECT.check(
        "same_key",
        False,
        f"hash {mine[:12]}: {observed}",
        "one key on all machines",
        host=host,
        source=source,
        cause=cause,
    )


def _refusing(seen: Mapping[str, Seen], me: str, asked: Sequence[str]) -> dict[str, str]:
    """Return the machines with which credentials do not go both ways, each with munge's words."""
    found = {}
    for host in asked:
        other = seen[host]
        if host in seen[me].decoded and not seen[me].accepts(host):
            found[host] = seen[me].decoded[host] or "munge said nothing"
        elif me in other.decoded and not other.accepts(me):
            found[host] = f"refuses those of {me}: {other.decoded[me] or 'munge said nothing'}"
    return found


def _round_trip(
    host: str, seen: Mapping[str, Seen], asked: Sequence[str], refusing: Mapping[str, Mapping[str, str]]
) -> Check:
    """Of a pair that does not work, the one is at fault that does not work with more of the others; alike, either."""
    own, bad = seen[host], refusing[host]
    mine = {name: words for name, words in bad.items() if len(refusing[name]) <= len(bad)}
    tied = [name for name in mine if name != host and len(refusing[name]) == len(bad)]
    good = [name for name in asked if own.accepts(name)]
    source, expected = "munge on both machines", f"credentials of {', '.join(asked[:5])} are accepted"
    fix = "systemctl status munge; then clusterctl provision munge"
    if not own.encoded:
        return SUBJECT.check(
            "round_trip",
            Verdict.FAIL if own.problem else Verdict.UNKNOWN,
            f"made no credential: {own.problem or 'no answer'}",
            expected,
            host=host,
            source=source,
            cause=own.problem or "the machine did not answer",
            fix=fix,
        )
    if mine:
        told = [f"{name}: {words}" for name, words in list(mine.items())[:5]]
        cause = "the keys differ, munged is not running, or the clocks are more than 300 s apart"
        if tied:
            cause += f"; on {host} or on {', '.join(tied[:5])}, nobody can say which"
        return SUBJECT.check(
            "round_trip", False, "; ".join(told), expected, host=host, source=source, cause=cause, fix=fix
        )
    if not good:
        return SUBJECT.unknown("round_trip", "no credential of another machine could be decoded", host=host, fix=fix)
    without = [name for name in asked if name not in good]
    left_out = f"; not tried, or at fault themselves: {', '.join(without[:5])}" if without else ""
    shown = ", ".join(good[:5]) + (f" and {len(good) - 5} more" if len(good) > 5 else "")
    return SUBJECT.check(
        "round_trip", True, f"decoded credentials of {shown}{left_out}", expected, host=host, source=source
    )


def _clock(host: str, offsets: Mapping[str, Offset], agreed: Consensus | None, wants: Wants) -> Check:
    own = offsets.get(host)
    if own is None or agreed is None:
        return SUBJECT.unknown("clock", "the machine's time could not be read", host=host)
    if agreed.measured < 2:
        return SUBJECT.skip("clock", "no other machine is in this run's scope", host=host)
    if agreed.majority:
        off, against = own.ahead(agreed.offset), f"{agreed.agree} of {agreed.measured} machines"
        cause = f"time is not synchronised on {host}"
    else:
        away = {name: own.apart(other) for name, other in offsets.items() if name != host}
        other = max(away, key=lambda name: abs(away[name]))
        off, against = away[other], other
        cause = f"time is not synchronised on {host} or on {other}; with no majority nobody can say which"
    if not off and own.high - own.low > wants.fail:
        why = f"the machine took {own.high - own.low:.0f} s to answer, so its time is known to within that only"
        return SUBJECT.skip("clock", why, host=host, unproven=True)
    return SUBJECT.check(
        "clock",
        Verdict.FAIL if abs(off) > wants.fail else Verdict.WARN if abs(off) > wants.warn else Verdict.PASS,
        f"{off:+.1f} s or more against {against}" if off else f"agrees with {against}",
        f"within {wants.warn} s of the others",
        host=host,
        source="each machine's clock against the control node's; munge_clock_warn, munge_clock_fail",
        cause=cause,
        fix="timedatectl timesync-status on the machine; then clusterctl provision base",
    )
