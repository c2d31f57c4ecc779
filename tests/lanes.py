"""Run the tests in lanes: at most three at a time, each with a log, and what failed at the end.

Usage: lanes.py gate | all | night | LANE... | touched | one TEST

gate     what `make test` runs: the lab of tests/core beside linters, unit tests, roles and runs
all      the gate, then each other lane after it; night: what is rare, long or random
touched  print the lanes that the difference to the main branch (or to $BASE) touches
one      run a single test on a lab that is kept

Exit codes: 0 all is well; 1 something failed; 3 there was no lab to test on.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
BIN = ROOT / ".venv" / "bin"
LOGS = ROOT / ".cache" / "lanes"
#: The lab that the lanes with ``lab`` share, one after the other (tests/lab/lab_fixtures.py).
LAB = "t-core"
SCENARIOS = sorted(path.parent.name for path in ROOT.glob("molecule/*/molecule.yml"))


@dataclass(frozen=True)
class Lane:
    """Tests that run together: directories for pytest with further words, or other commands.

    ``mark``: which marks are taken. ``minutes``: after these the lane is taken for hung.
    """

    tests: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    mark: str = "not slow and not night"
    commands: tuple[tuple[str, ...], ...] = ()
    lab: bool = False
    minutes: int = 60


def _scenarios(names: Sequence[str], *options: str) -> tuple[tuple[str, ...], ...]:
    """Return the commands that run scenarios of Molecule and note which rows of the support matrix they prove.

    By the glob Molecule looks for this one alone: by its own it calls the lack of a scenario "default" critical.
    """
    return tuple(
        (
            "env", f"MOLECULE_GLOB=molecule/{name}/molecule.yml", "sh", "-ec",
            f"molecule {' '.join(options)} test -s {name} --no-command-borders;"
            f" python tests/support/support.py molecule {name}",
        )
        for name in names
    )  # fmt: skip


#: What any change can break, and what `make test` runs. With four workers other work does not halve what they get.
GATE = {
    "core": Lane(("tests/core",), lab=True),
    "lint": Lane(
        commands=(("make", "lint"), ("pytest", "--collect-only", "-qq", "tests/lab", "tests/training", "tests/vm"))
    ),
    "unit": Lane(("tests/unit",), ("-n", "4")),
    "runs": Lane(("tests/roles", "tests/runs"), ("-n", "4", "--dist", "loadfile")),
}
#: The rest of what a change is proven by, one lane after the other; those on the shared lab first.
REST = {
    "repair": Lane(("tests/lab/repair",), lab=True, minutes=120),
    "slurm": Lane(("tests/lab/slurm",), lab=True, minutes=120),
    "containers": Lane(("tests/lab/containers",), lab=True, minutes=120),
    "machines": Lane(("tests/lab/machines",)),
    "site": Lane(("tests/lab/site",)),
    "training": Lane(("tests/training",)),
    # slurm_image builds Slurm's image for another registry, packages and all.
    "molecule": Lane(
        commands=_scenarios(
            [name for name in SCENARIOS if name != "slurm_image"],
            "-c", ".config/molecule/config.yml", "-c", ".config/molecule/daily.yml",
        ),
        minutes=120,
    ),
    "virtual": Lane(("tests/vm",), minutes=120),
    "slow": Lane(("tests/unit", "tests/roles", "tests/runs"), mark="slow"),
}  # fmt: skip
NIGHT = {
    "night-lab": Lane(("tests/lab", "tests/training"), mark="night", lab=True, minutes=600),
    "night-runs": Lane(("tests/roles", "tests/runs"), mark="night", minutes=120),
    "night-vm": Lane(("tests/vm",), mark="night", minutes=600),
    "night-molecule": Lane(commands=_scenarios(SCENARIOS), minutes=600),
}
LANES = GATE | REST | NIGHT

#: Which lanes a changed path touches besides the gate.
TOUCHES = (
    ("roles/slurm_image/files/image/*", "containers"),
    ("roles/slurm_*", "slurm repair"),
    ("provision/slurm/*", "slurm repair"),
    ("provision/slurm/jobs/*", "slow"),
    ("provision/judge/*", "repair"),
    ("plugins/*", "repair"),
    ("playbooks/*", "repair"),
    ("roles/ddp_validation/*", "training repair"),
    ("roles/container_*", "containers repair"),
    ("roles/job_*", "containers"),
    ("roles/slurm_image/*", "virtual"),
    ("roles/nvidia_*", "molecule slow"),
    ("roles/cuda_*", "molecule"),
    ("roles/rdma_*", "molecule"),
    ("roles/gpudirect_*", "molecule"),
    ("molecule/*", "molecule"),
    ("roles/lab_machines/*", "machines virtual site"),
    ("provision/lab/*", "machines virtual site"),
    ("provision/ssh/*", "machines"),
    *((f"{place}/*", name) for name, lane in REST.items() for place in lane.tests if name != "slow"),
)


def lane_of(path: str, marks: set[str]) -> str:
    """Return the lane in which a test is, by its path below the checkout and its marks.

    Raises ``ValueError`` where it is in none or in several.
    """
    mark = next((one for one in ("slow", "night") if one in marks), "not slow and not night")
    found = [
        name
        for name, lane in LANES.items()
        if lane.mark == mark and any(path.startswith(f"{place}/") for place in lane.tests)
    ]
    if len(found) != 1 or {"slow", "night"} <= marks:
        raise ValueError(f"{path}: it is in {len(found)} lanes ({', '.join(found)}), with the marks {sorted(marks)}")
    return found[0]


@dataclass(frozen=True)
class Result:
    """How a lane ended. ``word``: ok, FLAKY, FAILED, HUNG or INFRASTRUCTURE."""

    name: str
    word: str
    seconds: float
    pressure: float
    counts: dict[str, int]

    @property
    def log(self) -> Path:
        """All that it printed."""
        return LOGS / f"{self.name}.log"


def environment(lab: bool) -> dict[str, str]:
    """Return the caller's environment without what would change what a test proves, and with our programs first."""
    dropped = ("ANSIBLE_CONFIG", "ANSIBLE_HOST_KEY_CHECKING", "PYTHONDONTWRITEBYTECODE", "CLUSTERCTL_KEEP_LABS")
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    kept |= {"PATH": f"{BIN}:{os.environ['PATH']}", "PYTHONHASHSEED": "0", "COLUMNS": "220"}
    return kept | ({"CLUSTERCTL_KEEP_LABS": "1"} if lab else {})


RUNNING: set[subprocess.Popen[bytes]] = set()

#: Set when somebody wants the run to end: no command begins then.
STOPPED = threading.Event()

#: The kernel weighs sessions, not processes: without this four workers are worth one busy loop of somebody else.
#: As nice values: what drives a lab is waited for longest, and comes first; four workers are nearly four processes.
WEIGHT_OF_A_LAB = "-12"
WEIGHT = "-6"


def call(command: Sequence[str], lane: Lane, log: Path, *, seconds: float) -> int | None:
    """Run one command, its output added to the log. Return its exit code; None where it hung and was ended."""
    if STOPPED.is_set():
        return None
    with log.open("ab") as output:
        output.write(f"$ {' '.join(command)}\n".encode())
        output.flush()
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment(lane.lab), stdin=subprocess.DEVNULL, stdout=output,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        RUNNING.add(process)
        with suppress(OSError):  # it is over, this user may not, or this kernel does not weigh sessions
            Path(f"/proc/{process.pid}/autogroup").write_text(WEIGHT_OF_A_LAB if lane.lab else WEIGHT, encoding="ascii")
        try:
            return process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            output.write(f"\nended after {seconds:.0f} s: it hung\n".encode())
            end(process)
            return None
        except KeyboardInterrupt:
            end(process)
            raise
        finally:
            RUNNING.discard(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """Ask a command to stop, and kill what is left of it and its children two minutes later."""
    for number, seconds in ((signal.SIGINT, 120), (signal.SIGKILL, 60)):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=seconds)


def stop() -> None:
    """End all commands that run."""
    STOPPED.set()
    for process in tuple(RUNNING):
        end(process)


def pytest(name: str, lane: Lane, *words: str) -> tuple[str, ...]:
    """Return the command that runs a lane's tests."""
    state = ("--junitxml", str(LOGS / f"{name}.xml"), "-o", f"cache_dir={LOGS / name}", "--durations=15")
    return ("pytest", "-q", "-m", lane.mark, *state, *words, *lane.words, *lane.tests)


def counts(name: str) -> dict[str, int]:
    """Return what pytest has counted in a lane."""
    file = LOGS / f"{name}.xml"
    if not file.exists():
        return {}
    suite = next(ElementTree.parse(file).iter("testsuite"))  # noqa: S314 - our own file
    told = {key: int(suite.get(key, "0")) for key in ("tests", "failures", "errors", "skipped")}
    failed = told["failures"] + told["errors"]
    return {"passed": told["tests"] - failed - told["skipped"], "failed": failed, "skipped": told["skipped"]}


def stalled() -> float:
    """Return the seconds so far in which somebody on this computer has waited for a processor."""
    try:
        return float(Path("/proc/pressure/cpu").read_text(encoding="ascii").split("total=")[1].split()[0]) / 1e6
    except (OSError, IndexError):
        return 0


def run(name: str, *, again: bool = False) -> Result:
    """Run a lane to its end. ``again``: at most two tests that failed are run once more, on the lab as it is then."""
    lane, log = LANES[name], LOGS / f"{name}.log"
    for old in (log, LOGS / f"{name}.xml"):
        old.unlink(missing_ok=True)
    print(f"{time.strftime('%H:%M:%S')} {name}: begun\n", end="", flush=True)
    begun, waited, seconds = time.monotonic(), stalled(), 60 * lane.minutes
    commands = lane.commands or (pytest(name, lane),)
    codes = [call(command, lane, log, seconds=seconds) for command in commands]
    counted, word = counts(name), "ok"
    if None in codes:
        word = "HUNG"
    elif 3 in codes and not lane.commands:
        word = "INFRASTRUCTURE"
    elif any(codes):
        word = "FAILED"
    if word == "FAILED" and again and 1 <= counted.get("failed", 0) <= 2:
        word = "FLAKY" if once_more(name, lane, counted["failed"]) else "FAILED"
    took = time.monotonic() - begun
    result = Result(name, word, took, 100 * (stalled() - waited) / took, counted)
    print(f"{time.strftime('%H:%M:%S')} {name}: {word} after {clock(took)}\n", end="", flush=True)
    return result


def once_more(name: str, lane: Lane, failed: int) -> bool:
    """Run what failed once more and tell whether all of it passes; the lab is settled by its fixture first."""
    again = f"{name}-again"
    log = LOGS / f"{again}.log"
    log.unlink(missing_ok=True)
    command = [word.replace(str(LOGS / f"{name}.xml"), str(LOGS / f"{again}.xml")) for word in pytest(name, lane)]
    code = call([*command, "--last-failed"], lane, log, seconds=60 * lane.minutes)
    return code == 0 and counts(again).get("passed") == failed


#: Where the kernel has one weight for the containers of all labs together, and what is twenty times that of a shell.
WEIGHTS = {"/sys/fs/cgroup/cpu/docker/cpu.shares": "20480", "/sys/fs/cgroup/docker/cpu.weight": "2000"}


@contextmanager
def machines_first() -> Iterator[None]:
    """Give the machines of all labs that weight meanwhile."""
    before = {Path(place): Path(place).read_text(encoding="ascii") for place in WEIGHTS if os.access(place, os.W_OK)}
    for place in before:
        place.write_text(WEIGHTS[str(place)], encoding="ascii")
    try:
        yield
    finally:
        for place, weight in before.items():
            place.write_text(weight, encoding="ascii")


def remove_lab() -> None:
    """Remove the lab that lanes share, whatever state it is in."""
    words = [BIN / "clusterctl", "lab", "down", LAB]
    subprocess.run(words, cwd=ROOT, env=environment(lab=False), check=False, capture_output=True)


def clock(seconds: float) -> str:
    """Return minutes and seconds."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def told(result: Result) -> str:
    """Return what a lane that failed has to say, whole, with its log and how the same is run alone."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", result.log.read_text(encoding="utf-8", errors="replace"))
    begins = re.search(r"(?m)^=+ (?:ERRORS|FAILURES) =+$|^!+ .*(?:INFRASTRUCTURE|Interrupted)", text)
    part = text[begins.start() :] if begins and result.counts else "\n".join(text.splitlines()[-80:])
    alone = [f"make {'lab-test' if LANES[result.name].lab else 'one'} T='{test}'" for test in failed_tests(text)]
    return "\n".join([f"--- {result.name}: {result.word} ---", part, f"log: {result.log}", *alone])


def failed_tests(text: str) -> list[str]:
    """Return the names of the tests that failed, from pytest's last lines."""
    return [line.split()[1] for line in text.splitlines() if re.match(r"(FAILED|ERROR) tests/", line)]


def summary(results: Sequence[Result]) -> int:
    """Print how the lanes ended, what failed last, and return the exit code."""
    for result in results:
        if result.word == "FLAKY":
            print(
                f"\nFLAKY in {result.name}: failed once and passed when run again. The first failure:\n{told(result)}"
            )
    print(f"\n{'lane':<15} {'result':<15} {'wall':>6}  pressure")
    for result in results:
        print(f"{result.name:<15} {result.word:<15} {clock(result.seconds):>6} {result.pressure:>6.0f} %")
    print()
    for result in results:
        if result.counts:
            numbers = ", ".join(f"{number} {word}" for word, number in result.counts.items())
            print(f"{result.name}: {numbers}")
    bad = [result for result in results if result.word not in ("ok", "FLAKY")]
    for result in bad:
        print(f"\n{told(result)}")
    if {result.word for result in bad} == {"INFRASTRUCTURE"}:
        return 3
    return 1 if bad else 0


def gate() -> list[Result]:
    """Run the machines in one lane and all that needs none beside it: linters keep one processor busy at best."""
    remove_lab()
    with machines_first(), ThreadPoolExecutor(3) as pool:
        core = pool.submit(run, "core", again=True)
        others = [pool.submit(lambda: [run("lint"), run("runs")]), pool.submit(lambda: [run("unit")])]
        try:
            return [core.result(), *(result for one in others for result in one.result())]
        except KeyboardInterrupt:
            stop()
            raise


def after_each_other(names: Sequence[str]) -> list[Result]:
    """Run lanes one after the other. The lab that some share is gone before one begins that has machines of its own."""
    results: list[Result] = []
    for name in names:
        if results and LANES[results[-1].name].lab and not LANES[name].lab:
            remove_lab()
        with machines_first():
            results.append(run(name))
    return results


def touched() -> list[str]:
    """Return the lanes that the difference to the main branch touches, and what is not committed."""

    def git(*words: str) -> list[str]:
        return subprocess.run(["git", *words], cwd=ROOT, check=False, capture_output=True, text=True).stdout.split()

    bases = [os.environ.get("BASE", ""), "origin/main", "main"]
    base = next((one for one in bases if one and git("rev-parse", "--verify", "--quiet", one)), "HEAD")
    paths = git("diff", "--name-only", f"{base}...HEAD") + git("diff", "--name-only", "HEAD")
    paths += git("ls-files", "--others", "--exclude-standard")
    named = {name for path in paths for pattern, names in TOUCHES if fnmatch(path, pattern) for name in names.split()}
    return [name for name in REST if name in named]


def one(test: str) -> int:
    """Run a single test here and now, on a lab that is kept where it needs one."""
    lab = test.startswith(("tests/core", "tests/lab"))
    return subprocess.run([BIN / "pytest", "-q", "-rA", test], cwd=ROOT, env=environment(lab), check=False).returncode


def main(words: Sequence[str]) -> int:
    """Run what the command line names."""
    if words == ["touched"]:
        print("\n".join(touched()))
        return 0
    if len(words) == 2 and words[0] == "one":
        return one(words[1])
    unknown = [word for word in words if word not in (*LANES, "gate", "all", "night")]
    if unknown or not words:
        print(__doc__ if not words else f"{unknown[0]}: no lane. Fix: name one of {', '.join(LANES)}", file=sys.stderr)
        return 2
    LOGS.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    results: list[Result] = []
    try:
        if set(words) & {"gate", "all"}:
            results += gate()
        rest = {"gate": [], "all": list(REST), "night": list(NIGHT)}
        results += after_each_other([name for word in words for name in rest.get(word, [word])])
    except KeyboardInterrupt:
        stop()
        return 130
    finally:
        on_it = [result for result in results if LANES[result.name].lab]
        if os.environ.get("CI") or (on_it and all(result.word in ("ok", "FLAKY") for result in on_it)):
            remove_lab()
    return summary(results)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
