# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""What container_task has Podman do, once for a step and node: make a container, start it again by name, save it."""

import fcntl
import json
import os
import re
import stat
import subprocess
import time

from container_options import KNOWN, ContainerError, is_yes, reference, settings

PODMAN = "/usr/local/bin/podman"
LIBRARY = os.path.dirname(os.path.realpath(__file__))

#: All that a container here does not have of its own, and what its tasks need of the node beside: a private
#: /proc would show other processes than the one namespace that they are in.
SHARED = (
    *("--network", "host", "--ipc", "host", "--uts", "host", "--cgroups", "disabled", "--ulimit", "host"),
    *("--security-opt", "label=disable", "--security-opt", "seccomp=unconfined", "--group-add", "keep-groups"),
    *("--volume", "/proc:/proc", "--volume", "/dev/pts:/dev/pts", "--volume", f"{LIBRARY}/pause:/.pause:ro"),
    # As root, who is the job's user there: of a user that an image names, nothing could be read from outside.
    *("--user", "0:0"),
)

#: Where pause keeps open the user namespace in which who enters is the job's user again (pause.c).
THEMSELVES = 9

#: What Podman says of an image that is not here, and that names no registry.
ABSENT = re.compile(r"did not resolve|no such image|not known", re.I)

#: What Podman says, and what to do.
CAUSES = (
    (
        r"unauthorized|authentication required|access .* denied",
        "log in once, for all your jobs: srun --pty docker login REGISTRY",
    ),
    (r"no space left", "the node's disk for jobs is full: leave the node out, and tell the administrator"),
    (
        r"no such host|connection refused|i/o timeout|timed out|deadline exceeded|unreachable",
        "name a registry that the nodes reach",
    ),
    (rf"manifest unknown|name unknown|not found|{ABSENT.pattern}|repository .* requested", ""),
    (r"", "see podman run --help, and try it: srun podman run IMAGE true"),
)


def podman(options, environment, *words):
    """Run Podman with the storage that the job has on this node; what names an image finds the user's own, too."""
    own = {**environment, "SLURM_JOB_ID": options["JOB"], "OWN_IMAGES": "" if words[0] == "run" else "no"}
    command = [PODMAN, "--log-level", "fatal", *words]
    return subprocess.run(
        command, env=own, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False
    )


def last_line(text):
    """Return the last line of what Podman said, without the words that every line of it begins with."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return re.sub(r"[^ -~]", "?", lines[-1].removeprefix("Error: "))[:400] if lines else "it said nothing"


def done(ran, what):
    """Return what Podman printed; refuse what it could not do."""
    if ran.returncode == 0:
        return ran.stdout
    said = last_line(ran.stderr)
    fix = next(fix for pattern, fix in CAUSES if re.search(pattern, said, re.I))
    raise ContainerError(f"{what}: {said}", fix or KNOWN)


def image(options, environment):
    """Return the image's name for Podman; an archive is loaded into the job's storage."""
    text = options["IMAGE"]
    if not text.startswith(("/", "./", "../")) and not text.endswith((".sqsh", ".tar")):
        return reference(text)
    path = os.path.abspath(text)
    own = "give the path of an archive that all the job's nodes see"
    try:
        # A pipe is never opened: nobody may be at its other end, and the step's lock is held.
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise ContainerError(f"--container-image={text} is no file", own)
        with open(path, "rb") as stream:
            begins = stream.read(4)
    except OSError as problem:
        raise ContainerError(f"--container-image={text}: {problem.strerror}", own) from problem
    if path.endswith(".sqsh") or begins == b"hsqs":
        raise ContainerError(
            f"--container-image={text} is a squashfs of enroot's, which only enroot can mount",
            "make an archive instead: podman save --output IMAGE.tar NAME, where it was made from",
        )
    if not begins:
        raise ContainerError(f"--container-image={text} is empty", "make it again: podman save --output IMAGE.tar NAME")
    said = done(podman(options, environment, "load", "--quiet", "--input", path), f"--container-image={text}")
    return said.strip().splitlines()[-1].partition(": ")[2]


def keeper(path):
    """Return the process that keeps a container, None where there is none."""
    try:
        with open(path, encoding="ascii") as stream:
            pid = int(stream.read())
        with open(f"/proc/{pid}/cmdline", "rb") as stream:
            return pid if stream.read().startswith(b"/.pause\0") else None
    except (OSError, ValueError):
        return None


def themselves(pid):
    """Return the user namespace in which who enters a container is the job's user again, opened.

    None: the container is of an earlier release, which has none for all.
    """
    with open(f"/proc/{pid}/cmdline", "rb") as stream:
        if stream.read().count(b"\0") < 3:
            return None
    for _ in range(500):
        try:
            return os.open(f"/proc/{pid}/fd/{THEMSELVES}", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:  # it begins, or has ended
            time.sleep(0.01)
    raise ContainerError("the container did not begin within 5 s", "tell the administrator: max_user_namespaces")


def variables(pid):
    """Return the image's variables, which the process has that keeps its container."""
    with open(f"/proc/{pid}/environ", "rb") as stream:
        return dict(os.fsdecode(entry).split("=", 1) for entry in stream.read().split(b"\0") if b"=" in entry)


def leftovers(runtime, name):
    """Return the containers of steps that are over, each with its lock, which is held: their keepers are gone.

    Of one whose lock another task holds, it is the step that begins, or the one that removes it.
    """
    others = [file[:-4] for file in os.listdir(runtime) if file.startswith("step-") and file.endswith(".pid")]
    over = {}
    for other in others:
        if other == name:
            continue
        lock = os.open(f"{runtime}/{other}.lock", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.exists(f"{runtime}/{other}.pid") and not keeper(f"{runtime}/{other}.pid"):
                over[other] = lock
                continue
        except BlockingIOError:
            pass
        os.close(lock)
    return over


def made(options, environment, name, runtime, add_user):
    """Return the process that keeps the step's container, its variables, its directory and the image's entry point.

    The caller holds the container's lock.
    """
    pidfile = f"{runtime}/{name}.pid"
    pid = keeper(pidfile)
    flag = options.get("NAME", "").partition(":")[2]
    if pid and flag == "create":
        raise ContainerError(
            f"--container-name={options['NAME']}: it is there already",
            "leave the flag out, or take another name",
        )
    if not pid:
        again = "NAME" in options and flag != "create" and podman(options, environment, "start", name).returncode == 0
        if not again:
            if "IMAGE" not in options or flag == "exec":
                wanted = options["NAME"].partition(":")[0]
                raise ContainerError(
                    f"the job has no container {wanted} here",
                    f"--container-image=IMAGE --container-name={wanted}",
                )
            run(options, environment, name, runtime, pidfile)
        pid = keeper(pidfile)
        if not pid:
            raise ContainerError("the container ended at once", "srun podman ps --all; tell the administrator")
        add_user(pid, environment.get("HOME", "/"))
    words = []
    if is_yes(options, "ENTRYPOINT") or options.get("SAVE"):
        words = entrypoint(options, environment, name)
    return pid, variables(pid), os.readlink(f"/proc/{pid}/cwd"), words


def run(options, environment, name, runtime, pidfile):
    """Make the container and start it; meanwhile remove those of the job's steps that are over."""
    words = ["--detach", "--replace", "--name", name, "--pidfile", pidfile, *SHARED, *settings(options, environment)]
    words += ["--entrypoint", json.dumps(["/.pause", str(os.getuid()), str(os.getgid())])]
    if "NAME" not in options and "SAVE" not in options:
        words.append("--rm")
    # What a training calls on its node: torchrun-slurm, and scontrol for the names of nodes.
    for tool in os.listdir(f"{LIBRARY}/in_container"):
        words += ["--volume", f"{LIBRARY}/in_container/{tool}:/usr/local/bin/{tool}:ro"]
    words.append(image(options, environment))
    over = leftovers(runtime, name)
    own = {**environment, "SLURM_JOB_ID": options["JOB"], "OWN_IMAGES": "no"}
    removal = over and subprocess.Popen(
        [PODMAN, "--log-level", "fatal", "rm", "--force", "--ignore", "--time", "0", *over],
        env=own,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    ran = podman(options, environment, "run", *words)
    if removal:
        removal.wait()
        for other, lock in over.items():
            os.unlink(f"{runtime}/{other}.pid")
            os.close(lock)
    if ran.returncode and ABSENT.search(last_line(ran.stderr)):
        raise no_image(options, environment)
    done(ran, f"--container-image={options['IMAGE']}")


def no_image(options, environment):
    """Return what is said where no image has the name: a dozen names that some have, the site's and the user's own."""
    here = podman(options, environment, "images", "--format", "{{.Repository}}:{{.Tag}}").stdout
    own = [f"{LIBRARY}/own-images", "missing"]
    kept = subprocess.run(own, env=environment, capture_output=True, text=True, check=False).stdout
    names = {name.removeprefix("localhost/") for name in (here + kept).split() if "<none>" not in name}
    there = ", ".join(sorted(names)[:12]) or "none"
    fix = "name one of these, REGISTRY#IMAGE:TAG, or an archive as ./IMAGE.tar"
    return ContainerError(f"no image {options['IMAGE']} here. There are: {there}", fix)


def entrypoint(options, environment, name):
    """Return the words of the image's own entry point."""
    of = done(podman(options, environment, "container", "inspect", "--format", "{{.Image}}", name), name).strip()
    said = podman(options, environment, "image", "inspect", "--format", "{{json .Config.Entrypoint}}", of)
    return json.loads(done(said, of)) or []


def save(options, environment, name, words):
    """Write the container as an archive, from which --container-image makes it again."""
    path, what = os.path.abspath(options["SAVE"]), f"--container-save={options['SAVE']}"
    part = f"{path}.{os.getpid()}.part"
    change = f"ENTRYPOINT {json.dumps(words)}"
    committed = done(podman(options, environment, "commit", "--quiet", "--change", change, name), what).strip()
    try:
        archive = ("--quiet", "--format", "docker-archive", "--output", part, committed)
        done(podman(options, environment, "save", *archive), what)
        os.replace(part, path)
    except OSError as problem:
        raise ContainerError(f"{what}: {problem.strerror}", "name a directory of yours") from problem
    finally:
        if os.path.exists(part):
            os.unlink(part)
        podman(options, environment, "image", "rm", "--force", committed)
