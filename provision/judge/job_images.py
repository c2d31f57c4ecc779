"""Are the images that a site declares for jobs where jobs find them, and are earlier ones gone? Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from provision.judge import images
from provision.model.checks import Check, Subject, Verdict
from provision.model.consequences import Consequence, Kind
from provision.model.container_facts import SourceFacts, StoredFacts
from provision.model.facts import MachineFacts
from provision.model.job_images import archive_problem
from provision.model.text import brief

SUBJECT = Subject("job_images", ("built", "stored", "collected"), fix="clusterctl provision slurm")

#: Judged before anything is changed.
BEFORE = Subject("job_images", ("sources",), fix="clusterctl preflight", before=True)

_SILENT = "the controller did not say which images it has"
_UNREAD = "the machine did not say which images are in /var/lib/clusterctl/images, whose lists cannot be read"


def checks(facts: MachineFacts, wants: Mapping[str, Any]) -> list[Check]:
    """Judge one machine.

    ``wants``: the ``images``, as provision.model.job_images.JobImage tells them; ``builds``, whether this machine has
    them made, in a registry that is its ``own``; ``compute``, whether jobs run here; ``references`` by their keys,
    empty where one is still to be made, None where the controller did not say; ``left``, the ids of what a job used
    when the role removed what was old.
    """
    return [_sources(facts, wants), _built(facts, wants), _stored(facts, wants), _collected(facts, wants)]


def _sources(facts: MachineFacts, wants: Mapping[str, Any]) -> Check:
    if not wants["builds"]:
        return BEFORE.skip("sources", "they are the controller's")
    own = [image for image in wants["images"] if image["kind"] != "reference" and not image["given"]]
    if not own:
        return BEFORE.skip("sources", "no image is made from a path of this machine's")
    told: Mapping[str, SourceFacts] = facts.get("job_images", {}).get("sources", {})
    wrong, fixes, later, silent = [], [], [], []
    for image in own:
        if image["key"] not in told:
            silent.append(image["source"])
            continue
        if place := told[image["key"]].get("unmounted"):
            later.append(f"{image['source']} is below {place}, which is not mounted yet")
            continue
        problem, fix = _source_problem(image, told[image["key"]])
        if problem:
            wrong.append(f"{image['name']}: {image['source']}: {problem}")
            fixes.append(fix)
    if not wrong and silent:
        why = f"the machine did not say in time what {brief(silent)} is: is it on a server's disk that is away?"
        return BEFORE.unknown("sources", why)
    if not wrong and later:
        return BEFORE.skip("sources", f"{brief(later)}; provision base does that", unproven=True)
    return BEFORE.check(
        "sources",
        not wrong,
        brief(wrong) or f"{len(own)} usable",
        "archives of images, and directories with a Containerfile",
        source="job_images",
        cause="a mistake in job_images, or the file was never put there",
        fix=fixes[0] if fixes else None,
    )


def _source_problem(image: Mapping[str, Any], told: SourceFacts) -> tuple[str, str]:
    if (problem := told.get("error")) == "Permission denied":
        return "root may not read it", (
            "if its server maps root to nobody, let others read it there (chmod -R o+rX), or put it on the "
            "controller's own disk"
        )
    if problem:
        return (
            problem,
            "a path that begins with / is on the controller: put the file there, or on a disk that it shares",
        )
    if image["kind"] == "archive":
        if told["kind"] == "directory":
            return "it is a directory", "name the archive itself; a directory with a Containerfile is a containerfile"
        return archive_problem(told["size"], bytes.fromhex(told["head"]))
    if not told["recipe"]:
        return "there is no Containerfile or Dockerfile in it", "write one there, or name the file itself"
    if told["kind"] == "file" and not told["size"]:
        return "it is empty", "write what it is built from"
    return "", ""


def _built(facts: MachineFacts, wants: Mapping[str, Any]) -> Check:
    if not wants["builds"]:
        return SUBJECT.skip("built", "they are made on the controller")
    if not wants["images"]:
        return SUBJECT.skip("built", "job_images is empty")
    judged = [(image, images.image(SUBJECT, "built", facts, image["key"], "job_images")) for image in wants["images"]]
    to_do = [image for image, check in judged if check.verdict is Verdict.FAIL]
    if not to_do and (unsure := [check for _, check in judged if check.verdict is not Verdict.PASS]):
        return unsure[0]
    return SUBJECT.check(
        "built",
        not to_do,
        brief([f"{image['name']}: {_why(facts, image)}" for image in to_do]) or f"{len(judged)} in the registry",
        "each in the registry by digest, as job_images declares it now",
        source="job_images",
        cause="it is new, what it is made of has changed, or the registry lost it",
        consequences=[Consequence(Kind.BUILD, image["name"], _HOW[image["kind"]]) for image in to_do],
    )


_HOW = {
    "containerfile": "it is built, which takes as long as its steps",
    "archive": "it is read into the registry",
    "reference": "it is copied into the cluster's registry",
}


def _why(facts: MachineFacts, image: Mapping[str, Any]) -> str:
    problem = facts["images"][image["key"]]["problem"]
    made = {"containerfile": "built", "archive": "loaded", "reference": "pulled"}[image["kind"]]
    return f"not {made} yet from {image['source']}" if problem in ("", "not built") else problem


def _stored(facts: MachineFacts, wants: Mapping[str, Any]) -> Check:
    if not wants["compute"]:
        return SUBJECT.skip("stored", "no jobs run on this machine")
    if not wants["images"]:
        return SUBJECT.skip("stored", "job_images is empty")
    if silent := [image["name"] for image in wants["images"] if wants["references"].get(image["key"]) is None]:
        return SUBJECT.unknown("stored", f"{_SILENT}: {brief(silent)}")
    if "stored" not in facts.get("job_images", {}):
        return SUBJECT.unknown("stored", _UNREAD)
    there = {name: one for one in _ours(facts) for name in one["names"]}
    wrong = []
    for image in wants["images"]:
        reference = wants["references"][image["key"]]
        if not reference:
            wrong.append(f"{image['name']} is still to be made")
        elif reference not in there:
            wrong.append(f"{image['name']} is not there")
        elif image["stored"] not in there[reference]["names"]:
            wrong.append(f"{image['name']} is there without its name")
    return SUBJECT.check(
        "stored",
        not wrong,
        brief(wrong) or f"{len(wants['images'])} there, by digest and name",
        "each image of job_images in the store that all jobs read, under its name",
        source="/var/lib/clusterctl/images",
        cause="it is new, has been made again, or was removed by hand",
        # Of a run of some nodes alone the controller, which makes it, is no part.
        fix="clusterctl provision slurm, without --limit" if "" in wants["references"].values() else None,
    )


def _collected(facts: MachineFacts, wants: Mapping[str, Any]) -> Check:
    references = [wants["references"].get(image["key"]) for image in wants["images"]]
    if not all(references):
        return SUBJECT.skip("collected", "old images are known once all of job_images are built")
    told = facts.get("job_images", {})
    if wants["compute"] and "stored" not in told:
        return SUBJECT.unknown("collected", _UNREAD)
    if wants["builds"] and wants["own"] and "kept" not in told:
        return SUBJECT.unknown("collected", "the machine did not say what its registry keeps")
    old = [one for one in _ours(facts) if one["remove"] or one["untag"]] if wants["compute"] else []
    # A job that ended since is no mistake of the run: the next one removes what was its.
    gone = [_called(one) for one in old if one["id"] not in wants.get("left", ())]
    if wants["builds"] and wants["own"]:
        wanted = {str(reference).partition("@")[2] for reference in references}
        kept = (name.partition("@")[::2] for name in told.get("kept", []))
        gone += [f"{name} ({digest[7:19]}) is in the registry" for name, digest in kept if digest not in wanted]
        gone += ["layers of forgotten images may still be in the registry"] if told.get("garbage") else []
    stay = [f"{_called(one)} stays: {brief(one['used'])} uses it" for one in _ours(facts) if one["used"]]
    ended = [one for one in old if one["id"] in wants.get("left", ())]
    stay += [f"{_called(one)} stays until the next provision: a job used it until just now" for one in ended]
    return SUBJECT.check(
        "collected",
        not gone,
        brief(gone) or brief(stay) or "nothing that job_images does not name",
        "no removed or replaced image, except those that jobs still use",
        source="job_images",
        cause="job_images has changed since",
    )


def _called(one: StoredFacts) -> str:
    """Return the names of an image that are too much, or the digest of one that has none."""
    named = [name.removeprefix("localhost/") for name in one["names"] if "@" not in name]
    if not one["remove"] and one["untag"]:
        return f"{', '.join(name.removeprefix('localhost/') for name in one['untag'])} is a former name"
    repository, _, digest = one["names"][0].partition("@")
    return f"{', '.join(named) or repository.rpartition('/')[2]} ({digest[7:19]})"


def _ours(facts: MachineFacts) -> Sequence[StoredFacts]:
    return facts.get("job_images", {}).get("stored", [])
