# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""Ansible's door into provision.model.engine and provision.judge.engine. Translation only."""

from __future__ import annotations

from dataclasses import asdict

from provision.judge import engine as judge
from provision.model import engine
from provision.model.facts import plain


def container_engine_daemon(ours, declared, machine, gpus, memlock, addresses=()):
    """Return ``wanted``, all of daemon.json, which keys are ``ours``, and whether to ``write`` it.

    ``machine`` is what the machine said of its engine, its file and its limits.
    """
    ours, declared, machine, addresses = map(plain, (ours, declared, machine, addresses))
    return asdict(engine.daemon(machine, ours, declared, gpus, int(memlock), addresses))


def container_engine_packages(family, there, machine):
    """Return the packages for a machine; ``machine`` is empty where it was not asked yet."""
    return engine.packages(plain(family), there, asked=bool(machine), engine=bool(machine.get("version")))


def container_engine_refusals(machine, wants):
    """Return why nothing may be written on a machine, by what it said of its engine."""
    return judge.refusals(plain(machine), plain(wants))


class FilterModule:
    """The filters of this role."""

    def filters(self):
        """Return them by name."""
        return {
            "container_engine_daemon": container_engine_daemon,
            "container_engine_packages": container_engine_packages,
            "container_engine_refusals": container_engine_refusals,
        }
