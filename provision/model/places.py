"""A directory or file as it should be, and what is wrong with what a machine says is there. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from provision.model.checks import Code


@dataclass(frozen=True)
class Place:
    """A directory or file as it should be. ``text`` is a file's content; ``secret``: it is never shown.

    ``known`` is false where nobody has said what its content has to be. ``program``: the text is one of a program, of
    which nobody wants to read the difference. ``fingerprints``: the file holds public keys, each one of these.
    ``validate``: the command that has to accept a new text before it is put there, %s in it for the file's name.
    """

    path: str
    owner: str = "root"
    group: str = "root"
    mode: str = "0755"
    text: str | None = None
    secret: bool = False
    known: bool = True
    program: bool = False
    fingerprints: tuple[str, ...] = ()
    validate: str = ""


def difference(place: Place, kind: str, state: Mapping[str, Any] | None) -> tuple[Code, str] | None:
    """Return how a place differs from what ``machine_facts`` says of it: what it is above all, and all of it in words.

    None where it is as it should be, or was not answered.
    """
    if state is None or "kind" not in state:
        return None
    if state["kind"] == "absent":
        return Code.ABSENT, "is absent"
    if state["kind"] != kind:
        return Code.OTHER, f"is a {state['kind']}, not a {kind}"
    problems = ["has another text"] if text_differs(place, state) else []
    if place.fingerprints and not _keys_expected(place, state):
        problems.append("holds another key than the expected one, or none")
    code = Code.CONTENT if problems else Code.MODE
    if state.get("mode") != place.mode:
        problems.append(f"has mode {state.get('mode')}, not {place.mode}")
    for what, number in (("owner", "uid"), ("group", "gid")):
        wanted = getattr(place, what)
        if wanted not in (state.get(what), str(state.get(number))):
            problems.append(f"has {what} {state.get(what)}, not {wanted}")
    return (code, " and ".join(problems)) if problems else None


def text_differs(place: Place, state: Mapping[str, Any]) -> bool:
    """Tell whether a file has another text than the one it should have."""
    if place.text is None:
        return False
    return state.get("sha256") != hashlib.sha256(place.text.encode()).hexdigest()


def _keys_expected(place: Place, state: Mapping[str, Any]) -> bool:
    """A file with one key more than the expected ones would have the repository trusted by that, too."""
    wanted = {re.sub(r"\s", "", text).upper() for text in place.fingerprints}
    found = set(state.get("fingerprints") or ())
    return bool(found) and found <= wanted
