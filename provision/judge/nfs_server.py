"""Whether a machine exports what others mount from it. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from provision.model.checks import Check, Subject
from provision.model.facts import MachineFacts
from provision.model.text import brief

SUBJECT = Subject("nfs_server", ("exports",), fix="clusterctl provision base")


def checks(facts: MachineFacts, wants: Mapping[str, Any]) -> list[Check]:
    """Return all checks of the subject: ``wants`` has the ``exports``, each with ``path``, ``clients`` and ``access``.

    What is exported stands in etab, which exportfs writes: a line for each directory and client.
    """
    exports: Sequence[Mapping[str, Any]] = wants["exports"]
    if not exports:
        return SUBJECT.all_skipped("no file system of cluster_mounts comes from this machine")
    answer = facts.get("commands", {}).get("exports") or {"rc": None, "text": "the machine was not asked"}
    if answer["rc"] is None:
        return SUBJECT.all_unknown(f"/var/lib/nfs/etab: {answer['text']}")
    # One that is not there is a server that never ran.
    told = str(answer["text"]) if answer["rc"] == 0 else ""
    exported = {(found[1], found[2]): found[3] for found in re.finditer(r"(?m)^(/\S*)\s+([^\s()]+)\((r[ow])[,)]", told)}
    state: Mapping[str, Any] = facts.get("state") or {}
    paths: Mapping[str, Any] = state.get("paths") or {}
    wrong = []
    for export in exports:
        path = str(export["path"])
        if (kind := (paths.get(path) or {}).get("kind", "absent")) != "directory":
            wrong.append(f"{path} is {'absent' if kind == 'absent' else f'a {kind}, not a directory'}")
            continue
        found = {client: exported.get((path, client)) for client in export["clients"]}
        if missing := [client for client, access in found.items() if access is None]:
            wrong.append(f"{path} is not exported to {brief(missing)}")
        if other := [client for client, access in found.items() if access not in (None, export["access"])]:
            wrong.append(f"{path} is not exported {export['access']} to {brief(other)}")
    return [
        SUBJECT.check(
            "exports",
            not wrong,
            brief(wrong) or f"{len(exports)} exported",
            "exported to the machines that mount it",
            source="cluster_mounts; /var/lib/nfs/etab",
            cause="removed by hand, or exportfs has not read its files since they were changed",
        )
    ]
