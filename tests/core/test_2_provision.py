"""The first provision of bare machines, and the second, which has nothing to do."""

from __future__ import annotations

import json
import re

import labs
import snapshots


def state(lab: labs.Lab) -> dict[str, object]:
    """Return everything on all machines that a run without changes must leave as it is."""
    return {machine: (snapshots.files(lab, machine), snapshots.services(lab, machine)) for machine in lab.machines}


#: Tasks that build or move images, and for how long one is waited for.
_IMAGES = r"\| (?:Ensure that the registry has the image|Place it in the node's store|Ensure that the daemons run)"


_WAITED = re.compile(rf"{_IMAGES}.*: waiting.* \((\d+):(\d+)\)(.*)")


def test_what_builds_or_moves_an_image_says_how_far_it_is(first_provision: tuple[labs.Lab, str, str]) -> None:
    _, told, record = first_provision
    waited = [(60 * int(minutes) + int(seconds), rest) for minutes, seconds, rest in _WAITED.findall(told)]

    # All that the machines have said, however soon they were done; and, where somebody waits, how far it is.
    for machine, image in (("node1", "slurm"), ("node2", "slurm"), ("node1", "ddp"), ("node2", "ddp")):
        assert re.search(rf"(?m)^going: {machine}: image {image}: .*\d+ of \d+ layers", record), (machine, image)
    if any(seconds >= 45 for seconds, _ in waited):
        assert any(re.search(r"image \w+: ", rest) for _, rest in waited), waited


def test_a_plan_and_a_second_provision_find_nothing_and_restart_nothing(provisioned_lab: labs.Lab) -> None:
    before = state(provisioned_lab)
    recorded = {path: path.read_text() for path in (provisioned_lab.directory / "host_vars").rglob("*.yml")}

    plan = labs.clusterctl("plan", provisioned_lab.inventory, "--detailed-exitcode", "--json")
    done = labs.clusterctl("provision", provisioned_lab.inventory, "--json")

    for command in (plan, done):
        report = json.loads(command.stdout)
        assert (report["changed"], report["exit_code"]) == (0, 0)
    assert state(provisioned_lab) == before
    assert {path: path.read_text() for path in recorded} == recorded
    assert all("gpu:sim:2" in text for text in recorded.values())
    assert len(recorded) == 2


def test_what_was_discovered_is_what_the_machine_has(provisioned_lab: labs.Lab) -> None:
    for machine in ("node1", "node2"):
        file = provisioned_lab.directory / "host_vars" / f"{machine}.yml"
        recorded = {name: int(told) for name, told in re.findall(r"(?m)^(node_\w+): (\d+)", file.read_text())}
        cpus, memory = provisioned_lab.root(machine, "nproc; sed -n 's/^MemTotal: *//p' /proc/meminfo").split()[:2]

        threads = recorded["node_sockets"] * recorded["node_cores_per_socket"] * recorded["node_threads_per_core"]
        assert recorded["node_cpus"] == threads == int(cpus)
        assert 0.96 < recorded["node_real_memory"] / (int(memory) // 1024) < 1
        assert file.stat().st_mode & 0o777 == 0o644


def test_no_secret_is_in_what_a_run_leaves_behind(provisioned_lab: labs.Lab) -> None:
    lab = provisioned_lab
    key = lab.root("head", "base64 -w0 /etc/munge/munge.key")
    raw = labs.run(["docker", "exec", lab.container("head"), "sha256sum", "/etc/munge/munge.key"]).stdout.split()[0]
    probes = [key[start : start + 40] for start in range(0, 1200, 200)]

    left = [path for path in (lab.directory / ".clusterctl").rglob("*") if path.is_file()]

    assert left
    for path in left:
        text = path.read_bytes()
        assert not any(probe.encode() in text for probe in probes), path
    inspected = lab.root("head", "docker inspect $(docker ps -aq)") + lab.root(
        "node1", "docker inspect $(docker ps -aq)"
    )
    assert not any(probe in inspected for probe in probes)
    assert lab.root("node1", "sha256sum /etc/munge/munge.key").split()[0] == raw
