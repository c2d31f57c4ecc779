"""CUDA toolkits beside a driver: which fit, from where, and what must not come along; and the installer's module."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from machines import plugin, run_module

from provision.judge import toolkit
from provision.nvidia import cuda_toolkit

RUNFILE = "cuda_12.2.2_535.104.05_linux.run"
RECORDED = "2b39aae3e7618d9f59a3c8fa1f1bc61f29c0b0e0df75fb05076badb352952ef2"


def plan(*versions: str, driver: str = "580", default: str = "", **installers: str) -> cuda_toolkit.Plan:
    listed = [{"path": path, "sha256": ""} for path in installers.values()]
    return cuda_toolkit.plan(versions, listed, driver, default)


def test_packages_are_those_of_a_release_and_the_newest_is_the_default() -> None:
    found = plan("12.8", "13.0")

    assert (found.packages, found.default) == (("cuda-toolkit-12-8", "cuda-toolkit-13-0"), "13.0")
    assert found.refusals == ()
    assert plan("12.8", "13.0", default="12.8").default == "12.8"


def test_where_toolkits_are_is_said_of_all_and_of_the_one_that_the_short_path_means() -> None:
    listed = [{"path": RUNFILE, "sha256": ""}]

    assert cuda_toolkit.places([], [], "") == {}
    assert cuda_toolkit.places(["12.8"], listed, "") == {
        "/usr/local/cuda-12.8": "/usr/local/cuda-12.8",
        "/usr/local/cuda-12.2": "/usr/local/cuda-12.2",
        "/usr/local/cuda": "/usr/local/cuda-12.8",
    }
    assert cuda_toolkit.places(["12.8"], listed, "12.2")["/usr/local/cuda"] == "/usr/local/cuda-12.2"


@pytest.mark.parametrize(
    ("version", "driver", "runs"),
    [
        ("13.0", "580", True),
        ("13.2", "580.65.06", True),
        ("13.0", "575", False),
        ("13.0", "535", False),
        ("12.9", "535", True),
        ("12.2", "580", True),
        ("12.0", "525.60.13", True),
        ("12.0", "525.53", False),
        ("12.0", "470", False),
        ("11.8", "470", True),
        ("11.8", "450.36.06", False),
        ("10.2", "580", False),
        ("14.0", "580", False),
    ],
)
def test_a_toolkit_that_the_driver_cannot_run_is_refused(version: str, driver: str, runs: bool) -> None:
    assert (plan(version, driver=driver).refusals == ()) is runs


def test_a_refusal_names_the_driver_that_is_needed_and_the_toolkit_that_would_do() -> None:
    (text,) = plan("13.0", driver="535").refusals

    assert text == (
        "CUDA 13.0 needs driver 580 or newer, and this one is 535. Use a newer driver (nvidia_driver_branch), "
        "or use CUDA 12.x"
    )


def test_a_toolkit_newer_than_the_driver_of_the_same_major_works_with_a_word_about_its_limits() -> None:
    (text,) = plan("12.9", driver="535").warnings

    assert "12.9 was released with driver 575.51.03; with 535, " in text
    assert plan("12.9", driver="580").warnings == ()


@pytest.mark.parametrize(
    ("versions", "default", "problem"),
    [
        (["12"], "", "must be a release of CUDA, for example 12.8"),
        (["12.8.1"], "", "must be a release of CUDA"),
        (["cuda"], "", "must be a release of CUDA"),
        (["12.8", "12.8"], "", "asked for twice"),
        (["12.8"], "12.4", "not among 12.8"),
    ],
)
def test_what_is_no_release_or_is_not_asked_for_is_refused(versions: list[str], default: str, problem: str) -> None:
    assert any(problem in text for text in plan(*versions, default=default).refusals)


def test_the_installer_of_12_2_is_known_by_its_checksum_and_said_to_be_past_its_time() -> None:
    found = plan(a=RUNFILE)

    assert found.refusals == ()
    assert found.installers[0]["sha256"] == RECORDED
    assert found.installers[0]["address"].endswith(f"/compute/cuda/12.2.2/local_installers/{RUNFILE}")
    assert found.installers[0]["directory"] == "/usr/local/cuda-12.2"
    assert "past its end of life, and is installed without it" in found.warnings[0]
    assert "CUDA 12.9" in found.warnings[0]


@pytest.mark.parametrize(
    ("path", "sha256", "problem"),
    [
        ("cuda_12.8.1_570.124.06_linux.run", "", "has no sha256 on record"),
        ("cuda_12.8.1_570.124.06_linux.run", "abc", "has no sha256 on record"),
        (RUNFILE, "0" * 64, "and another was given"),
        ("NVIDIA-Linux-x86_64-535.104.05.run", "0" * 64, "is no installer of CUDA"),
        ("", "", "is no installer of CUDA"),
    ],
)
def test_an_installer_that_cannot_be_verified_is_refused(path: str, sha256: str, problem: str) -> None:
    (text,) = cuda_toolkit.plan([], [{"path": path, "sha256": sha256}], "580", "").refusals

    assert problem in text


def test_an_installer_may_be_a_file_of_the_machine_or_lie_on_a_mirror() -> None:
    for path in (f"/srv/{RUNFILE}", f"http://mirror/{RUNFILE}"):
        assert plan(a=path).installers[0]["address"] == path


@pytest.mark.parametrize(
    ("name", "foreign"),
    [
        *((name, True) for name in ("nvidia-driver-580-server", "libnvidia-compute-580", "cuda-drivers", "cuda")),
        *((name, True) for name in ("cuda-12-8", "cuda-runtime-12-8", "nvidia-dkms-580-open", "libcuda1", "dkms")),
        *((name, True) for name in ("linux-image-6.8.0-71-generic",)),
        *((name, False) for name in ("cuda-toolkit-12-8", "cuda-nvcc-12-8", "libcublas-12-8", "cuda-cudart-dev-12-8")),
        *((name, False) for name in ("nsight-compute-2025.1.1", "cuda-toolkit-config-common", "gcc")),
        *((name, False) for name in ("nvidia-cuda-toolkit", "nvidia-container-toolkit")),
    ],
)
def test_what_belongs_to_a_driver_or_a_kernel_is_told_apart(name: str, foreign: bool) -> None:
    assert (cuda_toolkit.intruders([name]) != ()) is foreign


APT = """\
The following NEW packages will be installed:
  cuda-nvcc-12-8 cuda-toolkit-12-8
Inst cuda-nvcc-12-8 (12.8.93-1 cuda [amd64])
Inst cuda-toolkit-12-8 (12.8.1-1 cuda [amd64])
Conf cuda-nvcc-12-8 (12.8.93-1 cuda [amd64])
"""


def brought(text: str, code: int = 0, problem: str = "") -> tuple[str, str]:
    (check,) = toolkit.brought({"rc": code, "stdout": text, "stderr": problem})
    return str(check.verdict), check.cause


def test_a_simulation_without_a_driver_passes_and_so_does_one_with_nothing_to_do() -> None:
    assert brought(APT)[0] == "pass"
    assert brought("")[0] == "pass"


def test_a_toolkit_that_brings_a_driver_along_is_refused_by_its_name() -> None:
    driver = "Inst nvidia-dkms-580 (580.95.05-1 cuda [amd64])\n"

    assert brought(APT + driver) == (
        "fail",
        "nvidia-dkms-580 would come along and replace the node's driver or kernel",
    )


def test_a_repository_that_does_not_have_it_says_so() -> None:
    assert brought("", 100, "E: Unable to locate package cuda-toolkit-12-8\n") == (
        "fail",
        "E: Unable to locate package cuda-toolkit-12-8",
    )


def judged(answer: str) -> list[str]:
    checks = toolkit.checks(plan("12.8", a=RUNFILE), ["12.8"], answer)
    assert {check.id for check in checks} == set(toolkit.SUBJECT.ids)
    return [str(check.verdict) for check in checks if not check.id.endswith("versions")]


def test_toolkits_are_judged_by_what_their_compilers_say() -> None:
    there = "/usr/local/cuda-12.2 12.2\n/usr/local/cuda-12.8 12.8\n"

    assert judged(there + "default /usr/local/cuda-12.8\n") == ["pass", "pass", "pass"]
    assert judged(there + "default /etc/alternatives/cuda\n") == ["pass", "pass", "fail"]
    assert judged("/usr/local/cuda-12.8 12.4\ndefault /usr/local/cuda-12.8\n") == ["fail", "fail", "pass"]
    assert judged("/usr/local/cuda-*.* \ndefault \n") == ["fail", "fail", "fail"]
    assert judged("") == ["unknown", "unknown"]


def test_a_machine_that_is_asked_for_no_toolkit_is_skipped_with_the_reason() -> None:
    checks = toolkit.checks(plan(), [], "")

    assert {check.id for check in checks} == set(toolkit.SUBJECT.ids)
    assert {(check.verdict, check.unproven) for check in checks} == {("skip", False)}


def test_a_toolkit_that_is_refused_leaves_the_rest_unproven() -> None:
    checks = toolkit.checks(plan("13.0", driver="535"), ["13.0"], "")

    assert [(check.verdict, check.unproven) for check in checks] == [("fail", False), ("skip", True), ("skip", True)]


@pytest.mark.parametrize("text", ["\x00" * 999, "{{ 7 * 7 }}", "default \x1b[2J", "x" * 3_000_000, "default\n" * 9])
def test_a_machine_that_answers_anything_gets_no_pass_for_its_toolkits(text: str) -> None:
    assert "pass" not in judged(text)


# The module that runs an installer, with one that does what NVIDIA's does to its options.

INSTALLER = """\
#!/bin/sh
for word in "$@"; do
  case $word in
  --toolkitpath=*) path=${word#*=} ;;
  --driver) echo "the driver would be installed" >&2; exit 1 ;;
  esac
done
echo "$@" >>"$(dirname "$0")/calls"
mkdir -p "$path/bin"
printf '#!/bin/sh\\necho "Cuda compilation tools, release 12.2, V12.2.140"\\n' >"$path/bin/nvcc"
chmod 755 "$path/bin/nvcc"
"""


@pytest.fixture
def installer(tmp_path: Path) -> dict[str, str]:
    path = tmp_path / RUNFILE
    path.write_text(INSTALLER)
    return {
        "address": str(path),
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "version": "12.2",
        "directory": str(tmp_path / "cuda-12.2"),
    }


def run(arguments: dict[str, Any]) -> dict[str, Any]:
    return run_module("roles/cuda_toolkit/library/cuda_installer.py", arguments)


def test_an_installer_installs_the_toolkit_alone_and_once(installer: dict[str, str], tmp_path: Path) -> None:
    first, again = run(installer), run(installer)

    assert (first.get("msg", ""), first["changed"], again["changed"]) == ("", True, False)
    (call,) = (tmp_path / "calls").read_text().splitlines()
    assert "--silent --toolkit --override" in call
    assert "--driver" not in call


def test_an_installer_with_another_checksum_is_not_run(installer: dict[str, str], tmp_path: Path) -> None:
    told = run({**installer, "sha256": "0" * 64})

    assert told["failed"]
    assert "Nothing was run" in told["msg"]
    assert not (tmp_path / "calls").exists()


def test_an_installer_that_leaves_no_toolkit_fails(installer: dict[str, str]) -> None:
    assert "left no CUDA 12.4" in run({**installer, "version": "12.4"})["msg"]


def test_check_mode_runs_no_installer(installer: dict[str, str], tmp_path: Path) -> None:
    assert run({**installer, "_ansible_check_mode": True})["changed"]
    assert not (tmp_path / "calls").exists()


def test_the_module_can_be_read_by_old_pythons() -> None:
    assert plugin("roles/cuda_toolkit/library/cuda_installer.py").main
