"""Whether the stages gpu and rdma have something to do on a machine: the subjects' own judges, on one answer. Pure.

Their roles keep their own plans inside; here it is only decided whether a machine enters them at all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from provision.judge import driver, gpu_containers, gpudirect, mig, rdma, toolkit
from provision.model import gpu_facts
from provision.model.checks import Check, Subject, Verdict
from provision.model.consequences import Consequence, Kind
from provision.model.facts import MachineFacts
from provision.nvidia import cuda_toolkit
from provision.nvidia.driver import plan
from provision.nvidia.driver_state import consequences
from provision.rdma.expected import majority

#: What a plan would change, whether or not a check has a name for it.
PLANNED = Subject("nvidia_driver", ("planned", "returned"), fix="clusterctl provision gpu")

_SILENT = "the machine was not asked"

#: How a command ends that did not end by itself: timeout(1); one without a code was given up.
_LATE = (None, 124, 137)
#: Of sinfo that slurmctld does not answer, as it does not while it starts: slurm_strerror(3).
_UNANSWERED = re.compile(r"slurm_load_|Unable to contact slurm controller")


def nvidia_driver(facts: MachineFacts, wants: Mapping[str, Any]) -> list[Check]:
    """Judge the driver, what keeps it from being changed, and whether its plan has anything to do.

    ``wants`` are the driver's, and ``compute``: the machine is one for jobs; ``kept``: the role keeps it from Slurm,
    None where the controller did not say.
    """
    if not wants["compute"]:
        return []
    found = driver.checks(facts, wants)
    kept = None if wants["kept"] is None else bool(wants["kept"])
    try:
        machine = gpu_facts.read(facts)
    except ValueError as error:
        processes = driver.BEFORE.unknown("processes", str(error))
        return [*found, processes, _returned(kept), PLANNED.unknown("planned", str(error))]
    planned = plan(machine, wants)
    first = driver.preflight(machine, planned, wants)
    refused = {check.id for check in first}
    found = [*(check for check in found if check.id not in refused), *first, _returned(kept, planned.skip)]
    if planned.skip or planned.refusals:
        return [*found, PLANNED.skip("planned", planned.skip or "the request is refused")]
    observed, good = "; ".join(step.text for step in planned.pending), "nothing to change"
    brings = consequences(machine["gpu"], planned)
    return [*found, PLANNED.check("planned", not planned.pending, observed or good, good, consequences=brings)]


def _returned(kept: bool | None, skip: str = "") -> Check:
    """Where the machine gets no driver (``skip`` is why) no run gives the node back, so that none is pending for it."""
    if kept is None and skip:
        return PLANNED.skip("returned", f"it gets no driver: {skip}")
    if kept is None:
        return PLANNED.unknown("returned", "the controller did not say whether this stage keeps the node from Slurm")
    seen, wanted = "drained by this stage" if kept else "not kept from Slurm", "not kept from Slurm"
    if kept and skip:
        fix = "scontrol update nodename=NODE state=resume"
        return PLANNED.check("returned", Verdict.WARN, seen, wanted, cause=f"it gets no driver now: {skip}", fix=fix)
    cause = "an earlier run was stopped, or the node's jobs could not work"
    back = Consequence(Kind.RESUME, "the node", "once its jobs can use the GPUs")
    return PLANNED.check("returned", not kept, seen, wanted, cause=cause, consequences=[back])


def drained(facts: MachineFacts) -> list[str] | None:
    """Return the nodes that the role keeps from Slurm, as the controller says; None where it was not asked, or silent.

    A line of its answer is a drained node, the reason of the role's own drains, and that of this one. A slurmctld that
    is not there keeps none.
    """
    if "drained" not in facts.get("commands", {}):
        return None
    answer = _command(facts, "drained")
    if answer["rc"] in _LATE or (answer["rc"] and _UNANSWERED.search(answer["text"])):
        return None
    rows = (row.split("|", 2) for row in answer["text"].splitlines())
    return sorted({row[0].strip() for row in rows if len(row) == 3 and row[1].strip() == row[2].strip()})


def nvidia_mig(facts: MachineFacts, wants: Mapping[str, Any]) -> list[Check]:
    """Judge the instances. ``wants``: ``layout``, ``devices``, ``by_files``."""
    told = _command(facts, "mig")
    answer = {"stdout": told["text"], "rc": told["rc"]}
    layout, devices = ([str(item) for item in wants[name]] for name in ("layout", "devices"))
    return mig.checks(layout, devices, answer, by_files=bool(wants["by_files"]))


def toolkits(facts: MachineFacts, wants: Mapping[str, Any]) -> list[Check]:
    """Judge CUDA's toolkits. ``wants``: ``versions``, ``installers``, ``driver``, ``default``."""
    versions = [str(version) for version in wants["versions"]]
    installers = [{str(key): str(value) for key, value in item.items()} for item in wants["installers"]]
    asked = cuda_toolkit.plan(versions, installers, str(wants["driver"]), str(wants["default"]))
    return toolkit.checks(asked, versions, _command(facts, "toolkits")["text"])


def containers(facts: MachineFacts, wants: Mapping[str, Any]) -> list[Check]:
    """Judge how containers are given GPUs. ``wants``: ``installed``, ``version``, ``packages``, ``gres``."""
    return gpu_containers.checks(
        _command(facts, "gpu_containers")["text"],
        installed=bool(wants["installed"]),
        version=str(wants["version"]),
        packages=[str(name) for name in wants["packages"]],
        gres=wants["gres"],
    )


def rdma_userspace(facts: MachineFacts, wants: Mapping[str, Any]) -> list[Check]:
    """Judge a machine's adapters by themselves: what other machines have is compared by verify."""
    if "rdma" not in facts:
        return rdma.SUBJECT.all_unknown(_SILENT)
    return rdma.checks(facts["rdma"], majority([rdma.adapters_of(facts["rdma"])]), wants)


def gpudirect_rdma(facts: MachineFacts, wants: Mapping[str, Any]) -> list[Check]:
    """Judge the way from adapters to GPUs."""
    adapters = facts.get("rdma", {}).get("adapters")
    return gpudirect.checks(None if adapters == [] else facts, wants)


def _command(facts: MachineFacts, name: str) -> Mapping[str, Any]:
    """Return what a program answered; an empty answer where nobody asked, because nothing is declared."""
    return facts.get("commands", {}).get(name) or {"rc": 0, "text": ""}
