"""Whether a driver could be installed, asked of the real apt with lists made here; nothing of the machine changes."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any

import pytest
from machines import run_module

from provision.nvidia import driver_packages

MODULE = "roles/nvidia_driver/library/driver_resolved.py"
LIST, PIN = driver_packages.LIST, driver_packages.PIN

pytestmark = pytest.mark.skipif(not shutil.which("apt-get"), reason="apt is Debian's")

#: As NVIDIA's repository has them from 580 on: the old name is provided by the new package, and has no version.
PACKAGES = """\
Package: nvidia-driver-cuda
Architecture: all
Version: 580.95.05-1
Filename: ./a.deb
Size: 1
SHA256: {0}

Package: nvidia-fabricmanager
Architecture: all
Version: 580.95.05-1
Provides: nvidia-fabricmanager-580
Filename: ./b.deb
Size: 1
SHA256: {0}

Package: nvidia-kernel-open-dkms
Architecture: all
Version: 580.95.05-1
Depends: gcc-of-another-age
Filename: ./c.deb
Size: 1
SHA256: {0}
""".format("0" * 64)


def standing() -> dict[str, str]:
    """Return what the machine has in apt's places, by path."""
    places = [path for place in ("/etc/apt", "/var/lib/apt/lists") for path in sorted(Path(place).rglob("*"))]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in places if path.is_file()}


@pytest.fixture
def question(open_path: Path) -> dict[str, Any]:
    # The machine's own sources are left out, so that no network is needed; so is whoever reads lists as another user.
    repository, directory = open_path / "repository", open_path / "question"
    repository.mkdir()
    (repository / "Packages").write_text(PACKAGES)
    directory.mkdir()
    absent = [str(path) for path in Path("/etc/apt/sources.list.d").glob("*")]
    return {
        "directory": str(directory),
        "files": {
            LIST: f"deb [trusted=yes] file://{repository} ./\n",
            PIN: "Package: *\nPin: version 580.*\nPin-Priority: 1001\n",
        },
        "absent": absent,
    }


def test_what_can_be_installed_has_no_problem_and_the_machine_is_as_it_was(question: dict[str, Any]) -> None:
    before = standing()

    told = run_module(
        MODULE, {**question, "install": ["nvidia-driver-cuda=580.95.05*", "nvidia-fabricmanager=580.95.05*"]}
    )

    assert (told["problem"], told["changed"]) == ("", False)
    assert standing() == before


@pytest.mark.parametrize(
    ("package", "words"),
    [
        # What apt said of the name that was asked for before.
        ("nvidia-fabricmanager-580=580.95.05*", "nvidia-fabricmanager-580"),
        ("linux-headers-6.1.0-1-amd64", "Unable to locate package linux-headers-6.1.0-1-amd64"),
        ("nvidia-driver-cuda=595.45.04*", "Version '595.45.04*' for 'nvidia-driver-cuda' was not found"),
        ("nvidia-kernel-open-dkms", "Depends: gcc-of-another-age but it is not"),
    ],
)
def test_what_cannot_be_installed_is_refused_in_apts_own_words(
    question: dict[str, Any], package: str, words: str
) -> None:
    told = run_module(MODULE, {**question, "install": ["nvidia-driver-cuda", package]})

    assert words in told["problem"]


PACKAGE = "Package: {}\nArchitecture: all\nVersion: 6.8.0-1015.16\nFilename: ./a.deb\nSize: 1\nSHA256: " + "0" * 64


#: Of Ubuntu's archive, beside NVIDIA's repository: what is a driver there, and what belongs to a kernel.
DRIVER = (
    "nvidia-utils-580-server", "libnvidia-compute-580-server", "xserver-xorg-video-nvidia-580-server", "libcuda1",
    "linux-modules-nvidia-580-server-open-6.8.0-1015-nvidia", "linux-modules-nvidia-580-server-generic",
)  # fmt: skip
KERNEL = (
    "linux-nvidia", "linux-nvidia-64k-hwe-24.04", "linux-image-nvidia", "linux-image-6.8.0-1015-nvidia-64k",
    "linux-headers-6.8.0-1015-nvidia", "linux-modules-6.8.0-1015-nvidia", "linux-modules-extra-nvidia-6.8",
    "linux-modules-nvidia-fs-nvidia", "linux-nvidia-tools-6.8.0-1015",
)  # fmt: skip


@pytest.mark.parametrize("name", [*DRIVER, *KERNEL])
def test_beside_nvidias_repository_ubuntus_driver_is_kept_away_and_its_kernels_are_not(
    question: dict[str, Any], name: str
) -> None:
    repository = Path(question["directory"]).parent / "repository"
    (repository / "Packages").write_text(PACKAGE.format(name))
    (repository / "Release").write_text("Origin: Ubuntu\nSuite: noble\n")
    machine = driver_packages.system("ubuntu", "24.04")
    assert machine
    question["files"][PIN] = driver_packages.apt_files(machine, "nvidia", 580, "", "file:/nowhere", [])[PIN]

    problem = run_module(MODULE, {**question, "install": [name]})["problem"]

    assert ("has no installation candidate" in problem) == (name in DRIVER), problem
    assert bool(problem) == (name in DRIVER)


def test_versions_on_offer_are_listed_with_where_they_are(question: dict[str, Any]) -> None:
    told = run_module(MODULE, {**question, "offered": ["nvidia-fabricmanager", "nvidia-fabricmanager-580"]})

    (row,) = told["offered"].strip().splitlines()
    assert [cell.strip() for cell in row.split("|")][:2] == ["nvidia-fabricmanager", "580.95.05-1"]
    assert question["files"][LIST].split("file://")[1].split()[0] in row


def test_a_repository_that_cannot_be_reached_is_a_problem(question: dict[str, Any]) -> None:
    question["files"][LIST] = "deb [trusted=yes] file:///nowhere ./\n"

    assert run_module(MODULE, {**question, "install": ["bash"]})["problem"]
