"""dnf and rpm, really run: on a machine without dpkg, from a repository of made-up packages.

Debian has both programs. What it does not have is what RHEL's bring: releases, modules, NVIDIA's repository.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import labs
import pytest

from provision import content
from provision.model.facts import facts_from

# A minute to install the programs, for what only machines of another distribution do.
pytestmark = pytest.mark.night

NAME = "t-dnf"
MADE = r"""
set -eu
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -qqy --no-install-recommends dnf dnf-plugins-core rpm createrepo-c >/dev/null
mkdir -p /etc/rpm /etc/yum.repos.d /etc/dnf/vars /var/lib/rpm /srv/repo /srv/asked
# As RHEL has them: Debian keeps a database for each user, knows no release, and lists what is on the disk, too.
echo '%_dbpath /var/lib/rpm' >/etc/rpm/macros
echo 9 >/etc/dnf/vars/releasever
sed -i 's/^enabled.*/enabled = 0/' /etc/dnf/plugins/local.conf
rpm --initdb
make() { # NAME VERSION REQUIRES
    printf 'Name: %s\nVersion: %s\nRelease: 1.el9\nSummary: made up\nLicense: Apache-2.0\nBuildArch: noarch\n%s\n' \
        "$1" "$2" "$3" >"/srv/$1.spec"
    printf '%%description\nMade up.\n%%files\n' >>"/srv/$1.spec"
    rpmbuild --quiet -bb --define '_rpmdir /srv/repo' "/srv/$1.spec"
}
make library 1.0 ''
make tool 1.0 'Requires: library'
make tool 2.0 'Requires: library'
make broken 1.0 'Requires: nobody-has-this'
createrepo_c --quiet /srv/repo
printf '[made-up]\nname=made-up\nbaseurl=file:///srv/repo\ngpgcheck=0\n' >/etc/yum.repos.d/made-up.repo
mv /usr/bin/dpkg-query /usr/bin/dpkg-query.away
"""


@pytest.fixture(scope="module")
def machine(small_lab: labs.Lab) -> Iterator[str]:
    """A machine as the lab's are, beside the lab, and never started."""
    image = labs.docker("container", "inspect", "--format", "{{.Image}}", small_lab.container("node1")).strip()
    labs.docker("run", "--detach", "--rm", "--name", NAME, "--entrypoint", "sleep", image, "infinity")
    try:
        labs.docker("exec", NAME, "sh", "-c", MADE)
        yield NAME
    finally:
        labs.docker("rm", "--force", NAME, check=False)


def done(machine: str, module: str, **arguments: Any) -> dict[str, Any]:
    """Run a module as a role does, and return its result."""
    library = content.ROOT / "roles/nvidia_driver/library"
    command = [labs.BIN / "ansible", "all", "-i", f"{machine},", "-c", "community.docker.docker", "-m", module]
    environment = {"ANSIBLE_CONFIG": str(content.ROOT / "ansible.cfg"), "ANSIBLE_LOAD_CALLBACK_PLUGINS": "1",
                   "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json",
                   "ANSIBLE_LIBRARY": f"{library}:{content.ROOT / 'plugins/modules'}"}  # fmt: skip
    said = labs.run([*command, "-a", json.dumps(arguments)], check=False, env=environment)
    result: dict[str, Any] = json.loads(said.stdout)["plays"][0]["tasks"][0]["hosts"][machine]
    return result


def dnf(machine: str, name: str, **options: Any) -> dict[str, Any]:
    """Have a package there as roles do. That it is dnf 4 Ansible learns from the distribution, elsewhere."""
    return done(machine, "ansible.builtin.dnf", name=name, lock_timeout=60, use_backend="dnf4", **options)


def packages(machine: str) -> dict[str, Any]:
    """Return what observe is told of the packages."""
    asked = {"packages": ["tool", "library", "none"]}
    told = done(machine, "machine_facts", gather=[], state=asked)
    return {**facts_from(told["machine"])["state"]["packages"]}


def test_what_dnf_installs_and_locks_is_what_observe_is_told(machine: str) -> None:
    assert packages(machine) == {}
    assert dnf(machine, "tool-1.0")["changed"]
    assert not dnf(machine, "tool-1.0")["changed"]
    assert packages(machine) == {
        "tool": {"version": "1.0-1.el9", "held": False},
        "library": {"version": "1.0-1.el9", "held": False},
    }

    assert done(machine, "community.general.dnf_versionlock", name="tool")["changed"]
    assert packages(machine)["tool"] == {"version": "1.0-1.el9", "held": True}
    assert not dnf(machine, "tool", state="latest")["changed"]


def test_whether_a_driver_can_be_had_is_asked_of_dnf_also_where_an_earlier_one_is_held(machine: str) -> None:
    def asked(install: list[str], offered: list[str] | None = None) -> dict[str, Any]:
        repository = "[more]\nname=more\nbaseurl=file:///srv/repo\ngpgcheck=0\n"
        files = {"/etc/yum.repos.d/clusterctl-more.repo": repository}
        options = {"directory": "/srv/asked", "family": "RedHat", "files": files}
        return done(machine, "driver_resolved", install=install, offered=offered or [], **options)

    dnf(machine, "tool-1.0")
    done(machine, "community.general.dnf_versionlock", name="tool")
    found = asked(["tool=2.0-1.el9"], ["tool", "none"])
    assert found["problem"] == ""
    assert {"tool | 1.0-1.el9 | made-up", "tool | 2.0-1.el9 | more"} <= set(found["offered"].splitlines())
    assert "nothing provides nobody-has-this needed by broken" in asked(["broken"])["problem"]
    assert "No match for argument: no-such-package" in asked(["no-such-package"])["problem"]
    assert packages(machine)["tool"]["version"] == "1.0-1.el9", "asking installs nothing"

    # What is held is held from others: as the roles install it.
    assert dnf(machine, "tool-2.0-1.el9", allow_downgrade=True, disable_plugin=["versionlock"])["changed"]
    assert packages(machine)["tool"]["version"] == "2.0-1.el9"
