"""A registry on a lab's controller, beside the cluster's, that asks who one is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from labs import Lab

NAME, USER, PASSWORD = "head:5443", "ada", "of-a-test"

#: By bcrypt the password is the one above.
SERVE = r"""
mkdir -p /run/locked
echo 'ada:$2b$04$iqK9RdCOIY/V9WbLP.zfHOH5O3CYhGkBlDBd0PODFLffL2M2YpmEO' >/run/locked/htpasswd
cat >/run/locked/config.yml <<END
version: 0.1
storage: {inmemory: {}}
auth: {htpasswd: {realm: here, path: /run/locked/htpasswd}}
http:
  addr: "head:5443"
  tls: {certificate: /etc/clusterctl/registry/server.crt, key: /etc/clusterctl/registry/server.key}
END
systemd-run --quiet --collect --unit=locked docker-registry serve /run/locked/config.yml
"""


@contextmanager
def served(lab: Lab, trusted_by: Sequence[str]) -> Iterator[None]:
    """Have it for a while; machines that trust it have the cluster's authority for its name."""
    trusts = f"/etc/docker/certs.d/{NAME}"
    lab.root("head", SERVE)
    for machine in trusted_by:
        lab.root(machine, f"cp -r /etc/docker/certs.d/head:5000 {trusts}")
    try:
        yield
    finally:
        lab.root("head", "systemctl stop locked; rm -r /run/locked")
        for machine in trusted_by:
            lab.root(machine, f"rm -r {trusts}")
