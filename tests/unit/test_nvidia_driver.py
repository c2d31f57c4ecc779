"""Which driver a machine is to have: every system, source, branch and flavour that matters, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import driver_machines
import pytest
import yaml

from provision.nvidia import driver as nvidia_driver
from provision.nvidia import driver_packages as nvidia_driver_packages
from provision.nvidia import driver_state
from provision.nvidia.driver_plan import Plan

SYSTEMS = {
    "ubuntu2204": ("ubuntu", "22.04"),
    "ubuntu2404": ("ubuntu", "24.04"),
    "debian12": ("debian", "12"),
    "debian13": ("debian", "13"),
}
KERNEL = "6.1.0-37-amd64"
KINDS = {
    "A40": ("ampere", False),
    "Tesla V100-SXM2-16GB": ("volta", False),
    "NVIDIA B200": ("blackwell", False),
    "NVIDIA GH200 480GB": ("hopper", True),
    "": ("", False),
}


@pytest.fixture
def bare(tmp_path: Path) -> dict[str, Any]:
    return driver_machines.machine("bare_a40x4_debian12", tmp_path)[0]


def on(machine: dict[str, Any], system: str = "debian12", gpu: str = "A40") -> dict[str, Any]:
    machine["os"]["id"], machine["os"]["version"] = SYSTEMS[system]
    for entry in machine["gpu"]["gpus"]:
        entry["product"], (entry["architecture"], entry["grace"]) = gpu, KINDS[gpu]
    return machine


def planned(machine: dict[str, Any], **settings: Any) -> Plan:
    return nvidia_driver.plan(machine, {**driver_machines.WANTS, **settings})


def refused(plan: Plan) -> set[str]:
    return {finding.id for finding in plan.refusals}


UBUNTU = "libnvidia-compute-{0} nvidia-dkms-{0}{1} nvidia-utils-{0} nvidia-compute-utils-{0}"
DEBIAN = "nvidia-{0}kernel-dkms libcuda1 nvidia-smi nvidia-persistenced nvidia-modprobe"
PACKAGES = [
    # system, source, branch, modules, packages after headers and dkms
    ("ubuntu2404", "nvidia", "580", "open", UBUNTU.format(580, "-open")),
    ("ubuntu2204", "nvidia", "580", "proprietary", UBUNTU.format(580, "")),
    ("ubuntu2204", "nvidia", "535", "open", UBUNTU.format(535, "-open")),
    ("ubuntu2404", "nvidia", "595", "open", "libnvidia-compute nvidia-dkms-open"),
    ("ubuntu2404", "distribution", "580", "open", "nvidia-headless-580-server-open nvidia-utils-580-server"),
    ("ubuntu2204", "distribution", "535", "proprietary", "nvidia-headless-535-server nvidia-utils-535-server"),
    ("debian12", "nvidia", "580", "open", "nvidia-driver-cuda nvidia-kernel-open-dkms"),
    ("debian13", "nvidia", "580", "proprietary", "nvidia-driver-cuda nvidia-kernel-dkms"),
    ("debian12", "distribution", "535", "proprietary", DEBIAN.format("")),
    ("debian13", "distribution", "550", "open", DEBIAN.format("open-")),
    ("debian12", "nvidia", "535", "proprietary", "cuda-drivers-535"),
]


#: As the support matrix calls them; what is compared here has not been run on them.
LABELS = {"ubuntu2204": "Ubuntu 22.04", "ubuntu2404": "Ubuntu 24.04", "debian12": "Debian 12", "debian13": "Debian 13"}


def rendered() -> Iterator[Any]:
    for case in PACKAGES:
        row = "driver_distribution" if case[1] == "distribution" else "driver_nvidia"
        yield pytest.param(*case, marks=pytest.mark.proves(row, on=LABELS[case[0]]))


@pytest.mark.parametrize(("system", "source", "branch", "modules", "wanted"), list(rendered()))
def test_packages_by_system_source_branch_and_flavour(
    bare: dict[str, Any], system: str, source: str, branch: str, modules: str, wanted: str
) -> None:
    plan = planned(on(bare, system), source=source, branch=branch, modules=modules)

    assert plan.refusals == ()
    assert list(plan.install[-1]) == wanted.split()


@pytest.mark.parametrize("system", ["debian12", "ubuntu2404"])
def test_headers_come_before_the_driver_that_is_built_with_them(bare: dict[str, Any], system: str) -> None:
    plan = planned(on(bare, system))

    assert plan.install[-2] == ("dkms", f"linux-headers-{KERNEL}")


def test_headers_are_for_the_running_and_for_the_next_kernel(bare: dict[str, Any]) -> None:
    bare["gpu"]["kernel"].update(running="6.1.0-37-amd64", newest="6.1.0-40-amd64")

    plan = planned(bare)

    assert plan.kernels == ("6.1.0-37-amd64", "6.1.0-40-amd64")
    assert set(plan.install[-2]) == {"dkms", "linux-headers-6.1.0-37-amd64", "linux-headers-6.1.0-40-amd64"}


def test_what_pins_the_branch_is_installed_first(bare: dict[str, Any]) -> None:
    assert planned(bare).install[0] == ("nvidia-driver-pinning-580",)
    assert planned(bare, version="580.95.05").install[0] == ("nvidia-driver-pinning-580",)
    assert "Pin: version 580.95.05*\n" in planned(bare, version="580.95.05").files[nvidia_driver_packages.PIN]


def test_secure_boot_on_ubuntu_takes_modules_that_are_signed_and_built_for_each_kernel(bare: dict[str, Any]) -> None:
    machine = on(bare, "ubuntu2404")
    machine["gpu"]["secure_boot"] = True
    machine["gpu"]["kernel"].update(running="6.8.0-64-generic", newest="6.8.0-71-generic")

    plan = planned(machine)

    assert (plan.source, plan.refusals) == ("distribution", ())
    assert plan.install == (
        (
            "nvidia-headless-no-dkms-580-server-open",
            "linux-modules-nvidia-580-server-open-6.8.0-64-generic",
            "linux-modules-nvidia-580-server-open-6.8.0-71-generic",
            "nvidia-utils-580-server",
        ),
    )


@pytest.mark.parametrize("system", ["debian12", "debian13"])
def test_secure_boot_elsewhere_is_refused_with_two_ways_out(bare: dict[str, Any], system: str) -> None:
    machine = on(bare, system)
    machine["gpu"]["secure_boot"] = True

    [refusal] = planned(machine).refusals

    assert refusal.id == "secure_boot"
    assert "switch Secure Boot off" in refusal.fix
    assert "mokutil --import" in refusal.fix
    assert planned(machine, signing_key_enrolled=True).refusals == ()


def test_secure_boot_that_cannot_be_read_is_a_warning(bare: dict[str, Any]) -> None:
    bare["gpu"]["secure_boot"] = None

    assert {finding.id for finding in planned(bare).warnings} == {"secure_boot"}


def test_debians_archive_is_behind_with_the_open_modules(bare: dict[str, Any]) -> None:
    archive = {"source": "distribution", "branch": "535"}

    assert planned(bare, **archive).flavour == "proprietary"
    assert planned(bare, **archive, modules="open", version="535.261.03").flavour == "open"


@pytest.mark.parametrize(
    ("gpu", "settings", "ids"),
    [
        ("Tesla V100-SXM2-16GB", {"modules": "open"}, {"flavour"}),
        ("Tesla V100-SXM2-16GB", {"branch": "595"}, {"branch"}),
        ("NVIDIA B200", {"modules": "proprietary"}, {"flavour"}),
        ("NVIDIA B200", {"branch": "535"}, {"branch"}),
        ("A40", {"modules": "open", "branch": "470"}, {"flavour"}),
        ("A40", {"cuda": ["13.0"], "branch": "535"}, {"cuda"}),
        ("A40", {"cuda": ["12.8", "12.2"], "branch": "535"}, set()),
        ("A40", {"cuda": ["13.2"]}, set()),
        ("A40", {"cuda": ["14.0"]}, {"cuda"}),
        ("A40", {"version": "570.172.08"}, {"version"}),
        ("A40", {"source": "mirror"}, {"source"}),
        ("A40", {"source": "mirror", "repository": "http://mirror/cuda"}, set()),
        ("A40", {"source": "distribution"}, {"source"}),
    ],
)
def test_impossible_pairs_are_refused(bare: dict[str, Any], gpu: str, settings: dict[str, Any], ids: set[str]) -> None:
    plan = planned(on(bare, gpu=gpu), **settings)

    assert refused(plan) == ids
    assert all(finding.fix and finding.cause for finding in plan.refusals)
    if ids:
        assert (plan.install, plan.files) == ((), {})


@pytest.mark.parametrize("setting", ["modules", "source", "install", "fabric_manager", "branch"])
def test_a_word_that_is_not_known_is_refused_with_those_that_are(bare: dict[str, Any], setting: str) -> None:
    [refusal] = planned(bare, **{setting: "opne"}).refusals

    assert refusal.observed == f"nvidia_driver_{setting} is opne"


def test_two_gpus_that_need_different_modules_cannot_share_a_machine(bare: dict[str, Any]) -> None:
    on(bare, gpu="NVIDIA B200")
    bare["gpu"]["gpus"][0].update(product="Tesla V100-SXM2-16GB", architecture="volta")

    assert refused(planned(bare)) == {"flavour"}


def test_an_unknown_system_is_refused(bare: dict[str, Any]) -> None:
    bare["os"].update(id="sles", version="15", name="SUSE Linux Enterprise Server 15")

    [refusal] = planned(bare).refusals

    assert (refusal.id, refusal.observed) == ("system", "SUSE Linux Enterprise Server 15")


def test_a_driver_from_a_runfile_is_refused(bare: dict[str, Any]) -> None:
    bare["gpu"]["runfile"] = True

    assert refused(planned(bare)) == {"runfile"}


@pytest.mark.parametrize(("origin", "source"), [("distribution", "nvidia"), ("nvidia", "distribution")])
def test_a_machine_stays_with_the_source_of_its_driver(bare: dict[str, Any], origin: str, source: str) -> None:
    info = {"version": "535.247.01-1", "held": True, "complete": True, "origin": origin}
    bare["gpu"]["packages"]["nvidia-kernel-dkms"] = info

    plan = planned(bare, source=source, branch="535")

    assert refused(plan) == {"source"}
    assert f"keep nvidia_driver_source: {origin}" in plan.refusals[0].fix


@pytest.mark.parametrize("branch", ["535", "570", "550", "610"])
def test_a_dead_branch_works_and_is_warned_of(bare: dict[str, Any], branch: str) -> None:
    [warning] = planned(bare, branch=branch).warnings

    assert "past its end of life" in warning.cause
    assert "nvidia_driver_branch: 580" in warning.fix


def test_machines_of_different_systems_ask_the_right_key(bare: dict[str, Any]) -> None:
    keys = {name: planned(on(bare, name)).key for name in ("ubuntu2204", "debian13")}

    assert [keys[name]["file"] for name in keys] == ["3bf863cc.asc", "8793F200.asc"]
    assert (keys["ubuntu2204"]["url"], keys["debian13"]["url"]) == ("", "")
    assert keys["debian13"]["fingerprints"] == ["02182E60104FCDC26EAE1B8597A5D4CB8793F200"]


@pytest.mark.parametrize("own", [{"fingerprint": "A" * 40}, {"keyring": "http://mirror/key.asc"}])
def test_a_key_that_a_site_names_itself_is_fetched(bare: dict[str, Any], own: dict[str, str]) -> None:
    key = planned(on(bare), repository="http://mirror/debian12", **own).key

    assert (key["file"], key["url"]) == ("", own.get("keyring", "http://mirror/debian12/3bf863cc.pub"))


def test_the_distributions_closed_components_are_taken_from_where_its_open_one_is(bare: dict[str, Any]) -> None:
    bare["gpu"]["apt"] = [
        {"uri": "http://mirror/debian/", "suite": "bookworm", "component": "main"},
        {"uri": "http://mirror/debian-security/", "suite": "bookworm-security", "component": "main"},
        {"uri": "http://other/", "suite": "x", "component": "stable"},
    ]

    text = planned(bare, source="distribution", branch="535").files[nvidia_driver_packages.LIST]

    assert [line.split("] ")[1] for line in text.splitlines()[1:]] == [
        "http://mirror/debian/ bookworm contrib non-free non-free-firmware",
        "http://mirror/debian-security/ bookworm-security contrib non-free non-free-firmware",
    ]


def test_arm_servers_have_a_repository_of_their_own(bare: dict[str, Any]) -> None:
    bare["architecture"] = "aarch64"

    assert "/ubuntu2404/sbsa/ ./" in planned(on(bare, "ubuntu2404")).files[nvidia_driver_packages.LIST]


def test_debian_on_arm_is_refused_with_the_source_that_has_a_driver_for_it(bare: dict[str, Any]) -> None:
    bare["architecture"] = "aarch64"

    (refusal,) = planned(bare).refusals
    assert (refusal.id, refusal.observed) == ("source", "Debian on aarch64")
    assert "nvidia_driver_source: distribution and nvidia_driver_branch: 535" in refusal.fix
    assert not planned(bare, source="distribution", branch="535").refusals
    assert not planned(bare, repository="https://mirror.example/debian12-arm").refusals


def test_nothing_is_installed_where_it_is_not_wanted(bare: dict[str, Any]) -> None:
    assert planned(bare, install=False).skip == "nvidia_driver_install is false"
    bare["gpu"]["gpus"] = []
    assert planned(bare).skip == "there is no NVIDIA GPU on the bus"
    assert planned(bare, install=True).skip == ""


def test_gpus_that_were_given_to_virtual_machines_get_no_driver_and_their_host_no_reboot(bare: dict[str, Any]) -> None:
    bare["gpu"].update(gpus=[], passed_through=["0000:1b:00.0", "0000:1c:00.0"])

    plan = planned(bare)

    assert plan.skip.startswith("its GPUs are given to virtual machines (0000:1b:00.0, 0000:1c:00.0)")
    assert (plan.pending, plan.install) == ((), ())
    assert driver_state.activation(bare["gpu"], "open").action == "impossible"


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"passed_through": ["0000:1c:00.0"]}, "0000:1c:00.0 given to virtual machines, beside GPUs of"),
        ({"virtual": ["0000:1b:00.0"]}, "0000:1b:00.0: a virtual GPU"),
        ({"vgpu_manager": True}, "the vGPU manager gives parts"),
    ],
)
def test_gpus_of_virtual_machines_are_refused_before_anything_is_changed(
    bare: dict[str, Any], facts: dict[str, Any], words: str
) -> None:
    bare["gpu"].update(facts)

    (refusal,) = planned(bare).refusals
    assert refusal.id == "virtual"
    assert words in refusal.observed
    assert "nvidia_driver_install: false" in refusal.fix
    # As it says.
    assert planned(bare, install=False).refusals == ()


def test_an_unknown_gpu_older_than_turing_gets_the_proprietary_modules_and_no_branch_that_left_it(
    bare: dict[str, Any],
) -> None:
    for entry in bare["gpu"]["gpus"]:
        entry.update(product="", id="10de:1db2", architecture="volta")

    assert planned(bare).flavour == "proprietary"
    assert refused(planned(bare, branch="595")) == {"branch"}
    assert "10de:1db2" in planned(bare, branch="595").refusals[0].observed


def test_a_container_runs_on_the_driver_of_its_computer(bare: dict[str, Any]) -> None:
    bare["container"] = "docker"

    assert "runs on the driver of its computer" in planned(bare).skip
    assert planned(bare, install=True).skip == ""


@pytest.mark.parametrize(
    ("system", "source", "branch", "package"),
    [
        ("ubuntu2404", "nvidia", "580", "nvidia-fabricmanager"),
        ("ubuntu2404", "nvidia", "595", "nvidia-fabricmanager"),
        ("ubuntu2204", "distribution", "580", "nvidia-fabricmanager-580"),
        ("debian13", "nvidia", "580", "nvidia-fabricmanager"),
    ],
)
def test_fabric_manager_comes_with_nvswitches(
    bare: dict[str, Any], system: str, source: str, branch: str, package: str
) -> None:
    machine = on(bare, system)
    assert planned(machine, source=source, branch=branch).fabric_manager == ""
    machine["gpu"]["nvswitches"] = [{"address": "0000:05:00.0", "id": "10de:22a3", "driver": ""}]

    assert planned(machine, source=source, branch=branch).fabric_manager == package


def test_nvswitches_behind_bridges_need_more_than_fabric_manager(bare: dict[str, Any]) -> None:
    bare["gpu"]["nvswitches"] = [{"address": "0000:05:00.0", "id": "15b3:1021", "driver": "mlx5_core"}]

    plan = planned(bare)

    assert plan.fabric_manager == "nvidia-fabricmanager"
    assert "NVLink Subnet Manager" in plan.warnings[0].cause


def test_fabric_manager_stays_where_nvswitches_cannot_be_ruled_out(tmp_path: Path) -> None:
    machine, case = driver_machines.machine("row07_fabric_manager_needless", tmp_path)
    wants = driver_machines.wants(case)
    assert nvidia_driver.plan(machine, wants).needless == ("nvidia-fabricmanager",)

    machine["gpu"]["unread_bridges"] = ["0000:05:00.0"]

    assert nvidia_driver.plan(machine, wants).needless == ()


def test_debians_archive_cannot_serve_nvswitches(bare: dict[str, Any]) -> None:
    bare["gpu"]["nvswitches"] = [{"address": "0000:05:00.0", "id": "10de:22a3", "driver": ""}]

    assert refused(planned(bare, source="distribution", branch="535")) == {"fabric_manager"}


NVIDIA = "https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2404/x86_64"
UBUNTUS = "http://archive.ubuntu.com/ubuntu noble-updates/multiverse amd64 Packages"
#: In the form that apt-cache prints. Ubuntu's archive offers the old name, NVIDIA's repository the new one.
MADISON = f"""\
nvidia-fabricmanager | 580.95.05-1 | {NVIDIA}  Packages
nvidia-fabricmanager | 580.82.07-1 | {NVIDIA}  Packages
nvidia-fabricmanager | 580.126.09-0ubuntu0.24.04.1 | {UBUNTUS}
libnvidia-nscq | 580.105.08-1 | {NVIDIA}  Packages
libnvidia-nscq | 580.95.05-1 | {NVIDIA}  Packages
libnvidia-nscq | 580.82.07-1 | {NVIDIA}  Packages
libnvidia-nscq | 580.126.09-1 | {NVIDIA}  Packages
"""
DRIVER = ("libnvidia-compute-580", "nvidia-dkms-580-open", "nvidia-utils-580", "nvidia-compute-utils-580")
for _name in DRIVER:
    for _version in ("580.126.09", "580.105.08", "580.95.05", "580.82.07"):
        MADISON += f"{_name} | 1:{_version}-0ubuntu1 | {NVIDIA}  Packages\n"
    MADISON += f"{_name} | 580.126.09-0ubuntu0.24.04.1 | {UBUNTUS}\n"


def with_switches(machine: dict[str, Any], **settings: Any) -> Plan:
    machine["gpu"]["nvswitches"] = [{"address": "0000:05:00.0", "id": "10de:22a3", "driver": ""}]
    return planned(on(machine, "ubuntu2404"), **settings)


@pytest.mark.parametrize(
    ("version", "common"), [("", "580.95.05"), ("580.82.07", "580.82.07"), ("580.8", ""), ("580.126.09", "")]
)
def test_the_driver_waits_for_its_fabric_manager_of_the_same_repository(
    bare: dict[str, Any], version: str, common: str
) -> None:
    assert nvidia_driver.newest_common(MADISON, with_switches(bare, version=version)) == common


def test_a_mirror_in_a_directory_is_known_as_apt_writes_it(bare: dict[str, Any]) -> None:
    plan = with_switches(bare, repository="file:///srv/packages")
    names = (*DRIVER, "nvidia-fabricmanager", "libnvidia-nscq")
    offered = "".join(f"{name} | 580.95.05-1 | file:/srv/packages ./ Packages\n" for name in names)

    assert nvidia_driver.newest_common(offered, plan) == "580.95.05"
    assert nvidia_driver.newest_common(offered.replace("/srv/packages", "/srv/packages2"), plan) == ""


def test_everything_is_asked_for_together_and_what_is_the_drivers_in_its_version(bare: dict[str, Any]) -> None:
    assert nvidia_driver.exactly(with_switches(bare, version="580.95.05")) == (
        "nvidia-driver-pinning-580",
        "dkms",
        f"linux-headers-{KERNEL}",
        *(f"{name}=580.95.05*" for name in DRIVER),
        "nvidia-fabricmanager=580.95.05*",
        "libnvidia-nscq=580.95.05*",
    )


LISTED = yaml.safe_load((Path(__file__).parent / "fixtures/nvidia_packages.yml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("source", ["nvidia", "distribution"])
@pytest.mark.parametrize("branch", ["535", "550", "570", "580", "595"])
@pytest.mark.parametrize("system", ["debian12", "debian13", "ubuntu2204", "ubuntu2404"])
def test_every_package_that_is_asked_for_is_in_its_repository(
    bare: dict[str, Any], system: str, branch: str, source: str
) -> None:
    for modules in ("open", "proprietary"):
        machine = on(bare, system)
        machine["gpu"]["nvswitches"] = [{"address": "0000:05:00.0", "id": "10de:22a3", "driver": ""}]
        plan = planned(machine, source=source, branch=branch, modules=modules)
        if plan.refusals:
            continue
        asked = {*plan.install[-1], *plan.fabric, *(name for name in plan.install[0] if "pinning" in name)}
        known = {name for part in LISTED[source][system] for name in part["names"]}
        supposed = set(LISTED["not_listed"].get(source, {}).get(system, ()))

        assert asked - known - supposed == set()
        assert known & supposed == set()


def test_where_fabric_manager_runs_what_is_installed_counts_as_the_version(tmp_path: Path) -> None:
    machine, case = driver_machines.machine("row07_fabric_manager_older", tmp_path)

    plan = nvidia_driver.plan(machine, driver_machines.wants(case))

    assert plan.version == "580.95.05"
    assert "Pin: version 580.95.05*\n" in plan.files[nvidia_driver_packages.PIN]
    assert nvidia_driver.plan(machine, {**driver_machines.wants(case), "branch": "595"}).version == ""


def test_unattended_upgrades_and_nouveau_are_kept_away(bare: dict[str, Any]) -> None:
    files = planned(bare).files

    assert '    "libnvidia";\n' in files[nvidia_driver_packages.UNATTENDED]
    assert "blacklist nouveau\noptions nouveau modeset=0\n" in files[nvidia_driver_packages.NOUVEAU]
    assert "Pin: release o=Debian\nPin-Priority: -1\n" in files[nvidia_driver_packages.PIN]
    assert "Pin: version 580.*\nPin-Priority: 1001\n" in files[nvidia_driver_packages.PIN]


def test_a_list_of_another_source_is_taken_away(bare: dict[str, Any]) -> None:
    bare["gpu"]["files"][nvidia_driver_packages.LIST] = {"kind": "file"}

    plan = planned(on(bare, "ubuntu2404"), source="distribution")

    assert plan.obsolete == (nvidia_driver_packages.LIST,)


@pytest.mark.parametrize(
    ("facts", "pending", "disruptive"),
    [
        ({"nouveau": {"loads_early": ["{newest}"]}}, "rebuild the initial file system of {newest}", False),
        ({"services": {"nvidia-persistenced": {"outdated": True}}}, "restart nvidia-persistenced, older", True),
    ],
    ids=["initial file system", "service"],
)
def test_what_a_killed_run_left_between_a_file_and_its_effect_is_pending(
    tmp_path: Path, facts: dict[str, Any], pending: str, disruptive: bool
) -> None:
    machine, case = driver_machines.machine("healthy_h100x8", tmp_path)
    newest = machine["gpu"]["kernel"]["newest"]
    for part, values in facts.items():
        for name, value in values.items():
            here = machine["gpu"][part]
            here[name] = here[name] | value if isinstance(value, dict) else [newest]

    plan = nvidia_driver.plan(machine, driver_machines.wants(case))

    (step,) = plan.pending
    assert step.text.startswith(pending.format(newest=newest))
    assert plan.disruptive is disruptive


@pytest.mark.parametrize(
    ("gpu", "flavour"), [("Tesla V100-SXM2-16GB", "proprietary"), ("NVIDIA B200", "open"), ("", "open")]
)
def test_the_gpu_decides_the_flavour(bare: dict[str, Any], gpu: str, flavour: str) -> None:
    assert planned(on(bare, gpu=gpu)).flavour == flavour
