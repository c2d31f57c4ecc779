"""A stand-in for NVIDIA's library libnvidia-ml.so.1 on simulated machines: each GPU answers as one real one once did.

Recorded: an idle NVIDIA A10G, driver 515.105.01, by nvidia-smi -q -x (influxdata/telegraf,
plugins/inputs/nvidia_smi/testdata/a10g.xml). What was not recorded is "not supported". The name is SIM, as the stand-in
for nvidia-smi has it. Functions and structures are those of nvml.h, as the module pynvml calls them.

Each Python of the machine reads this file at its start: so it imports nothing, and waits for somebody to import pynvml.
"""

import sys

NOT_SUPPORTED, DRIVER_NOT_LOADED = 3, 9

#: What a function writes to its last arguments, in order: a number, or fields of a structure. With a second argument
#: that chooses among several, by its value.
RECORDED = {
    "nvmlDeviceGetUtilizationRates": [{"gpu": 0, "memory": 0}],
    "nvmlDeviceGetMemoryInfo_v2": [
        {"total": 23028 << 20, "reserved": 435 << 20, "used": 22 << 20, "free": 22569 << 20}
    ],
    "nvmlDeviceGetTemperature": {0: [17]},  # NVML_TEMPERATURE_GPU
    "nvmlDeviceGetPowerUsage": [25580],
    "nvmlDeviceGetEnforcedPowerLimit": [300000],
    "nvmlDeviceGetClockInfo": {0: [210], 1: [210], 2: [405], 3: [555]},  # graphics, SM, memory, video
    "nvmlDeviceGetTotalEccErrors": [0],
    "nvmlDeviceGetRemappedRows": [0, 0, 0, 0],
    "nvmlDeviceGetPcieReplayCounter": [0],
    "nvmlDeviceGetPcieThroughput": [0],
    "nvmlDeviceGetCurrPcieLinkGeneration": [1],
    "nvmlDeviceGetCurrPcieLinkWidth": [8],
    "nvmlDeviceGetComputeRunningProcesses_v3": [0, None],
}


class Library:
    """What ctypes gives of a shared library: functions by name. ``gpus``: as the stand-in for nvidia-smi has them."""

    def __init__(self, gpus):
        self._gpus = gpus

    def __getattr__(self, name):
        def answer(*arguments):
            if not self._gpus:
                return DRIVER_NOT_LOADED
            if name in ("nvmlInitWithFlags", "nvmlShutdown"):
                return 0
            if name == "nvmlDeviceGetCount_v2":
                return _write([len(self._gpus)], arguments)
            if name == "nvmlDeviceGetHandleByIndex_v2":
                return self._handle(*arguments)
            return self._of_gpu(name, *arguments) if name.startswith("nvmlDeviceGet") else NOT_SUPPORTED

        return answer

    @staticmethod
    def _handle(index, handle):
        import ctypes

        # Any address that is none, as NVML's handles point to what only it knows.
        ctypes.cast(handle, ctypes.POINTER(ctypes.c_void_p))[0] = index.value + 1
        return 0

    def _of_gpu(self, name, handle, *arguments):
        import ctypes

        own = self._gpus[int(ctypes.cast(handle, ctypes.c_void_p).value or 0) - 1]
        texts = {"nvmlDeviceGetUUID": "uuid", "nvmlDeviceGetName": "name"}
        if name in texts:
            arguments[0].value = own[texts[name]].encode()
            return 0
        if name == "nvmlDeviceGetPciInfo_v3":
            return _write([{"busId": own["pci.bus_id"].encode()}], arguments)
        if name == "nvmlDeviceGetMinorNumber":
            return _write([int(own["index"])], arguments)
        found = RECORDED.get(name)
        if isinstance(found, dict):
            found = found.get(arguments[0].value)
        return NOT_SUPPORTED if found is None else _write(found, arguments)


def _write(values, arguments):
    """Write each value where its argument refers to, as a function of C would."""
    for value, argument in zip(values, arguments[-len(values) :], strict=True):
        if isinstance(value, dict):
            for field, number in value.items():
                setattr(argument._obj, field, number)
        elif value is not None:
            argument._obj.value = value
    return 0


def gpus():
    """Return this machine's GPUs, as the stand-in for nvidia-smi has them."""
    import runpy

    return runpy.run_path("/usr/local/lib/clusterctl-lab/nvidia-smi")["gpus"]()


class Waiting:
    """Finds no module; before the module pynvml is read, it has ctypes hand out the stand-in for that one library."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        """Be asked for a module, as all of sys.meta_path are."""
        if name == "pynvml":
            import ctypes

            real = ctypes.CDLL
            ctypes.CDLL = lambda file, *more, **options: (  # type: ignore[assignment,misc]
                Library(gpus()) if file == "libnvidia-ml.so.1" else real(file, *more, **options)
            )


sys.meta_path.insert(0, Waiting)
