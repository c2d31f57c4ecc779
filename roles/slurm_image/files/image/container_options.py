# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""What was asked for by pyxis's options, as Podman's, and what is refused of it."""

import os
import re

import node_places  # as docker has it
import site_environment

#: What Slurm's Prolog has made for each job.
OF_JOBS = "/run/clusterctl/jobs"
#: Of a mount's options those that Podman has, too.
FLAGS = re.compile(r"ro|rw|r?bind|r?(?:private|shared|slave|unbindable)|(?:no)?(?:dev|exec|suid)")

#: What to do where there is no such image.
KNOWN = "name one that the nodes have (srun podman images), or REGISTRY#IMAGE:TAG, or an archive as ./IMAGE.tar"


class ContainerError(Exception):
    """What cannot work, what to do (``fix``), and the exit code."""

    def __init__(self, problem, fix, code=125):
        super().__init__(problem)
        self.fix, self.code = fix, code


def is_yes(options, name):
    """Tell whether an option was chosen; pyxis's variables have several words for it."""
    return options.get(name, "no").lower() in ("yes", "y", "1", "true", "t", "on")


def require(options):
    """Refuse what containers here cannot be asked for."""
    if options.get("UNSHARE"):
        raise ContainerError(
            f"--container-unshare={options['UNSHARE'][:40]}: containers share the node's network and IPC",
            "leave it out",
        )
    path = options.get("SAVE")
    if path and (not path.endswith(".tar") or os.path.isdir(path)):
        raise ContainerError(
            f"--container-save={path[:200]}: it is written as an archive, not as a squashfs",
            "--container-save=./NAME.tar",
        )
    if path and not os.access(os.path.dirname(os.path.abspath(path)), os.W_OK | os.X_OK):
        raise ContainerError(f"--container-save={path[:200]}: you cannot write there", "name a directory of yours")


def named(options):
    """Return the container's name in the job's storage."""
    if "NAME" not in options:
        return f"step-{options['JOB']}.{options['STEP']}"
    name, _, flag = options["NAME"].partition(":")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", name):
        raise ContainerError(f"--container-name={name[:80]} is no name", "letters, digits, dots, - and _, 64 at most")
    if flag not in ("", "auto", "create", "exec"):
        raise ContainerError(f"--container-name={name}:{flag[:20]}: there is no such flag here", "auto, create or exec")
    # One that has no name is known by its step.
    return f"step-{name}" if re.fullmatch(r"\d+\.\d+", name) else f"job-{name}"


def reference(text):
    """Return Podman's name of an image that is given as pyxis has it: USER@REGISTRY#IMAGE:TAG, after enroot's words."""
    name = re.sub(r"^(?:docker|dockerd|podman)://", "", text)
    registry, separate, image = name.rpartition("#")
    # Podman finds the user's password by the registry.
    if separate:
        name = f"{registry.rpartition('@')[2]}/{image}"
    elif "@" in name and not re.search(r"@sha256:[0-9a-f]{64}$", name):
        name = name.rpartition("@")[2]
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,255}", name):
        raise ContainerError(f"--container-image={text[:80]!r} is no name of an image", KNOWN)
    return name


def mounts(text, environment):
    """Return Podman's options for SRC:DST[:FLAGS],... of pyxis, and the places that are mounted on."""
    words, places = [], []
    for one in text.split(","):
        source, _, rest = one.partition(":")
        target, has_flags, flags = rest.partition(":")
        target = target or source
        if not source or (":" in one and not rest.partition(":")[0]):
            raise ContainerError(
                f"--container-mounts: {one[:80]!r} is no mount",
                "SRC:DST[:FLAGS], with commas between them",
            )
        if not source.startswith(("/", ".")) and source != "tmpfs":
            raise ContainerError(f"--container-mounts: {source[:80]!r} is no path", "begin it with / or ./; or tmpfs")
        if not target.startswith(("/", ".")):
            raise ContainerError(f"--container-mounts: {target[:80]!r} is no place in the container", "begin it with /")
        place = node_places.plain(os.path.join("/", target))
        if "/" in (place, os.path.realpath(source)):
            raise ContainerError(
                f"--container-mounts: {source}:{place}: / is the whole of a machine",
                "name the directories that the job needs",
            )
        chosen = [flag for flag in flags.split("+") if flag and not flag.startswith("x-create=")] if has_flags else []
        if source == "tmpfs":
            words += ["--tmpfs", ":".join([place, ",".join(chosen)]).rstrip(":")]
        else:
            seen = visible(source, place, environment)
            words += ["--volume", ":".join([seen, place, *([",".join(chosen)] if chosen else [])])]
            if wrong := [flag for flag in chosen if not FLAGS.fullmatch(flag)]:
                raise ContainerError(
                    f"--container-mounts: {one[:80]}: no flag {wrong[0]!r} is known here",
                    "ro, rw, rprivate and such",
                )
        places.append(place)
    return words, places


def visible(source, place, environment):
    """Return a mount's source as a whole path; refuse one that could be of no use."""
    path = node_places.plain(source)
    if why := node_places.refused(path, environment):
        raise ContainerError(f"--container-mounts: {source}:{place}: {why[0]}", why[1])
    if not os.path.lexists(path):
        raise ContainerError(
            f"--container-mounts: {path} is not there",
            "make it, or mount what all nodes of the job have",
        )
    if not os.access(path, os.X_OK if os.path.isdir(path) else os.R_OK):
        raise ContainerError(f"--container-mounts: {path} is closed to you", "ask its owner, or take it out")
    return path


#: slurmd's own directory (SlurmdSpoolDir), where plugins keep what is a step's.
SPOOL = "/var/spool/slurmd"
#: Where the kernel has a node's RDMA adapters.
INFINIBAND = "/dev/infiniband"


def devices(environment, job=""):
    """Return Podman's options for the GPUs that Slurm granted the job on this node, and for RDMA.

    Tasks share their container, and each has its own GPU where they are bound (--gpus-per-task): it has those of all.
    """
    words = []
    if any(environment.get(name) for name in ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "CUDA_VISIBLE_DEVICES")):
        import granted_gpus  # as docker has it; only GPUs need it

        known = granted_gpus.described()
        mine = granted_gpus.shared(environment, granted_gpus.of_job(job), known)
        words += granted_gpus.devices(mine, known)
    # Podman takes a directory of devices, and refuses one that has none: drivers leave it behind.
    if os.path.isdir(INFINIBAND) and os.listdir(INFINIBAND):
        words += ["--device", INFINIBAND]
    return words


def settings(options, environment):
    """Return Podman's options for the container that was asked for."""
    words, places = mounts(options["MOUNTS"], environment) if "MOUNTS" in options else ([], [])
    try:
        scratch = os.readlink(f"{OF_JOBS}/{options['JOB']}/scratch")
    except OSError:
        scratch = ""
    # As without container: the job's own.
    for path in ("/tmp", scratch):
        if path and path not in places:
            words += ["--volume", f"{path}:{path}"]
    training = f"{OF_JOBS}/{options['JOB']}/training"
    if os.path.exists(training):
        words += ["--volume", f"{training}:{training}"]
    # Where ranks of srun --mpi=pmix have their files: of all steps, as later ones enter a container that has a name.
    meeting = os.path.dirname(environment.get("PMIX_SERVER_TMPDIR", "").rstrip("/")) or SPOOL
    if os.path.isdir(meeting):
        words += ["--volume", f"{meeting}:{meeting}"]
    words += site_environment.volumes(places)
    if is_yes(options, "MOUNT_HOME"):
        home = environment.get("HOME", "")
        inside = "/root" if is_yes(options, "REMAP_ROOT") else home
        words += ["--volume", f"{visible(home, inside, environment)}:{inside}"]
    if options["STEP"] == "batch":
        words += ["--volume", f"{options['COMMAND']}:{options['COMMAND']}:ro"]
    if is_yes(options, "READONLY") or ("WRITABLE" in options and not is_yes(options, "WRITABLE")):
        words += ["--read-only"]
    return [*words, *devices(environment, options["JOB"])]
