"""Do all machines share one munge key, and do their clocks agree? Pure judgement of what the machines answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

#: Up to this many machines each one decodes the credentials of all others; beyond it, of its two neighbours and the
#: controller, so that the work grows with the machines and not with their square.
ALL_PAIRS = 16

_PROVISION = "clusterctl provision munge"


@dataclass(frozen=True)
class Decoded:
    """What munge said to one credential. Times are whole seconds since 1970, each by its own machine's clock."""

    status: str
    encode: int | None = None
    decode: int | None = None

    @property
    def ok(self) -> bool:
        """True where munge accepted the credential."""
        return self.status.startswith("Success")

    @property
    def passed(self) -> int | None:
        """Seconds between making and decoding, each by its own clock; None where munge told no times."""
        return None if self.encode is None or self.decode is None else self.decode - self.encode


@dataclass(frozen=True)
class Seen:
    """What one machine answered: about its key, about its own credential, and about the others'."""

    mode: str = ""
    owner: str = ""
    fingerprint: str = ""
    problem: str = ""
    encoded: bool = False
    decoded: Mapping[str, Decoded] = field(default_factory=dict)

    @classmethod
    def from_results(cls, proof: Mapping[str, Any] | None, decoded: Mapping[str, Any] | None) -> Self:
        """Read the results of the role's two questions; missing ones are an empty answer."""
        proof, answers = proof or {}, (decoded or {}).get("decoded") or {}
        key = proof.get("key") or {}
        return cls(
            mode=str(key.get("mode", "")),
            owner=str(key.get("owner", "")),
            fingerprint=str(key.get("fingerprint", "")),
            problem=str(key.get("absent") or proof.get("error") or proof.get("msg") or ""),
            encoded=bool(proof.get("credential")),
            decoded={
                str(host): Decoded(str(one.get("status", "")), one.get("encode"), one.get("decode"))
                for host, one in answers.items()
            },
        )


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


def offset(seen: Mapping[str, Seen], me: str, other: str) -> float | None:
    """Return by how many seconds the clock of ``me`` is ahead of the other's; None where it was not measured.

    Each credential carries its maker's time, and each decoding its decoder's. Their differences contain the time
    that passed between the two, which is about the same in both directions and so falls out of half their difference.
    """
    mine = seen[other].decoded.get(me) if other in seen else None
    theirs = seen[me].decoded.get(other)
    if mine is None or theirs is None:
        return None
    there, back = theirs.passed, mine.passed
    return None if there is None or back is None else (there - back) / 2


def checks(
    seen: Mapping[str, Seen], me: str, controller: str, expected: str, *, mode: str, warn: int, fail: int
) -> list[dict[str, Any]]:
    """Return the checks of one machine.

    ``expected`` is the salted hash of the controller's key, made with the salt that the machines used; ``warn`` and
    ``fail`` are seconds.
    """
    own = seen[me]
    return [
        _key_mode(own, mode),
        _same_key(own, expected, controller),
        _round_trip(seen, me, controller),
        _clock(seen, me, warn, fail),
    ]


def _check(name: str, verdict: str, **texts: Any) -> dict[str, Any]:
    if verdict == "pass":
        texts.update(cause="", fix="")
    return {"id": f"munge.{name}", "host": "", "level": "host", "verdict": verdict, **texts}


def _key_mode(own: Seen, mode: str) -> dict[str, Any]:
    observed, expected = f"{own.mode} {own.owner}".strip(), f"{mode} munge:munge"
    verdict = "unknown" if not observed else "pass" if observed == expected else "fail"
    return _check(
        "key_mode",
        verdict,
        observed=observed or own.problem or "nothing could be observed",
        expected=expected,
        source="munge_key_mode",
        cause=own.problem or "somebody changed the key's file by hand",
        fix=_PROVISION,
    )


def _same_key(own: Seen, expected: str, controller: str) -> dict[str, Any]:
    if not own.fingerprint or not expected:
        verdict, observed = "unknown", own.problem or f"the key of {controller} could not be read"
    else:
        verdict = "pass" if own.fingerprint == expected else "fail"
        observed = f"hash {own.fingerprint[:12]}"
    return _check(
        "same_key",
        verdict,
        observed=observed,
        expected=f"hash {expected[:12]}" if expected else f"the key of {controller}",
        source=f"the key of {controller}, compared by a hash with a salt made for this run",
        cause=f"the key differs from that of {controller}, or one of the two is absent",
        fix=_PROVISION,
    )


def _round_trip(seen: Mapping[str, Seen], me: str, controller: str) -> dict[str, Any]:
    own, wanted = seen[me], peers(list(seen), me, controller)
    good = [host for host in wanted if (one := own.decoded.get(host)) and one.ok]
    bad = {host: own.decoded[host].status for host in wanted if host in own.decoded and not own.decoded[host].ok}
    silent = [host for host in wanted if host not in own.decoded]
    told = [f"{host}: {status}" for host, status in bad.items()]
    told += [f"{host}: made no credential ({seen[host].problem or 'no answer'})" for host in silent]
    return _check(
        "round_trip",
        "fail" if bad else "unknown" if silent else "pass",
        observed="; ".join(told) or f"decoded credentials of {', '.join(good)}",
        expected=f"credentials of {', '.join(wanted)} are accepted",
        source="munge on both machines",
        cause="the keys differ, munged is not running, or the clocks are more than 300 s apart",
        fix=f"systemctl status munge; then {_PROVISION}",
    )


def _clock(seen: Mapping[str, Seen], me: str, warn: int, fail: int) -> dict[str, Any]:
    found = {host: value for host in seen[me].decoded if host != me and (value := offset(seen, me, host)) is not None}
    if not found:
        alone = len(seen) == 1
        why = "no other machine is in this run's scope" if alone else "no credential went both ways"
        return _check("clock", "skip" if alone else "unknown", observed=why, expected=f"within {warn} s of the others")
    other = max(found, key=lambda host: abs(found[host]))
    worst = found[other]
    verdict = "fail" if abs(worst) > fail else "warn" if abs(worst) > warn else "pass"
    return _check(
        "clock",
        verdict,
        observed=f"{worst:+.1f} s against {other}",
        expected=f"within {warn} s of the others",
        source="times in credentials, both ways; munge_clock_warn, munge_clock_fail",
        cause="time is not synchronised on one of the two",
        fix="timedatectl timesync-status on both; then clusterctl provision base",
    )
