"""Do jobs run on every node, see the GPU they asked for, tell their exit code, leave nothing? Pure judgement."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from provision.judge.slurm import counts, fit, nodes_in

#: What the test job ends with, and what must therefore reach the caller.
EXIT_CODE = 7

#: srun's words for "not now", which say nothing against the node.
_BUSY = re.compile(r"Requested nodes are busy|Resources temporarily unavailable|Immediate execution impossible")


def targets(nodes: str, scope: Sequence[str]) -> list[str]:
    """Return node, partition and GRES of each node that takes jobs, flat, as the script's arguments.

    ``nodes`` is ``scontrol show nodes --json``; a node without GPUs asks for "-".
    """
    found = nodes_in(nodes)
    flat: list[str] = []
    for name in scope:
        node = found.get(name)
        if node is None or not fit(node) or not node.get("partitions"):
            continue
        gpus = any(kind.split(":")[0] == "gpu" for kind in counts(str(node.get("gres") or "")))
        flat += [name, str(node["partitions"][0]), "gpu:1" if gpus else "-"]
    return flat


def told(text: str, name: str) -> dict[str, str]:
    """Return what the script told about one node: ``ran``, ``exit``, ``job``, ``container``, ``gone``, ``text``."""
    block = re.search(rf"^== {re.escape(name)}$\n(.*?)(?=^== |\Z)", text, re.M | re.S)
    if block is None:
        return {}
    found = {"text": block[1].strip()}
    for key, pattern in (
        ("ran", r"^ran (.*)$"),
        ("exit", r"^exit (\d+)$"),
        ("job", r"^ready job=(\d+)"),
        ("container", r"^ready .*container=(\S+)$"),
        ("gone", r"^gone after (\d+)$"),
    ):
        if match := re.search(pattern, block[1], re.M):
            found[key] = match[1]
    return found


def checks(
    result: Mapping[str, Any],
    name: str,
    left: str,
    gres: str | Sequence[str],
    cgroup_version: int | str,
    simulated: Sequence[str],
    uid: int | str,
) -> list[dict[str, Any]]:
    """Return the checks of one node.

    ``result`` is what submitting returned, ``left`` what was found on the node afterwards, ``gres`` the inventory's
    node_gres; ``uid`` is the test user's.
    """
    said = told(str(result.get("stdout") or ""), name)
    if "ran" not in said:
        return [_did_not_run(said, str(result.get("stderr") or result.get("msg") or ""))]
    seen = dict(part.partition("=")[::2] for part in said["ran"].split())
    wanted = counts(gres if isinstance(gres, str) else ",".join(gres))
    gpus = any(kind.split(":")[0] == "gpu" for kind in wanted)
    pretended = gpus and "gpu" in simulated
    return [
        _ran(seen, name, str(uid)),
        _exit_code(said),
        *([_gpu(seen, pretended), _isolation(seen, int(cgroup_version), pretended)] if gpus else []),
        _cancel(said, left),
    ]


def _check(name: str, verdict: str, **more: Any) -> dict[str, Any]:
    if verdict == "pass":
        more.update(cause="", fix="")
    return {"id": f"slurm.{name}", "host": "", "level": "job", "verdict": verdict, **more}


def _did_not_run(said: Mapping[str, str], problem: str) -> dict[str, Any]:
    text = said.get("text") or problem
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("exit ")]
    busy = bool(_BUSY.search(text))
    return _check(
        "job",
        # A node that takes no jobs was not asked; its state has been judged already.
        "unknown" if busy or not said else "fail",
        observed=(lines[0] if lines else "no job was submitted")[:200],
        expected="a job runs on the node",
        source="srun --immediate",
        cause="the node is busy with other jobs" if busy else "Slurm refused the job, or the node takes none",
        fix="clusterctl verify again when it is free" if busy else "docker logs --tail 20 slurmd on the node",
    )


def _ran(seen: Mapping[str, str], name: str, uid: str) -> dict[str, Any]:
    right = seen.get("node") == name and seen.get("uid") == uid
    return _check(
        "job",
        "pass" if right else "fail",
        observed=f"ran on {seen.get('node')} as uid {seen.get('uid')}",
        expected=f"runs on {name} as uid {uid}",
        source="srun, as an ordinary user",
        cause="the job ran elsewhere or as somebody else",
        fix="clusterctl provision slurm",
    )


def _exit_code(said: Mapping[str, str]) -> dict[str, Any]:
    code = said.get("exit", "")
    return _check(
        "exit_code",
        "unknown" if not code else "pass" if code == str(EXIT_CODE) else "fail",
        observed=code or "srun told none",
        expected=str(EXIT_CODE),
        source="the task's own exit code",
        cause="a failing job would be taken for a good one, or the other way round",
        fix="docker logs --tail 20 slurmd on the node",
    )


def _gpu(seen: Mapping[str, str], simulated: bool) -> dict[str, Any]:
    shown = [part for part in seen.get("gpus", "").split(",") if part]
    return _check(
        "gpu",
        "pass" if len(shown) == 1 else "fail",
        observed=f"CUDA_VISIBLE_DEVICES={seen.get('gpus', '')}",
        expected="one GPU for a job that asked for one",
        source="--gres=gpu:1",
        cause="gres.conf does not fit the node's devices",
        fix="clusterctl provision slurm",
        simulated=simulated,
    )


def _isolation(seen: Mapping[str, str], cgroup_version: int, simulated: bool) -> dict[str, Any]:
    texts = {"expected": "the job can open one GPU and no other", "source": "opening /dev/nvidia* in the job"}
    if simulated or cgroup_version < 2:
        why = "the GPUs are simulated: nothing can be opened" if simulated else "cgroup v1 cannot confine devices here"
        return _check("gpu_isolation", "skip", observed=why, simulated=simulated, **texts)
    opened = seen.get("opened", "")
    return _check(
        "gpu_isolation",
        "pass" if opened == "1" else "fail",
        observed=f"{opened or 'no'} GPUs can be opened",
        cause="ConstrainDevices is off, or gres.conf names no device files",
        fix="clusterctl provision slurm",
        **texts,
    )


def _cancel(said: Mapping[str, str], left: str) -> dict[str, Any]:
    expected = "no process and no container of a cancelled job remains"
    lines = left.split("\n")
    if "job" not in said or "looked" not in lines:
        observed = said.get("text", "").splitlines()[-1:] or ["the job did not start"]
        verdict, told_of = "unknown", f"no cancelled job could be looked at: {observed[0]}"[:200]
    else:
        remaining = [line for line in lines if line.startswith(("process ", "container "))]
        container = said.get("container", "none")
        if remaining:
            verdict, told_of = "fail", "; ".join(remaining[:5])
        elif container in ("none", "failed"):
            why = "the node's store has no image" if container == "none" else "podman started no container"
            verdict, told_of = "unknown", f"no process is left; no container was tried: {why}"
        else:
            verdict, told_of = "pass", "nothing is left"
    return _check(
        "cancel",
        verdict,
        observed=told_of,
        expected=expected,
        source="/proc and the job's storage on the node, after scancel",
        cause="processes escaped the job; the Epilog did not run, or there was no image to start a container from",
        fix="scontrol show config | grep Epilog; docker logs --tail 20 slurmd on the node",
    )
