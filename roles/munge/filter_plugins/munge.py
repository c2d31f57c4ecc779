# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible's door into provision.judge.munge. Translation only."""

from __future__ import annotations

from provision.judge.munge import Seen, checks, peers


def munge_credentials(hosts, me, controller, hostvars):
    """Return {host: credential} of those whose credentials this machine is to decode."""
    chosen = peers([str(host) for host in hosts], str(me), str(controller))
    proofs = {host: hostvars[host].get("__munge_proof") or {} for host in chosen}
    return {host: str(proof["credential"]) for host, proof in proofs.items() if proof.get("credential")}


def munge_checks(hosts, me, controller, hostvars, mode, warn, fail):
    """Return the checks of this machine, as cluster_check takes them."""
    seen = {
        str(host): Seen.from_results(hostvars[host].get("__munge_proof"), hostvars[host].get("__munge_decoded"))
        for host in hosts
    }
    expected = (hostvars[me].get("__munge_expected") or {}).get("fingerprint") or ""
    return checks(seen, str(me), str(controller), str(expected), mode=str(mode), warn=int(warn), fail=int(fail))


class FilterModule:
    """The filters of this role."""

    def filters(self):
        """Return them by name."""
        return {"munge_credentials": munge_credentials, "munge_checks": munge_checks}
