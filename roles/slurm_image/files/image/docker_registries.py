"""Which registry an image's name means, and whether it answers. Standard library only."""

import os
import re
import socket

#: Seconds in which a registry must answer, and the one that Docker means where none is named.
REGISTRY_LIMIT, DOCKER_HUB = 5, "docker.io"


def registry_of(image):
    """Return the registry that an image's name means, and the whole name."""
    first, slash, _ = image.partition("/")
    if slash and (re.search(r"[.:]", first) or first == "localhost"):
        return first, image
    return DOCKER_HUB, f"{DOCKER_HUB}/{image if slash else f'library/{image}'}"


def silent(registry):
    """Return why a registry cannot be reached, nothing where it can. A proxy is left to answer for itself."""
    if any(os.environ.get(name) for name in ("https_proxy", "HTTPS_PROXY", "http_proxy", "HTTP_PROXY")):
        return ""
    host, _, port = ("registry-1.docker.io" if registry == DOCKER_HUB else registry).partition(":")
    try:
        socket.create_connection((host, int(port or 443)), REGISTRY_LIMIT).close()
    except OSError as problem:
        return f"{registry} does not answer from {os.uname().nodename} ({problem.strerror or 'no answer in time'})"
    return ""
