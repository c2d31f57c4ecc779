"""The script that changes the loaded driver, against stand-ins that note what they are told."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from provision import content

SCRIPT = (content.ROOT / "roles/nvidia_driver/files/reload-driver").read_text(encoding="utf-8")


def run(directory: Path, *, loaded: str, active: str = "", stuck: str = "") -> tuple[int, list[str]]:
    """Run the script on a made-up machine; return its exit code and the commands that changed something."""
    sys, programs, log = directory / "sys/module", directory / "bin", directory / "log"
    for module in loaded.split():
        (sys / module).mkdir(parents=True)
    (sys / "nvidia").mkdir(parents=True, exist_ok=True)
    (sys / "nvidia/version").write_text("580.95.05\n")
    programs.mkdir()
    stand_ins = {
        "systemctl": f'[ "$1" = is-active ] && {{ case " {active} " in *" $3 "*) exit 0; esac; exit 3; }}',
        "modprobe": f'[ "$*" = "-r {stuck}" ] && exit 1',
        "nvidia-modprobe": ":",
    }
    for name, text in stand_ins.items():
        program = programs / name
        program.write_text(f'#!/bin/sh\n{text}\necho "{name} $*" >>{log}\n')
        program.chmod(0o755)
    environment = {"PATH": f"{programs}:{os.environ['PATH']}"}
    text = SCRIPT.replace("/sys/module", str(sys))
    done = subprocess.run(["sh", "-s"], input=text, text=True, capture_output=True, env=environment, check=False)
    return done.returncode, log.read_text().splitlines() if log.exists() else []


def test_services_stop_modules_go_in_order_the_new_one_comes_and_services_start_again(tmp_path: Path) -> None:
    loaded = "nvidia nvidia_uvm nvidia_modeset nvidia_drm nvidia_peermem"

    code, told = run(tmp_path, loaded=loaded, active="nvidia-persistenced nvidia-dcgm clusterctl-node-metrics")

    assert code == 0
    assert told == [
        "systemctl stop clusterctl-node-metrics",
        "systemctl stop nvidia-dcgm",
        "systemctl stop nvidia-persistenced",
        "modprobe -r nvidia_peermem",
        "modprobe -r nvidia_uvm",
        "modprobe -r nvidia_drm",
        "modprobe -r nvidia_modeset",
        "modprobe -r nvidia",
        "modprobe nvidia",
        "modprobe nvidia_uvm",
        "nvidia-modprobe -u -c 0",
        "systemctl start nvidia-persistenced",
        "systemctl start nvidia-dcgm",
        "systemctl start clusterctl-node-metrics",
    ]


@pytest.mark.parametrize(("stuck", "code"), [("nvidia_uvm", 3), ("nvidia", 3)])
def test_a_module_that_does_not_go_is_told_and_services_start_again(tmp_path: Path, stuck: str, code: int) -> None:
    found, told = run(tmp_path, loaded="nvidia nvidia_uvm", active="nvidia-persistenced", stuck=stuck)

    assert found == code
    assert "modprobe nvidia" not in told
    assert told[-1] == "systemctl start nvidia-persistenced"
