"""What an overlay network costs beside the hosts': the same bytes between two nodes' containers of their own Docker."""

from __future__ import annotations

import re
from pathlib import Path
from statistics import median
from typing import Any

from bench.recorded import ad_hoc

from provision.inventory import loader

#: Sent in one connection, MB; and how many times an answer is waited for. The sides take turns.
MEGABYTES, ANSWERS, TURNS = 256, 500, 3

#: The user's job: one allocation of two nodes, a container on each, first on the hosts' network, then on the overlay.
#: Slurm's image is on every node, and has Python.
SERVER = """
import socket
listener = socket.create_server(("", 29555))
while True:
    peer, _ = listener.accept()
    kind = peer.recv(1)
    while (told := peer.recv(1 << 20)):
        if kind == b"p":
            peer.sendall(told)
    peer.close()
"""
CLIENT = """
import socket, sys, time
name = sys.argv[2]
for attempt in range(100):
    try:
        peer = socket.create_connection((sys.argv[1], 29555), 10)
        break
    except OSError:
        time.sleep(0.2)
peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
block = bytes(1 << 20)
peer.sendall(b"s")
begin = time.monotonic()
for _ in range(MEGABYTES):
    peer.sendall(block)
peer.shutdown(socket.SHUT_WR)
peer.recv(1)
print(name + "-rate", MEGABYTES * 1048576 / 1e6 / (time.monotonic() - begin), flush=True)
peer = socket.create_connection((sys.argv[1], 29555), 10)
peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
peer.sendall(b"p")
times = []
for _ in range(ANSWERS):
    begin = time.monotonic()
    peer.sendall(b"x")
    peer.recv(1)
    times.append(time.monotonic() - begin)
print(name + "-answer", sorted(times)[len(times) // 2] * 1e6, flush=True)
"""
SCRIPT = r"""
set -eu
first=$(scontrol show hostnames | head -n 1) second=$(scontrol show hostnames | tail -n 1)
on() { srun --quiet --overlap --nodes=1 --ntasks=1 --nodelist="$@"; }
image=$(on "$first" docker inspect slurmd | sed -n 's/.*"Image": "\([^"]*@sha256:[^"]*\)".*/\1/p' | head -n 1)
serve() { # NETWORK NAME
  on "$second" docker run --rm --name "$2" --network "$1" --entrypoint python3 "$image" -c "$SERVER" >/dev/null 2>&1 &
  server=$!
}
ask() { on "$first" docker run --rm --network "$1" --entrypoint python3 "$image" -c "$CLIENT" "$2" "$3"; }
for turn in $(seq TURNS); do
  serve host "bench-host-$SLURM_JOB_ID"
  ask host "$second" host
  on "$second" docker rm -f "bench-host-$SLURM_JOB_ID" >/dev/null; wait $server || :
  serve OVERLAY "bench-overlay-$SLURM_JOB_ID"
  ask OVERLAY "bench-overlay-$SLURM_JOB_ID" overlay
  on "$second" docker rm -f "bench-overlay-$SLURM_JOB_ID" >/dev/null; wait $server || :
done
"""


def beside_the_host(
    inventory: Path, megabytes: int = MEGABYTES, answers: int = ANSWERS, turns: int = TURNS
) -> dict[str, Any]:
    """Return both networks' rates and answers, and their ratios; for each overlay network of the inventory.

    ``megabytes`` are sent in each of so many ``turns``, and so many ``answers`` waited for. Empty where there is none,
    fewer than two nodes, or no user of ``cluster_users`` in ``job_docker_group``.
    """
    loaded = loader.load(inventory)
    controller = loaded.groups["slurm_controller"][0]
    site = loaded.hostvars[controller]
    networks = [str(network["name"]) for network in site.get("job_docker_overlay_networks") or ()]
    group = site.get("job_docker_group")
    people = site.get("cluster_users") or ()
    users = [str(user["name"]) for user in people if group in (user.get("groups") or ())]
    if not networks or not users or len(loaded.groups["slurm_compute"]) < 2:
        return {}
    found: dict[str, Any] = {}
    for network in networks:
        job = SCRIPT.replace("TURNS", str(turns)).replace("OVERLAY", network)
        client = CLIENT.replace("MEGABYTES", str(megabytes)).replace("ANSWERS", str(answers))
        files = {"bench.sh": job, "server.py": SERVER, "client.py": client}
        wrote = "".join(f"cat >{name} <<'BENCH'\n{text}\nBENCH\n" for name, text in files.items())
        start = (
            f'runuser -u {users[0]} -- env HOME=$PWD SERVER="$(cat server.py)" CLIENT="$(cat client.py)" '
            "salloc --quiet --nodes=2 --ntasks-per-node=1 bash bench.sh </dev/null"
        )
        told = ad_hoc(
            inventory, "shell", f"cd ~{users[0]}; {wrote}{start}; code=$?; rm {' '.join(files)}; exit $code", controller
        )
        found |= compared(network, told)
    return found


def compared(network: str, told: str) -> dict[str, Any]:
    """Return medians and their ratios, of lines of a name and a figure: MB/s, or microseconds."""
    figures: dict[str, list[float]] = {}
    for name, value in re.findall(r"^((?:host|overlay)-(?:rate|answer)) ([0-9.e+]+)$", told, re.MULTILINE):
        figures.setdefault(name, []).append(float(value))
    middle = {name: median(values) for name, values in figures.items()}
    return {
        f"{network}: MB/s between two containers": middle["overlay-rate"],
        f"  {network}: on the hosts' network": middle["host-rate"],
        f"  {network}: ratio": middle["overlay-rate"] / middle["host-rate"],
        f"{network}: an answer, microseconds": middle["overlay-answer"],
        f"  {network}: on the hosts' network, microseconds": middle["host-answer"],
        f"  {network}: times": middle["overlay-answer"] / middle["host-answer"],
    }
