"""A node passes images on: to others, again after a cut, and not at all where it is down. With images of some MB."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import labs
import pytest
from bench import images

from provision import content

#: Bytes of an image: four layers.
SIZE = 4 << 22
REFERENCE = "head:5000/clusterctl/{name}@{digest}"


@pytest.fixture(scope="module", autouse=True)
def counted(provisioned_lab: labs.Lab) -> Iterator[None]:
    """Have the controller's kernel count what its registry sends, and nothing else of what goes to nodes."""
    rule = "OUTPUT -p tcp --sport 5000"
    provisioned_lab.root("head", f"iptables -I {rule}")
    yield
    provisioned_lab.root("head", f"iptables -D {rule}")


def sent(lab: labs.Lab) -> int:
    """Return the bytes that the controller's registry has sent."""
    return int(lab.root("head", "iptables -nvxL OUTPUT | grep spt:5000").split()[1])


@pytest.fixture
def image(provisioned_lab: labs.Lab) -> Iterator[Callable[[], str]]:
    """Make images in the registry, which nobody has; they are gone afterwards."""
    lab, made = provisioned_lab, []

    def make() -> str:
        name = f"passed-on-{len(made)}"
        made.append(name)
        script = images.MAKE.format(layers=4, size=SIZE // 4, push="head:5001/clusterctl", name=name)
        return REFERENCE.format(name=name, digest=lab.root("head", script).splitlines()[-1])

    yield make
    for name in made:
        lab.root("head", images.FORGET.format(name=name))
        for node in ("node1", "node2"):
            lab.root(node, images.removing(tool(lab), name))


def tool(lab: labs.Lab) -> str:
    """Return the image of which podman comes."""
    return lab.root("node1", "docker inspect --format '{{.Config.Image}}' slurmd")


def place(lab: labs.Lab, nodes: str, reference: str) -> int:
    """Place an image on nodes as roles do, and return what the controller has sent for it."""
    before = sent(lab)
    done = images.placing(lab.inventory, nodes, reference, tool(lab))
    assert done.wait(600) == 0
    for node in nodes.split(","):
        assert reference in lab.root(node, f"cat {images.STORE}/overlay-images/images.json")
    return sent(lab) - before


def test_an_image_leaves_the_controller_once_for_all_nodes_near_a_mirror(
    provisioned_lab: labs.Lab, image: Callable[[], str]
) -> None:
    lab = provisioned_lab

    assert SIZE <= place(lab, "node1,node2", image()) < 1.5 * SIZE
    # Slurm's own image, which Docker pulls, by the mirror's name and then by its own.
    reference = image()
    assert SIZE < place(lab, "node2", reference) < 1.5 * SIZE
    before = sent(lab)
    lab.root("node1", f"docker pull --quiet {reference.replace('head:5000', 'node1:5002')}")
    lab.root("node1", f"docker pull --quiet {reference}; docker image rm --force {reference}")
    assert sent(lab) - before < SIZE / 4


def test_nobody_writes_to_a_mirror_and_nobody_gets_a_tag_from_it(provisioned_lab: labs.Lab) -> None:
    lab = provisioned_lab
    ask = "curl --silent --output /dev/null --write-out '%{http_code} ' --cacert /etc/docker/certs.d/node1:5002/ca.crt "
    at = "https://node1:5002/v2/"
    words = ["", "_catalog", "clusterctl/slurm/tags/list", "clusterctl/slurm/manifests/1"]
    asked = [ask + at + word for word in words]
    asked += [ask + f"--request PUT --data x {at}clusterctl/slurm/manifests/sha256:ab"]
    asked += [ask + f"--request POST --data x {at}clusterctl/slurm/blobs/uploads/"]

    assert lab.root("node2", "; ".join(asked)).split() == ["200", "404", "404", "404", "403", "404"]
    # Without the cluster's authority it is not trusted.
    assert lab.root("node2", ask.partition(" --cacert")[0] + f" {at} || echo refused").split() == ["000", "refused"]


def test_without_its_mirror_a_node_pulls_from_the_controller_and_says_what_does_not_answer(
    provisioned_lab: labs.Lab, image: Callable[[], str]
) -> None:
    lab = provisioned_lab
    ask = json.dumps({"gather": [], "registry": {"host": "head:5000", "seconds": 5, "mirror": "node1:5002"}})
    command = [labs.BIN / "ansible", "node2", "-i", lab.inventory, "--become", "-m", "machine_facts", "-a", ask]
    lab.root("node1", "systemctl stop clusterctl-mirror")
    try:
        assert place(lab, "node2", image()) > SIZE
        told = labs.run(command, env={"ANSIBLE_CONFIG": str(content.ROOT / "ansible.cfg")}).stdout
    finally:
        lab.root("node1", "systemctl start clusterctl-mirror")
    # Which provision.judge.images makes a warning of, with its fix.
    assert json.loads(told.partition("=>")[2])["machine"]["registry"] == {
        "status": 200,
        "mirror": {"error": "it does not answer: Connection refused"},
    }


def test_what_a_mirror_has_that_is_not_what_its_digest_says_is_pulled_from_the_controller(
    provisioned_lab: labs.Lab, image: Callable[[], str]
) -> None:
    lab, reference = provisioned_lab, image()
    lab.root("node1", "touch /tmp/before")
    place(lab, "node1", reference)
    cache = "/var/cache/clusterctl/mirror"
    spoil = "printf spoilt | dd of=$file bs=1 seek=2000000 conv=notrunc status=none && echo $file"
    fresh = f"find {cache} -type f -size +3M -newer /tmp/before"
    assert lab.root("node1", f"{fresh} | while read -r file; do {spoil}; done; rm /tmp/before")
    try:
        place(lab, "node2", reference)
    finally:
        lab.root("node1", f"systemctl stop clusterctl-mirror; rm -rf {cache}/*; systemctl start clusterctl-mirror")


@pytest.fixture(scope="module")
def four() -> Iterator[labs.Lab]:
    """Four compute machines, provisioned: some are left where one is lost."""
    with labs.made("t-four", nodes=4) as made:
        labs.clusterctl("provision", made.inventory)
        yield made


#: A training of which the second turn comes to its end.
TRAINS = r"""#!/bin/sh
#SBATCH --nodes=2 --ntasks-per-node=1 --mem=500M --time=30 --open-mode=append --output=lost.log
srun --container-image=$(podman images --quiet --filter readonly=true | head -n 1) --container-mounts=$HOME \
    torchrun-slurm --requeue-on=node-failure --output-dir $HOME/out --env kubeflow \
    sh -c '[ "${SLURM_RESTART_COUNT:-0}" = 0 ] || exit 0; echo trains; sleep 900'
"""


# Last in this file: the machine is not started again.
@pytest.mark.night
def test_a_training_whose_node_is_lost_goes_on_without_it(four: labs.Lab) -> None:
    lab = four
    lab.said(f"mkdir -p out; cat >lost.sh <<'END'\n{TRAINS}END")
    job = lab.said("sbatch --parsable lost.sh")
    log = "cat lost.log || true"
    labs.until(lambda: lab.said(log).count("trains") == 2, lambda: lab.said(log))
    lost = lab.said(f"scontrol show hostnames $(squeue --noheader --jobs={job} --format=%N)").split()[-1]

    labs.docker("kill", lab.container(lost))

    # Slurm lets go of the job when it has given the node up (SlurmdTimeout).
    labs.until(lambda: lab.state(job) == "PENDING", lambda: lab.said(log))
    lab.said(f"scontrol update JobId={job} StartTime=now")
    labs.until(lambda: lab.state(job) == "COMPLETED", lambda: lab.said(log))
    told = lab.said(log)
    assert f"torchrun-slurm: {lost}: the job is requeued without it, for turn 1 of at most 20" in told.splitlines()
