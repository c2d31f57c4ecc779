"""What was recorded of a real GPU is what our modules, judges and stand-ins take it for."""

from __future__ import annotations

import json
import re
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest
from machines import gpu, hardware, tree
from slurm_worlds import coded, facts, machine, wants

from provision import content
from provision.judge import gpus, nccl, slurm
from provision.nvidia import mig

RECORDED = Path(__file__).parent / "fixtures" / "h200_580.159.04"
GPU = "sys/bus/pci/devices/0000:00:06.0"


def recorded(name: str) -> str:
    return (RECORDED / name).read_text(encoding="utf-8").removesuffix("exit 0\n")


def test_the_modules_find_the_gpu_by_the_bus_and_by_the_driver(tmp_path: Path) -> None:
    observed = json.loads(recorded("observed.json"))
    files = {"vendor": "0x10de", "device": "0x2335", "class": "0x030200", "subsystem_device": "0x18bf"}
    root = tree(
        tmp_path,
        {**{f"{GPU}/{name}": f"{text}\n" for name, text in files.items()}, "sys/module/nvidia/version": "580.159.04\n"},
    )
    (tmp_path / GPU / "driver").symlink_to("../../../bus/pci/drivers/nvidia")
    tree(tmp_path, {"proc/driver/nvidia/version": recorded("proc_version.txt")})

    def run(words: list[str]) -> tuple[int | None, str]:
        name = {"pci.bus_id,name,driver_version": "driver", "name,pci.bus_id": "name"}.get(words[1].partition("=")[2])
        return (0, recorded(f"query_{name}.txt")) if name else (None, "")

    found = gpu.collect(str(root), run)
    of_slurm = hardware.gpus(str(root), lambda words: run(words)[1])

    for name in ("gpus", "smi", "passed_through", "rdma_adapters"):
        assert found[name] == observed["gpu"][name], name
    assert {name: found["module"][name] for name in ("loaded", "open")} == {"loaded": "580.159.04", "open": True}
    assert hardware.gres(of_slurm["products"]) == observed["hardware"]["gres"] == "gpu:h200:1"


def test_slurm_finds_what_was_discovered_by_the_files_that_are_rendered() -> None:
    hardware_found = json.loads(recorded("observed.json"))["hardware"]
    own = dict(word.split("=") for word in recorded("slurmd_C.txt").splitlines()[0].split())

    # AutoDetect=nvidia; and each by its device file.
    for name in ("slurmd_G.txt", "slurmd_G_file.txt"):
        assert slurm.registered(recorded(name)) == {"gpu:h200": 1}
    # Slurm takes a part of the name that it gives a GPU, too: gres.conf(5), Type.
    assert hardware_found["gres"].split(":")[1] in own["Gres"].split(":")[1]
    assert {"CPUs": hardware_found["cpus"], "SocketsPerBoard": hardware_found["sockets"],
            "CoresPerSocket": hardware_found["cores_per_socket"], "RealMemory": hardware_found["real_memory"],
            "ThreadsPerCore": hardware_found["threads_per_core"]}.items() <= {
                name: int(value) for name, value in own.items() if value.isdecimal()}.items()  # fmt: skip


def test_nvidia_lists_the_profiles_of_mig_that_the_table_has() -> None:
    rows = re.findall(r"(?m)^\|\s+0\s+MIG (\S+)\s+\d+\s+\d+/(\d+) ", recorded("mig_lgip.txt"))

    assert {profile: int(most) for profile, most in rows} == mig.PROFILES["H200"]
    assert mig.listed(recorded("mig_lci_none.txt")) == ()


@pytest.mark.parametrize(
    ("name", "code", "verdict", "cause"),
    [
        ("list", 0, "pass", ""),
        ("list_closed", 0, "fail", "shows no GPU: the device files are not in slurmd's container"),
        ("list_control_closed", 4, "fail", "access to the GPUs was revoked"),
        ("list_no_control", 9, "fail", "the driver is not loaded"),
    ],
)
def test_slurmds_container_is_judged_by_what_nvidia_smi_says_there(
    name: str, code: int, verdict: str, cause: str
) -> None:
    own = machine(**{"nvidia-smi": coded(recorded(f"{name}.txt"), code)})

    (check,) = gpus.checks(facts(own), wants(gres="gpu:h200:1", gpus=True))

    assert check.verdict == verdict, check.sentence
    assert cause in check.cause


def test_a_log_of_one_rank_proves_nothing_of_the_network() -> None:
    (check,) = nccl.checks({"gpu1": recorded("nccl_one_rank.log")})

    assert check.verdict == "unknown"


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The lab's nvidia-smi, on a machine with one GPU that is called as the recorded one."""
    loader = SourceFileLoader("stand_in", str(content.ROOT / "roles/lab_machines/files/nvidia-smi"))
    module = module_from_spec(spec_from_loader(loader.name, loader))  # type: ignore[arg-type]
    loader.exec_module(module)
    monkeypatch.setattr(module.glob, "glob", lambda _pattern: ["/dev/nvidia0"])
    return module


#: Of a value, what is the machine's own: its number, unit and length stay.
OWN = (r"GPU-[0-9a-f-]{36}", "UUID"), (r"0000[0-9A-F:.]{12}", "ADDRESS"), (r"NVIDIA H200|SIM", "NAME"), (r"\d+", "N")


def shape(text: str) -> list[str]:
    for pattern, word in OWN:
        text = re.sub(pattern, word, text)
    return text.splitlines()


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["-L"], "list"),
        (["--query-gpu=name,pci.bus_id", "--format=csv,noheader"], "query_name"),
        (
            ["--query-gpu=index,name,uuid,memory.total,memory.used,utilization.gpu,mig.mode.current", "--format=csv"],
            "query_table",
        ),
    ],
)
def test_the_labs_stand_in_prints_as_nvidias_does(
    stand_in: ModuleType, capsys: pytest.CaptureFixture[str], words: list[str], name: str
) -> None:
    status = stand_in.main(words)

    said = shape(capsys.readouterr().out)
    told = [", ".join(line.split(", ")[: len(words[0].split(","))]) for line in shape(recorded(f"{name}.txt"))]
    assert (status, said) == (0, told)


@pytest.mark.parametrize(("words", "name", "code"), [(["-L"], "list", 0), (["--query-gpu=uuid"], "query", 6)])
def test_without_a_gpu_it_says_and_ends_as_nvidias_does(
    stand_in: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    name: str,
    code: int,
) -> None:
    monkeypatch.setattr(stand_in.glob, "glob", lambda _pattern: [])

    assert stand_in.main([*words, "--format=csv,noheader"]) == code
    assert capsys.readouterr().out == recorded(f"{name}_closed.txt")
