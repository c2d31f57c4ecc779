"""What the options of docker run and docker create mean in a job, as options of Podman's."""

from __future__ import annotations

import os
import re
import resource
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import granted_gpus
import job_container
import node_places
from granted_gpus import RefusedError

#: Options that have no value of their own, with one dash and with two.
SHORT_FLAGS = "ditPq"
FLAGS = {
    "--detach", "--interactive", "--tty", "--publish-all", "--quiet", "--rm", "--init", "--read-only", "--sig-proxy",
    "--no-healthcheck", "--oom-kill-disable", "--disable-content-trust", "--privileged", "--help", "--env-host",
    "--replace", "--no-hosts", "--rmi", "--http-proxy", "--use-api-socket",
}  # fmt: skip
LONG = {
    "-a": "--attach", "-c": "--cpu-shares", "-d": "--detach", "-e": "--env", "-h": "--hostname", "-i": "--interactive",
    "-l": "--label", "-m": "--memory", "-p": "--publish", "-P": "--publish-all", "-q": "--quiet", "-t": "--tty",
    "-u": "--user", "-v": "--volume", "-w": "--workdir", "--net": "--network",
}  # fmt: skip

#: What is left out, because it is another's to say or there already, with the reason.
_SLURM = "what a job may use is Slurm's to say (--mem, --cpus-per-task)"
_NETWORK = "the container is on its node's network, by the node's address"
LEFT_OUT = {
    **dict.fromkeys((
        "--memory", "--memory-swap", "--memory-reservation", "--memory-swappiness", "--kernel-memory", "--cpus",
        "--cpu-shares", "--cpu-period", "--cpu-quota", "--cpu-rt-period", "--cpu-rt-runtime", "--cpuset-cpus",
        "--cpuset-mems", "--pids-limit", "--blkio-weight", "--device-cgroup-rule", "--oom-kill-disable",
        "--cgroup-parent", "--cgroupns",
    ), _SLURM),
    **dict.fromkeys((
        "--publish", "--publish-all", "--expose", "--link", "--ip", "--ip6", "--mac-address", "--network-alias",
        "--dns", "--dns-option", "--dns-search", "--domainname",
    ), _NETWORK),
    "--pid": "a container sees its own processes",
    "--userns": "root in the container is you",
    "--volume-driver": "volumes are on the node's disk",
    "--isolation": "", "--disable-content-trust": "", "--use-api-socket": "", "--storage-opt": "",
}  # fmt: skip


def options(words: list[str]) -> Iterator[tuple[str, str | None]]:
    """Take the options off the front of some words; yield each by its long name with its value, of a flag None."""
    while words and words[0].startswith("-") and words[0] != "-":
        word = words.pop(0)
        if word == "--":
            return
        if word.startswith("--"):
            name, has, value = word.partition("=")
            name = LONG.get(name, name)
            yield name, value if has else None if name in FLAGS else following(name, words)
            continue
        letters = word[1:]
        while letters:
            letter, letters = letters[0], letters[1:]
            name = LONG.get(f"-{letter}", f"-{letter}")
            if letter in SHORT_FLAGS and not letters.startswith("="):
                yield name, None
                continue
            yield name, letters.removeprefix("=") or following(name, words)
            break


def following(name: str, words: list[str]) -> str:
    """Return the value that stands in a word of its own."""
    if not words:
        raise RefusedError(f"{name} has no value", "docker run --help")
    return words.pop(0)


def on(value: str | None) -> bool:
    """Tell whether a flag is switched on."""
    return value is None or value.lower() in ("true", "1", "t")


class Run:
    """A container that is to be started, in Podman's words. What has to be told the user is in ``told``."""

    def __init__(
        self, words: Sequence[str], environment: Mapping[str, str], known: granted_gpus.Known | None = None
    ) -> None:
        """Read Docker's words. ``known`` are the GPUs that are described to container engines; None: look.

        Raises:
            RefusedError: something cannot be had in a job.
        """
        self.environment, self.known = environment, known
        self.told: list[str] = []
        self.out: list[str] = []
        self.gpus: str | None = None
        self.shm = self.platform = self.pull = ""
        self.init, self.own_ipc = True, False
        #: Where something is mounted by the user.
        self.places: list[str] = []
        rest = list(words)
        for name, value in options(rest):
            translate = getattr(self, "set_" + name.removeprefix("--").replace("-", "_"), None)
            if translate:
                translate(value)
            elif name in LEFT_OUT:
                if LEFT_OUT[name]:
                    self.say(f"{name} is left out: {LEFT_OUT[name]}")
            else:
                self.out.append(name if value is None else f"{name}={value}")
        self.image = rest[0] if rest else ""
        self.command = rest[1:]

    def say(self, line: str) -> None:
        """Remember a line for the user, once."""
        if line not in self.told:
            self.told.append(line)

    def words(self) -> list[str]:
        """Return what podman run is told. What the user says comes last, and wins."""
        gpus = granted_gpus.words(self.gpus, self.environment, self.known)
        shm = [f"--shm-size={self.shm}"] if self.shm and self.own_ipc else []
        if self.shm and not shm:
            self.say(f"--shm-size {self.shm} is left out: /dev/shm is the job's, as with --ipc=host")
        first = [*(["--init"] if self.init else []), "--security-opt=label=disable"]
        first += job_container.words(self.environment, self.places)
        return [*first, *gpus, *self.out, *shm, *([self.image] if self.image else []), *self.command]

    # What means something else here: each option by its name.

    def set_privileged(self, value: str | None) -> None:
        if on(value):
            self.say("--privileged gives no more than this job has: its user's rights, its granted devices")

    def set_init(self, value: str | None) -> None:
        self.init = on(value)

    def set_platform(self, value: str) -> None:
        self.platform = value
        self.out.append(f"--platform={value}")

    def set_pull(self, value: str) -> None:
        self.pull = value
        self.out.append(f"--pull={value}")

    def set_gpus(self, value: str) -> None:
        self.gpus = value.replace('"', "").replace("'", "")

    def set_runtime(self, value: str) -> None:
        if value == "nvidia" and self.gpus is None:
            self.gpus = "all"
        self.say(f"--runtime {value} is left out: GPUs come by --gpus all")

    def set_device(self, value: str) -> None:
        source, _, name = value.partition("=")
        if source == "nvidia.com/gpu":
            before = f"{self.gpus}," if (self.gpus or "").startswith("device=") else "device="
            self.gpus = "all" if name == "all" else before + name
        elif why := node_places.refused(value.partition(":")[0], self.environment, self.known):
            raise RefusedError(f"--device {value}: {why[0]}", why[1])
        elif job_container.without_adapter(value):
            self.say(job_container.without_adapter(value))
        else:
            self.out.append(f"--device={value}")

    def set_ulimit(self, value: str) -> None:
        name, has, numbers = value.partition("=")
        kind = getattr(resource, f"RLIMIT_{name.upper()}", None)
        if not has or kind is None or not re.fullmatch(r"-?\d+(:-?\d+)?", numbers):
            self.out.append(f"--ulimit={value}")
            return
        hard = resource.getrlimit(kind)[1]
        wanted = [int(number) for number in numbers.split(":")]
        cut = [one if hard == resource.RLIM_INFINITY or 0 <= one <= hard else hard for one in wanted]
        if cut != wanted:
            self.say(f"--ulimit {value}: this job's hard limit is {hard}, which it gets")
        self.out.append(f"--ulimit={name}={':'.join(map(str, cut))}")

    def set_shm_size(self, value: str) -> None:
        self.shm = value

    def set_ipc(self, value: str) -> None:
        self.own_ipc = value not in ("host", "")
        self.out.append(f"--ipc={value}")

    def set_network(self, value: str) -> None:
        if value in ("none", "host") or value.startswith("container:"):
            self.out.append(f"--network={value}")
        elif value not in ("bridge", "default"):
            self.say(f"--network {value}: {_NETWORK}")

    def set_user(self, value: str) -> None:
        user = value.partition(":")[0]
        if user in (str(os.getuid()), self.environment.get("USER")) and user not in ("0", "root"):
            self.say(f"--user {value} is left out: root in the container is you, and what it writes is yours")
        elif user.isdigit() and user != "0" and not subordinate():
            problem = f"--user {value}: you have no subordinate numbers, so that a container has you alone"
            raise RefusedError(problem, "leave --user out; or ask the site for yours in /etc/subuid")
        else:
            self.out.append(f"--user={value}")

    def set_add_host(self, value: str) -> None:
        self.out.append(f"--add-host={value.replace('host-gateway', '127.0.0.1')}")

    def set_security_opt(self, value: str) -> None:
        if not value.startswith("apparmor"):
            self.out.append(f"--security-opt={value}")

    def set_volume(self, value: str) -> None:
        source, colon, _ = value.partition(":")
        self.places += job_container.mounted_at("--volume", value)
        if colon and source.startswith(("/", ".")):
            self.mountable(f"-v {value}", source)
        self.out.append(f"--volume={value}")

    def set_mount(self, value: str) -> None:
        self.places += job_container.mounted_at("--mount", value)
        fields = job_container.fields_of(value)
        if fields.get("type") == "bind":
            self.mountable(f"--mount {value}", fields.get("source") or fields.get("src") or "")
        self.out.append(f"--mount={value}")

    def mountable(self, option: str, source: str) -> None:
        """Refuse what is no data of anybody's, and what is not there: Docker would make it, as root."""
        if why := node_places.refused(source, self.environment, self.known):
            raise RefusedError(f"{option}: {why[0]}", why[1])
        path = node_places.plain(source)
        if not os.path.lexists(path):
            problem = f"{option}: {path} is not on {os.uname().nodename}, or you may not enter it"
            raise RefusedError(problem, f"mkdir -p {path}, in a directory that all nodes share")


def subordinate(path: Path = Path("/etc/subuid")) -> bool:
    """Tell whether there are numbers for others than the user in their containers."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return False
    return any(line.split(":")[0] in (str(os.getuid()), os.environ.get("USER")) for line in lines)
