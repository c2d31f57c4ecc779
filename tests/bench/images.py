"""What the controller sends when nodes are given an image: one of them, all at once, and all after it was cut off.

The images are of layers that cannot be compressed, each time new ones, so that nobody has anything of them.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from bench.commands import BIN
from bench.recorded import ad_hoc

from provision import content
from provision.ansible_env import clean_environment
from provision.inventory import loader

STORE = "/var/lib/clusterctl/images"

#: Makes an image of so many layers, pushes it, and prints its digest; ``name`` has to be nobody's.
MAKE = """
set -eu
place=$(mktemp -d); cd "$place"
echo FROM scratch >Dockerfile
for layer in $(seq {layers}); do
  head -c {size} /dev/urandom >layer$layer; echo "COPY layer$layer /" >>Dockerfile
done
DOCKER_BUILDKIT=0 docker build --quiet --tag {push}/{name}:1 . >/dev/null
cd /; rm -r "$place"
docker push {push}/{name}:1 | grep -o 'sha256:[0-9a-f]*' | tail -n 1
docker image rm {push}/{name}:1 >/dev/null
"""

#: Takes such an image out of the registry's directory: nobody else has anything of it.
FORGET = """
set -eu
cd /var/cache/clusterctl/registry/docker/registry/v2
for link in $(find repositories/clusterctl/{name} -path '*sha256*' -name link); do
  digest=$(cut -d: -f2 "$link"); rm -rf "blobs/sha256/$(printf %.2s "$digest")/$digest"
done
rm -r repositories/clusterctl/{name}
"""

#: Prints what the interface has sent by which the controller reaches a node.
SENT = """
route=$(ip -o route get {address}); device=${{route#* dev }}
cat "/sys/class/net/${{device%% *}}/statistics/tx_bytes"
"""

#: Ends a pull as a crash does: the module, timeout, Docker's command, and Podman in its container.
KILL = r"""
first=$(pgrep -o -f '[p]odman --root {store}') || exit 0
kill -9 $(ps -o ppid= -p "$first"); pkill -9 -f '[p]odman --root {store}'
"""


#: Takes an image out of the store of a node.
REMOVE = """
docker run --rm --cap-drop ALL --cap-add SYS_ADMIN --cap-add DAC_OVERRIDE --cap-add CHOWN --cap-add FOWNER \
  --cap-add SYS_CHROOT --security-opt seccomp=unconfined --security-opt apparmor=unconfined \
  --security-opt systempaths=unconfined --volume {store}:{store} --tmpfs /run/podman-store {tool} \
  podman --root {store} --runroot /run/podman-store rmi --force {reference} >/dev/null
"""


def placing(inventory: Path, nodes: str, reference: str, tool: str) -> subprocess.Popen[bytes]:
    """Begin to place an image on nodes, as a role does."""
    arguments = json.dumps({"reference": reference, "tool": tool, "store": STORE})
    command = [str(BIN / "ansible"), nodes, "-i", str(inventory), "--become", "--forks", "64"]
    return subprocess.Popen(
        [*command, "-m", "cluster_image_place", "-a", arguments],
        env={**clean_environment(), "ANSIBLE_CONFIG": str(content.ROOT / "ansible.cfg")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def last_line(told: str) -> str:
    """Return the last line that a command printed, of what Ansible makes of it."""
    return told.strip().splitlines()[-1]


def to_nodes(inventory: Path, megabytes: int) -> dict[str, Any]:
    """Return MB that the controller sends for an image of eight layers, as ratios to what one node costs."""
    loaded = loader.load(inventory)
    controller, nodes = loaded.groups["slurm_controller"][0], list(loaded.groups["slurm_compute"])
    port = loaded.hostvars[controller].get("container_images_port", 5000)
    push = f"{controller}:{loaded.hostvars[controller].get('container_images_push_port', 5001)}/clusterctl"
    address = loaded.hostvars[nodes[0]].get("ansible_host", nodes[0])
    tool = last_line(
        ad_hoc(inventory, "command", "docker inspect --format {%raw%}{{.Config.Image}}{%endraw%} slurmd", nodes[0])
    )
    made: list[str] = []

    def sent() -> int:
        return int(last_line(ad_hoc(inventory, "shell", SENT.format(address=address), controller)))

    def image() -> str:
        name = f"bench{len(made)}"
        made.append(name)
        size = megabytes * 1024 * 1024 // 8
        told = ad_hoc(inventory, "shell", MAKE.format(layers=8, size=size, push=push, name=name), controller)
        return f"{controller}:{port}/clusterctl/{name}@{last_line(told)}"

    def given(hosts: str, reference: str) -> float:
        before = sent()
        if placing(inventory, hosts, reference, tool).wait():
            raise SystemExit(f"{reference} could not be placed on {hosts}")
        return (sent() - before) / 1e6

    try:
        one = given(nodes[-1], image())
        all_of_them = given(",".join(nodes), image())
        reference = image()
        before = sent()
        first = placing(inventory, ",".join(nodes), reference, tool)
        half = f"until [ $({SENT.format(address=address)}) -gt {before + int(one * 500_000)} ]; do sleep 0.2; done"
        ad_hoc(inventory, "shell", f"timeout 600 sh -c '{half}'", controller)
        ad_hoc(inventory, "shell", KILL.format(store=STORE), ",".join(nodes))
        cut = first.wait() != 0
        before_again = sent()
        given(",".join(nodes), reference)
        after = sent()
    finally:
        for name in made:
            ad_hoc(inventory, "shell", FORGET.format(name=name) + "\ntrue", controller)
            ad_hoc(inventory, "shell", removing(tool, name), ",".join(nodes))
    return {
        "one node, MB": one,
        f"all {len(nodes)} at once": all_of_them,
        "  ratio (aim for four: 1.5 or less)": all_of_them / one,
        "all, cut off after": (before_again - before) / 1e6 if cut else "nothing: they were done before",
        "  and again": (after - before_again) / 1e6,
        "  both: ratio": (after - before) / 1e6 / one,
    }


def removing(tool: str, name: str) -> str:
    """Return what takes the images of this name out of a node's store, if there are any."""
    find = f"grep -o '[^\"]*/clusterctl/{name}@sha256:[0-9a-f]*' {STORE}/overlay-images/images.json | sort -u"
    remove = REMOVE.strip().format(store=STORE, tool=tool, reference="$reference")
    return f"for reference in $({find}); do {remove}; done; true"
