"""What is known of the driver's branches and of CUDA's releases: one table for all who ask. Pure.

Sources: NVIDIA's data-centre driver lifecycle, CUDA's release notes (tables 2 and 3), the README of NVIDIA's open
kernel modules.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from provision.model.versions import Version as Version
from provision.model.versions import version as version

#: Of the branches that can be asked for, those that NVIDIA still maintains, and when the others ended.
SUPPORTED = (580, 595)
ENDED = {535: "June 2026", 570: "February 2026", 610: "August 2026"}

#: First branches: with nvidia-peermem, with open modules, of Blackwell; and without all that is older than Turing.
PEERMEM, OPEN, BLACKWELL, NO_VOLTA = 470, 515, 570, 590

#: The oldest driver that can run a major version of CUDA at all ("minor-version compatibility").
OLDEST_DRIVER: Mapping[int, Version] = {13: (580,), 12: (525, 60, 13), 11: (450, 80, 2)}
#: The driver that each toolkit was released with, and needs for all of its features.
RELEASED_WITH: Mapping[str, str] = {
    **{"13.2": "595.45.04", "13.1": "590.44.01", "13.0": "580.65.06", "12.9": "575.51.03", "12.8": "570.26"},
    **{"12.6": "560.28.03", "12.5": "555.42.02", "12.4": "550.54.14", "12.3": "545.23.06", "12.2": "535.54.03"},
    **{"12.1": "530.30.02", "12.0": "525.60.13", "11.8": "520.61.05", "11.7": "515.43.04"},
}


#: The first PyTorch whose wheels on PyPI are for CUDA 13; those before are for 12.8 (their metadata, November 2026).
TORCH_FOR_CUDA_13 = "2.11"


def ended(branch: int) -> bool:
    """Tell whether NVIDIA does not maintain a branch any more."""
    return branch in ENDED or branch < min(SUPPORTED)


def max_cuda(branch: int) -> int:
    """Return the newest major release of CUDA whose programs run on a driver of this branch; 0 for none known."""
    return max((major for major, oldest in OLDEST_DRIVER.items() if branch >= oldest[0]), default=0)


def torch_for(branches: Collection[int]) -> str:
    """Return what pip is asked for where these branches of the driver are declared: what runs on the oldest."""
    return f"torch<{TORCH_FOR_CUDA_13}" if branches and max_cuda(min(branches)) < 13 else "torch"
