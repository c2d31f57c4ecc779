"""Users push images of theirs to the controller, each below the own name; all others run them, and change none."""

from __future__ import annotations

import shlex

from labs import Lab

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

    assert provisioned_lab.root("node1", TOKENS).split() == ["202", "401", "401"]
    pushes = "docker-registry-users docker-registry-tokens"
    assert provisioned_lab.root("head", f"systemctl show --property=NRestarts --value {pushes}").split() == ["0", "0"]
