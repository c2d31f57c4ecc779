"""The bench: what of a command's cost is counted, and how figures are compared. Speed itself is nobody's to assert."""

from __future__ import annotations

import hashlib
import ipaddress
import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from bench import before, clients, commands, containers, fleet, images, overlay, recorded, table
from bench.processor import Cost, measure, median, total

#: Uses a third of a second of processor.
BUSY = "import time\nwhile time.process_time() < 0.35: pass"


def cost(processor: float, wall: float = 1.0) -> Cost:
    return Cost(processor / 2, processor / 2, wall)


def usage(user: float, system: float) -> resource.struct_rusage:
    return resource.struct_rusage((user, system, *([0] * 14)))


def test_user_and_system_time_of_every_process_count() -> None:
    summed = total([usage(1.0, 0.25), usage(0.5, 0.25)], wall=3.0)
    assert summed.processor == 2.0
    assert summed.as_dict() == {"processor": 2.0, "system": 0.5, "wall": 3.0}


@pytest.mark.slow
def test_a_process_that_nobody_waited_for_is_counted_and_ended(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    # Long enough busy that it outlives its parent by far, and then idle, as the master of a connection is.
    idle = f"{BUSY}\nopen({str(note)!r}, 'w').close()\ntime.sleep(600)"
    waiting = (
        f"import os, subprocess, sys, time; child = subprocess.Popen([sys.executable, '-c', {idle!r}]); "
        f"\nwhile not os.path.exists({str(note)!r}): time.sleep(0.01)\nprint(child.pid)"
    )
    used, printed = measure([sys.executable, "-c", waiting], limit=300)
    assert used.processor >= 0.35
    assert not Path("/proc", printed.strip()).exists()


def test_a_command_that_fails_has_no_cost() -> None:
    with pytest.raises(SystemExit, match="ended with 3"):
        measure([sys.executable, "-c", "raise SystemExit(3)"])


def test_a_command_that_hangs_has_no_cost() -> None:
    with pytest.raises(SystemExit, match="ended with -9"):
        measure(["sleep", "600"], limit=0.1)


def test_an_older_release_is_given_what_it_knows_of_an_inventory() -> None:
    text = (
        "; Written\n[slurm_controller]\nhead ansible_host=10.0.0.1\n\n[slurm_login]\nlogin1\n[slurm_compute]\nnode1\n"
        "[all:vars]\nansible_user=admin\ncluster_name=lab\ncluster_users=[]\ncluster_simulated=gpu\n"
    )

    assert before.understood(text).split() == [
        "[slurm_controller]", "head", "ansible_host=10.0.0.1", "[slurm_compute]", "node1",
        "[all:vars]", "ansible_user=admin", "cluster_name=lab", "cluster_simulated=gpu",
    ]  # fmt: skip


def test_without_the_older_release_nothing_is_measured_and_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(before.content, "ROOT", tmp_path)

    (said,) = before.beside(tmp_path / "inventory.ini", 1).items()

    assert said[0] == "not measured"
    assert before.COMMIT in str(said[1])


def test_the_median_is_taken_figure_by_figure() -> None:
    assert median([cost(1, wall=9), cost(5, wall=2), cost(2, wall=3)]) == cost(2, wall=3)
    with pytest.raises(ValueError, match="no measurement"):
        median([])


def test_a_further_machine_is_the_slope_between_the_fewest_and_the_most() -> None:
    assert table.per_machine({3: cost(2.0), 50: cost(99.0), 203: cost(62.0)}) == pytest.approx(0.3)
    assert table.per_machine({3: cost(2.0)}) is None


def test_roads_are_compared_with_the_one_that_is_ours() -> None:
    lines = table.roads({"ours": {1: cost(1), 11: cost(2)}, "theirs": {1: cost(1), 11: cost(5)}}, "ours").splitlines()
    assert lines[1].split() == ["ours", *["1.00", "/", "1.0", "2.00", "/", "1.0", "0.100", "1.00"]]
    assert lines[2].split() == ["theirs", "1.00", "/", "1.0", "5.00", "/", "1.0", "0.400", "4.00"]


def test_a_road_not_measured_with_all_machines_leaves_its_column_empty() -> None:
    text = table.roads({"ours": {1: cost(1), 2: cost(2), 9: cost(9)}, "theirs": {1: cost(1), 2: cost(3)}}, "ours")
    assert len({len(line) for line in text.splitlines()}) == 1


def test_roads_are_told_when_ours_could_not_be_measured() -> None:
    text = table.roads({"theirs": {1: cost(1), 11: cost(5)}}, "ours")
    assert text.splitlines()[1].split() == ["theirs", "1.00", "/", "1.0", "5.00", "/", "1.0", "0.400"]


def test_figures_are_said_in_a_table_and_in_json() -> None:
    figures = {"provision": cost(2.5, wall=3.0), "ratio": 1.25, "tasks": {"head": 4}}
    assert "provision  2.50 s processor, 3.0 s wall" in table.figures(figures)
    assert "ratio      1.250" in table.figures(figures)
    told = json.loads(json.dumps(table.plain(figures)))
    assert told["provision"]["processor"] == 2.5
    assert told["tasks"] == {"head": 4}


def test_a_figure_that_misses_its_aim_says_so() -> None:
    told = {
        "check (aim: 5 s wall)": cost(9.0, wall=5.0),
        "provision (aim for three machines: 8 s wall, 6 s processor)": cost(6.5, wall=2.0),
        "squeue: ratio (aim: 1.2 or less)": 1.25,
        "sbatch: ratio (aim: 1.2 or less)": 1.2,
        "overlay: ratio": 9.0,
        "not measured (aim: 1.1)": "git has no commit",
    }

    lines = table.figures(told).splitlines()

    assert [line.split()[0] for line in lines if line.endswith(", missed")] == ["provision", "squeue:"]


def test_every_made_up_machine_has_a_loopback_address_of_its_own() -> None:
    addresses = [ipaddress.ip_address(fleet.address(number)) for number in range(1000)]
    assert len(set(addresses)) == 1000
    assert str(addresses[0]) == "127.0.1.1"
    assert all(address.is_loopback for address in addresses)


def test_a_fleet_is_a_controller_and_compute_nodes() -> None:
    text = fleet.inventory(3, {"ansible_port": 2222, "ansible_ssh_common_args": "-o A=b"})
    assert "[slurm_controller]\nhead ansible_host=127.0.1.1\n" in text
    assert "[slurm_compute]\nmade1 ansible_host=127.0.1.2\nmade2 ansible_host=127.0.1.3\n" in text
    assert 'ansible_ssh_common_args="-o A=b"' in text
    with pytest.raises(ValueError, match="one machine"):
        fleet.inventory(0, {})


def test_a_made_up_machine_answers_with_its_own_name_and_those_of_all_others(tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text("of three nodes\n")
    answer = {
        "machine": {
            "hostname": "node1",
            "addresses": {"node1": ["10.0.0.1"]},
            "clock": {"begun": 1.5, "ended": 2.5},
            "state": {"paths": {"/etc/slurm/slurm.conf": {"sha256": "of one"}, "/etc/other": {"sha256": "kept"}}},
        },
        "own": "10.0.0.1",
    }
    cluster = recorded.Recorded("", json.dumps(answer), {"node1": "10.0.0.1"}, {}, {})

    told = json.loads(recorded._told(cluster, cluster.node, 3, tmp_path, "@NAME@", "@ADDRESS@").replace("@NOW@", "9.5"))

    assert told["machine"]["hostname"] == "@NAME@"
    assert told["machine"]["addresses"] == {fleet.name(n): [fleet.address(n)] for n in range(3)}
    assert told["machine"]["clock"] == {"begun": 9.5, "ended": 9.5}
    assert told["own"] == "@ADDRESS@"
    paths = told["machine"]["state"]["paths"]
    assert paths["/etc/slurm/slurm.conf"]["sha256"] == hashlib.sha256(b"of three nodes\n").hexdigest()
    assert paths["/etc/other"]["sha256"] == "kept"


def test_containers_are_compared_by_the_median_of_their_turns() -> None:
    lines = {
        "none": [1, 3, 2], "container": [2, 9, 3], "podman": [2, 2, 2], "torchrun": [5], "torchrun-slurm": [6],
        "one": [1], "at-once": [16],
    }  # fmt: skip
    told = "head | CHANGED | rc=0 >>\n" + "\n".join(
        f"{name} {seconds * 10**9}" for name, turns in lines.items() for seconds in turns
    )

    found = containers.compared(told)

    assert found["  with --container-image"] == 3
    assert found["  --container-image beside podman run: ratio (aim: 1.1 or less)"] == 1.5
    assert found["  beside none: s more (aim: 1.5 or less)"] == 1
    assert found["  s more (aim: 1.0 or less)"] == 1
    assert found["  ratio"] == 16


def test_what_takes_an_image_out_again_is_a_script_that_a_shell_can_read(tmp_path: Path) -> None:
    """It runs last, and would take the figures of minutes with it."""
    given = {"layers": 8, "size": 1, "push": "head:5001/x", "name": "bench0", "address": "10.0.0.1", "store": "/x"}
    for script in (images.MAKE, images.FORGET, images.SENT, images.KILL):
        file = tmp_path / "script"
        file.write_text(script.format(**given))
        subprocess.run(["sh", "-n", str(file)], check=True)
    subprocess.run(["sh", "-n", "-c", images.removing("tool", "bench0")], check=True)
    subprocess.run(["sh", "-n", "-c", containers.SCRIPT], check=True)


def test_slurms_commands_are_compared_turn_by_turn() -> None:
    """In a turn that the computer was busy in, both sides are slow, and the ratio is none of it."""
    told = (
        "head | CHANGED\n"
        "squeue 20 0.200 0.050 0.050 0.160 0.060 0.040\n"
        "squeue 20 1.000 0.055 0.050 0.800 0.050 0.050\n"
        "squeue 20 0.240 0.040 0.050 0.220 0.050 0.050\n"
        "sbatch 100 0.7 0.1 0.1 0.7 0.1 0.1\n"
        "sbatch: error: no\n"
    )

    found = clients.compared(told)

    assert (found["squeue, ms a call"], found["  squeue in the daemon's container"]) == (12.0, 11.0)
    assert found["  squeue: ratio (aim: 1.2 or less)"] == pytest.approx(1.25)
    assert found["  squeue: ratio of processor seconds"] == pytest.approx(1.0)
    assert found["  sbatch: ratio (aim: 1.2 or less)"] == 1.0


def test_an_overlay_network_is_compared_by_the_medians_of_both_sides() -> None:
    lines = [
        f"host-rate {rate}\noverlay-rate {rate / 2}\nhost-answer 10\noverlay-answer 30" for rate in (100.0, 80.0, 900.0)
    ]

    found = overlay.compared("test-net", "\n".join(lines))

    ratios = [value for name, value in found.items() if name.endswith((": ratio", ": times"))]
    assert ratios == [0.5, 3.0]
    # Of two networks neither takes the other's place in the table.
    assert not found.keys() & overlay.compared("other-net", "\n".join(lines)).keys()


def test_what_clusterctl_adds_is_told_by_number_of_machines_and_for_each_further_one() -> None:
    plain = {3: cost(2.0), 50: cost(10.0), 200: cost(40.0)}
    ours = {3: cost(3.5), 50: cost(12.0), 200: cost(43.47)}

    assert table.beyond(ours, plain) == ["1.50", "2.00", "3.47", "0.010"]
    told = table.roads({"observed": plain, "ours": ours}, "observed", "ours").splitlines()
    assert told[-1].split()[-4:] == ["1.50", "2.00", "3.47", "0.010"]
    assert "beyond" not in table.roads({"observed": plain, "ours": {3: cost(1)}}, "observed", "ours")


def test_the_first_provision_on_record_is_the_one_that_made_machines(tmp_path: Path) -> None:
    def run(name: str, changed: int) -> None:
        directory = tmp_path / ".clusterctl/runs" / name
        directory.mkdir(parents=True)
        (directory / "run.json").write_text("{}")
        stages = [{"name": "base", "seconds": 100.5}, {"name": "slurm", "seconds": 200.0}]
        told = {"command": "provision", "exit_code": 0, "changed": changed, "hosts": {"head": {}}, "stages": stages}
        (directory / "report.json").write_text(json.dumps(told))

    (tmp_path / "inventory.ini").write_text("")
    assert "not on record" in commands.first(tmp_path / "inventory.ini")
    run("20260101-000000-aaaaaaaa", 2)
    run("20260101-000001-aaaaaaaa", 42)

    assert commands.first(tmp_path / "inventory.ini")["wall seconds (aim with images cached: 330)"] == 300.5
