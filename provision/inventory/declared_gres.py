"""What the inventory says about GPUs and their device files, checked before it may stand in gres.conf."""

from __future__ import annotations

import difflib
import re
from typing import Any, Literal, get_args

from provision import hostlist
from provision.errors import ClusterctlError
from provision.model.cluster import Hardware
from provision.nvidia import mig

#: Resources that Slurm has a plugin for: src/plugins/gres.
_SLURMS = ("gpu", "mps", "nic", "shard")
#: Devices of other kinds: disks, terminals, memory, network.
_NO_GPU = re.compile(
    r"/dev/(sd|hd|vd|xvd|sr|nvme|loop|dm-|md|mapper/|disk/|tty|pts|console|null|zero|full|u?random|k?mem|port|fuse|net/|"
    r"infiniband/|nvidiactl|nvidia-|.*\.\.)"
)

Detection = Literal["auto", "files", "nvidia", "nvml"]


def detection_from(value: Any) -> Detection:
    """Return how slurmd is to learn of a node's GPUs.

    Raises:
        ClusterctlError: it is none of the known words.
    """
    for word in get_args(Detection):
        if value is None or str(value).strip() == word:
            found: Detection = word if value is not None else "auto"
            return found
    raise ClusterctlError(
        f"slurm_conf_gpu_detection is {value!r}: it must be {', '.join(get_args(Detection))}",
        fix="leave it out, which is auto: Slurm detects GPUs where it can, and is told their files elsewhere",
    )


def require_devices(where: str, hardware: Hardware) -> None:
    """Refuse device files and MIG layouts that do not add up to ``node_gres``, and names that nobody means.

    Raises:
        ClusterctlError: they contradict each other, or no GPU can be divided like that.
    """
    _require_names(where, hardware)
    if hardware.gres_files is not None:
        _require_files(where, hardware, hardware.gres_files)
    if hardware.mig is not None:
        _require_layout(where, hardware, hardware.mig)
    if hardware.mig_devices is not None:
        _require_instances(where, hardware)


def _require_names(where: str, hardware: Hardware) -> None:
    """Refuse what is almost one of Slurm's own resources: it would be counted, and no device be given.

    And one of Slurm's own that nobody is to use up: slurm.conf(5) knows no_consume for others alone.
    """
    names = {gres.name for gres in hardware.gres or ()}
    if (shares := sorted(names & {"mps", "shard"})) and "gpu" not in names:
        # "gres/mps requires that gres/gpu also be configured": src/plugins/gres.
        raise ClusterctlError(
            f"{where}: node_gres has {shares[0]} without a gpu that could be shared",
            fix=f"write node_gres=gpu:A40:4,{shares[0]}:400",
            said=("node_gres", ""),
        )
    for gres in hardware.gres or ():
        if gres.endless and gres.name in _SLURMS:
            raise ClusterctlError(
                f"{where}: node_gres has no_consume for {gres.name}, whose devices Slurm hands out one by one",
                fix=f"leave no_consume out, as {gres.model_copy(update={'endless': False})}; or share GPUs by shard",
                said=("node_gres", ""),
            )
        near = difflib.get_close_matches(gres.name.lower(), _SLURMS, n=1, cutoff=0.8)
        if near and gres.name not in _SLURMS and near[0][0] == gres.name[0].lower():
            raise ClusterctlError(
                f"{where}: node_gres names {gres.name!r}, of which Slurm knows no devices",
                fix=f"did you mean {near[0]}? Give a resource of your own a name that is less like it",
                said=("node_gres", ""),
            )


def _require_files(where: str, hardware: Hardware, files: str) -> None:
    if hardware.mig:
        raise ClusterctlError(
            f"{where}: node_gres_files and node_mig are both set, but an instance is more than one file",
            fix="leave node_gres_files out",
        )
    paths = list(hostlist.expand(files))
    named, wanted, used = len(paths), sum(gres.count for gres in hardware.gres or ()), 0
    for gres in hardware.gres or ():
        others = [path for path in paths[used : used + gres.count] if gres.name == "gpu" and _NO_GPU.match(path)]
        used += gres.count
        if others:
            raise ClusterctlError(
                f"{where}: node_gres_files names {others[0]}, which is no GPU",
                fix="name the GPUs' device files, as /dev/nvidia[0-3], or leave node_gres_files out",
                said=("node_gres_files", files),
            )
    if named != wanted:
        raise ClusterctlError(
            f"{where}: node_gres_files names {named} devices, node_gres counts {wanted}",
            fix="name one device file for each, as /dev/nvidia[0-3], or leave node_gres_files out",
        )


def _require_layout(where: str, hardware: Hardware, items: tuple[str, ...]) -> None:
    try:
        wanted = mig.layout(items)
    except ValueError as error:
        raise ClusterctlError(f"{where}: node_mig: {error}", fix="write it as node_mig=0-7:1g.10gb*7") from None
    profiles = [profile for instances in wanted.values() for profile in instances]
    if hardware.gres is None or not profiles:
        return
    gpus = [gres for gres in hardware.gres if gres.name == "gpu"]
    for profile in dict.fromkeys(profiles):
        counted = sum(gres.count for gres in gpus if gres.type and mig.of_type(gres.type, profile))
        if counted != profiles.count(profile):
            kind = profile.replace("+", ".")
            raise ClusterctlError(
                f"{where}: node_mig makes {profiles.count(profile)} instances of {profile}, node_gres counts {counted}",
                fix=f"write node_gres=gpu:{kind}:{profiles.count(profile)}; a type ends with the profile's name",
            )


def _require_instances(where: str, hardware: Hardware) -> None:
    try:
        there = mig.devices(hardware.mig_devices or ())
    except ValueError as error:
        raise ClusterctlError(
            f"{where}: node_mig_devices: {error}", fix="write what 'clusterctl verify' prints for mig.devices"
        ) from None
    if not mig.same(mig.layout(hardware.mig or ()), there):
        raise ClusterctlError(
            f"{where}: node_mig_devices names other instances than node_mig makes",
            fix="leave it out, run 'clusterctl provision gpu', and write what it prints",
        )
