"""What stands in Slurm's files, as data for templates. Pure: a function of the declared cluster and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from provision import hostlist
from provision.errors import ClusterctlError
from provision.model.cluster import Cluster, Hardware, Partition
from provision.slurm.gres import gres_values
from provision.slurm.names import LINES, SRUN_PORTS
from provision.slurm.shares import partition_defaults

#: ``NodeName`` lines carry these of a node's hardware, in this order and under these names: slurm.conf(5).
_NODE_KEYS = (
    ("CPUs", "cpus"),
    ("CoresPerSocket", "cores_per_socket"),
    ("ThreadsPerCore", "threads_per_core"),
    ("RealMemory", "real_memory"),
    ("MemSpecLimit", "mem_spec_limit"),
    ("TmpDisk", "tmp_disk"),
    ("Gres", "gres"),
    ("Feature", "features"),
    ("Weight", "weight"),
)
#: Where slurmd keeps what it fetches; a Prolog or Epilog without a directory is fetched with slurm.conf.
_FETCHED = "/run/slurm/conf"
#: Ours among them.
PROGRAMS = ("job_begin", "job_end", "job_task")
_OF_THE_SITE = "set by slurm_conf_parameters"
#: Without these a job takes what it did not ask for: cgroup.conf(5).
_CONFINES = ("ConstrainCores", "ConstrainDevices", "ConstrainRAMSpace")


class Parameter(NamedTuple):
    """One line ``name=value``, and the reason why it differs from Slurm's default."""

    name: str
    value: str
    reason: str


def slurm_values(cluster: Cluster) -> dict[str, Any]:
    """Return what the templates print: plain lists and mappings.

    ``parameters`` and ``cgroup`` are lists of ``{name, value, reason}``; ``nodes`` and ``partitions`` are lists of
    mappings, each of them one line, with its keys in the order of printing; ``gres`` is a list of ``{reason, lines}``
    with such lines. Nodes with the same hardware share one line. ``files`` are texts of further files by name,
    ``programs`` the names of those of ours that slurm.conf names, ``environment`` lines of job_task,
    ``containers`` what runs those of jobs, ``plugstack`` its further lines,
    ``shared_tmp`` the last line of job_container.conf.

    Raises:
        ClusterctlError: a node's hardware is not declared and has not been discovered, or a node has cgroup v1 and the
            site does not allow it.
    """
    require_confinement(cluster)
    if missing := cluster.undeclared:
        variables = sorted({name for names in missing.values() for name in names})
        raise ClusterctlError(
            f"{hostlist.fold(missing)}: {' and '.join(variables)} not declared",
            fix="let clusterctl discover ask the machines, or declare the values under [slurm_compute:vars]",
        )
    kinds = [(hostlist.fold(names), hardware) for names, hardware in cluster.kinds(_in_slurm_conf)]
    lines = parameters(cluster)
    named = {parameter.value for parameter in lines if parameter.name in LINES}
    shared_tmp = _shared_tmp(cluster)
    return {
        "parameters": [parameter._asdict() for parameter in lines],
        "environment": [variable.line for variable in cluster.job_environment],
        "programs": [program for program in PROGRAMS if program in named],
        "nodes": [_node_line(nodes, hardware) for nodes, hardware in kinds],
        "partitions": [_partition_line(cluster, partition) for partition in cluster.partitions],
        "gres": gres_values(cluster, kinds),
        "cgroup": [parameter._asdict() for parameter in _confinement(cluster)],
        "containers": cluster.container_runtime,
        "plugstack": cluster.slurm_files.get("plugstack.conf", "").strip(),
        "shared_tmp": shared_tmp,
        "files": {
            name: f"{text.rstrip()}\n{shared_tmp}\n" if name == "job_container.conf" and shared_tmp else text
            for name, text in cluster.slurm_files.items()
            if name != "plugstack.conf"
        },
    }


def parameters(cluster: Cluster) -> list[Parameter]:
    """Return the parameters of slurm.conf: ours, with the site's in their places."""
    return _merged(cluster.slurm_parameters, _parameters(cluster))


def require_confinement(cluster: Cluster) -> None:
    """Refuse nodes with cgroup v1, which the site has not allowed: one of them would take confinement from all others.

    Raises:
        ClusterctlError: it names the nodes, and both ways out.
    """
    if cluster.cgroup_v1 and not cluster.cgroup_v1_allowed:
        raise ClusterctlError(
            f"{hostlist.fold(cluster.cgroup_v1)}: node_cgroup_version is 1, and all nodes share one slurm.conf: no job "
            "on any node would be confined to its cores, memory and GPUs",
            fix="boot these nodes with cgroup v2 (kernel parameter systemd.unified_cgroup_hierarchy=1) and take "
            "node_cgroup_version out of their host_vars, or leave them out; or, to do without confinement on all "
            "nodes, set slurm_conf_cgroup_v1_allowed=true under [all:vars]",
        )


def unconfined(cluster: Cluster) -> str:
    """Return why jobs are not confined to what they asked for, empty where slurm.conf confines them."""
    if cluster.cgroup_v1:
        return f"{hostlist.fold(cluster.cgroup_v1)}: cgroup v1, which slurm_conf_cgroup_v1_allowed lets in"
    plugins = {parameter.name.lower(): parameter.value for parameter in parameters(cluster)}
    if "task/cgroup" not in plugins.get("taskplugin", "").split(","):
        return "slurm_conf_parameters leaves task/cgroup out of TaskPlugin"
    cgroup = {parameter.name.lower(): parameter.value.lower() for parameter in _confinement(cluster)}
    off = [name for name in _CONFINES if cgroup.get(name.lower(), "no") not in ("yes", "true", "1", "up")]
    return f"slurm_conf_cgroup_parameters leaves {' and '.join(off)} out" if off else ""


def _since(cluster: Cluster, release: str) -> bool:
    return cluster.slurm_version >= release  # Their texts compare like numbers.


def _in_slurm_conf(hardware: Hardware) -> Hardware:
    """Return the hardware without what does not stand on a NodeName line or in gres.conf."""
    without = {"cgroup_version": None, "private_tmp": None}
    # It decides how gres.conf names a node's GPUs where nothing else does.
    return hardware.model_copy(update=without if hardware.gpu_affinity == "numa" else without | {"gpu_affinity": None})


def _shared_tmp(cluster: Cluster) -> str:
    """Return the line of job_container.conf for nodes whose jobs share /tmp. The last line that names a node counts."""
    nodes = [node.name for node in cluster.nodes if node.hardware.private_tmp is False]
    return f"NodeName={hostlist.fold(nodes)} BasePath=none" if nodes else ""


def _parameters(cluster: Cluster) -> Iterable[Parameter]:
    gres = sorted({item.name for node in cluster.nodes for item in node.hardware.gres or ()})
    old = bool(cluster.cgroup_v1)
    yield Parameter("ClusterName", cluster.name, "cluster_name; slurmctld refuses the saved state of another name")
    yield Parameter("SlurmctldHost", cluster.controller, "the host in the inventory's group slurm_controller")
    yield Parameter("SlurmctldParameters", "enable_configless", "nodes fetch this file; there is no copy to go stale")
    yield Parameter("SlurmUser", "slurm", "the controller needs no root; Slurm's default is root")
    yield Parameter(
        "StateSaveLocation", "/var/spool/slurmctld", "on the machine's disk, so that jobs outlive containers"
    )
    yield Parameter("SlurmctldPidFile", "/var/spool/slurmctld/slurmctld.pid", "where SlurmUser may write, unlike /run")
    yield Parameter("SlurmdSpoolDir", "/var/spool/slurmd", "the default, written out because a mount relies on it")
    yield Parameter("SelectType", "select/cons_tres", "schedules GPUs; written out because changing it loses all jobs")
    yield Parameter("SelectTypeParameters", "CR_Core_Memory", "without memory in it, limits on memory do nothing")
    if gres:
        yield Parameter("GresTypes", ",".join(gres), "the generic resources that nodes have, as node_gres says")
    if old:
        yield Parameter("ProctrackType", "proctrack/linuxproc", "a node has cgroup v1: unusable from a container")
        yield Parameter("TaskPlugin", "task/affinity", "binds to cores; a node has cgroup v1, so nothing is confined")
    else:
        yield Parameter("ProctrackType", "proctrack/cgroup", "no process escapes; the default depends on Slurm's build")
        yield Parameter("TaskPlugin", "task/cgroup,task/affinity", "a job gets its own cores, memory and GPUs only")
        yield from _own_directories(cluster)
    yield Parameter(
        "PrologFlags", "Contain", "a step that keeps the job's own directories and limits until the job ends"
    )
    gather = "linux" if old else "cgroup"
    yield Parameter("JobAcctGatherType", f"jobacct_gather/{gather}", "what a job uses is measured, for sstat and sacct")
    if old:
        yield Parameter(
            "JobAcctGatherFrequency", "task=5", "steps shorter than the interval are recorded as having used nothing"
        )
    yield Parameter("PropagateResourceLimits", "NONE", "a job has the node's limits, not those where it was submitted")
    yield Parameter("GroupUpdateTime", "60", "jobs see changed group memberships after one minute, not ten")
    yield Parameter("ReturnToService", "1", "a node returns when it answers again, unless someone has set it DOWN")
    yield Parameter("EnforcePartLimits", "ALL", "a job that can never start is refused instead of waiting forever")
    yield Parameter(
        "ScronParameters", "enable", "users may run jobs periodically with scrontab; Slurm's default refuses it"
    )
    yield Parameter("UnkillableStepTimeout", _unkillable(cluster), "a GPU driver may take minutes to let a process die")
    yield Parameter("BatchStartTimeout", "60", "a node's Prolog and its users' directory may take longer than 10 s")
    yield Parameter("ResumeTimeout", "1800", "scontrol reboot: a server with many GPUs takes long to start")
    yield Parameter("SrunPortRange", SRUN_PORTS, "srun is called back on these ports, which a firewall can allow")
    yield from _programs(cluster)
    yield from _accounting(cluster)
    if _since(cluster, "25.11"):
        yield Parameter(
            "CommunicationParameters", "disable_http", "otherwise the daemons answer HTTP requests from anyone"
        )


def _programs(cluster: Cluster) -> Iterable[Parameter]:
    """Yield our programs for jobs, which nodes fetch with this file.

    Were they in the image, a node that is told of a new one before it has a new image would lose jobs.
    """
    yield Parameter("Prolog", "job_begin", "shows a job's user the images that all users of the node share")
    yield Parameter("Epilog", "job_end", "ends what left the job's process tree, as Podman's helpers do")
    if _since(cluster, LINES["Prolog"]):
        yield Parameter("Prolog", "job_task", "for nodes to fetch it; it does nothing before a task begins")
        yield Parameter("TaskProlog", f"{_FETCHED}/job_task", "sets JOB_SCRATCH, and copies STAGE_IN there")


def _unkillable(cluster: Cluster) -> str:
    """Return five minutes in seconds, or five times the site's MessageTimeout: below that nodes would go down."""
    given = (str(value) for name, value in cluster.slurm_parameters.items() if name.lower() == "messagetimeout")
    message = next(given, "")
    return str(min(65535, max(300, 5 * int(message)))) if message.isdecimal() else "300"


def _own_directories(cluster: Cluster) -> Iterable[Parameter]:
    # Both are in slurm.conf(5) of 25.11; the old one is to go. What the site says of either is said of both.
    if {"jobcontainertype", "namespacetype"} & {name.lower() for name in cluster.slurm_parameters}:
        return
    name, value = "JobContainerType", "job_container/tmpfs"
    if _since(cluster, "25.11"):
        name, value = "NamespaceType", "namespace/tmpfs"
    yield Parameter(name, value, "a job's /tmp, /var/tmp and /dev/shm are its own: job_container.conf")


def _accounting(cluster: Cluster) -> Iterable[Parameter]:
    """Yield what accounting needs; slurmctld ends where it is to count GPUs without a database."""
    if not cluster.database:
        return
    yield Parameter("AccountingStorageType", "accounting_storage/slurmdbd", "records what jobs use")
    yield Parameter("AccountingStorageHost", cluster.database, "the host in the inventory's group slurm_database")
    if counted := counted_gres(cluster):
        yield Parameter("AccountingStorageTRES", ",".join(counted), "counted and limited beside cores and memory")
    if cluster.enforced:
        yield Parameter(
            "AccountingStorageEnforce",
            "associations,limits,qos,safe",
            "slurm_accounts: users without an account cannot submit; a job needs enough minutes left in its account",
        )
        yield Parameter(
            "PriorityType", "priority/multifactor", "slurm_accounts: users who have used less of their share come first"
        )
        yield Parameter("PriorityWeightFairshare", "10000", "what an account has used against its share; default is 0")
        yield Parameter("PriorityWeightQOS", "10000", "the highest priority of a QOS weighs as much; the default is 0")
        yield Parameter("PriorityWeightAge", "1000", "between equals, the job that has waited longer")


def counted_gres(cluster: Cluster) -> list[str]:
    """Return the generic resources of all nodes as accounting names them, each by itself and with its type."""
    found = {(item.name, item.type or "") for node in cluster.nodes for item in node.hardware.gres or ()}
    names = found | {(name, "") for name, _ in found}
    return [f"gres/{name}:{kind}" if kind else f"gres/{name}" for name, kind in sorted(names)]


def _merged(
    declared: Mapping[str, str | tuple[str, ...] | None], ours: Iterable[Parameter], of_the_site: str = _OF_THE_SITE
) -> list[Parameter]:
    """Return our parameters with the site's put in their places, and the site's others after them.

    Of those with a line for each value, the site's follow ours.
    """
    site = {name.lower(): (name, value) for name, value in declared.items()}
    result = []
    of_ours = list(ours)
    last = {parameter.name: place for place, parameter in enumerate(of_ours)}
    for place, parameter in enumerate(of_ours):
        if parameter.name.lower() not in site:
            result.append(parameter)
            continue
        _, value = site[parameter.name.lower()]
        if parameter.name == "SlurmctldParameters" and "enable_configless" not in str(value or "").split(","):
            # Without it no node gets a configuration, so it is not the site's to lose.
            value = ",".join(filter(None, ["enable_configless", str(value or "")]))
        if isinstance(value, tuple):
            result.append(parameter)
        if place == last[parameter.name]:
            result += _lines(parameter.name, value, of_the_site)
            del site[parameter.name.lower()]
    return result + [line for name, value in site.values() for line in _lines(name, value, of_the_site)]


def _lines(name: str, value: str | tuple[str, ...] | None, reason: str) -> list[Parameter]:
    values = value if isinstance(value, tuple) else () if value is None else (value,)
    return [Parameter(name, text, reason) for text in values]


def _node_line(nodes: str, hardware: Hardware) -> dict[str, str]:
    line = {"NodeName": nodes}
    for key, field in _NODE_KEYS:
        value = getattr(hardware, field)
        if key == "CoresPerSocket":
            line.update(_sockets(hardware))
        if value is not None and value != ():
            line[key] = ",".join(str(gres) for gres in value) if isinstance(value, tuple) else str(value)
    return line | dict(hardware.parameters)


def _sockets(hardware: Hardware) -> dict[str, str]:
    """Return the sockets in the one of Slurm's two ways that fits: a node with several boards counts per board."""
    if hardware.sockets is None:
        return {}
    if hardware.boards and hardware.boards > 1:
        return {"Boards": str(hardware.boards), "SocketsPerBoard": str(hardware.sockets // hardware.boards)}
    return {"Sockets": str(hardware.sockets)}


def _partition_line(cluster: Cluster, partition: Partition) -> dict[str, str]:
    nodes = "ALL" if partition.nodes is None else hostlist.fold(partition.nodes)
    line = {"PartitionName": partition.name, "Nodes": nodes, **dict(partition.parameters)}
    return line | partition_defaults(cluster, partition)


def _confinement(cluster: Cluster) -> list[Parameter]:
    """Return the parameters of cgroup.conf."""
    return _merged(cluster.cgroup_parameters, _cgroup(cluster), "set by slurm_conf_cgroup_parameters")


def _cgroup(cluster: Cluster) -> Iterable[Parameter]:
    if cluster.cgroup_v1:
        # The word is in cgroup.conf(5) of 24.05; before it, a Slurm whose plugins use no cgroups leaves them alone.
        if _since(cluster, "24.05"):
            yield Parameter("CgroupPlugin", "disabled", "a node has cgroup v1: slurmd in a container cannot manage it")
        return
    yield Parameter("IgnoreSystemd", "yes", "slurmd runs in a container, where there is no systemd to ask for a scope")
    yield Parameter("ConstrainCores", "yes", "a job runs on its own cores only; the default confines nothing")
    yield Parameter("ConstrainDevices", "yes", "a job sees its own GPUs only")
    yield Parameter("ConstrainRAMSpace", "yes", "a job that takes more memory than it asked for fails alone")
    yield Parameter("ConstrainSwapSpace", "yes", "and does not make the machine swap instead")
