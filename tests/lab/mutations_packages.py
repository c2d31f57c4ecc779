"""Rows of the mutation table: packages, the engine, the registry, and what the controller gives all others."""

from __future__ import annotations

from mutation import Row, spoilt
from mutations_files import MIRROR, MIRROR_TRUST, REGISTRY, TRUST, WRITER
from mutations_services import DAEMON, KEY

from provision import content

MAKE = content.ROOT / "roles/container_images/files/make-certificates"
CONFIG = "/etc/docker/registry"
UNITS = "/etc/systemd/system"


def removed(on: str, *names: str, roles: str) -> Row:
    """Return a row: packages are removed, whatever needs them; ``roles`` want them, and the first mends it."""
    checks = tuple(f"{role}.packages" for role in roles.split())
    how = f"dpkg --remove --force-depends {' '.join(names)}"
    return Row(f"removed: {' '.join(names)}", on, how, dict.fromkeys(checks, names), checks[1:])


PACKAGES = (
    removed("node1", "ca-certificates", "iproute2", "procps", "python3-apt", roles="base_system"),
    removed("node2", "dbus", roles="base_system"),
    removed("node2", "openssl", roles="base_system munge"),
    removed("node1", "nginx", roles="container_images"),
    removed("node1", "python3-requests", roles="base_system container_engine"),
    removed("node2", "apparmor", roles="container_engine"),
    removed("head", "openssl", roles="base_system munge container_images"),
    removed("head", "mmdebstrap", "debian-archive-keyring", roles="container_images"),
    Row(
        # Where it runs: on the nodes it is stopped and disabled.
        "munge is removed",
        "login1",
        "dpkg --remove --force-depends munge",
        {"munge.packages": "munge", "munge.services": "munge is inactive"},
        (),
        ("munge",),
    ),
    Row(
        "the registry is removed",
        "head",
        "dpkg --remove --force-depends docker-registry",
        {
            "container_images.packages": "docker-registry",
            "container_images.services": "docker-registry is inactive",
            "images.registry_answers": "",
        },
        (),
        ("docker-registry",),
    ),
    Row(
        "dpkg was stopped in the middle",
        "head",
        "cd /tmp; apt-get -qq download procps; dpkg --unpack procps_*.deb; rm procps_*.deb",
        {"base_system.interrupted": "interrupted during procps", "base_system.packages": "procps"},
    ),
)

#: What all rest on, a machine each.
ENGINE = (
    Row(
        "the engine is stopped",
        "node1",
        "systemctl stop docker.socket docker",
        {"container_engine.services": "docker is inactive", "engine.answers": "did not answer"},
        ("slurm_service.containers",),
        ("docker",),
    ),
    Row(
        "the engine is removed",
        "node2",
        "dpkg --remove --force-depends docker.io",
        {
            "container_engine.packages": "docker.io",
            "container_engine.services": "docker is ",
            "engine.answers": "did not answer",
        },
        ("slurm_service.containers",),
        ("docker",),
    ),
)

#: On the controller, most with effects on the nodes.
CONTROLLER = (
    Row(
        "the engine would end its containers with itself",
        "head",
        f"sed -i 's/\"live-restore\": true/\"live-restore\": false/' {DAEMON}; systemctl reload docker",
        {
            "container_engine.files": f"{DAEMON} has another text",
            "container_engine.services": f"docker was started before {DAEMON} changed",
            "engine.live_restore": "containers end with it",
        },
        (),
        ("docker",),
    ),
    Row(
        "the key was made anew, and munge not restarted",
        "head",
        f"dd if=/dev/urandom of={KEY} bs=1024 count=1",
        {
            "munge.services": f"munge was started before {KEY} changed",
            "munge.key@node1": "another key than the controller's",
            "munge.key@node2": "another key than the controller's",
            "munge.key@login1": "another key than the controller's",
        },
        (),
        ("munge", "munge@node1", "munge@node2", "munge@login1"),
    ),
    Row(
        "slurmctld keeps a node out that has what is declared again",
        "head",
        "docker exec --user 64030:64030 slurmctld scontrol update nodename=node2 state=drain"
        " reason='Low RealMemory (reported:1 < 100.00% of configured:2)'",
        {"slurm_service.registration@node2": "kept out by slurmctld"},
    ),
    Row(
        "the registry lost its images",
        "head",
        f"sed -i 's,/var/cache/clusterctl/registry,/srv/empty,' {CONFIG}/config.yml;"
        " install -d -o docker-registry /srv/empty; systemctl restart docker-registry",
        {
            "container_images.files": f"{CONFIG}/config.yml has another text",
            "slurm_image.by_digest": "",
            "ddp_validation.image": "",
        },
        (
            "slurm_image.by_digest", "ddp_validation.image", "slurm_client.programs", "slurm_database.containers",
            "slurm_service.containers", "slurm_service.containers@node1", "slurm_service.containers@node2",
            "ddp_validation.files", "ddp_validation.files@node1", "ddp_validation.files@node2",
            "ddp_validation.stored@node1", "ddp_validation.stored@node2",
            "slurm_client.programs@login1", "slurm_service.containers@login1", "ddp_validation.files@login1",
        ),
        ("docker-registry",),
    ),
)  # fmt: skip

#: What has the registry's certificate.
REGISTRIES = ("docker-registry", "docker-registry-write")

NEW_AUTHORITY = Row(
    "killed between the registry's new certificates and its restart",
    "head",
    f"sh -s {REGISTRY} head 3650 {WRITER} <<'END'\n{MAKE.read_text()}\nEND",
    {
        "container_images.services": (
            f"docker-registry was started before {REGISTRY}/server.crt changed",
            f"docker-registry-write was started before {REGISTRY}/server.crt changed",
        ),
        "container_images.files": f"{TRUST}/ca.crt has another text",
        "container_images.files@node1": tuple(f"{place}/ca.crt has another text" for place in (TRUST, MIRROR_TRUST)),
        "container_images.files@node2": tuple(f"{place}/ca.crt has another text" for place in (TRUST, MIRROR_TRUST)),
        "container_images.files@login1": f"{TRUST}/ca.crt has another text",
    },
    (),
    (*REGISTRIES, "clusterctl-mirror@node1"),
)

MIRROR_CERTIFICATE = (
    Row(
        "the mirror's certificate is gone",
        "node1",
        f"rm {MIRROR}/server.crt",
        {
            "container_images.files": f"{MIRROR}/server.crt is absent",
            "images.mirror_certificate": f"there is no {MIRROR}/server.crt",
        },
        (),
        ("clusterctl-mirror",),
    ),
)

#: The authority comes with it, which all machines trust.
CERTIFICATE = (
    Row(
        "the registry's certificate is gone",
        "head",
        f"rm {REGISTRY}/server.crt",
        {
            "container_images.files": f"{REGISTRY}/server.crt is absent",
            "images.certificates": f"there is no {REGISTRY}/server.crt",
        },
        ("container_images.files@node1", "container_images.files@node2", "container_images.files@login1"),
        (*REGISTRIES, "clusterctl-mirror@node1"),
    ),
)

AUTHORITY = (
    *spoilt("mode", "container_images", "/etc/clusterctl", "head"),
    *spoilt("owner", "container_images", f"{WRITER}/client.cert", "head"),
    *spoilt("mode", "container_images", f"{REGISTRY}/ca.key", "head"),
)

#: Of earlier settings and releases: a port, and a registry that users pushed to.
EARLIER = (
    *spoilt("there", "container_images", "/etc/clusterctl/users-registry", "node1"),
    *spoilt("there", "container_images", f"{CONFIG}/users.yml", "head"),
    *spoilt("there", "container_images", "/usr/local/lib/registry-tokens", "head"),
    *spoilt("there", "container_images", f"{UNITS}/docker-registry-users.service", "head"),
    *spoilt("there", "container_images", f"{UNITS}/docker-registry-tokens.service", "head"),
    Row(
        "an earlier port of the registry is still trusted",
        "node2",
        f"cp -r {TRUST} /etc/docker/certs.d/head:6003",
        {"images.trust": "/etc/docker/certs.d/head:6003"},
    ),
)

REGISTRY_FILES = (
    *spoilt(
        "text", "container_images", f"{CONFIG}/write.yml", "head", restarts=("docker-registry-write",),
        services=f"docker-registry-write was started before {CONFIG}/write.yml changed",
    ),
    *spoilt(
        "text", "container_images", f"{UNITS}/docker-registry.service", "head", restarts=("docker-registry",),
        services="docker-registry has unit files that systemd has not read yet",
    ),
    *spoilt("mode", "container_images", f"{UNITS}/docker-registry-write.service", "head"),
    *spoilt("owner", "container_images", f"{REGISTRY}/ca.crt", "head"),
    *spoilt("mode", "container_images", f"{WRITER}/ca.crt", "head"),
    *spoilt("owner", "container_images", f"{TRUST}/ca.crt", "node1"),
    *spoilt(
        "text", "container_images", f"{MIRROR}/nginx.conf", "node1", restarts=("clusterctl-mirror",),
        services=f"clusterctl-mirror was started before {MIRROR}/nginx.conf changed",
    ),
    *spoilt("mode", "container_images", f"{UNITS}/clusterctl-mirror.service", "node1"),
    *spoilt("text", "container_images", "/etc/containers/registries.conf.d/clusterctl.conf", "node2"),
    *spoilt("mode", "container_images", f"{MIRROR_TRUST}/ca.crt", "node2"),
    *spoilt("there", "container_images", f"{UNITS}/clusterctl-mirror.service", "node2"),
    Row(
        "nobody is trusted",
        "node2",
        f"rm -r {TRUST}",
        {
            "container_images.files": (f"{TRUST} is absent", f"{TRUST}/ca.crt is absent"),
            "images.registry_answers": "",
        },
    ),
)  # fmt: skip
