"""How programs are called: which of the words are options, with which values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from provision.slurm.jobs.words import Command, Word

#: Short options of sbatch and srun by their long names: src/common/slurm_opt.c of Slurm 24.11.
SHORT = {
    "A": "account", "a": "array", "c": "cpus-per-task", "C": "constraint", "d": "dependency", "D": "chdir",
    "e": "error", "G": "gpus", "J": "job-name", "K": "kill-on-bad-exit", "L": "licenses", "m": "distribution",
    "N": "nodes", "n": "ntasks", "o": "output", "p": "partition", "q": "qos", "t": "time", "W": "wait",
    "w": "nodelist", "x": "exclude",
}  # fmt: skip

#: Options of sbatch and srun that take no word of their own (a value stands behind "="), there.
SLURM_BARE = frozenset({
    "bcast", "compress", "contiguous", "disable-status", "exact", "exclusive", "external-launcher", "get-user-env",
    "hold", "immediate", "interactive", "kill-on-bad-exit", "label", "multi-prog", "nice", "no-allocate", "no-kill",
    "no-requeue", "overcommit", "overlap", "oversubscribe", "preserve-env", "propagate", "pty", "quiet",
    "quit-on-interrupt", "reboot", "requeue", "resv-ports", "send-libs", "spread-job", "stepmgr", "test-only",
    "unbuffered", "use-min-nodes", "verbose", "x11", "container-mount-home", "no-container-mount-home",
    "container-remap-root", "no-container-remap-root", "container-writable", "container-readonly",
    "no-container-entrypoint", "K", "l", "X", "E", "Q", "u", "v", "O", "s", "H", "k", "Z", "I",
})  # fmt: skip
#: Options of docker run and podman run without a value: docs.docker.com/reference/cli/docker/container/run.
_DOCKER_BARE = frozenset({
    "detach", "d", "interactive", "i", "tty", "t", "it", "ti", "dit", "rm", "init", "read-only", "publish-all", "P",
    "no-healthcheck", "oom-kill-disable", "privileged", "quiet", "q", "sig-proxy", "replace", "tls-verify",
})  # fmt: skip
#: Options of docker and podman themselves without a value.
_ENGINE_BARE = frozenset({"debug", "D", "tls", "tlsverify", "remote", "r", "syslog", "transient-store"})
#: Options of torchrun without a value: torch/distributed/run.py.
_TORCHRUN_BARE = frozenset({"standalone", "no-python", "run-path", "module", "m"})
#: Those of DeepSpeed's launcher and of accelerate.
_LAUNCHER_BARE = frozenset({"no-ssh", "no-ssh-check", "force-multi", "multi-gpu", "cpu", "use-deepspeed", "module"})


@dataclass(frozen=True)
class Option:
    """An option as it was given: where, and with which value ("" for none; one given twice has a line for each).

    ``varies``: the value may be another one on each node.
    """

    value: str
    line: int
    varies: bool = True


@dataclass(frozen=True, eq=False)
class Call:
    """A program that the script starts: its options by their long names, with "-" for "_", and what follows them.

    ``command`` is where it stands; ``by`` are the programs that start it, the outermost first (``srun``, ``docker``).
    """

    program: str
    command: Command
    options: Mapping[str, Option]
    rest: tuple[Word, ...]
    by: tuple[Call, ...] = ()

    @property
    def line(self) -> int:
        """Where its command begins."""
        return self.command.line

    def within(self, *programs: str) -> Call | None:
        """Return the innermost of some programs by which this one is started."""
        return next((call for call in reversed(self.by) if call.program in programs), None)


def options(words: list[Word], bare: frozenset[str]) -> tuple[dict[str, Option], tuple[Word, ...]]:
    """Return the options at the beginning of some words, and the words behind them; ``bare`` have none of their own."""
    found: dict[str, tuple[list[str], int, bool]] = {}
    at = 0
    while at < len(words) and words[at].text.startswith("-") and words[at].text != "--":
        word = words[at]
        name, has, value = word.text.partition("=")
        if not name.startswith("--") and len(name) > 2 and name[1:] not in bare:
            name, has, value = name[:2], "=", word.text[2:].removeprefix("=")
        key = name.lstrip("-").replace("_", "-")
        at += 1
        varies = word.varies
        if not has and key not in bare and at < len(words) and not words[at].text.startswith("--"):
            value, varies = words[at].text, words[at].varies
            at += 1
        values = found[key][0] if key in found else list[str]()
        values.append(value)
        found[key] = (values, word.line, varies)
    told = {key: Option("\n".join(values), line, varies) for key, (values, line, varies) in found.items()}
    return told, tuple(words[at:])


def _srun(name: str, command: Command, words: list[Word], by: tuple[Call, ...]) -> Call:
    found, rest = options(words, SLURM_BARE)
    return Call(name, command, {SHORT.get(key, key): option for key, option in found.items()}, rest, by)


def _container(name: str, command: Command, words: list[Word], by: tuple[Call, ...]) -> Call | None:
    words = list(options(words, _ENGINE_BARE)[1])
    if words and words[0].text == "container":
        words = words[1:]
    if not words or words[0].text not in ("run", "create"):
        return None
    return Call(name, command, *options(words[1:], _DOCKER_BARE), by)


def _torchrun(name: str, command: Command, words: list[Word], by: tuple[Call, ...]) -> Call:
    return Call("torchrun", command, *options(words, _TORCHRUN_BARE), by)


def _launcher(name: str, command: Command, words: list[Word], by: tuple[Call, ...]) -> Call:
    if name == "accelerate" and words and words[0].text == "launch":
        words = words[1:]
    return Call(name, command, *options(words, _LAUNCHER_BARE), by)


def _python(name: str, command: Command, words: list[Word], by: tuple[Call, ...]) -> Call:
    for at, word in enumerate(words[:-1]):
        if word.text == "-m" and words[at + 1].text in ("torch.distributed.run", "torch.distributed.launch"):
            return _torchrun(name, command, words[at + 2 :], by)
        if not word.text.startswith("-"):
            break
    return Call("python", command, {}, tuple(words), by)


def _any(name: str, command: Command, words: list[Word], by: tuple[Call, ...]) -> Call:
    return Call(name, command, {}, tuple(words), by)


#: What reads the words behind a program's name; None says that it is no call of interest.
PROGRAMS = {
    "srun": _srun,
    "docker": _container, "podman": _container, "nerdctl": _container,
    "nvidia-docker": _container,
    "torchrun": _torchrun,
    "deepspeed": _launcher, "accelerate": _launcher,
    "python": _python, "python3": _python,
    "apptainer": _any, "singularity": _any, "scontrol": _any, "mpirun": _any, "enroot": _any,
}  # fmt: skip
