# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""What GPUs do, with the names, labels and units of NVIDIA's DCGM exporter. As a program it asks once and prints JSON.

NVML is asked in a process of its own, which ends: nothing holds the driver between two questions. A process that hangs
in the driver cannot be killed; it is waited for, and no second one is started beside it.

Names and units: etc/default-counters.csv of NVIDIA/dcgm-exporter, dcgmlib/dcgm_fields.h of NVIDIA/DCGM.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

#: Seconds in which NVML answers. Eight GPUs without persistence mode take most of it.
LIMIT = 30
#: Seconds for which an Xid error is told of: what DCGM's exporter has where nobody says otherwise.
WINDOW = 300
#: All links of a GPU together: the scope of a field of NVML.
ALL_LINKS = 2**32 - 1

#: A job's control group, of cgroup v2 and v1: src/plugins/cgroup of Slurm. Groups of a session are its user's to name.
JOB = re.compile(
    r"^\d+:[^:\n]*:(?!/user\.slice/).*?/(?:[^/]*slurmstepd\.scope|slurm(?:_[^/]+)?/uid_\d+)/job_(\d+)(?:/|$)", re.M
)
#: A record of /dev/kmsg that the kernel itself has written (facility 0), with the time of its writing in microseconds.
XID = re.compile(
    r"^[0-7],\d+,(\d+),[^;]*;NVRM: Xid \(PCI:([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})[^)]*\): (\d+)", re.I
)

Query = Callable[[Any, Any], float]


def _utilisation(part: str) -> Query:
    return lambda nvml, gpu: getattr(nvml.nvmlDeviceGetUtilizationRates(gpu), part)


def _memory(part: str) -> Query:
    return lambda nvml, gpu: getattr(nvml.nvmlDeviceGetMemoryInfo(gpu, nvml.nvmlMemory_v2), part) >> 20


def _violation(policy: str) -> Query:
    return lambda nvml, gpu: nvml.nvmlDeviceGetViolationStatus(gpu, getattr(nvml, policy)).violationTime


def _ecc(kind: str, counted: str) -> Query:
    return lambda nvml, gpu: nvml.nvmlDeviceGetTotalEccErrors(gpu, getattr(nvml, kind), getattr(nvml, counted))


def _rows(place: int) -> Query:
    return lambda nvml, gpu: nvml.nvmlDeviceGetRemappedRows(gpu)[place]


def _field(name: str, scope: int = 0) -> Query:
    def value(nvml: Any, gpu: Any) -> float:
        [found] = nvml.nvmlDeviceGetFieldValues(gpu, [(getattr(nvml, name), scope)])
        if found.nvmlReturn != nvml.NVML_SUCCESS:
            raise nvml.NVMLError(found.nvmlReturn)
        kinds = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")  # by nvmlValueType_t
        return getattr(found.value, kinds[found.valueType])

    return value


def _links(nvml: Any, gpu: Any) -> float:
    parts = ("NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX", "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX")
    return sum(_field(name, ALL_LINKS)(nvml, gpu) for name in parts)


#: Of each metric of a GPU its text and how NVML is asked for it.
GPU: dict[str, tuple[str, Query]] = {
    "DCGM_FI_DEV_GPU_UTIL": ("Use of the GPU in percent", _utilisation("gpu")),
    "DCGM_FI_DEV_MEM_COPY_UTIL": ("Use of its memory's bandwidth in percent", _utilisation("memory")),
    "DCGM_FI_DEV_FB_TOTAL": ("Memory in MiB", _memory("total")),
    "DCGM_FI_DEV_FB_USED": ("Used memory in MiB", _memory("used")),
    "DCGM_FI_DEV_FB_FREE": ("Free memory in MiB", _memory("free")),
    "DCGM_FI_DEV_FB_RESERVED": ("Memory in MiB that the driver keeps", _memory("reserved")),
    "DCGM_FI_DEV_POWER_USAGE": ("Power in W", lambda nvml, gpu: nvml.nvmlDeviceGetPowerUsage(gpu) / 1000),
    "DCGM_FI_DEV_ENFORCED_POWER_LIMIT": (
        "Limit of the power in W", lambda nvml, gpu: nvml.nvmlDeviceGetEnforcedPowerLimit(gpu) / 1000,
    ),
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": (
        "Energy in mJ since the driver was loaded", lambda nvml, gpu: nvml.nvmlDeviceGetTotalEnergyConsumption(gpu),
    ),
    "DCGM_FI_DEV_GPU_TEMP": (
        "Temperature in degrees Celsius",
        lambda nvml, gpu: nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU),
    ),
    "DCGM_FI_DEV_MEMORY_TEMP": ("Temperature of the memory in degrees Celsius", _field("NVML_FI_DEV_MEMORY_TEMP")),
    "DCGM_FI_DEV_SM_CLOCK": ("Clock in MHz", lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM)),
    "DCGM_FI_DEV_MEM_CLOCK": (
        "Clock of the memory in MHz", lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM),
    ),
    "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": (
        "Why clocks are lower: the bits of nvmlClocksEventReasons",
        lambda nvml, gpu: nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu),
    ),
    "DCGM_FI_DEV_POWER_VIOLATION": (
        "Nanoseconds for which power has kept clocks lower", _violation("NVML_PERF_POLICY_POWER"),
    ),
    "DCGM_FI_DEV_THERMAL_VIOLATION": (
        "Nanoseconds for which heat has kept clocks lower", _violation("NVML_PERF_POLICY_THERMAL"),
    ),
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": (
        "Corrected memory errors since the driver was loaded",
        _ecc("NVML_MEMORY_ERROR_TYPE_CORRECTED", "NVML_VOLATILE_ECC"),
    ),
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": (
        "Uncorrected memory errors since the driver was loaded",
        _ecc("NVML_MEMORY_ERROR_TYPE_UNCORRECTED", "NVML_VOLATILE_ECC"),
    ),
    "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL": (
        "Corrected memory errors ever", _ecc("NVML_MEMORY_ERROR_TYPE_CORRECTED", "NVML_AGGREGATE_ECC"),
    ),
    "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL": (
        "Uncorrected memory errors ever", _ecc("NVML_MEMORY_ERROR_TYPE_UNCORRECTED", "NVML_AGGREGATE_ECC"),
    ),
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": ("Rows remapped for corrected errors", _rows(0)),
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": ("Rows remapped for uncorrected errors", _rows(1)),
    "DCGM_FI_DEV_ROW_REMAP_PENDING": ("Whether rows are remapped at the next reset", _rows(2)),
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": ("Whether a row could not be remapped", _rows(3)),
    # Here a sum in KiB; what is told is how it grows.
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": ("NVLink, all links and both directions, in MB/s", _links),
    **{
        f"DCGM_FI_DEV_NVLINK_{kind}_ERROR_COUNT_TOTAL": (
            f"Errors of NVLink: {text}", _field(f"NVML_FI_DEV_NVLINK_{kind}_ERROR_COUNT_TOTAL"),
        )
        for kind, text in (
            ("CRC_FLIT", "flow control"), ("CRC_DATA", "data"), ("REPLAY", "sent again"), ("RECOVERY", "began again"),
        )
    },
    "DCGM_FI_PROF_PCIE_TX_BYTES": (
        "Bytes a second that the GPU sends over PCIe",
        lambda nvml, gpu: 1000 * nvml.nvmlDeviceGetPcieThroughput(gpu, nvml.NVML_PCIE_UTIL_TX_BYTES),
    ),
    "DCGM_FI_PROF_PCIE_RX_BYTES": (
        "Bytes a second that the GPU receives over PCIe",
        lambda nvml, gpu: 1000 * nvml.nvmlDeviceGetPcieThroughput(gpu, nvml.NVML_PCIE_UTIL_RX_BYTES),
    ),
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": (
        "Retries of PCIe", lambda nvml, gpu: nvml.nvmlDeviceGetPcieReplayCounter(gpu),
    ),
    "DCGM_FI_DEV_PCIE_LINK_GEN": (
        "Generation at which PCIe works now", lambda nvml, gpu: nvml.nvmlDeviceGetCurrPcieLinkGeneration(gpu),
    ),
    "DCGM_FI_DEV_PCIE_LINK_WIDTH": (
        "Lanes of PCIe that work now", lambda nvml, gpu: nvml.nvmlDeviceGetCurrPcieLinkWidth(gpu),
    ),
    "DCGM_FI_DEV_MIG_MODE": ("Whether MIG is on", lambda nvml, gpu: nvml.nvmlDeviceGetMigMode(gpu)[0]),
}  # fmt: skip

#: Metrics that NVML counts, and whose growth in a second is told, times this.
RATES = {"DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": 1e-3}

METRICS = {
    **{name: text for name, (text, _) in GPU.items()},
    "clusterctl_gpu_up": "Whether NVML answers",
    "clusterctl_job_gpu_memory_bytes": "Memory of a GPU that a job's processes use",
    "DCGM_EXP_XID_ERRORS_COUNT": "Xid errors within the window",
}

#: Metric, labels, value.
Sample = tuple  # [str, Mapping[str, str], float]
Labels = Mapping[str, str]


def of_gpus(nvml: Any, proc: Path = Path("/proc")) -> Iterator[Sample]:
    """Return what NVML says of each GPU; what one of them does not say is left out. ``nvml`` is the module pynvml."""
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            gpu = nvml.nvmlDeviceGetHandleByIndex(index)
            labels = {
                "gpu": str(index),
                "UUID": str(nvml.nvmlDeviceGetUUID(gpu)),
                "pci_bus_id": str(nvml.nvmlDeviceGetPciInfo(gpu).busId),
                "device": _device(nvml, gpu),
                "modelName": str(nvml.nvmlDeviceGetName(gpu)),
            }
        except nvml.NVMLError:
            continue  # it is lost
        for name, (_, query) in GPU.items():
            try:
                value = query(nvml, gpu)
            except nvml.NVMLError:
                continue  # it does not know this, or cannot now
            if value is not None:
                yield name, labels, value
        yield from _of_jobs(nvml, gpu, labels, proc)


def _device(nvml: Any, gpu: Any) -> str:
    try:
        return f"nvidia{nvml.nvmlDeviceGetMinorNumber(gpu)}"
    except nvml.NVMLError:
        return ""  # it has none, as below some hypervisors


def _of_jobs(nvml: Any, gpu: Any, labels: Labels, proc: Path) -> Iterator[Sample]:
    used: Counter = Counter()
    try:
        processes = nvml.nvmlDeviceGetComputeRunningProcesses(gpu)
    except nvml.NVMLError:
        return
    for process in processes:
        if job := job_of(process.pid, proc):
            used[job] += process.usedGpuMemory or 0
    yield from (("clusterctl_job_gpu_memory_bytes", {**labels, "jobid": job}, value) for job, value in used.items())


def job_of(pid: int, proc: Path = Path("/proc")) -> str:
    """Return the job that a process belongs to, by its control group, which it cannot choose; empty for none."""
    try:
        found = JOB.search((proc / str(pid) / "cgroup").read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return ""  # it has ended
    return found[1] if found else ""


def ask() -> list[Sample]:
    """Ask NVML once."""
    import pynvml

    pynvml.nvmlInit()
    try:
        return list(of_gpus(pynvml))
    finally:
        pynvml.nvmlShutdown()


class Asking:
    """Asks NVML in processes that end; one that does not is waited for, round after round."""

    def __init__(self, words: Iterable[str] = (sys.executable, __file__), limit: float = LIMIT) -> None:
        self._words, self._limit, self._problem = list(words), limit, ""
        self._asked: subprocess.Popen[bytes] | None = None

    def answer(self) -> list[Sample] | None:
        """Return what NVML says, None where it does not. What is wrong is said once."""
        found, problem = self._ask()
        if problem != self._problem:
            print(problem or "NVML answers again", file=sys.stderr, flush=True)
        self._problem = problem
        return found

    def _ask(self) -> tuple[list[Sample] | None, str]:
        if self._asked is not None and self._asked.poll() is None:
            return None, self._problem
        self._asked = subprocess.Popen(
            self._words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        try:
            out, err = self._asked.communicate(timeout=self._limit)
            return [(str(name), dict(labels), float(value)) for name, labels, value in json.loads(out)], ""
        except subprocess.TimeoutExpired:
            self._asked.kill()
            return None, f"NVML did not answer in {self._limit:g} s"
        except (ValueError, TypeError):
            last = (err.decode("utf-8", "replace").strip().splitlines() or ["nothing was said"])[-1]
            return None, f"NVML does not answer: {last[:200]}"


class Rates:
    """Of what NVML counts, how fast it grows."""

    def __init__(self) -> None:
        self._before: dict[Any, tuple[float, float]] = {}

    def told(self, found: Iterable[Sample], now: float) -> Iterator[Sample]:
        """Return the samples; a count that is seen for the first time, or that began again, is none yet."""
        for name, labels, value in found:
            if name not in RATES:
                yield name, labels, value
                continue
            since, before = self._before.get((name, labels["UUID"]), (now, value))
            self._before[name, labels["UUID"]] = now, value
            if now > since and value >= before:
                yield name, labels, (value - before) / (now - since) * RATES[name]


class KernelLog:
    """The Xid errors that the driver has written to the kernel's log. NVML's events lack some: 79, 119 and 120.

    Which GPU an address is, is remembered: one that has fallen off the bus is none of NVML's any more.
    """

    def __init__(self, path: str = "/dev/kmsg") -> None:
        self._recent: deque = deque(maxlen=10_000)
        self._gpus: dict[tuple[int, ...], Labels] = {}
        try:
            self._log = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        except OSError as problem:
            print(f"no Xid errors are told of: {path}: {problem.strerror}", file=sys.stderr, flush=True)
            self._log = -1

    def samples(self, gpus: Iterable[Sample], now: float) -> Iterator[Sample]:
        """Return how often each error came to each GPU within the window. ``now``: seconds since the machine booted."""
        for _, labels, _ in gpus:
            self._gpus[_address(labels["pci_bus_id"])] = {name: labels[name] for name in labels if name != "jobid"}
        for record in self._records():
            if found := XID.search(record):
                self._recent.append((int(found[1]) / 1e6, _address(":".join(found.group(2, 3, 4))), found[5]))
        while self._recent and self._recent[0][0] < now - WINDOW:
            self._recent.popleft()
        for (address, xid), count in Counter(one[1:] for one in self._recent).items():
            labels = self._gpus.get(address, {"pci_bus_id": "{:08X}:{:02X}:{:02X}.0".format(*address)})
            yield "DCGM_EXP_XID_ERRORS_COUNT", {**labels, "window_size_in_ms": str(WINDOW * 1000), "xid": xid}, count

    def _records(self) -> Iterator[str]:
        while self._log >= 0:
            try:
                record = os.read(self._log, 8192)
            except BrokenPipeError:
                continue  # newer ones have taken its place
            except OSError:
                return
            if not record:
                return
            yield record.decode("utf-8", "replace")


def _address(text: str) -> tuple[int, ...]:
    """Return domain, bus and device of 00000000:3B:00.0, or of the driver's 0000:3b:00."""
    return tuple(int(part, 16) for part in text.partition(".")[0].split(":"))


class Gpus:
    """All that is told of a machine's GPUs, round after round."""

    def __init__(self) -> None:
        self._asking, self._rates, self._log = Asking(), Rates(), KernelLog()

    def samples(self) -> Iterator[Sample]:
        """Return the samples of now."""
        found = self._asking.answer()
        told = list(self._rates.told(found or (), time.monotonic()))
        yield "clusterctl_gpu_up", {}, int(found is not None)
        yield from told
        yield from self._log.samples(told, time.monotonic())


if __name__ == "__main__":
    print(json.dumps(ask()))
