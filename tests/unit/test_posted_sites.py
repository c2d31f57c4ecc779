"""What sites have posted of their clusters can be said in an inventory, and is rendered; each file names its source."""

from __future__ import annotations

from pathlib import Path

import pytest

from provision.inventory import loader
from provision.inventory.valid import declared
from provision.slurm.render import render

SITES = Path(__file__).parents[1] / "sites"
#: By site, a line of slurm.conf without which it would be another cluster.
LINES = {
    "children": "NodeName=adas-ml-2,adas-ml CPUs=64 RealMemory=250000 Gres=gpu:2",
    "counted": "NodeName=r01g[01-80] CPUs=40 Sockets=2 CoresPerSocket=20 ThreadsPerCore=1 RealMemory=382000"
    " Gres=gpu:v100:4,nvme:3600 Feature=type_gpu,v100",
    "jump": "NodeName=compute-[0-1] CPUs=72 Sockets=2 CoresPerSocket=36 RealMemory=384000",
    "mig": "NodeName=io-gpu-[01-02] CPUs=96 Sockets=1 CoresPerSocket=96 ThreadsPerCore=1 RealMemory=772000"
    " Gres=gpu:nvidia_h100_80gb_hbm3:2,gpu:nvidia_h100_80gb_hbm3_4g.40gb:2,gpu:nvidia_h100_80gb_hbm3_1g.10gb:6",
    "mixed": "NodeName=cn-g[001-029] CPUs=64 Sockets=2 CoresPerSocket=32 RealMemory=1020000 TmpDisk=7000000"
    " Gres=gpu:a100l:4 Feature=ampere,nvlink,80gb Weight=40 CoreSpecCount=2",
    "nps4": "NodeName=dgx[01-02] CPUs=256 Sockets=8 CoresPerSocket=16 ThreadsPerCore=2 RealMemory=1000000 Gres=gpu:8"
    " CPUSpecList=0-1,128-129",
}


@pytest.mark.parametrize("name", LINES)
def test_what_a_site_has_posted_is_taken_and_rendered(name: str) -> None:
    site = declared(loader.load(SITES / name))

    assert LINES[name] in render(site)["slurm.conf"].splitlines()


def test_every_site_is_rendered_and_says_where_it_is_from() -> None:
    assert {path.name for path in SITES.iterdir()} == LINES.keys()
    for path in SITES.glob("*/inventory.ini"):
        assert "https://" in path.read_text(encoding="utf-8").partition("\n\n")[0]
