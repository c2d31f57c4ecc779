"""A site keeps its directory: whom LDAP has is known on machines, to slurmctld and in jobs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import labs
import pytest

#: A made-up site's people: those of a directory have numbers of their own.
PEOPLE = """
dn: ou=people,dc=site
objectClass: organizationalUnit
ou: people

dn: uid=lucy,ou=people,dc=site
objectClass: inetOrgPerson
objectClass: posixAccount
cn: Lucy
sn: Lucy
uid: lucy
uidNumber: 71001
gidNumber: 71100
homeDirectory: /home/lucy
loginShell: /bin/bash

dn: cn=lasers,ou=people,dc=site
objectClass: posixGroup
cn: lasers
gidNumber: 71100

dn: cn=optics,ou=people,dc=site
objectClass: posixGroup
cn: optics
gidNumber: 71200
memberUid: lucy
"""

LUCY = "uid=71001(lucy) gid=71100(lasers) groups=71100(lasers),71200(optics)"

# A directory and its clients are installed on four machines and removed, and the cluster is provisioned for both.
pytestmark = pytest.mark.night

APT = "DEBIAN_FRONTEND=noninteractive apt-get -qy --no-install-recommends"

SERVER = f"""
echo 'slapd slapd/domain string site
slapd shared/organization string site
slapd slapd/password1 password site
slapd slapd/password2 password site' | debconf-set-selections
{APT} install slapd ldap-utils
cat >/root/people.ldif
ldapadd -x -D cn=admin,dc=site -w site -f /root/people.ldif
rm /root/people.ldif
"""

CLIENT = f"""
{APT} install sssd-ldap libnss-sss
cat >/etc/sssd/sssd.conf
chmod 0600 /etc/sssd/sssd.conf
systemctl restart sssd
"""

#: Numbers and names alone: nobody's password is asked for, so that nothing is to be kept secret on the way.
SSSD = """
[sssd]
services = nss
domains = site
[domain/site]
id_provider = ldap
auth_provider = none
access_provider = permit
ldap_uri = ldap://head
ldap_search_base = dc=site
"""

GONE = f"""
systemctl stop sssd slapd 2>/dev/null
{APT} purge sssd-ldap sssd-common libnss-sss slapd ldap-utils
{APT} autoremove --purge
for name in openldap sssd; do
    ! getent passwd $name || deluser --quiet $name
    ! getent group $name || delgroup --quiet $name
done
systemctl reset-failed
rm -rf /etc/sssd /etc/ldap /var/lib/sss /var/lib/ldap /home/lucy
"""


def given(lab: labs.Lab, machine: str, script: str, text: str) -> None:
    """Run a script as root on a machine, with a text on its standard input."""
    labs.run(["docker", "exec", "-i", lab.container(machine), "sh", "-ec", script], input=text)


def provisioned(lab: labs.Lab) -> None:
    done = labs.clusterctl("provision", "--json", lab.inventory, "slurm", check=False)
    assert json.loads(done.stdout)["exit_code"] == 0, done.stderr


@pytest.fixture(scope="module")
def lab(provisioned_lab: labs.Lab) -> Iterator[labs.Lab]:
    """Machines of a site with a directory: slapd on the controller, sssd on all."""
    lab = provisioned_lab
    nsswitch = {machine: lab.root(machine, "cat /etc/nsswitch.conf") for machine in lab.machines}
    try:
        given(lab, "head", SERVER, PEOPLE)
        with ThreadPoolExecutor(len(lab.machines)) as pool:
            list(pool.map(lambda machine: given(lab, machine, CLIENT, SSSD), lab.machines))
        provisioned(lab)
        lab.root("head", "sacctmgr --immediate add user lucy account=biology")
        yield lab
        lab.root("head", "sacctmgr --immediate delete user lucy")
    finally:

        def leave(machine: str) -> None:
            lab.root(machine, GONE, check=False)
            given(lab, machine, "cat >/etc/nsswitch.conf", f"{nsswitch[machine]}\n")

        with ThreadPoolExecutor(len(lab.machines)) as pool:
            list(pool.map(leave, lab.machines))
        provisioned(lab)


def test_users_of_the_directory_are_known_on_machines_to_slurmctld_and_in_jobs(lab: labs.Lab) -> None:
    assert {lab.root(machine, "id lucy") for machine in lab.machines} == {LUCY}
    assert lab.root("head", "docker exec slurmctld id lucy") == LUCY
    assert lab.root("node1", "docker exec slurmd id lucy") == LUCY

    assert lab.root("head", "runuser -u lucy -- srun --chdir=/ --nodes=2 id").splitlines() == [LUCY, LUCY]
    assert lab.root("login1", "runuser -u lucy -- srun --chdir=/ id") == LUCY
    # Her home is the site's to make, with her number; a job from there leaves its output there.
    lab.root("head", "install -d -m 0700 -o 71001 -g 71100 /home/lucy")
    words = "sbatch --parsable --wait --output=hers --wrap 'id; pwd'"
    lab.root("head", f'runuser --login lucy --command "{words}"')
    assert lab.root("head", "runuser --login lucy --command 'cat hers'").splitlines() == [LUCY, "/home/lucy"]
    job = lab.root("head", "runuser -u lucy -- sbatch --parsable --chdir=/ --output=/dev/null --wrap 'sleep 60'")
    assert lab.root("head", f"squeue --noheader --job={job} --format=%u") == "lucy"
    lab.root("head", f"scancel {job}")
