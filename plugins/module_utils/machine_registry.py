# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a machine stands to the registry of the images: does it answer, is it trusted, who logs in, and, where it runs,
are its certificates good. Reads only; no password and no key travels. Standard library only, Python 3.8.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import secrets
import ssl
import time
from pathlib import Path

from ansible.module_utils import image_registry
from ansible.module_utils.machine_engine import ask as command

DAY = 86400
#: A registry's name, as far as it becomes one of a directory.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*:[0-9]{1,5}")
UNJUDGED = "openssl is not installed"


def reached(host, seconds, root="/"):
    """Return the HTTP status with which a registry answers as the engine asks it, or ``error``: why there is none."""
    url = f"https://{host}/v2/"
    try:
        status, _ = image_registry.within(
            seconds,
            lambda: image_registry.ask(url, image_registry.trusted(host, root), seconds=seconds, method="GET"),
        )
    except image_registry.RegistryError as error:
        return {"error": str(error)}
    return {"status": status}


def login(host, salt="", path=image_registry.LOGIN):
    """Return with what the engine logs in to a registry: the user, and a salted hash of user and password."""
    salt = salt or secrets.token_hex(16)
    try:
        known = json.loads(Path(path).read_text(encoding="utf-8"))["auths"][host]["auth"]
        user = base64.b64decode(known).decode("utf-8").partition(":")[0]
        return {"salt": salt, "user": user, "fingerprint": fingerprint(known, salt)}
    except OSError as error:
        return {"absent": str(error.strerror)}
    except (ValueError, LookupError, TypeError):
        return {"absent": f"the engine has no login for {host}"}


def fingerprint(text, salt):
    """Return a hash from which nothing about the text can be learnt, and which nobody can have prepared."""
    return hmac.new(bytes.fromhex(salt), text.encode(), hashlib.sha256).hexdigest()


def good(certificate, key, authority, host, days, patience=1, run=command):
    """Return what is wrong with one machine's certificate, None where openssl did not answer in time, else nothing.

    Wrong is also one that the ``authority`` (its certificate's file) has not signed, is for another ``host``, or will
    not be good for ``days`` more days.

    Raises:
        OSError, ValueError: a file is not there, or is none of a certificate or key.
    """
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(str(certificate), str(key), "")
    at = str(int(time.time()) + days * DAY)
    named = ["-verify_hostname", host] if host else []
    words = ["openssl", "verify", "-attime", at, "-CAfile", str(authority), *named, str(certificate)]
    _, problem, late = run(words, 10 * patience)
    if problem and problem != UNJUDGED:
        problem = None if late else f"{certificate} is not good for {host or 'writing'} and {days} more days: {problem}"
    return problem


def mirror_certificate(directory, authority, host, days, patience=1, run=command):
    """Return what is wrong with the certificate of the mirror on this machine, as ``certificates`` says it."""
    certificate, key = Path(directory) / "server.crt", Path(directory) / "server.key"
    try:
        problem = good(certificate, key, authority, host, days, patience, run)
    except FileNotFoundError:
        gone = [str(path) for path in (certificate, key) if not path.exists()]
        return {"authority": "", "problem": f"there is no {', '.join(gone)}"}
    except (OSError, ValueError) as error:
        return {"authority": "", "problem": f"a certificate or key cannot be used: {error}"}
    return {"authority": "", **({"problem": "", "unjudged": problem} if problem == UNJUDGED else {"problem": problem})}


def certificates(directory, client, host, days, patience=1, run=command):
    """Return the authority's certificate, and what is wrong with it, the server's and the writer's, empty if nothing.

    Wrong is also what will not be good for ``days`` more days. ``problem`` is None where openssl did not answer in
    time; ``unjudged`` says that there is none: a package that is missing makes no certificate a bad one.
    """
    directory, client = Path(directory), Path(client)
    server, writer = directory / "server.crt", client / "client.cert"
    pairs = ((server, directory / "server.key"), (writer, client / "client.key"))
    try:
        authority = (directory / "ca.crt").read_text(encoding="ascii")
        if (client / "ca.crt").read_text(encoding="ascii") != authority:
            return {"authority": authority, "problem": f"{client}/ca.crt is not that of the server"}
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
            str(directory / "ca.crt"), str(directory / "ca.key"), ""
        )
        for (certificate, key), name in ((pairs[0], host), (pairs[1], "")):
            problem = good(certificate, key, directory / "ca.crt", name, days, patience, run)
            if problem == UNJUDGED:
                return {"authority": authority, "problem": "", "unjudged": problem}
            if problem != "":
                return {"authority": authority, "problem": problem}
    except FileNotFoundError:
        wanted = (
            directory / "ca.crt",
            directory / "ca.key",
            client / "ca.crt",
            *(path for pair in pairs for path in pair),
        )
        gone = [str(path) for path in wanted if not path.exists()]
        return {"authority": "", "problem": f"there is no {', '.join(gone)}"}
    except (OSError, ValueError) as error:
        return {"authority": "", "problem": f"a certificate or key cannot be used: {error}"}
    return {"authority": authority, "problem": ""}


def former(directory, host, keep):
    """Return the names below ``directory``, HOST:PORT, under which the registry on ``host`` is trusted beside ``keep``.

    What its authority certifies says so in the subject of its certificate (make-certificates), also one that was
    replaced: where another has put trust in something else under such a name, it is theirs.
    """
    known = f"clusterctl registry of {host}".encode()
    found = []
    for path in sorted(Path(directory).glob(f"{host}:*")):
        try:
            pem = (path / "ca.crt").read_text(encoding="ascii")
            if path.name not in keep and NAME.fullmatch(path.name) and known in ssl.PEM_cert_to_DER_cert(pem):
                found.append(path.name)
        except (OSError, ValueError):
            continue
    return found


def collect(root, ask, patience=1):
    """Return what provision.model.container_facts.RegistryFacts describes.

    ``ask`` has ``host`` and ``seconds``; ``login``, where the engine is to be logged in; and ``certificates`` with
    ``directory``, ``client``, ``host`` and ``days``, where the registry runs; ``mirror``, host and port of the one near
    this machine; ``trust`` with ``directory``, ``host`` and ``keep`` (``former``); and ``mirror_certificate`` with
    ``directory``, ``authority``, ``host`` and ``days``, where that runs.
    """
    host, seconds = str(ask["host"]), int(ask.get("seconds", 10)) * patience
    found = reached(host, seconds, root)
    if ask.get("login"):
        found["login"] = login(host)
    if given := ask.get("certificates"):
        found["certificates"] = certificates(
            Path(root, given["directory"].lstrip("/")),
            Path(root, given["client"].lstrip("/")),
            given["host"],
            int(given["days"]),
            patience,
        )
    if mirror := ask.get("mirror"):
        found["mirror"] = reached(str(mirror), seconds, root)
    if trust := ask.get("trust"):
        found["former"] = former(Path(root, trust["directory"].lstrip("/")), trust["host"], trust["keep"])
    if given := ask.get("mirror_certificate"):
        directory, authority = (Path(root, given[name].lstrip("/")) for name in ("directory", "authority"))
        found["mirror_certificate"] = mirror_certificate(
            directory, authority, given["host"], int(given["days"]), patience
        )
    return found
