# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""Asking a registry whether it has an image, with the engine's own login. Standard library only, Python 3.8."""

from __future__ import annotations

import http.client
import json
import re
import ssl
import threading
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

#: Where the engine keeps what it logs in to registries with.
LOGIN = "/root/.docker/config.json"
MANIFEST = "application/vnd.docker.distribution.manifest.v2+json, application/vnd.oci.image.manifest.v1+json"

#: How long a registry may take for one answer.
SECONDS = 20


class RegistryError(Exception):
    """Why the registry could not be asked."""


def said(error):
    """Return why a question failed, in the system's words and without those of Python's library around them."""
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    return getattr(reason, "strerror", None) or str(reason)


def within(seconds, work):
    """Return what ``work`` returns, if it does within so many seconds: no name server and no registry holds us longer.

    Raises:
        RegistryError: it did not, or failed as what speaks over a network fails.
    """
    done: list = []

    def run():
        try:
            done.append((work(), None))
        except RegistryError as error:
            done.append((None, str(error)))
        except (OSError, http.client.HTTPException, ValueError) as error:
            done.append((None, f"it does not answer: {said(error)}"))

    # A daemon: what still waits for a name server when all is said does not keep this process.
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if not done:
        raise RegistryError(f"it did not answer in {seconds} s")
    answer, problem = done[0]
    if problem is not None:
        raise RegistryError(problem)
    return answer


def _opened(request, seconds, context):
    """Open a request. The cluster's registry is on one of its machines, by its short name: no proxy leads there."""
    direct = [] if "." in str(urllib.parse.urlsplit(request.full_url).hostname) else [urllib.request.ProxyHandler({})]
    return urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), *direct).open(
        request, timeout=seconds
    )


def fetch(url, context, authorization=None, seconds=SECONDS, method="HEAD"):
    """Ask a registry; return the HTTP status, what it wants to see of those whom it turns away, and what it sends."""
    headers = {"Accept": MANIFEST} | ({"Authorization": authorization} if authorization else {})
    request = urllib.request.Request(url, method=method, headers=headers)  # noqa: S310 - always https
    try:
        with _opened(request, seconds, context) as answer:
            return answer.status, "", answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers.get("WWW-Authenticate", ""), b""


def ask(url, context, authorization=None, seconds=SECONDS, method="HEAD"):
    """Ask a registry; return the HTTP status, and what it wants to see of those whom it turns away."""
    return fetch(url, context, authorization, seconds, method)[:2]


def authorization(host, project, challenge, context, login=LOGIN, seconds=SECONDS):
    """Return the header by which the engine's own login opens the registry; None where there is no such login.

    ``challenge`` is its WWW-Authenticate: Basic, or Bearer, where a token is to be fetched from the realm that it names
    (the distribution project's token authentication, which Harbor speaks).
    """
    try:
        known = json.loads(Path(login).read_text(encoding="utf-8"))["auths"][host]["auth"]
    except (OSError, ValueError, LookupError):
        return None
    if not challenge.lower().startswith("bearer"):
        return f"Basic {known}"
    fields = dict(re.findall(r'(\w+)="([^"]*)"', challenge))
    wanted = {"service": fields.get("service", ""), "scope": f"repository:{project}:pull"}
    url = f"{fields.get('realm', '')}?{urllib.parse.urlencode(wanted)}"
    if not url.startswith("https://"):
        raise RegistryError(f"the registry {host} wants the password sent unencrypted, to {url.partition('?')[0]}")
    request = urllib.request.Request(url, headers={"Authorization": f"Basic {known}"})  # noqa: S310 - the registry's word
    try:
        with _opened(request, seconds, context) as answer:
            told = json.load(answer)
    except (urllib.error.HTTPError, ValueError):
        return None
    return f"Bearer {told.get('token') or told.get('access_token')}"


def trusted(host, root="/"):
    """Return how the engine's trust in a registry is used here: its own authority, or the machine's.

    Raises:
        OSError: the authority's certificate is none.
    """
    authority = Path(root, f"etc/docker/certs.d/{host}/ca.crt")
    context = ssl.create_default_context(cafile=str(authority) if authority.exists() else None)
    # Python 3.13 refuses certificates that say less of themselves than RFC 5280 wants; the engine takes them.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def manifest(image, digest, seconds=SECONDS, method="GET"):
    """Return the HTTP status and the text of an image's manifest, asked for with the engine's own login if need be.

    Raises:
        OSError, http.client.HTTPException: the registry does not answer.
        RegistryError: it wants the password sent unencrypted.
    """
    host, _, project = image.partition("/")
    url = f"https://{host}/v2/{project}/manifests/{digest}"
    context = trusted(host)
    status, challenge, text = fetch(url, context, seconds=seconds, method=method)
    if status == 401:
        shown = authorization(host, project, challenge, context, seconds=seconds)
        status, _, text = fetch(url, context, shown, seconds, method)
    return status, text


def has(image, digest, seconds=SECONDS):
    """Return whether the registry has the image (``host/project/name``) of this digest; it has ``seconds`` an answer.

    Raises:
        RegistryError: it does not answer, refuses us, or answers something else.
    """
    host = image.partition("/")[0]
    try:
        status, _ = manifest(image, digest, seconds, "HEAD")
    except (OSError, http.client.HTTPException) as error:
        raise RegistryError(f"the registry {host} does not answer: {said(error)}") from error
    if status in (401, 403):
        raise RegistryError(f"the registry {host} refuses us; see container_images_username, container_images_password")
    if status not in (200, 404):
        raise RegistryError(f"the registry {host} answers HTTP {status}")
    return status == 200
