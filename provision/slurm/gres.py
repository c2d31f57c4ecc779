"""What stands in gres.conf: how slurmd learns of each node's GPUs, and why in that way. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from provision import hostlist
from provision.errors import ClusterctlError
from provision.model.cluster import Cluster, Hardware
from provision.model.gres import Gres
from provision.nvidia import mig

#: The first release that knows AutoDetect=nvidia: gres.conf(5).
_NVIDIA_SINCE = "24.11"
#: The first that wants a GPU's cores to be whole sockets, and the first that wants one socket or all:
#: _check_core_range_matches_sock() in src/interfaces/gres.c.
_WHOLE_SOCKETS_SINCE, _ONE_SOCKET_SINCE = "24.11", "25.11"
_BY_CACHE = "l3cache_as_socket"
_DRAINS = "a GPU is near a part of a socket's cores, and Slurm drains a node of which AutoDetect finds that"

_BY_HAND = "slurm_conf_gpu_detection says so"


def gres_values(cluster: Cluster, kinds: Sequence[tuple[str, Hardware]]) -> list[dict[str, Any]]:
    """Return gres.conf as a list of ``{reason, lines}``; a line is a mapping in the order of printing.

    ``kinds`` are the hostlists of nodes with the same hardware. A reason that is the one before is empty.

    Raises:
        ClusterctlError: MIG instances are declared whose numbers are not, yet.
    """
    blocks, said = [], ""
    site = _site(cluster)
    for nodes, hardware in kinds:
        how, reason = detection(site, hardware)
        lines = list(_lines(nodes, hardware, how))
        if lines:
            blocks.append({"reason": "" if reason == said else reason, "lines": lines})
            said = reason
    return blocks


class Site(NamedTuple):
    """What of a whole site decides how GPUs are detected; ``slurmd`` are the words of SlurmdParameters."""

    wanted: str
    version: str
    slurmd: frozenset[str]
    simulated: bool

    @property
    def regroups(self) -> bool:
        """True where Slurm's sockets are no sockets: a GPU's NUMA node is made of whole ones."""
        return bool(self.slurmd & {_BY_CACHE, "numa_node_as_socket"})

    @property
    def takes_parts(self) -> bool:
        """True where a GPU may be near a part of a socket's cores, and the node is not drained for it."""
        return self.regroups or self.version < _WHOLE_SOCKETS_SINCE


def site_of(wanted: object, version: object, slurmd_parameters: object, *, simulated: bool) -> Site:
    """Return the site of these values, as an inventory has them or leaves them out."""
    words = str(slurmd_parameters or "").lower().split(",")
    return Site(str(wanted or "auto").strip(), str(version), frozenset(word.strip() for word in words), simulated)


def require_gpus(cluster: Cluster) -> None:
    """Refuse GPUs that Slurm could not see in the way that the site asks for.

    Raises:
        ClusterctlError: it names the nodes, and the ways out.
    """
    site = _site(cluster)
    kinds = {id(node.hardware): node.hardware for node in cluster.nodes}
    for hardware in kinds.values():
        if any(gres.name == "gpu" for gres in hardware.gres or ()) and (wrong := _unseen(site, hardware)):
            variable, problem, fix = wrong
            nodes = hostlist.fold(node.name for node in cluster.nodes if node.hardware is hardware)
            raise ClusterctlError(f"{nodes}: {problem}", fix=fix, said=(variable, ""))


def _site(cluster: Cluster) -> Site:
    parameters = {name.lower(): value for name, value in cluster.slurm_parameters.items()}
    simulated = "gpu" in cluster.simulated
    return site_of(
        cluster.gpu_detection, cluster.slurm_version, parameters.get("slurmdparameters"), simulated=simulated
    )


def detection(site: Site, hardware: Hardware) -> tuple[str, str]:
    """Return ``files``, ``nvidia`` or ``nvml``, and the reason in a sentence.

    Slurm's own detection is the first choice: it follows the driver's numbering, and compares what is there with
    node_gres. It needs a driver that it can ask.
    """
    if not any(gres.name == "gpu" for gres in hardware.gres or ()):
        return "files", ""
    if site.wanted == "auto":
        return _chosen(site, hardware)
    told = {"files": "Device files", "nvidia": "Detected from the driver", "nvml": "Detected with NVIDIA's library"}
    return site.wanted, f"{told[site.wanted]}: {_BY_HAND}"


def _chosen(site: Site, hardware: Hardware) -> tuple[str, str]:
    if site.simulated:
        return "files", "Device files: these GPUs are simulated, so there is no driver that could be asked"
    if hardware.mig:
        return "files", "Device files: AutoDetect=nvidia does not see MIG instances, and nvml is not in every build"
    if hardware.gres_files:
        return "files", "Device files: node_gres_files names them"
    if site.version < _NVIDIA_SINCE:
        return "files", f"Device files: Slurm before {_NVIDIA_SINCE} detects GPUs only with NVIDIA's library built in"
    if hardware.gpu_affinity == "numa" and not site.takes_parts:
        return "files", f"Device files: {_DRAINS}"
    if _BY_CACHE in site.slurmd and site.version >= _ONE_SOCKET_SINCE:
        return "files", f"Device files: with {_BY_CACHE} a GPU may be near several of Slurm's sockets, which wants one"
    return "nvidia", "Detected from the driver, which needs no library; slurmd compares it with Gres= in slurm.conf"


def _unseen(site: Site, hardware: Hardware) -> tuple[str, str, str] | None:
    """Return why Slurm would not see these GPUs: the variable, the problem, and the ways out."""
    problem, fix = "", "leave slurm_conf_gpu_detection out"
    if site.wanted in ("nvidia", "nvml"):
        if site.simulated:
            problem = "simulated GPUs are device files without a driver"
        elif site.wanted == "nvidia" and site.version < _NVIDIA_SINCE:
            problem = f"Slurm {site.version} does not know it; {_NVIDIA_SINCE} is the first that does"
        elif site.wanted == "nvidia" and hardware.mig:
            problem = "it does not see MIG instances"
        elif hardware.gpu_affinity == "numa" and not site.takes_parts:
            problem = f"node_gpu_affinity is numa: {_DRAINS}"
            fix += ", or set SlurmdParameters=numa_node_as_socket in slurm_conf_parameters"
    if problem:
        return "slurm_conf_gpu_detection", f"slurm_conf_gpu_detection is {site.wanted}: {problem}", fix
    return None if site.wanted == "nvml" else _unmade(hardware)


def _unmade(hardware: Hardware) -> tuple[str, str, str] | None:
    """Return what is wrong with a type that means MIG instances which nobody makes."""
    made = [profile for profiles in mig.layout(hardware.mig or ()).values() for profile in profiles]
    for kind in (gres.type for gres in hardware.gres or () if gres.name == "gpu" and gres.type):
        if (profile := mig.profile_in(kind)) and not any(mig.of_type(kind, one) for one in made):
            return (
                "node_gres",
                f"node_gres has {kind}, and node_mig makes no instance of {profile}: Slurm would find none",
                f"write node_mig, as 0:{profile}*2; where the instances are made by others, and Slurm has NVIDIA's "
                "library built in: slurm_conf_gpu_detection=nvml",
            )
    return None


def _lines(nodes: str, hardware: Hardware, how: str) -> Iterable[dict[str, str]]:
    gres = hardware.gres or ()
    if how != "files":
        yield {"NodeName": nodes, "AutoDetect": how}
        # What has no device is counted; GPUs stand in slurm.conf, and the rest is detected.
        gres = tuple(item for item in gres if item.name != "gpu")
    elif hardware.mig:
        yield from _mig_lines(nodes, hardware)
        gres = tuple(item for item in gres if item.name != "gpu")
    files = hostlist.expand(hardware.gres_files) if hardware.gres_files and how == "files" else _usual_files(gres)
    used = 0
    for item in gres:
        line = _begin(nodes, item)
        if (hardware.gres_files and how == "files") or item.name == "gpu":
            line["File"] = hostlist.fold(files[used : used + item.count])
            used += item.count
        else:
            line["Count"] = str(item.count)
        yield line


def _begin(nodes: str, gres: Gres) -> dict[str, str]:
    return {"NodeName": nodes, "Name": gres.name, **({"Type": gres.type} if gres.type else {})}


def _usual_files(gres: Iterable[Gres]) -> list[str]:
    """Return the device files that NVIDIA's driver makes for a node's GPUs: numbered from 0, without gaps."""
    return [f"/dev/nvidia{number}" for number in range(sum(item.count for item in gres if item.name == "gpu"))]


def _mig_lines(nodes: str, hardware: Hardware) -> Iterable[dict[str, str]]:
    """Return a line for each MIG instance, and one for the GPUs that stay whole."""
    if not hardware.mig_devices:
        raise ClusterctlError(
            f"{nodes}: node_mig is declared and node_mig_devices is not, so gres.conf cannot name the instances' files",
            fix="run 'clusterctl provision', which makes the instances and records node_mig_devices beside the "
            "inventory; or, with a Slurm that has NVIDIA's library built in, set slurm_conf_gpu_detection=nvml",
        )
    instances = mig.devices(hardware.mig_devices)
    divided = {instance.gpu for instance in instances}
    whole = iter(number for number in range(100) if number not in divided)
    for item in (gres for gres in hardware.gres or () if gres.name == "gpu"):
        mine = [instance for instance in instances if item.type and mig.of_type(item.type, instance.profile)]
        for instance in mine:
            yield {**_begin(nodes, item), "MultipleFiles": instance.files}
        if not mine:
            files = [f"/dev/nvidia{next(whole)}" for _ in range(item.count)]
            yield {**_begin(nodes, item), "File": hostlist.fold(files)}
