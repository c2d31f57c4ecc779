"""Variables that every job of a site has: what the inventory says of them, checked before a job is told it."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import Any

from provision.errors import ClusterctlError, did_you_mean
from provision.model.cluster import JobVariable
from provision.model.mounts import LOCAL, Mount, below
from provision.rdma.expected import unused_in
from provision.slurm.names import LINES

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
#: What Slurm or the node says to each job, and what would change programs of the system's before a job's own begin.
_TAKEN = re.compile(
    r"(?:SLURM|SLURMD|SPANK|PMI|PMIX|PYXIS|CLUSTERCTL|LD|SRUN|SBATCH|SALLOC)_.*|PATH|HOME|USER|LOGNAME|SHELL|PWD|OLDPWD"
    r"|IFS|ENV|BASH_ENV|BASH_FUNC.*|PS4|TMPDIR|CUDA_VISIBLE_DEVICES|ROCR_VISIBLE_DEVICES|GPU_DEVICE_ORDINAL|JOB_SCRATCH|JOB_TRAINING"
    r"|STAGE_IN|(?:LOCAL_|NODE_)?RANK|(?:LOCAL_)?WORLD_SIZE|MASTER_ADDR|MASTER_PORT"
)
#: Variables whose value is a directory, by custom.
_DIRECTORY = re.compile(r"\w+_(?:HOME|DIR|CACHE|CACHE_DIR)")
_LONGEST = 4096
#: What jobs see besides: the image's system, toolkits, and the node's own directories.
_OF_THE_NODE = ("/usr", "/etc", "/tmp", "/var/tmp", "/dev/shm", "/run")  # noqa: S108 - named, not used

_OFFLINE = ("wheels", "models", "datasets")
#: What Hugging Face's libraries write, below HF_HOME where nothing is said: huggingface_hub's and datasets' references.
_OF_THE_USER = {
    "HF_TOKEN_PATH": "token",
    "HF_STORED_TOKENS_PATH": "stored_tokens",
    "HF_ASSETS_CACHE": "assets",
    "HF_XET_CACHE": "xet",
    "HF_MODULES_CACHE": "modules",
    "HF_DATASETS_CACHE": "datasets",
}


def environment_from(
    own: Any, offline: Any, mounts: Sequence[Mount], hostvars: Mapping[str, Mapping[str, Any]]
) -> tuple[JobVariable, ...]:
    """Return the variables of all jobs: those of ``job_offline``, and over them those of ``job_environment``.

    Raises:
        ClusterctlError: a name is Slurm's or nobody's, a value cannot be one, or a directory is not seen by jobs.
    """
    variables = {variable.name: variable for variable in _offline(offline, mounts, hostvars)}
    for name, value in (own or {}).items():
        variables[str(name)] = _variable(str(name), value, mounts, hostvars)
    if "PIP_INDEX_URL" in variables:
        # Of both, pip would believe that there is no index.
        variables.pop("PIP_NO_INDEX", None)
    return tuple(variables.values())


def require_task_prolog(
    variables: Sequence[JobVariable], parameters: Mapping[str, str | Sequence[str] | None], release: str
) -> None:
    """Refuse variables of jobs where nothing tells them: Slurm is too old, or the site does without our TaskProlog.

    Raises:
        ClusterctlError: it says which of the two.
    """
    if not variables:
        return
    if release < LINES["Prolog"]:
        raise _refusal(
            "job_environment",
            f"needs Slurm {LINES['Prolog']}, which fetches what tells them to jobs",
            "raise slurm_version",
        )
    if any(name.lower() == "taskprolog" and not value for name, value in parameters.items()):
        problem = "is told to jobs by the TaskProlog that slurm_conf_parameters removes"
        raise _refusal("job_environment", problem, "take 'TaskProlog: null' out; the site's own runs after ours")


def adapters_of_jobs(variables: Sequence[JobVariable], nodes: Sequence[Mapping[str, Any]]) -> tuple[JobVariable, ...]:
    """Return the variables with NCCL_IB_HCA, which leaves out what ``node_rdma_unused`` names alike on all nodes.

    A variable of all jobs cannot say what differs between nodes, and what the site says itself stays.
    """
    unused = {unused_in(variables.get("node_rdma_unused")) for variables in nodes}
    names = unused.pop() if len(unused) == 1 else ()
    if not names or any(variable.name == "NCCL_IB_HCA" for variable in variables):
        return tuple(variables)
    return (*variables, JobVariable(name="NCCL_IB_HCA", value=f"^={','.join(names)}"))


def _refusal(name: str, problem: str, fix: str, key: str = "") -> ClusterctlError:
    problem = f"{name}: {problem}" if key else f"{name} {problem}"
    return ClusterctlError(problem, fix=fix, entry=(name.partition(":")[0], None, key))


def _variable(name: str, value: Any, mounts: Sequence[Mount], hostvars: Mapping[str, Mapping[str, Any]]) -> JobVariable:
    if not _NAME.fullmatch(name):
        raise _refusal(
            "job_environment", f"{name[:80]!r} is no variable's name", "use letters, digits and _, as HF_HOME", name
        )
    if _TAKEN.fullmatch(name):
        raise _refusal(
            "job_environment",
            f"{name} is Slurm's or the node's to say, or changes programs of the system's",
            "take it out; a user sets it in the job's script",
            name,
        )
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise _refusal("job_environment", f"{name} is {value!r}: it must be a text", "put it in quotes", name)
    text = str(value)
    if not text.isprintable() or len(text) > _LONGEST:
        raise _refusal(
            "job_environment", f"{name} must be one line of {_LONGEST} characters at most", "shorten it", name
        )
    shown = _shown(mounts, hostvars)
    if _DIRECTORY.fullmatch(name) and not text.startswith("~/"):
        own = [*_OF_THE_NODE, *(mount.path for mount in mounts)]
        _require_seen(f"job_environment: {name}", name, text, [*shown, *own])
    # Containers have the system of their image, and the site's files where these are on every node.
    return JobVariable(name=name, value=text, directory=_is_path(text) and any(below(text, one) for one in shown))


def _offline(value: Any, mounts: Sequence[Mount], hostvars: Mapping[str, Mapping[str, Any]]) -> list[JobVariable]:
    if value is None:
        return []
    for key, path in value.items():
        if key not in _OFFLINE:
            fix = did_you_mean(str(key), _OFFLINE, f"it knows {', '.join(_OFFLINE)}; others: job_environment")
            raise _refusal("job_offline", f"there is no {key}", fix, str(key))
        # A directory of each node's own disk holds what that node's jobs have written, and nothing of the site's.
        _require_seen(f"job_offline: {key}", str(key), path, _shown(mounts, hostvars))
    found = []
    if wheels := value.get("wheels"):
        # Who names an index of their own means it.
        found += [
            JobVariable(name="PIP_NO_INDEX", value="1", unless="PIP_INDEX_URL"),
            JobVariable(name="PIP_FIND_LINKS", value=wheels, directory=True),
        ]
    if value.get("models") or value.get("datasets"):
        found += [
            JobVariable(name=name, value="1")
            for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE")
        ]
    if models := value.get("models"):
        found.append(JobVariable(name="HF_HOME", value=models, directory=True))
        # What is written goes to the user's own place: the site's is read by all, and often read-only.
        found += [
            JobVariable(name=name, value=f"~/.cache/huggingface/{place}", unless="HF_HOME")
            for name, place in _OF_THE_USER.items()
        ]
    if datasets := value.get("datasets"):
        found = [variable for variable in found if variable.name != "HF_DATASETS_CACHE"]
        found.append(JobVariable(name="HF_DATASETS_CACHE", value=datasets, unless="HF_HOME", directory=True))
    return found


def _shown(mounts: Sequence[Mount], hostvars: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the directories that are the same for jobs on every node."""
    seen = ["/home", "/opt", *(mount.path for mount in mounts if mount.fstype != LOCAL)]
    for variables in hostvars.values():
        for shown in ("slurm_service_job_directories", "slurm_service_read_only_directories"):
            given = variables.get(shown) or []
            seen += [str(one).strip() for one in (given.split(",") if isinstance(given, str) else given)]
    return seen


def _is_path(value: Any) -> bool:
    plain = isinstance(value, str) and re.fullmatch(r"/[A-Za-z0-9._+@/-]{1,254}", value)
    return bool(plain) and posixpath.normpath(value) == value


def _require_seen(where: str, name: str, path: Any, seen: Sequence[str]) -> None:
    """Refuse what is no directory's path, or one that jobs do not see."""
    if not _is_path(path):
        raise _refusal(
            where, f"is {path!r}: it must be an absolute path, written plainly: letters, digits and . _ + @ -",
            "write it as /data/models", name,
        )  # fmt: skip
    if not any(below(path, one) for one in seen):
        raise _refusal(
            where,
            f"is {path}, which no job sees",
            "name a directory below one of cluster_mounts, or add it to slurm_service_read_only_directories",
            name,
        )
