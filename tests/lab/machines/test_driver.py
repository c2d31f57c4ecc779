"""The one real installation of a driver: Debian's own packages, and its module really built.

There is no GPU here and the running kernel is not Debian's: which kernel counts is said to the role, and that nothing
was loaded must be in its report. The open modules are compiled whole, which takes several times as long, and are left
out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import labs
import pytest

# On two processors that are busy with other things, building the module takes twenty minutes.
pytestmark = [pytest.mark.night, pytest.mark.timeout(2400)]


@pytest.fixture(scope="module")
def lab() -> Iterator[labs.Lab]:
    """One machine of Debian 12."""
    with labs.made("t-driver", nodes=1) as made:
        yield made


def kernel(lab: labs.Lab, machine: str) -> str:
    """Return the release that Debian's newest headers are for."""
    told = lab.root(machine, "apt-get -q update >/dev/null; apt-cache depends linux-headers-amd64")
    match = re.search(r"Depends: linux-headers-(\S+)", told)
    assert match, told
    return match.group(1)


def install(lab: labs.Lab, machine: str, **wanted: object) -> str:
    """Run the stage on one machine and return what Ansible printed."""
    settings = {f"nvidia_driver_{name}": value for name, value in wanted.items()}
    return labs.playbook("gpu", "-v", "-i", lab.inventory, "--limit", machine, "-e", json.dumps(settings)).stdout


def recap(output: str, machine: str) -> str:
    return next(line for line in output.splitlines() if re.match(rf"{machine}\s+:", line))


@pytest.mark.proves("driver_distribution")
def test_debians_own_driver_is_installed_built_held_and_not_called_proven(lab: labs.Lab) -> None:
    release = kernel(lab, "node1")
    wanted = {"install": "true", "source": "distribution", "branch": "535", "kernels": [release]}

    first = install(lab, "node1", **wanted)
    again = install(lab, "node1", **wanted)

    assert "past its end of life since June 2026" in first
    assert "not proven: there is no GPU" in first
    assert "changed=0" in recap(again, "node1"), again[-3000:]
    built = lab.root("node1", f"ls /lib/modules/{release}/updates/dkms")
    module = re.search(r"^(nvidia(-current)?(-open)?)\.ko$", built, re.M)
    assert module, built
    told = lab.root("node1", f"modinfo -k {release} {module[1]}")
    packages = lab.root("node1", "dpkg-query -W -f '${Package} ${Version} ${db:Status-Want}\\n' '*nvidia*' libcuda1")
    libraries = re.search(r"^libcuda1 (\S+?)-", packages, re.M)
    assert libraries
    assert libraries.group(1).startswith("535.")
    assert re.search(rf"^version:\s+{re.escape(libraries.group(1))}$", told, re.M)
    # Of the flavour that Debian keeps in step with its libraries.
    assert re.search(r"^license:\s+NVIDIA$", told, re.M)
    installed = [line.split() for line in packages.splitlines() if len(line.split()) == 3]
    assert {want for _, _, want in installed} == {"hold"}
    assert f"{release}, x86_64: installed" in lab.root("node1", "dkms status")


def test_an_upgrade_of_the_machine_leaves_the_driver_where_it_is(lab: labs.Lab) -> None:
    told = lab.root("node1", "apt-get -s dist-upgrade")

    assert not re.search(r"^Inst \S*(nvidia|libcuda)", told, re.M)
