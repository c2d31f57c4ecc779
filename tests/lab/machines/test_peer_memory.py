"""nv_peer_mem, as far as it goes without NVIDIA's and Mellanox's own files: DKMS and the kernel's headers are real.

Its source needs rdma/peer_mem.h of mlnx-ofed-kernel, which is in no distribution. So a stand-in of the same shape is
fetched, verified, unpacked and built for Debian's kernel: once as the real one, which must fail and name that header,
and once without it, which must be installed. The machine around it is made up, and nothing is loaded.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator

import labs
import pytest

from provision import content

pytestmark = pytest.mark.night

DKMS = """PACKAGE_NAME="nv_peer_mem"
PACKAGE_VERSION="1.3"
BUILT_MODULE_NAME[0]="nv_peer_mem"
DEST_MODULE_LOCATION[0]="/updates/"
MAKE[0]="make -C /lib/modules/${kernelver}/build M=${dkms_tree}/${PACKAGE_NAME}/${PACKAGE_VERSION}/build modules"
CLEAN="true"
AUTOINSTALL="yes"
"""
SOURCE = """#include <linux/module.h>
{header}
MODULE_LICENSE("GPL");
MODULE_VERSION("1.3");
"""


@pytest.fixture(scope="module")
def lab() -> Iterator[labs.Lab]:
    """A machine with the headers of Debian's kernel, an OFED that says so, and a driver before R470 below /srv/old."""
    with labs.made("t-peermem") as made:
        made.root("node1", "apt-get -q update && apt-get -q -y --no-install-recommends install linux-headers-amd64")
        said = "#!/bin/sh\necho OFED-internal-25.10-1.2.8:"
        made.root("node1", f"install -m 755 /dev/stdin /usr/local/sbin/ofed_info <<'END'\n{said}\nEND\n")
        script = (content.ROOT / "molecule/gpudirect_rdma/files/make-machine").read_text(encoding="utf-8")
        release = made.root("node1", "basename /lib/modules/*-amd64")
        made.root("node1", f"sh -s /srv/old 460.106.00 no {release} <<'END'\n{script}\nEND\n")
        yield made


def archive(lab: labs.Lab, header: str) -> str:
    """Put a source archive on the machine and return its checksum."""
    make = SOURCE.format(header=header)
    files = {"dkms.conf": DKMS, "Makefile": "obj-m += nv_peer_mem.o\n", "nv_peer_mem.c": make}
    for name, text in files.items():
        lab.root("node1", f"mkdir -p /srv/nv_peer_mem && cat >/srv/nv_peer_mem/{name} <<'END'\n{text}END\n")
    return lab.root("node1", "tar -C /srv -cf /srv/source.tar nv_peer_mem && sha256sum /srv/source.tar").split()[0]


def provision(lab: labs.Lab, checksum: str) -> str:
    settings = {
        "gpudirect_rdma_root": "/srv/old",
        "gpudirect_rdma_possible": True,
        "gpudirect_rdma_legacy_allowed": True,
        "gpudirect_rdma_legacy_source": "file:///srv/source.tar",
        "gpudirect_rdma_legacy_checksum": f"sha256:{checksum}",
    }
    done = labs.playbook("rdma", "-i", lab.inventory, "-e", json.dumps(settings), check=False)
    return re.sub(r"\\[nt]|\s+", " ", done.stdout)


def test_an_archive_with_another_checksum_is_refused(lab: labs.Lab) -> None:
    archive(lab, "")

    assert "checksum" in provision(lab, hashlib.sha256(b"another").hexdigest())
    assert lab.root("node1", "ls /usr/src/ | grep nv_peer_mem-1.3/ || true") == ""


def test_a_build_without_the_ofeds_headers_fails_and_names_them(lab: labs.Lab) -> None:
    told = provision(lab, archive(lab, "#include <rdma/peer_mem.h>"))

    assert "gpudirect.build" in told, told[-3000:]
    assert "rdma/peer_mem.h: No such file" in told
    assert "mlnx-ofed-kernel" in told
    lab.root("node1", "dkms remove nv_peer_mem/1.3 --all; rm -rf /usr/src/nv_peer_mem-1.3*", check=False)


def test_a_source_that_fits_is_built_for_the_kernel_and_that_it_is_not_loaded_is_said(lab: labs.Lab) -> None:
    told = provision(lab, archive(lab, ""))

    assert "nv_peer_mem is not loaded" in told, told[-3000:]
    assert "installed" in lab.root("node1", "dkms status nv_peer_mem/1.3")
    release = lab.root("node1", "basename /lib/modules/*-amd64")
    assert re.search(r"^version:\s+1\.3$", lab.root("node1", f"modinfo -k {release} nv_peer_mem"), re.M)
