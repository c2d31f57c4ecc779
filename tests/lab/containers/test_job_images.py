"""Images that a site declares: on every node by name, made again where they changed, removed when nobody runs them.

The lab has a small one here. What changes them is a scenario of some minutes, because each step is a provision: make
test-jobs.
"""

from __future__ import annotations

import base64
import gzip
import io
import json
import re
import subprocess
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import labs
import locked_registry
import pytest
import saved_image
from labs import Lab

CONTAINERFILE = "FROM site/torch:1\nCOPY hello /usr/local/bin/hello\n"


@pytest.fixture
def site(site_image: Lab) -> Iterator[Path]:
    """Return a file of variables of all machines, empty; afterwards the lab is as before."""
    # In one of the inventory's own groups: what the lab says of all stands elsewhere.
    inventory = site_image.inventory.read_text()
    own = "\n".join(["", "[site:children]", "slurm_controller", "slurm_compute", "slurm_login", ""])
    file = site_image.directory / "group_vars" / "site.yml"
    file.parent.mkdir(exist_ok=True)
    site_image.inventory.write_text(inventory + own)
    yield file
    file.unlink(missing_ok=True)
    site_image.inventory.write_text(inventory)
    labs.clusterctl("provision", site_image.inventory, "slurm")


def pending(lab: Lab) -> dict[tuple[str, str], str]:
    """Return what plan says of images of jobs, by check and machine."""
    told = labs.document(lab.inventory, "plan")["pending_checks"]
    return {(one["id"], one["host"]): one["observed"] for one in told if one["id"].startswith("job_images.")}


def names(lab: Lab, node: str) -> list[str]:
    """Return the names without digest in a node's store."""
    text = lab.root(node, "cat /var/lib/clusterctl/images/overlay-images/images.json")
    return sorted(name for image in json.loads(text) for name in image["names"] if "@" not in name)


def archive(place: Path) -> Path:
    """Write what docker save makes of a small image, plain and packed; return the plain one."""
    name, files, file = "clusterctl-test-saved:1", io.BytesIO(), place / "saved.tar"
    with tarfile.open(fileobj=files, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("hello"))
    subprocess.run(["docker", "import", "-", name], input=files.getvalue(), check=True, timeout=labs.PATIENCE)
    try:
        subprocess.run(["docker", "save", "--output", str(file), name], check=True, timeout=labs.PATIENCE)
    finally:
        subprocess.run(["docker", "image", "rm", name], check=False, timeout=labs.PATIENCE)
    file.with_name("saved.tar.gz").write_bytes(gzip.compress(file.read_bytes()))
    return file


def test_an_archive_of_the_site_is_an_image_on_all_nodes(site_image: Lab) -> None:
    look = "cat /etc/of-the-site"
    by_option = f"srun --quiet --nodes=2 --container-image={saved_image.NAME} {look}"

    assert site_image.said(by_option).split() == ["small", "small"]
    assert site_image.said(f"srun --quiet docker run --rm {saved_image.NAME} {look}") == "small"


#: Takes the site's image out of a store as if it had never come, and prints its id.
FORGET = f"""
cd /var/lib/clusterctl/images/overlay-images; python3 - <<'END'
import json, pathlib, shutil
file = pathlib.Path("images.json")
images = json.loads(file.read_text())
(own,) = (image for image in images if "localhost/{saved_image.NAME}" in image["names"])
shutil.rmtree(own["id"])
images.remove(own)
file.write_text(json.dumps(images))
print(own["id"])
END
"""


def test_a_node_that_gets_slurmd_has_the_images_before_it_takes_a_job(site_image: Lab) -> None:
    """As a node that joins a cluster: what it has of the image is older than its slurmd."""
    lab = site_image
    lab.root("node2", "docker rm --force slurmd")
    image = lab.root("node2", FORGET)

    labs.clusterctl("provision", lab.inventory, "slurm")

    begun = lab.root("node2", "date +%s --date $(docker inspect --format '{{.State.StartedAt}}' slurmd)")
    placed = lab.root("node2", f"stat --format=%Y /var/lib/clusterctl/images/overlay-images/{image}/manifest")
    assert int(placed) <= int(begun)
    assert lab.said(f"srun --quiet -w node2 --container-image={saved_image.NAME} cat /etc/of-the-site") == "small"


@pytest.mark.night
def test_images_of_the_site_are_on_all_nodes_and_go_when_they_are_taken_out_and_nobody_runs_them(
    site_image: Lab, site: Path
) -> None:
    lab = site_image
    stored = json.loads(lab.root("node1", "cat /var/lib/clusterctl/images/overlay-images/images.json"))
    torch = next(name for image in stored for name in image["names"] if "/ddp@" in name)
    context = site.parent.parent / "mine"
    context.mkdir(exist_ok=True)
    (context / "Containerfile").write_text(CONTAINERFILE)

    def say(text: str) -> None:
        (context / "hello").write_text(f"#!/bin/sh\necho {text} on $(hostname)\n")
        (context / "hello").chmod(0o755)

    # Archives of both kinds: Docker's beside the inventory, packed as well, and OCI's on the controller.
    saved = archive(site.parent.parent)
    lab.root("head", f"base64 -d > /srv/saved.tar <<'END'\n{base64.encodebytes(saved.read_bytes()).decode()}END")
    lab.root("head", "apt-get update >/dev/null; apt-get install --yes skopeo >/dev/null; rm -f /srv/oci.tar")
    lab.root("head", "skopeo --insecure-policy copy docker-archive:/srv/saved.tar oci-archive:/srv/oci.tar")
    sources = {"saved:1.0": "saved.tar", "packed:1.0": "saved.tar.gz", "oci:1.0": "/srv/oci.tar"}
    archives = [{"name": name, "archive": path, "revision": int(time.time())} for name, path in sources.items()]

    say("one")
    # Anew, whatever labs of this name have left in the registry that all labs of a computer share.
    of_torch = {"name": "site/torch:1", "reference": torch, "revision": int(time.time())}
    mine = {"name": "mine:2", "containerfile": "mine", "revision": int(time.time())}
    site.write_text(json.dumps({"job_images": [of_torch, mine, *archives], "job_environment": {"OF_THE_SITE": "a b"}}))

    told = pending(lab)
    assert told["job_images.built", "head"].startswith("site/torch:1: not pulled yet from ")
    first = "site/torch:1 is still to be made; mine:2 is still to be made; "
    assert told["job_images.stored", "node2"].startswith(first)
    told_meanwhile = labs.clusterctl("provision", lab.inventory, "slurm").stderr
    # In a pipe, a line each 15 s: the largest of them takes longer.
    assert re.search(r": image [a-z/]+:[\d.]+: ", told_meanwhile), told_meanwhile[-2000:]
    assert pending(lab) == {}
    assert {f"localhost/{one['name']}" for one in archives} <= set(names(lab, "node1"))

    assert sorted(lab.said("srun --quiet --nodes=2 --container-image=mine:2 hello").splitlines()) == [
        "one on node1",
        "one on node2",
    ]
    assert lab.said("srun --quiet docker run --rm site/torch:1 python3 -c 'import torch; print(1)'") == "1"
    shown = "printenv OF_THE_SITE"
    for words in (shown, f"--container-image=mine:2 {shown}", f"docker run --rm mine:2 {shown}"):
        assert lab.said(f"srun --quiet {words}") == "a b", words
        assert lab.said(f"OF_THE_SITE=mine srun --quiet {words}") == "mine", words

    # A job that runs keeps what it runs in; the other node has it no longer.
    job = lab.said("sbatch --parsable --nodelist=node1 --wrap 'srun --container-image=mine:2 sleep 600'")
    labs.until(lambda: lab.said(f"squeue --noheader --steps --job {job}").count("sleep"), "no step")
    labs.until(lambda: "sleep" in lab.root("node1", "ps -e -o args"), "no task")
    say("two")
    assert "mine:2: not built yet from mine" in pending(lab)["job_images.built", "head"]
    labs.clusterctl("provision", lab.inventory, "slurm")
    assert pending(lab) == {}
    assert lab.said("srun --quiet --nodelist=node2 --container-image=mine:2 hello") == "two on node2"
    checks = labs.document(lab.inventory, "verify")["checks"]
    (stays,) = (one for one in checks if (one["id"], one["host"]) == ("job_images.collected", "node1"))
    assert stays["verdict"] == "pass"
    assert f"stays: job {job} uses it" in stays["observed"]
    lab.said(f"scancel {job}")
    labs.until(lambda: not lab.said(f"squeue --noheader --job {job} 2>/dev/null || true"), "it does not end")
    labs.until(lambda: ("job_images.collected", "node1") in pending(lab), "it is still used")

    # One that is no archive is refused before anything is changed.
    lab.root("head", "touch /srv/empty.tar")
    site.write_text(json.dumps({"job_images": [{"name": "empty", "archive": "/srv/empty.tar"}]}))
    refused = labs.clusterctl("provision", lab.inventory, check=False)
    assert refused.returncode == 3
    assert "empty: /srv/empty.tar: it is empty" in refused.stdout + refused.stderr

    # What is lost comes back, and what is taken out goes.
    site.write_text(json.dumps({"job_images": [of_torch]}))
    lab.root("node2", "rm -rf /var/lib/clusterctl/images/*")
    told = pending(lab)
    assert told["job_images.stored", "node2"] == "site/torch:1 is not there"
    assert "is in the registry" in told["job_images.collected", "head"]
    assert "mine:2" in told["job_images.collected", "node1"]
    labs.clusterctl("provision", lab.inventory, "slurm")
    assert pending(lab) == {}
    assert names(lab, "node1") == names(lab, "node2") == ["localhost/site/torch:1"]


#: Nothing but the lab's machines can be reached, as in a closed network.
CLOSE = "iptables -N closed; iptables -A closed -o lo -j ACCEPT; iptables -A closed -d {net} -j ACCEPT; "
CLOSE += "iptables -A closed -j REJECT; iptables -I OUTPUT -j closed"
OPEN = "iptables -D OUTPUT -j closed; iptables -F closed; iptables -X closed"


@pytest.mark.night
def test_what_does_not_fit_or_asks_for_a_password_is_told_and_with_a_login_comes_in_a_closed_network(
    site_image: Lab, site: Path
) -> None:
    lab = site_image
    packed = base64.encodebytes(archive(site.parent.parent).read_bytes()).decode()
    lab.root("head", f"base64 -d > /srv/saved.tar <<'END'\n{packed}END")
    # A file with a hole has that size, and costs nothing.
    lab.root("head", "cp /srv/saved.tar /srv/grown.tar; truncate -s 5T /srv/grown.tar")
    site.write_text(json.dumps({"job_images": [{"name": "grown:1", "archive": "/srv/grown.tar"}]}))
    try:
        refused = labs.clusterctl("provision", lab.inventory, "slurm", check=False)
    finally:
        lab.root("head", "rm /srv/grown.tar")
    told = refused.stdout + refused.stderr
    assert refused.returncode in (3, 4), told
    assert re.search(r"grown:1: it does not fit: .*5\d{3}\.\d GB.*Nothing was copied", told), told[-3000:]

    of_team = {"name": "team/x:1", "reference": "head:5443/team/x:1", "revision": int(time.time())}
    machines = lab.machines
    net = lab.root("head", "ip -oneline -4 route show dev eth0 scope link").split()[0]
    with locked_registry.served(lab, ["head"]):
        copy = "skopeo --insecure-policy copy --quiet --dest-creds ada:of-a-test"
        lab.root("head", f"{copy} docker-archive:/srv/saved.tar docker://head:5443/team/x:1")
        site.write_text(json.dumps({"job_images": [of_team]}))
        refused = labs.clusterctl("provision", lab.inventory, "slurm", check=False)
        told = refused.stdout + refused.stderr
        assert refused.returncode == 4, told
        assert "head:5443: it asks for a password, or has another for this user: job_images_logins: {head:5443" in told

        logins = {"head:5443": {"username": "ada", "password": "of-a-test"}}
        site.write_text(json.dumps({"job_images": [of_team], "job_images_logins": logins}))
        for machine in machines:
            # Indexes are too old to install by, and cannot be had; nothing is to be installed.
            lab.root(machine, "cd /var/lib/apt; touch --date='2 hours ago' lists; rm -f periodic/update-success-stamp")
            lab.root(machine, CLOSE.format(net=net))
        try:
            assert lab.root("head", "curl --max-time 3 --silent http://192.0.2.1 || echo closed") == "closed"
            done = labs.clusterctl("provision", lab.inventory, "slurm")
        finally:
            for machine in machines:
                lab.root(machine, OPEN)
    assert "of-a-test" not in done.stdout + done.stderr
    for node in ("node1", "node2"):
        assert "localhost/team/x:1" in names(lab, node)
