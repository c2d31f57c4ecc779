#!/usr/bin/python3 -I
"""docker compose: podman-compose, which calls docker where it would call Podman, and reserves GPUs as Docker does.

podman-compose passes over a reservation of GPUs that names no driver, and knows no "gpus" of a service.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any


def reserved(service: Mapping[str, Any], words: list[str]) -> None:
    """Add to a container's options the GPUs that its service reserves."""
    whole = service.get("gpus") or []
    devices = service.get("deploy", {}).get("resources", {}).get("reservations", {}).get("devices", [])
    of_gpus = [device for device in devices if "gpu" in device.get("capabilities", [])]
    for device in [{"count": whole}] if isinstance(whole, str) else [*whole, *of_gpus]:
        if device.get("driver") in (None, "", "nvidia"):
            numbers = ",".join(map(str, device.get("device_ids", [])))
            words.append(f"--gpus=device={numbers}" if numbers else f"--gpus={device.get('count', 'all')}")


if __name__ == "__main__":
    import podman_compose

    podman_compose.container_to_gpu_res_args = reserved
    sys.argv = ["docker compose", "--in-pod=0", "--podman-path=/usr/local/bin/docker", *sys.argv[1:]]
    podman_compose.main()
