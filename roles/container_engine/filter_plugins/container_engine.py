# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""Ansible's door into provision.judge.engine. Translation only."""

from __future__ import annotations

from provision.judge import engine
from provision.judge.answers import Answer


def container_engine_checks(result, live_restore, limit):
    """Return the checks of this machine's engine, as cluster_check takes them."""
    found = engine.checks(Answer.from_result(result, int(limit)), live_restore=bool(live_restore))
    return [check.as_dict() for check in found]


class FilterModule:
    """The filters of this role."""

    def filters(self):
        """Return them by name."""
        return {"container_engine_checks": container_engine_checks}
