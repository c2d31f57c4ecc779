"""Whether srun --container-image runs a task in a container on a node, and not beside it. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from provision.judge.slurm_answers import line, pairs
from provision.model.checks import Check, Subject

#: The name of this check, of the subject ``job``, and what its program ends with.
NAMES = ("container",)
EXIT_CODE = "8"


def check(subject: Subject, found: Mapping[str, str], runtime: str, uid: str) -> Check:
    """Return the check of one node; ``found`` is what is known of its jobs, ``runtime`` is job_container_runtime.

    A node whose slurmd has not loaded the plugin would run the task without container.
    """
    if runtime != "podman":
        return subject.skip("container", f"job_container_runtime is {runtime}: it is the site's own", unproven=True)
    if found.get("container") == "none":
        return subject.skip("container", "the node's store has no image", unproven=True)
    if "container" not in found:
        return subject.unknown("container", "it was not tried: the job before did not start")
    seen, code = pairs(found.get("inside", "")), found.get("contained", "")
    wrong = []
    if not seen:
        last = found.get("text", "").splitlines()[-1:] or ["srun said nothing"]
        wrong = [next((one for one in found.get("text", "").splitlines() if one.startswith("container: ")), last[0])]
    elif seen.get("kept") != "yes":
        wrong = ["the task ran on the node itself"]
    elif (seen.get("uid"), seen.get("rank"), code) != (uid, "0", EXIT_CODE):
        wrong = [f"uid {seen.get('uid')}, RANK {seen.get('rank') or 'not set'}, exit code {code or 'none'}"]
    return subject.check(
        "container",
        not wrong,
        line(wrong[0])[:200] if wrong else "the task ran in the image, as its user, and its exit code came",
        "the task runs in the image, as its user, and its exit code comes",
        source="srun --container-image, as an ordinary user",
        cause="slurmd has not loaded spank_container.so, or Podman starts no container for users",
        fix="docker exec slurmd cat /run/slurm/conf/plugstack.conf on the node; then clusterctl provision slurm",
    )
