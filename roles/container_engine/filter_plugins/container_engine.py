# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""Ansible's door into provision.model.engine. Translation only."""

from __future__ import annotations

from provision.model import engine


def container_engine_daemon(ours, site, machine, gpus, memlock):
    """Return all of daemon.json. ``machine`` is what the machine said of its engine and limits."""
    cdi = engine.how_cdi(str(machine["version"])) if gpus else ""
    # A machine that is itself a container: no container on it could start with a limit above its own.
    return engine.options(ours, site, cdi, int(memlock) if machine["raises_limits"] else 0)


class FilterModule:
    """The filters of this role."""

    def filters(self):
        """Return them by name."""
        return {"container_engine_daemon": container_engine_daemon}
