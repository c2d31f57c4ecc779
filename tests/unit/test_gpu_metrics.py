"""What is told of GPUs: under the names and labels of DCGM's exporter, from what real ones have answered."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pynvml
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from provision import content

FILES = content.ROOT / "roles/machine_metrics/files"


def program(name: str) -> ModuleType:
    loader = SourceFileLoader(name.replace("-", "_").removesuffix(".py"), str(FILES / name))
    module = module_from_spec(spec_from_loader(loader.name, loader))  # type: ignore[arg-type]
    loader.exec_module(module)
    return module


metrics = program("gpu_metrics.py")

#: The first of four NVIDIA A100-SXM4-80GB with MIG, driver 535.54.03, by nvidia-smi -q -x (influxdata/telegraf,
#: plugins/inputs/nvidia_smi/testdata/a100-sxm4-v12.xml). It is the first by its address, its device file the second.
A100 = {
    "nvmlDeviceGetUUID": "GPU-513536b6-7d19-9063-b049-1e69664bb298",
    "nvmlDeviceGetName": "NVIDIA A100-SXM4-80GB",
    "nvmlDeviceGetPciInfo": SimpleNamespace(busId="00000000:01:00.0"),
    "nvmlDeviceGetMinorNumber": 1,
    "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=81920 << 20, reserved=869 << 20, used=50 << 20, free=80999 << 20),
    "nvmlDeviceGetPowerUsage": 67030,
    "nvmlDeviceGetEnforcedPowerLimit": 500000,
    "nvmlDeviceGetTemperature": 27,
    "nvmlDeviceGetClockInfo": 1275,
    "nvmlDeviceGetCurrentClocksEventReasons": 0,
    "nvmlDeviceGetTotalEccErrors": 0,
    "nvmlDeviceGetPcieThroughput": 4000,
    "nvmlDeviceGetPcieReplayCounter": 0,
    "nvmlDeviceGetCurrPcieLinkGeneration": 4,
    "nvmlDeviceGetCurrPcieLinkWidth": 16,
    "nvmlDeviceGetMigMode": [1, 1],
    "nvmlDeviceGetComputeRunningProcesses": [],
}
LABELS = {
    "gpu": "0",
    "UUID": "GPU-513536b6-7d19-9063-b049-1e69664bb298",
    "pci_bus_id": "00000000:01:00.0",
    "device": "nvidia1",
    "modelName": "NVIDIA A100-SXM4-80GB",
}


class Nvml:
    """The module pynvml of a machine whose GPUs answer so; to all else they are not able."""

    def __init__(self, *gpus: Mapping[str, Any]) -> None:
        self._gpus = gpus

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvmlDevice"):
            return getattr(pynvml, name)

        def answer(gpu: Any = None, *_: Any) -> Any:
            if name == "nvmlDeviceGetCount":
                return len(self._gpus)
            if name == "nvmlDeviceGetHandleByIndex":
                if not self._gpus[gpu]:
                    raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
                return gpu
            if name not in self._gpus[gpu]:
                raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
            return self._gpus[gpu][name]

        return answer


def told(nvml: Any, proc: Path = Path("/nowhere")) -> dict[str, Any]:
    """Return the values of the first GPU by metric."""
    return {name: value for name, labels, value in metrics.of_gpus(nvml, proc) if labels["gpu"] == "0"}


def test_what_a_gpu_does_not_know_is_left_out_and_the_rest_is_told_in_dcgms_units() -> None:
    found = list(metrics.of_gpus(Nvml(A100)))

    assert all(labels == LABELS for _, labels, _ in found)
    assert {name.removeprefix("DCGM_FI_"): value for name, _, value in found} == {
        "DEV_FB_TOTAL": 81920, "DEV_FB_USED": 50, "DEV_FB_FREE": 80999, "DEV_FB_RESERVED": 869,
        "DEV_POWER_USAGE": 67.03, "DEV_ENFORCED_POWER_LIMIT": 500.0, "DEV_GPU_TEMP": 27,
        "DEV_SM_CLOCK": 1275, "DEV_MEM_CLOCK": 1275, "DEV_CLOCKS_EVENT_REASONS": 0,
        "DEV_ECC_SBE_VOL_TOTAL": 0, "DEV_ECC_DBE_VOL_TOTAL": 0, "DEV_ECC_SBE_AGG_TOTAL": 0, "DEV_ECC_DBE_AGG_TOTAL": 0,
        "PROF_PCIE_TX_BYTES": 4_000_000, "PROF_PCIE_RX_BYTES": 4_000_000,
        "DEV_PCIE_REPLAY_COUNTER": 0, "DEV_PCIE_LINK_GEN": 4, "DEV_PCIE_LINK_WIDTH": 16, "DEV_MIG_MODE": 1,
    }  # fmt: skip


def test_a_gpu_that_is_lost_keeps_the_numbers_of_the_others() -> None:
    found = list(metrics.of_gpus(Nvml({}, A100)))

    assert {labels["gpu"] for _, labels, _ in found} == {"1"}


def test_rows_violations_and_fields_are_read_from_their_structures() -> None:
    def field(number: int, kind: int = 3, wrong: int = 0) -> Any:
        value = pynvml.c_nvmlFieldValue_t()
        value.valueType, value.nvmlReturn, value.value.ullVal = kind, wrong, number
        return [value]

    gpu = {
        **A100,
        "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=97, memory=41),
        "nvmlDeviceGetRemappedRows": (1, 2, 0, 1),
        "nvmlDeviceGetViolationStatus": SimpleNamespace(violationTime=5_000_000),
        "nvmlDeviceGetFieldValues": field(1 << 40),
    }
    found = told(Nvml(gpu))

    assert [found[f"DCGM_FI_DEV_{name}"] for name in ("GPU_UTIL", "MEM_COPY_UTIL")] == [97, 41]
    rows = ("CORRECTABLE_REMAPPED_ROWS", "UNCORRECTABLE_REMAPPED_ROWS", "ROW_REMAP_PENDING", "ROW_REMAP_FAILURE")
    assert [found[f"DCGM_FI_DEV_{name}"] for name in rows] == [1, 2, 0, 1]
    assert found["DCGM_FI_DEV_THERMAL_VIOLATION"] == found["DCGM_FI_DEV_POWER_VIOLATION"] == 5_000_000
    assert found["DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL"] == 1 << 40
    # Sent and received together.
    assert found["DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL"] == 2 << 40
    lacking = told(Nvml({**gpu, "nvmlDeviceGetFieldValues": field(0, wrong=pynvml.NVML_ERROR_NOT_SUPPORTED)}))
    assert not [name for name in lacking if "NVLINK" in name or "MEMORY_TEMP" in name]
    assert lacking["DCGM_FI_DEV_GPU_UTIL"] == 97


def test_what_nvlink_has_carried_is_told_as_megabytes_a_second() -> None:
    rates, name = metrics.Rates(), "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL"

    def at(now: float, kib: float) -> list[Any]:
        return [value for _, _, value in rates.told([(name, LABELS, kib)], now)]

    assert at(10, 5_000_000) == []
    assert at(25, 5_000_000 + 15_000_000) == [1000.0]
    assert at(40, 100) == []  # the driver was loaded again
    assert list(rates.told([("DCGM_FI_DEV_GPU_UTIL", LABELS, 3)], 41)) == [("DCGM_FI_DEV_GPU_UTIL", LABELS, 3)]


@pytest.mark.parametrize(
    ("groups", "job"),
    [
        # cgroup v2, by slurmd on the machine and by one of several on it: src/plugins/cgroup/v2/cgroup_v2.c
        ("0::/system.slice/slurmstepd.scope/job_123/step_0/user/task_0\n", "123"),
        ("0::/system.slice/node1_slurmstepd.scope/job_123/step_batch/user/task_0/job_9\n", "123"),
        # cgroup v1: src/plugins/cgroup/v1/xcgroup.c
        ("9:devices:/slurm/uid_1000/job_77/step_0/task_0\n4:memory:/slurm/uid_1000/job_77/step_0\n0::/\n", "77"),
        ("9:devices:/slurm_node1/uid_1000/job_77/step_0\n", "77"),
        ("0::/system.slice/nvidia-persistenced.service\n", ""),
        ("0::/user.slice/user-1000.slice/user@1000.service/x/slurmstepd.scope/job_5/step_0\n", ""),
        ("0::/system.slice/mine/job_5\n", ""),
    ],
)
def test_a_process_belongs_to_the_job_whose_control_group_it_is_in(tmp_path: Path, groups: str, job: str) -> None:
    (tmp_path / "42").mkdir()
    (tmp_path / "42/cgroup").write_text(groups, encoding="utf-8")

    assert metrics.job_of(42, tmp_path) == job
    assert metrics.job_of(43, tmp_path) == ""


def test_memory_of_a_gpu_is_told_by_job(tmp_path: Path) -> None:
    for pid, job in ((1, "7"), (2, "7"), (3, "8"), (4, "")):
        (tmp_path / str(pid)).mkdir()
        scope = f"slurmstepd.scope/job_{job}/step_0" if job else "ssh.service"
        (tmp_path / str(pid) / "cgroup").write_text(f"0::/system.slice/{scope}\n", encoding="utf-8")
    used = [SimpleNamespace(pid=pid, usedGpuMemory=memory) for pid, memory in ((1, 100), (2, 20), (3, None), (4, 5))]
    nvml = Nvml({**A100, "nvmlDeviceGetComputeRunningProcesses": used})

    found = [(labels, value) for name, labels, value in metrics.of_gpus(nvml, tmp_path) if name.startswith("cluster")]

    assert found == [({**LABELS, "jobid": "7"}, 120), ({**LABELS, "jobid": "8"}, 0)]


def kernel_log(directory: Path, *lines: str) -> Any:
    """Return the reader of a kernel's log; each record is one read, as of /dev/kmsg."""
    pipe = directory / "kmsg"
    os.mkfifo(pipe)
    log = metrics.KernelLog(str(pipe))
    with pipe.open("w", encoding="utf-8") as writer:
        for line in lines:
            writer.write(line)
            writer.flush()
            list(log.samples([], 0))
    return log


def test_xid_errors_of_the_last_minutes_are_counted_for_the_gpu_that_is_not_there_any_more(tmp_path: Path) -> None:
    # As drivers write them: NVIDIA's catalogue of Xid errors; the form of a record: Documentation/ABI/testing/dev-kmsg.
    log = kernel_log(
        tmp_path,
        "4,100,50000000,-;NVRM: Xid (PCI:0000:01:00): 31, pid=1, name=python, MMU Fault\n",
        "3,101,1000000000,-;NVRM: Xid (PCI:0000:01:00): 79, pid='<unknown>', GPU has fallen off the bus.\n X=y\n",
        "3,102,1001000000,-;NVRM: Xid (PCI:0000:01:00): 79, pid='<unknown>', GPU has fallen off the bus.\n",
        "3,103,1002000000,-;NVRM: Xid (PCI:0000:c1:00): 48, pid=2, DBE\n",
        # A program's words in the log are no kernel's.
        "12,104,1003000000,-;NVRM: Xid (PCI:0000:01:00): 95, pid=2\n",
    )
    list(log.samples([("DCGM_FI_DEV_GPU_TEMP", {**LABELS, "jobid": "3"}, 1)], 1004))

    found = {(labels.get("device"), labels["xid"]): (labels, count) for _, labels, count in log.samples([], 1005)}

    assert found.keys() == {("nvidia1", "79"), (None, "48")}
    assert found["nvidia1", "79"] == ({**LABELS, "window_size_in_ms": "300000", "xid": "79"}, 2)
    assert found[None, "48"][0]["pci_bus_id"] == "00000000:C1:00.0"
    assert list(log.samples([], 1400)) == []


def test_without_a_kernels_log_nothing_is_told_of_xid_errors(tmp_path: Path, capsys: Any) -> None:
    assert list(metrics.KernelLog(str(tmp_path / "absent")).samples([], 0)) == []
    assert "no Xid errors are told of" in capsys.readouterr().err


def test_a_driver_that_hangs_is_asked_by_one_process_at_a_time_and_one_that_fails_again(
    tmp_path: Path, capsys: Any
) -> None:
    started = tmp_path / "started"
    hangs = f"import time; open({str(started)!r}, 'a').write('x'); time.sleep(60)"
    asking = metrics.Asking([sys.executable, "-c", hangs], limit=0.3)
    # As where the driver does not let go of the process.
    kill = asking.answer
    assert kill() is None
    asking._asked.wait()
    alive = SimpleNamespace(poll=lambda: None)
    asking._asked, before = alive, started.read_text() if started.exists() else ""
    assert asking.answer() is None
    assert (started.read_text() if started.exists() else "") == before
    assert capsys.readouterr().err == "NVML did not answer in 0.3 s\n"

    asking = metrics.Asking([sys.executable, "-c", "raise SystemExit('Driver Not Loaded')"])
    assert asking.answer() is asking.answer() is None
    assert capsys.readouterr().err == "NVML does not answer: Driver Not Loaded\n"


def test_the_stand_in_of_the_lab_is_asked_by_nvidias_own_module(tmp_path: Path) -> None:
    code = (
        "import json, runpy, sys; sys.path[:0] = [{lab!r}]; import nvml;"
        "gpus = runpy.run_path({lab!r} + '/nvidia-smi')['gpus'];"
        "glob = gpus.__globals__['glob'].__dict__;"
        "glob['glob'] = lambda _: ['/dev/nvidia0', '/dev/nvidia1', '/dev/nvidiactl'];"
        "nvml.gpus = gpus; runpy.run_path({file!r}, run_name='__main__')"
    ).format(lab=str(content.ROOT / "roles/lab_machines/files"), file=str(FILES / "gpu_metrics.py"))

    found = metrics.Asking([sys.executable, "-c", code]).answer()

    assert {labels["device"] for _, labels, _ in found} == {"nvidia0", "nvidia1"}
    first = {name: value for name, labels, value in found if labels["gpu"] == "0"}
    assert first["DCGM_FI_DEV_GPU_TEMP"] == 17
    assert first["DCGM_FI_DEV_POWER_USAGE"] == 25.58
    assert first["DCGM_FI_DEV_FB_USED"] == 22
    assert {labels["modelName"] for _, labels, _ in found} == {"SIM"}


def test_all_that_can_be_told_is_written_as_prometheus_reads_it() -> None:
    node = program("node-metrics")
    registry = CollectorRegistry()
    samples = [(name, {**LABELS, "modelName": 'A "100"\n'}, 1.5) for name in metrics.METRICS]
    registry.register(node.Families({**node.METRICS, **metrics.METRICS}, samples))

    lines = generate_latest(registry).decode().splitlines()

    values = [line for line in lines if not line.startswith("#")]
    assert len(values) == len(metrics.METRICS)
    assert values[0].startswith('DCGM_FI_DEV_GPU_UTIL{UUID="GPU-513536b6-7d19-9063-b049-1e69664bb298",device="nvidia1"')
    assert 'modelName="A \\"100\\"\\n"' in values[0]
    assert {line.split()[2] for line in lines if line.startswith("# TYPE")} == metrics.METRICS.keys()
