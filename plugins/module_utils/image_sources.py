# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""Where this machine gets an image from: the mirror near it, as podman is told of it, else the registry itself.

Standard library only, Python 3.8.
"""

from __future__ import annotations

import re
from pathlib import Path

from ansible.module_utils import image_registry

#: What the role container_images writes where a mirror is near; podman reads it, too (containers-registries.conf(5)).
CONF = Path("/etc/containers/registries.conf.d/clusterctl.conf")

#: Seconds that a mirror has for its answer: one that is down is not waited for.
SECONDS = 5


def mirror_of(reference, conf=CONF):
    """Return by which name the mirror has an image that is known by digest; empty where there is no mirror for it."""
    try:
        text = Path(conf).read_text(encoding="utf-8")
    except OSError:
        return ""
    places = re.findall(r'(?m)^location = "([^"]+)"$', text)
    host, _, name = reference.partition("/")
    if len(places) != 2 or host != places[0] or "@sha256:" not in name:
        return ""
    return f"{places[1]}/{name}"


def answers(host, seconds=SECONDS):
    """Tell whether a registry answers whom we trust, within so many seconds."""
    url = f"https://{host}/v2/"
    try:
        context = image_registry.trusted(host)
        status, _ = image_registry.within(
            seconds, lambda: image_registry.ask(url, context, seconds=seconds, method="GET")
        )
    except (OSError, image_registry.RegistryError):
        return False
    return status == 200


def near(reference, conf=CONF):
    """Return by which name the mirror has the image, if it answers; empty where the registry itself is to be asked."""
    name = mirror_of(reference, conf)
    return name if name and answers(name.partition("/")[0]) else ""
