# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible's door into provision.judge.munge. Translation only."""

from __future__ import annotations

from provision.judge import munge


def munge_peers(hosts, me, controller):
    """Return the machines whose credentials this one is to decode."""
    return list(munge.peers([str(host) for host in hosts], str(me), str(controller)))


def munge_credentials(proofs, hosts):
    """Return {host: credential} of those that made one; ``proofs`` are the results of that, in the hosts' order."""
    pairs = zip(hosts, map(munge.credential_in, proofs), strict=True)
    return {str(host): credential for host, credential in pairs if credential}


def munge_checks(proofs, decoded, clocks, hosts, wants):
    """Return the checks of all machines by host. The first three are results of tasks, in the hosts' order."""
    seen = {
        str(host): munge.Seen.from_results(proof, answer, clock.get("machine") if isinstance(clock, dict) else None)
        for host, proof, answer, clock in zip(hosts, proofs, decoded, clocks, strict=True)
    }
    found = munge.checks(
        seen,
        munge.Wants(
            controller=str(wants["controller"]),
            fingerprint=str(wants["fingerprint"]),
            mode=str(wants["mode"]),
            warn=int(wants["warn"]),
            fail=int(wants["fail"]),
        ),
    )
    return {host: [check.as_dict() for check in found if check.host == host] for host in seen}


class FilterModule:
    """The filters of this role."""

    def filters(self):
        """Return them by name."""
        return {"munge_peers": munge_peers, "munge_credentials": munge_credentials, "munge_checks": munge_checks}
