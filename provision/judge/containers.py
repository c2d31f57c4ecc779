"""Whether a container is what was declared, by what the engine says of it (``docker container inspect``). Pure.

The engine says more than was asked for, and says some of it in other words from release to release: it fills in
defaults, writes capabilities with and without ``CAP_``, and turns ``systempaths=unconfined`` into two empty lists. What
it fills in by itself is never a difference; what somebody else has set is one. A label of ours proves nothing about any
of this, except for what the engine cannot know: with which settings of its own a daemon was started.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from provision.judge.answers import mapping
from provision.model.checks import Check, Code, Detail, Subject
from provision.model.consequences import Consequence, Kind
from provision.model.managed import Container
from provision.model.text import brief

#: What is not declared is not there: each of these is empty, whatever the engine's word for that is.
_EMPTY = (
    "BlkioDeviceReadBps",
    "BlkioDeviceReadIOps",
    "BlkioDeviceWriteBps",
    "BlkioDeviceWriteIOps",
    "BlkioWeight",
    "BlkioWeightDevice",
    "CgroupParent",
    "CpuCount",
    "CpuPercent",
    "CpuPeriod",
    "CpuQuota",
    "CpuRealtimePeriod",
    "CpuRealtimeRuntime",
    "CpuShares",
    "CpusetCpus",
    "CpusetMems",
    "Devices",
    "Dns",
    "DnsOptions",
    "DnsSearch",
    "ExtraHosts",
    "GroupAdd",
    "KernelMemory",
    "KernelMemoryTCP",
    "Links",
    "Memory",
    "MemoryReservation",
    "MemorySwap",
    "NanoCpus",
    "OomKillDisable",
    "OomScoreAdj",
    "PidsLimit",
    "Privileged",
    "StorageOpt",
    "Sysctls",
    "UTSMode",
    "UsernsMode",
    "VolumesFrom",
)
#: The first release of Docker that names them so is 25; before that, NVIDIA's runtime is told the names.
_CDI = "cdi"


def check(subject: Subject, wants: Sequence[Container], answer: Mapping[str, Any] | None) -> Check:
    """Return the check of all containers of a role on one machine.

    ``answer`` is ``containers`` of the machine's ``state``: what the engine says of each by name, None where it did not
    answer in time. An engine that is absent or refuses has no containers.
    """
    if answer is None:
        return subject.unknown(
            "containers",
            "the container engine did not answer in time",
            cause="the container engine hangs",
            fix="systemctl status docker",
        )
    names = [want.name for want in wants]
    # A controller that was silent is no reason to replace what runs.
    unheard = [want.name for want in wants if want.image is None or not want.known]
    problems = [(want, *told) for want in wants for told in _problems(want, _found(answer, want.name), answer)]
    wrong = [f"{want.name} {words}" for want, _, words in problems]
    if unheard and not wrong:
        return subject.unknown(
            "containers", f"the controller did not report the desired image and settings of {', '.join(unheard)}"
        )
    return subject.check(
        "containers",
        not wrong,
        brief(wrong) or f"{', '.join(names) or 'none'} running",
        "running, with the declared settings and image",
        source="docker container inspect",
        cause=str(answer.get("problem") or "") or "stopped, paused, recreated, or updated with other settings",
        consequences=[
            Consequence(Kind.REPLACE, want.name, want.replacement)
            for want in wants
            if needed(want, answer) == "replace"
        ],
        details=[Detail(code, want.name) for want, code, _ in problems],
    )


def needed(want: Container, answer: Mapping[str, Any]) -> str:
    """Return what makes the container as declared: ``nothing``, ``create``, ``replace``, ``unpause`` or ``start``."""
    found = _found(answer, want.name)
    if found is None:
        return "create"
    if want.known and differences(want, found, answer):
        return "replace"
    state = mapping(found.get("State"))
    if state.get("Paused"):
        return "unpause"
    # One that keeps failing is started again by the engine; it is for verification to say so.
    return "nothing" if state.get("Running") or state.get("Restarting") else "start"


def _problems(want: Container, found: Mapping[str, Any] | None, answer: Mapping[str, Any]) -> list[tuple[Code, str]]:
    if found is None:
        return [(Code.ABSENT, "does not exist")]
    trouble = state_of(found)
    problems = [(Code.OTHER, trouble)] if trouble else []
    return problems + _differences(want, found, answer) if want.known else problems


def state_of(found: Mapping[str, Any]) -> str:
    """Return in which state a container is that does not simply run; empty where it does."""
    state = mapping(found.get("State"))
    for key, word in (("Paused", "is paused"), ("Restarting", "keeps being restarted"), ("Dead", "is dead")):
        if state.get(key):
            return word
    return "" if state.get("Running") is True else f"is {_text(state.get('Status')) or 'not running'}"


def differences(want: Container, found: Mapping[str, Any], answer: Mapping[str, Any]) -> list[str]:
    """Return how a container differs from what is declared, in words; its state is none of it.

    ``answer`` says beside the containers what the machine allows (``raised``: limits above its own) and which
    release of NVIDIA's driver runs (``nvidia_driver``).
    """
    return [words for _, words in _differences(want, found, answer)]


def _differences(want: Container, found: Mapping[str, Any], answer: Mapping[str, Any]) -> list[tuple[Code, str]]:
    told = [(Code.OTHER, words) for words in _settings(want, found, answer)]
    if want.image is None or _text(mapping(found.get("Config")).get("Image")) == want.image:
        return told
    if want.image:
        return [(Code.OTHER, "has another image"), *told]
    return [(Code.UNBUILT, "has an image that must be built again"), *told]


def _settings(want: Container, found: Mapping[str, Any], answer: Mapping[str, Any]) -> list[str]:
    host, config = mapping(found.get("HostConfig")), mapping(found.get("Config"))
    raised = bool(answer.get("raised"))
    wrong: list[str] = []

    def compare(what: str, observed: object, expected: object) -> None:
        if observed != expected:
            wrong.append(f"has {what} {_shown(observed)}, not {_shown(expected)}")

    def compare_all(what: str, observed: Collection[str], expected: Collection[str]) -> None:
        """Name what differs alone: a container has dozens of mounts, and jobs may end for one."""
        if missing := sorted(set(expected) - set(observed)):
            wrong.append(f"lacks {what} {_shown(missing)}")
        if more := sorted(set(observed) - set(expected)):
            wrong.append(f"has {what} {_shown(more)}, which is not declared")

    compare("command", [_text(found.get("Path")), *map(_text, _list(found.get("Args")))], list(want.command))
    compare("user", _text(config.get("User")), want.user)
    compare("network", _text(host.get("NetworkMode")), "host")
    compare("restart policy", _text(mapping(host.get("RestartPolicy")).get("Name")), "unless-stopped")
    if want.stop_timeout:
        compare("seconds to end", config.get("StopTimeout") or "by the engine", want.stop_timeout)
    compare("read-only files", bool(host.get("ReadonlyRootfs")), want.read_only)
    compare("pid namespace", _text(host.get("PidMode")), want.pid)
    ipc = _text(host.get("IpcMode"))
    compare("ipc namespace", "" if not want.ipc and ipc in ("private", "shareable", "none") else ipc, want.ipc)
    if want.cgroupns:
        compare("cgroup namespace", _text(host.get("CgroupnsMode")), want.cgroupns)
    if want.log_driver:
        compare("log driver", _text(mapping(host.get("LogConfig")).get("Type")), want.log_driver)
    given = {name for name in want.capabilities if raised or name != "SYS_RESOURCE"}
    compare_all("capability", _capabilities(host.get("CapAdd")), given)
    compare_all("dropped capability", _capabilities(host.get("CapDrop")), {"ALL"})
    compare_all("security option", _security(host), {_option(word) for word in want.security})
    memory = {f"{path}:{options}".rstrip(":") for path, options in mapping(host.get("Tmpfs")).items()}
    compare_all("directory in memory", memory, [word.rstrip(":") for word in want.tmpfs])
    compare_all("mount", _mounts(found), {_mount(word) for word in want.mounts})
    compare_all("device rule", list(map(_text, _list(host.get("DeviceCgroupRules")))), want.device_rules)
    limits = _limits(host)
    for name, limit in _declared_limits(want.ulimits if raised else ()).items():
        compare(f"limit {name}", limits.get(name), limit)
    labels = mapping(config.get("Labels"))
    for key, value in want.labels.items():
        compare(key, _text(labels.get(key)), value)
    wrong += _gpus(want, host, config, _text(answer.get("nvidia_driver")))
    wrong += [
        f"has {key} {_shown(host[key])}" for key in _EMPTY if host.get(key) not in (None, "", 0, False, -1, [], {})
    ]
    return wrong


def _gpus(want: Container, host: Mapping[str, Any], config: Mapping[str, Any], driver: str) -> list[str]:
    """Return what differs about GPUs. The libraries in a container are those of one release of the driver."""
    requests = [mapping(one) for one in _list(host.get("DeviceRequests"))]
    given = sorted(_text(name) for one in requests if one.get("Driver") == _CDI for name in _list(one.get("DeviceIDs")))
    if not want.gpus:
        return [f"is given devices: {_shown(requests)}"] if requests else []
    wrong = []
    by_runtime = f"NVIDIA_VISIBLE_DEVICES={','.join(sorted(want.gpus))}"
    if given != sorted(want.gpus) and not (
        _text(host.get("Runtime")) == "nvidia" and by_runtime in map(_text, _list(config.get("Env")))
    ):
        wrong.append(f"is not given {', '.join(want.gpus)}")
    if (of := _text(mapping(config.get("Labels")).get(DRIVER))) != driver:
        wrong.append(f"was made with driver {of or 'none'}; {driver or 'none'} runs")
    return wrong


#: The release of the driver whose libraries a container has: the engine does not say which files a CDI name has become.
DRIVER = "clusterctl.nvidia_driver"


def _found(answer: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    found = mapping(answer.get("found")).get(name)
    return found if isinstance(found, Mapping) else None


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _shown(value: Any) -> str:
    if isinstance(value, list | tuple):
        value = " ".join(map(str, value))
    return str(value)[:120] or "none"


def _capabilities(value: Any) -> set[str]:
    return {_text(word).upper().removeprefix("CAP_") for word in _list(value)}


def _option(word: str) -> str:
    """Return a security option as the engine's later releases write it."""
    name, _, value = word.replace(":", "=", 1).partition("=")
    return name if value in ("", "true") else f"{name}={value}"


def _security(host: Mapping[str, Any]) -> set[str]:
    found = {_option(_text(word)) for word in _list(host.get("SecurityOpt"))}
    # The engine's own, where a container sees the machine's processes or memory.
    if "host" in (host.get("PidMode"), host.get("IpcMode")):
        found.discard("label=disable")
    if host.get("MaskedPaths") == [] and host.get("ReadonlyPaths") == []:
        found.add("systempaths=unconfined")
    return found


def _mount(word: str) -> str:
    source, target, *options = word.split(":")
    words = options[0].split(",") if options else []
    propagation = next((word for word in words if word.lstrip("r") in ("slave", "shared", "private")), "rprivate")
    return _mounted(source, target, "ro" if "ro" in words else "rw", propagation)


def _mounted(source: str, target: str, mode: str, propagation: str) -> str:
    """Return a mount in the words of ``docker run``."""
    return f"{source.rstrip('/') or '/'}:{target}:{mode}" + (f",{propagation}" if propagation != "rprivate" else "")


def _mounts(found: Mapping[str, Any]) -> set[str]:
    mounts = [mapping(one) for one in _list(found.get("Mounts"))]
    return {
        _mounted(
            _text(one.get("Source")),
            _text(one.get("Destination")),
            "rw" if one.get("RW") else "ro",
            _text(one.get("Propagation")) or "rprivate",
        )
        for one in mounts
        # The image's own volumes, which have a number for a name.
        if not (one.get("Type") == "volume" and len(_text(one.get("Name"))) == 64)
    }


def _limits(host: Mapping[str, Any]) -> dict[str, tuple[object, object]]:
    limits = [mapping(one) for one in _list(host.get("Ulimits"))]
    return {_text(one.get("Name")): (one.get("Soft"), one.get("Hard")) for one in limits}


def _declared_limits(words: Sequence[str]) -> dict[str, tuple[int, int]]:
    found = {}
    for word in words:
        name, _, values = word.partition("=")
        soft, _, hard = values.partition(":")
        found[name] = (int(soft), int(hard or soft))
    return found
