"""Of every directory, file and link that a role manages it is noticed whatever is broken of it.

The mutation table breaks each on a real machine in one way; here it is each in all ways, before the judge of all roles.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from managed_things import on_machines
from test_mutation_table import INVENTORY, MADE_UP

from provision.judge import managed, road
from provision.model.checks import Subject, Verdict
from provision.model.managed import Managed, managed_from, questions

TEXT = "as declared\n"
AS_DECLARED = hashlib.sha256(TEXT.encode()).hexdigest()
#: Files that are made on a machine, whose content no declaration has: the checks that judge it, or what would break.
MADE_THERE = {
    "munge.key": ["/etc/munge/munge.key"],
    "monitoring.key": ["/etc/clusterctl/monitoring/tls.pem"],
    "images.certificates": [
        f"/etc/clusterctl/registry/{name}" for name in ("ca.crt", "ca.key", "server.crt", "server.key")
    ],
    "images.mirror_certificate": ["/etc/clusterctl/mirror/server.crt", "/etc/clusterctl/mirror/server.key"],
    "images.registry_answers": [
        f"/etc/docker/certs.d/head:5001/{name}" for name in ("ca.crt", "client.cert", "client.key")
    ],
    "slurm_database.current": ["/etc/slurmdbd/password.conf"],
}
BROKEN: dict[str, dict[str, Any]] = {
    "another text": {"sha256": hashlib.sha256(b"edited\n").hexdigest()},
    "mode 0777": {"mode": "0777"},
    "owner daemon": {"owner": "daemon", "uid": 1},
    "group daemon": {"group": "daemon", "gid": 1},
    "is absent": {"kind": "absent"},
    "is a link": {"kind": "link", "target": "/elsewhere"},
}


def wanted() -> Iterator[tuple[str, Managed, set[str]]]:
    """Yield each role's places on each machine of the lab, with the paths whose content the machine is asked for."""
    with TemporaryDirectory() as directory:
        (inventory := Path(directory) / "inventory.ini").write_text(INVENTORY)
        machines = list(on_machines(inventory))
    for _, constants, templar in machines:
        for role in road.ROLES.keys() - MADE_UP.keys():
            data: Mapping[str, Any] = constants.get(f"__{role}_managed") or {}
            found: dict[str, list[dict[str, Any]]] = {}
            for kind in ("directories", "files", "links"):
                given = data.get(kind) or ()
                for entry in templar.template(given) if isinstance(given, str) else given:
                    said = {key: entry[key] for key in entry if key not in ("template", "file", "content", "known")}
                    of_text = {"text": TEXT} if {"template", "file", "content", "text"} & entry.keys() else {}
                    found.setdefault(kind, []).append({**templar.template(said), **of_text})
            yield role, managed_from(found), set(questions(data, templar.template)["contents"])


def answers(wants: Managed) -> dict[str, dict[str, Any]]:
    """Return what a machine says that has all of it as declared."""
    places = {
        place.path: {"kind": kind, "mode": place.mode, "owner": place.owner, "group": place.group}
        for kind, those in (("directory", wants.directories), ("file", wants.files))
        for place in those
    }
    texts = {place.path: {**places[place.path], "sha256": AS_DECLARED} for place in wants.files}
    return {**places, **texts, **{path: {"kind": "link", "target": target} for path, target in wants.links.items()}}


def verdict(role: str, wants: Managed, state: Mapping[str, Any]) -> tuple[Verdict, str]:
    """Return what the judge of all roles says of the places."""
    (check,) = managed.checks(Subject(role, ("files",)), wants, {"paths": state})
    return check.verdict, check.observed


@pytest.fixture(scope="module")
def everywhere() -> list[tuple[str, Managed, set[str]]]:
    return list(wanted())


def test_all_as_declared_passes(everywhere: list[tuple[str, Managed, set[str]]]) -> None:
    assert {verdict(role, wants, answers(wants))[0] for role, wants, _ in everywhere} == {Verdict.PASS}
    assert len({place.path for _, wants, _ in everywhere for place in wants.files}) > 50


@pytest.mark.parametrize("words", BROKEN)
def test_whatever_is_broken_of_a_place_is_named(everywhere: list[tuple[str, Managed, set[str]]], words: str) -> None:
    for role, wants, _ in everywhere:
        places = wants.files if words == "another text" else (*wants.directories, *wants.files)
        for place in places:
            if words == "another text" and place.text is None:
                continue
            state = answers(wants)
            state[place.path] = {**state[place.path], **BROKEN[words]}

            assert verdict(role, wants, state)[0] is Verdict.FAIL, (role, place.path)
            assert f"{place.path} " in verdict(role, wants, state)[1]
            assert words.split()[-1] in verdict(role, wants, state)[1]


@pytest.mark.parametrize("broken", [{"kind": "absent"}, {"kind": "link", "target": "/elsewhere"}, {"kind": "file"}])
def test_a_link_that_leads_elsewhere_is_named(
    everywhere: list[tuple[str, Managed, set[str]]], broken: dict[str, Any]
) -> None:
    for role, wants, _ in everywhere:
        for path in wants.links:
            assert verdict(role, wants, {**answers(wants), path: broken})[0] is Verdict.FAIL, (role, path)


def test_the_machine_is_asked_for_the_text_of_every_file_whose_text_counts(
    everywhere: list[tuple[str, Managed, set[str]]],
) -> None:
    for role, wants, contents in everywhere:
        assert {place.path for place in wants.files if place.text is not None} <= contents, role
        assert {place.path for place in wants.files} - contents <= {
            path for paths in MADE_THERE.values() for path in paths
        }, role
