"""Users push images of theirs to the controller, each below the own name; all others run them, and change none."""

from __future__ import annotations

import shlex

import pytest
from labs import Lab, clusterctl

NAME = "head:5003/ada/train:1"
#: Of Slurm's image: a program that needs no library, so that what is pushed is small.
PROGRAM = "/usr/bin/tini-static"

#: Prints what the registry says to ben's token where he pushes to his own and to ada's, and to one that nobody signed.
TOKENS = r"""
ask() { curl --silent --cacert /etc/docker/certs.d/head:5003/ca.crt "$@"; }
credential=$(su ben -c 'printf "push to head:5003" | munge')
told=$(ask --user "munge:$credential" 'https://head:5004/token?scope=repository:ben/train:pull,push')
token=$(printf %s "$told" | sed 's/.*"token": "\([^"]*\)".*/\1/')
claims=${token#*.}
unsigned=$(printf '{"typ":"JWT","alg":"none"}' | base64 --wrap=0 | tr -d =).${claims%.*}.
push() {
    ask --output /dev/null --write-out '%{http_code} ' --request POST --header "Authorization: Bearer $1" \
        "https://head:5003/v2/$2/train/blobs/uploads/"
}
push "$token" ben; push "$token" ada; push "$unsigned" ben
"""


def test_who_pushes_is_known_by_munge_and_everybody_runs_what_was_pushed(provisioned_lab: Lab) -> None:
    def job(user: str, node: str, script: str) -> tuple[int, str]:
        """Run a script in a job; return how it ends, and all that it prints."""
        words = f"srun --quiet --nodelist={node} sh -c {shlex.quote(script)}"
        done = provisioned_lab.ssh("head", words, user=user)
        return done.returncode, done.stdout + done.stderr

    recipe = (
        f"mkdir -p /tmp/c && cp {PROGRAM} /tmp/c/tini && printf 'FROM scratch\\nCOPY tini /tini\\n' >/tmp/c/Dockerfile"
    )
    pushed = job(
        "ada",
        "node1",
        f"{recipe} && docker build --quiet -t {NAME} /tmp/c && docker push --quiet {NAME} && docker rmi {NAME}"
        # A user who has it pulls it, too; and with the registry as pyxis writes it.
        f" && docker pull --quiet {NAME} && docker run --rm {NAME} /tini --version",
    )
    assert pushed[0] == 0, pushed[1]
    assert "tini version" in pushed[1]
    for name in (NAME, NAME.replace("/", "#", 1)):
        run = f"srun --quiet --nodelist=node2 --container-image={name} /tini --version"
        ran = provisioned_lab.ssh("head", run, user="ben")
        assert (ran.returncode, "tini version" in ran.stdout) == (0, True), ran.stderr

    theirs = f"docker pull --quiet {NAME} && docker tag {NAME} mine:1; JOB_IMAGES=none"
    refused = {
        # Podman asks who may, docker knows it before.
        f"{theirs} podman push mine:1 {NAME}": "ben pushes to head:5003/ben/ only: docker tag IMAGE",
        f"docker push {NAME}": "what you push to head:5003 begins with head:5003/ben/. Fix: docker tag",
        f"{theirs} podman push mine:1 head:5000/clusterctl/slurm:1": "405",
        "docker push head:5000/clusterctl/slurm:1": "head:5000 is the cluster's own, and nobody pushes there",
    }
    for script, words in refused.items():
        code, told = job("ben", "node2", f"export JOB_IMAGES=none; {script}")
        assert (code, words in told) == (125, True), told

    ask = "curl -s -o /dev/null -w '%{http_code} ' --cacert /etc/docker/certs.d/head:5003/ca.crt"
    upload = "https://head:5003/v2/ada/train/blobs/uploads/"
    token = "'https://head:5004/token?scope=repository:ada/train:pull,push'"
    credential = '"munge:$(printf "push to head:5003" | munge)"'
    said = provisioned_lab.root(
        "node1",
        f"{ask} -X POST {upload}; {ask} -X DELETE {upload}1; {ask} {token}; {ask} -u munge:MUNGE:forged: {token};"
        # Root is nobody's user, and neither is who made a credential for something else.
        f" {ask} -u {credential} {token}; c=$(su ada -c 'printf other | munge'); {ask} -u \"munge:$c\" {token}",
    )
    assert said.split() == ["401"] * 6

    # What is one's own goes by its name, and what is others' does not.
    deleted = job("ben", "node2", f"skopeo delete docker://{NAME}")
    assert (deleted[0] != 0, "ben removes what is in head:5003/ben/ only" in deleted[1]) == (True, True), deleted[1]
    assert job("ada", "node2", f"skopeo delete docker://{NAME} && ! skopeo inspect --raw docker://{NAME}")[0] == 0

    assert provisioned_lab.root("node1", TOKENS).split() == ["202", "401", "401"]
    pushes = "docker-registry-users docker-registry-tokens"
    assert provisioned_lab.root("head", f"systemctl show --property=NRestarts --value {pushes}").split() == ["0", "0"]


#: Of the registry, and of what tells it who pushes; of the images themselves only where they are.
LEFT = (
    "ls -d /etc/clusterctl/users-registry /etc/docker/registry/users.yml /usr/local/lib/registry-tokens"
    " /etc/docker/certs.d/head:5003 /etc/systemd/system/docker-registry-users.service"
    " /etc/systemd/system/docker-registry-tokens.service 2>/dev/null;"
    " systemctl is-active docker-registry-users docker-registry-tokens | grep -x active;"
    " ls -d /var/lib/docker-registry-users"
)


@pytest.mark.night  # two provisions; what is to be absent follows from what is there (test_users_registry_declared)
def test_switched_off_again_nothing_of_it_is_left_but_the_images(provisioned_lab: Lab) -> None:
    settings = provisioned_lab.inventory.parent / "group_vars/all.yml"
    before = settings.read_text(encoding="utf-8")
    assert len(provisioned_lab.root("head", LEFT).split()) == 9
    assert len(provisioned_lab.root("node1", LEFT, check=False).split()) == 2
    try:
        settings.write_text(before.replace("container_images_users: true", "container_images_users: false"))
        clusterctl("provision", provisioned_lab.inventory, "containers")
        assert provisioned_lab.root("head", LEFT).split() == ["/var/lib/docker-registry-users"]
        assert provisioned_lab.root("node1", LEFT, check=False).split() == []
    finally:
        settings.write_text(before, encoding="utf-8")
        clusterctl("provision", provisioned_lab.inventory, "containers")
    assert len(provisioned_lab.root("head", LEFT).split()) == 9
