"""What a site gives every job: checked in the inventory, told by the TaskProlog, read by what makes containers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from declare import cluster

from provision import content
from provision.inventory import declared_environment
from provision.slurm.render import render

IMAGE = content.ROOT / "roles/slurm_image/files/image"
sys.path.insert(0, str(IMAGE))
import site_environment  # noqa: E402

sys.path.remove(str(IMAGE))

MOUNTS = {"cluster_mounts": [{"path": "/data", "fstype": "present"}, {"path": "/scratch", "fstype": "local"}]}
OFFLINE = {"wheels": "/data/wheels", "models": "/data/models", "datasets": "/data/sets"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CUDA_HOME", "/usr/local/cuda-12.8"), ("JAVA_HOME", "/usr/lib/jvm/default"), ("TRITON_CACHE_DIR", "/tmp/t"),
        ("TRITON_CACHE_DIR", "/scratch/triton"), ("TORCH_HOME", "/data/torch"), ("HF_HOME", "~/hf"),
    ],
)  # fmt: skip
def test_what_jobs_see_may_be_named(name: str, value: str) -> None:
    (variable,) = cluster(**MOUNTS, job_environment={name: value}).job_environment

    assert variable.directory == value.startswith("/data"), "containers have their own system"


def test_a_directory_that_the_site_shows_to_jobs_is_seen() -> None:
    shown = {"slurm_service_read_only_directories": ["/srv/models"]}

    assert cluster(**shown, job_offline={"models": "/srv/models"}).job_environment[0].name == "HF_HUB_OFFLINE"


def told(site: dict[str, Any], **users: str) -> dict[str, str]:
    """Return what a task of a user's is told; run as Slurm runs it."""
    script = render(cluster(**MOUNTS, **site))["job_task"]
    environment = {"HOME": "/home/ada", "PATH": os.environ["PATH"], "SLURM_JOB_ID": "7", **users}
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, env=environment, check=True)
    assert done.stderr == ""
    lines = [line.removeprefix("export ") for line in done.stdout.splitlines() if line.startswith("export ")]
    return dict(line.split("=", 1) for line in lines)


def test_without_a_word_of_the_sites_nothing_is_told() -> None:
    assert told({}) == {}


def test_a_closed_network_is_known_to_pip_and_to_hugging_faces_libraries() -> None:
    found = told({"job_offline": OFFLINE})

    assert (found["PIP_NO_INDEX"], found["PIP_FIND_LINKS"]) == ("1", "/data/wheels")
    assert found["HF_HOME"] == "/data/models"
    assert {found[name] for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE")} == {"1"}
    assert found["HF_DATASETS_CACHE"] == "/data/sets"
    assert found["HF_TOKEN_PATH"] == "/home/ada/.cache/huggingface/token", "the site's directory is no user's to write"
    assert told({"job_offline": {"models": "/data/models"}})["HF_DATASETS_CACHE"].startswith("/home/ada/")


def test_what_the_user_sets_wins_and_what_goes_with_it_is_left_out() -> None:
    site = {"job_offline": OFFLINE, "job_environment": {"PIP_CERT": "/data/ca.pem"}}

    found = told(site, PIP_INDEX_URL="https://mine", HF_HOME="/home/ada/hf", HF_HUB_OFFLINE="", PIP_CERT="mine")

    assert not {"PIP_NO_INDEX", "HF_HOME", "HF_TOKEN_PATH", "HF_HUB_OFFLINE", "PIP_CERT", "HF_DATASETS_CACHE"} & set(
        found
    )
    assert found["PIP_FIND_LINKS"] == "/data/wheels"


def test_values_come_as_they_are_written_and_job_environment_wins_over_job_offline() -> None:
    odd = r"a 'b' \n $HOME `id` = *"
    site = {
        "job_offline": OFFLINE,
        "job_environment": {"ODD": odd, "N": 7, "PIP_FIND_LINKS": "https://x", "MINE": "~/x"},
    }

    found = told(site)

    assert (found["ODD"], found["N"], found["PIP_FIND_LINKS"]) == (odd, "7", "https://x")
    assert found["MINE"] == "/home/ada/x"


def test_an_index_of_the_sites_is_asked_also_where_it_has_wheels() -> None:
    found = told({"job_offline": OFFLINE, "job_environment": {"PIP_INDEX_URL": "https://pypi.site/simple"}})

    assert "PIP_NO_INDEX" not in found
    assert (found["PIP_INDEX_URL"], found["PIP_FIND_LINKS"]) == ("https://pypi.site/simple", "/data/wheels")


@pytest.mark.parametrize(
    ("site", "users", "value"),
    [
        ({"node_rdma_unused": ["mlx5_4", "mlx5_5:1"]}, {}, "^=mlx5_4,mlx5_5:1"),
        ({"node_rdma_unused": "mlx5_4"}, {}, "^=mlx5_4"),
        ({"node_rdma_unused": []}, {}, None),
        ({"node_rdma_unused": "mlx5_4", "job_environment": {"NCCL_IB_HCA": "mlx5_1"}}, {}, "mlx5_1"),
        ({"node_rdma_unused": "mlx5_4"}, {"NCCL_IB_HCA": "mine"}, None),
    ],
)
def test_ports_that_jobs_do_not_use_are_left_out_by_nccl(
    site: dict[str, Any], users: dict[str, str], value: str | None
) -> None:
    assert told(site, **users).get("NCCL_IB_HCA") == value


def test_what_differs_between_nodes_is_no_variable_of_all_jobs() -> None:
    each = [{"node_rdma_unused": "mlx5_4"}, {"node_rdma_unused": "mlx5_5"}]

    assert declared_environment.adapters_of_jobs((), each) == ()


def test_what_makes_containers_reads_the_same_names_and_the_directories(tmp_path: Path) -> None:
    file = tmp_path / "job_task"
    own = {"A": "b c", "TORCH_HOME": "/data/here"}
    site = {"job_offline": {"wheels": "/data/here", "models": "/data/nowhere"}, "job_environment": own}
    file.write_text(render(cluster(**MOUNTS, **site))["job_task"].replace("/data/here", str(tmp_path)))

    assert {"PIP_FIND_LINKS", "HF_HOME", "A"} <= set(site_environment.names(str(file)))
    assert ("A", "b c", False) in site_environment.lines(str(file))
    assert site_environment.volumes(path=str(file)) == ["--volume", f"{tmp_path}:{tmp_path}"]
    assert site_environment.volumes([str(tmp_path)], str(file)) == []


def test_a_file_of_the_sites_is_seen_in_containers(tmp_path: Path) -> None:
    certificate = tmp_path / "ca.pem"
    certificate.touch()
    file = tmp_path / "job_task"
    text = render(cluster(**MOUNTS, job_environment={"PIP_CERT": "/data/ca.pem"}))["job_task"]
    file.write_text(text.replace("/data/ca.pem", str(certificate)))

    assert site_environment.volumes(path=str(file)) == ["--volume", f"{certificate}:{certificate}"]
    assert site_environment.lines(str(tmp_path / "none")) == []
