# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""What PCI ids say about NVIDIA's data-centre GPUs before any driver runs, and about Mellanox's adapters.

Products are spelled as nvidia-smi spells them, so that a type recorded from the bus is the type that the driver will
report. Ids and names: the README of NVIDIA's open kernel modules; for GPUs that these modules do not support (Volta and
older) and for L4, A30, A40, A10G and GeForce the public pci.ids; for Blackwell's names reports of nvidia-smi.
"""

from __future__ import annotations

import re

#: Device id of vendor 10de -> product and architecture.
GPUS = {
    "13c2": ("NVIDIA GeForce GTX 970", "maxwell"),
    "17c2": ("NVIDIA GeForce GTX TITAN X", "maxwell"),
    "17c8": ("NVIDIA GeForce GTX 980 Ti", "maxwell"),
    "15f7": ("Tesla P100-PCIE-12GB", "pascal"),
    "15f8": ("Tesla P100-PCIE-16GB", "pascal"),
    "15f9": ("Tesla P100-SXM2-16GB", "pascal"),
    "1b00": ("NVIDIA TITAN X (Pascal)", "pascal"),
    "1b02": ("NVIDIA TITAN Xp", "pascal"),
    "1b06": ("NVIDIA GeForce GTX 1080 Ti", "pascal"),
    "1b30": ("Quadro P6000", "pascal"),
    "1b38": ("Tesla P40", "pascal"),
    "1b80": ("NVIDIA GeForce GTX 1080", "pascal"),
    "1b81": ("NVIDIA GeForce GTX 1070", "pascal"),
    "1bb3": ("Tesla P4", "pascal"),
    "1d81": ("NVIDIA TITAN V", "volta"),
    "1db1": ("Tesla V100-SXM2-16GB", "volta"),
    "1db3": ("Tesla V100-SXM2-16GB-LS", "volta"),
    "1db4": ("Tesla V100-PCIE-16GB", "volta"),
    "1db5": ("Tesla V100-SXM2-32GB", "volta"),
    "1db6": ("Tesla V100-PCIE-32GB", "volta"),
    "1db7": ("Tesla V100-DGXS-32GB", "volta"),
    "1db8": ("Tesla V100-SXM3-32GB", "volta"),
    "1dba": ("Quadro GV100", "volta"),
    "1df6": ("Tesla V100S-PCIE-32GB", "volta"),
    "1e02": ("NVIDIA TITAN RTX", "turing"),
    "1e04": ("NVIDIA GeForce RTX 2080 Ti", "turing"),
    "1e07": ("NVIDIA GeForce RTX 2080 Ti", "turing"),
    "1eb8": ("Tesla T4", "turing"),
    "20b0": ("NVIDIA A100-SXM4-40GB", "ampere"),
    "20b2": ("NVIDIA A100-SXM4-80GB", "ampere"),
    "20b3": ("NVIDIA A100-SXM-64GB", "ampere"),
    "20b5": ("NVIDIA A100 80GB PCIe", "ampere"),
    "20b7": ("NVIDIA A30", "ampere"),
    "20bd": ("NVIDIA A800-SXM4-40GB", "ampere"),
    "20f1": ("NVIDIA A100-PCIE-40GB", "ampere"),
    "20f3": ("NVIDIA A800-SXM4-80GB", "ampere"),
    "20f5": ("NVIDIA A800 80GB PCIe", "ampere"),
    "2203": ("NVIDIA GeForce RTX 3090 Ti", "ampere"),
    "2204": ("NVIDIA GeForce RTX 3090", "ampere"),
    "2206": ("NVIDIA GeForce RTX 3080", "ampere"),
    "2230": ("NVIDIA RTX A6000", "ampere"),
    "2231": ("NVIDIA RTX A5000", "ampere"),
    "2235": ("NVIDIA A40", "ampere"),
    "2236": ("NVIDIA A10", "ampere"),
    "2237": ("NVIDIA A10G", "ampere"),
    "25b6": ("NVIDIA A2", "ampere"),
    "2321": ("NVIDIA H100 NVL", "hopper"),
    "2322": ("NVIDIA H800 PCIe", "hopper"),
    "2324": ("NVIDIA H800", "hopper"),
    "2329": ("NVIDIA H20", "hopper"),
    "232c": ("NVIDIA H20-3e", "hopper"),
    "2330": ("NVIDIA H100 80GB HBM3", "hopper"),
    "2331": ("NVIDIA H100 PCIe", "hopper"),
    "2335": ("NVIDIA H200", "hopper"),
    "2339": ("NVIDIA H100", "hopper"),
    "233a": ("NVIDIA H800 NVL", "hopper"),
    "233b": ("NVIDIA H200 NVL", "hopper"),
    "2342": ("NVIDIA GH200 480GB", "hopper"),
    "2684": ("NVIDIA GeForce RTX 4090", "ada"),
    "2704": ("NVIDIA GeForce RTX 4080", "ada"),
    "26b1": ("NVIDIA RTX 6000 Ada Generation", "ada"),
    "26b5": ("NVIDIA L40", "ada"),
    "26b9": ("NVIDIA L40S", "ada"),
    "26ba": ("NVIDIA L20", "ada"),
    "27b6": ("NVIDIA L2", "ada"),
    "27b8": ("NVIDIA L4", "ada"),
    "2901": ("NVIDIA B200", "blackwell"),
    "2941": ("NVIDIA GB200", "blackwell"),
    "2b85": ("NVIDIA GeForce RTX 5090", "blackwell"),
    "2bb5": ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "blackwell"),
    "3182": ("NVIDIA B300 SXM6 AC", "blackwell"),
    "31c2": ("NVIDIA GB300", "blackwell"),
}

#: Words in the names of products that are made for desktops: NVIDIA gives them no GPUDirect RDMA.
CONSUMER = ("GeForce", "TITAN", "Titan")

#: First ids of generations. The lowest that the open modules drive is 1e02; every one below it is older than Turing,
#: and that is what counts of an id that the table does not name.
OLDER = (
    (0x1E00, ""),
    (0x1D80, "volta"),
    (0x1B00, "pascal"),
    (0x1600, "maxwell"),
    (0x15F0, "pascal"),
    (0x1340, "maxwell"),
)


def older(device):
    """Return the architecture of a device id that is not in the table, empty unless it is older than Turing."""
    number = int(device, 16) if re.match(r"[0-9a-f]{4}$", device) else 0xFFFF
    return next((architecture for first, architecture in OLDER if number >= first), "kepler")


#: The same device id on another board: (device, subsystem device) -> product.
BOARDS = {
    ("20b0", "1450"): "NVIDIA A100-PG509-200",
    ("20b2", "1625"): "NVIDIA PG509-210",
    ("20f5", "179a"): "NVIDIA A800 80GB PCIe LC",
    ("2342", "16eb"): "NVIDIA GH200 120GB",
    ("2342", "1805"): "NVIDIA GH200 120GB",
    ("25b6", "14a9"): "NVIDIA A16",
}

#: A processor of NVIDIA's own on the same module: only the open modules drive these, whatever the architecture says.
GRACE = ("2342", "2941", "31c2")

#: Blackwell boards whose NVSwitches are not on the bus: they are managed through ConnectX-7 bridges, whose vital
#: product data says so.
HIDDEN_NVSWITCH = ("2901", "3182")

#: Device id of vendor 15b3 -> product.
ADAPTERS = {
    "1013": "ConnectX-4",
    "1015": "ConnectX-4 Lx",
    "1017": "ConnectX-5",
    "1019": "ConnectX-5 Ex",
    "101b": "ConnectX-6",
    "101d": "ConnectX-6 Dx",
    "101f": "ConnectX-6 Lx",
    "1021": "ConnectX-7",
    "1023": "ConnectX-8",
    "a2d6": "BlueField-2",
    "a2dc": "BlueField-3",
}
