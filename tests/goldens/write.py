"""Write what users meet of the product, as text: ``PYTHONPATH=tests .venv/bin/python -m goldens.write`` (a minute).

``tests/unit/test_goldens.py`` compares. Read the difference: changelog.d/ says what is meant, what is not is undone.
By hand are ``kept_tests.txt``, ``bad_run.jsonl``, ``inventories/`` and, in ``refusals.yml``, the cases.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner

import provision
from provision.cli import flow
from provision.cli.main import cli
from provision.content import ROOT
from provision.errors import ClusterctlError
from provision.events.fold import RunReport
from provision.inventory import loader, valid, variables
from provision.judge import road
from provision.judge.ddp_evidence import Wants, evidence_from
from provision.judge.ddp_figures import training
from provision.judge.slurm_answers import status
from provision.lab import labs
from provision.model.checks import Check, Subject, Verdict
from provision.slurm.conf import require_confinement
from provision.ssh import reach

HERE = Path(__file__).parent
#: Those whose files are kept, by name.
INVENTORIES = {"groups": ROOT / "inventory/groups"} | {one.stem: one for one in sorted(HERE.glob("inventories/*.yml"))}
A40 = {"node_cpus": 48, "node_real_memory": 192000, "node_gres": "gpu:A40:4"}
HOSTS = {"head": {}, "node1": A40, "node2": A40}


class _InBlocks(yaml.CSafeDumper):
    """Writes texts of several lines line by line, as people do: a refusal may name one of them."""


_InBlocks.add_representer(
    str, lambda own, text: own.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)
)


def refusals() -> str:
    """Return how ``clusterctl check`` ends for each inventory in refusals.yml, in the order of their texts."""
    text = (HERE / "refusals.yml").read_text(encoding="utf-8")
    cases = {_one_line(one["case"]): one["case"] for one in yaml.load(text, Loader=yaml.CSafeLoader)}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder).resolve()
        (place / "group_vars").mkdir()
        told = "".join(f"- case: {line}\n  ends: {ends(case, place)}\n" for line, case in sorted(cases.items()))
    return "".join(line for line in text.splitlines(keepends=True) if line.startswith("#")) + told


def _one_line(case: Mapping[str, Any]) -> str:
    text = yaml.dump(case, Dumper=yaml.CSafeDumper, default_flow_style=True, sort_keys=False, width=10**6).strip()
    return json.dumps(case) if "\n" in text else text


def ends(case: Mapping[str, Any], place: Path) -> str:
    """Return ``accepted``, or exit code, file, line, and the variable that is written there."""
    try:
        require_confinement(valid.declared(_loaded(case, place)))
    except ClusterctlError as error:
        spots = re.findall(rf"({re.escape(str(place))}\S*?/)((?:\w+_vars/)?[\w.]+), line (\d+)", error.problem)
        known, words = {*variables.options(), *loader.GROUPS, *case, *A40}, re.findall(r"\w+", error.problem)
        named = next((word for word in words if word in known or word.startswith("ansible_")), "no variable")
        told = [f"{file}:{line} {_written_at(Path(at, file), int(line)) or named}" for at, file, line in spots]
        return f"{int(error.exit_code)} {', '.join(told) or f'{named}, no line'}"
    return "accepted"


def _loaded(case: Mapping[str, Any], place: Path) -> loader.Inventory:
    """Write the inventory of a case, and return it as Ansible would read it; where a case is files, let Ansible."""
    if "files" in case:
        own = Path(tempfile.mkdtemp(dir=place))
        for name, text in case["files"].items():
            (own / name).parent.mkdir(parents=True, exist_ok=True)
            (own / name).write_text(text, encoding="utf-8")
        return loader.load(own / next(iter(case["files"])))
    site = {"cluster_name": "lab"} | {name: value for name, value in case.items() if name not in ("hosts", "groups")}
    hosts = {name: A40 if own == "A40" else own for name, own in case.get("hosts", HOSTS).items()}
    groups = {"slurm_controller": ["head"], "slurm_compute": [name for name in hosts if name != "head"]}
    groups |= case.get("groups", {})
    members: dict[str, Any] = {name: {"hosts": dict.fromkeys(those)} for name, those in groups.items()}
    for file, content in (("inventory.yml", {"all": {"hosts": hosts}} | members), ("group_vars/all.yml", site)):
        text = yaml.dump(content, Dumper=_InBlocks, sort_keys=False, width=10**6, allow_unicode=True)
        (place / file).write_text(text, encoding="utf-8")
    return loader.Inventory(
        place / "inventory.yml",
        {"all": tuple(hosts)} | {name: tuple(those) for name, those in groups.items()},
        {name: site | own for name, own in hosts.items()},
    )


def _written_at(file: Path, line: int) -> str:
    """Return the keys that lead to what stands in a line of YAML; nothing of any other file."""
    try:
        root = yaml.compose(file.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    except (ValueError, yaml.YAMLError):
        return ""
    found = [keys for start, keys in _keys(root) if start < line]
    return " ".join(".".join(found[-1]).removeprefix("all.hosts.").split()) if found else ""


def _keys(node: yaml.Node | None, above: tuple[str, ...] = ()) -> Iterator[tuple[int, tuple[str, ...]]]:
    pairs: Iterable[tuple[Any, yaml.Node]] = node.value if isinstance(node, yaml.MappingNode) else ()
    below = [(name.start_mark.line, str(name.value), value) for name, value in pairs]
    if isinstance(node, yaml.SequenceNode):
        below = [(value.start_mark.line, str(number), value) for number, value in enumerate(node.value)]
    for start, name, value in below:
        yield start, (*above, name)
        yield from _keys(value, (*above, name))


def files() -> dict[str, str]:
    """Return what ``clusterctl render`` writes, but for what the golden of inventory/a40 or the role has alike."""
    found = {}
    for name, path in INVENTORIES.items():
        for file, text in _document("render", str(path))["files"].items():
            ours = (ROOT / f"tests/roles/golden/a40/{file}.golden", ROOT / "roles/slurm_conf/files" / file)
            if not any(one.is_file() and one.read_text(encoding="utf-8") == text for one in ours):
                found[f"files/{name}/{file}"] = text
    return found


def checks() -> str:
    """Return the ids of all checks that any judge can give."""
    subjects = {road.generic(name, role.kinds) for name, role in road.ROLES.items()}
    for module in pkgutil.walk_packages(provision.__path__, "provision."):
        # These start something, or are no modules of ours.
        if not module.name.startswith(("provision._content", "provision.inventory.dump")):
            subjects |= {one for one in vars(importlib.import_module(module.name)).values() if isinstance(one, Subject)}
    return "".join(f"{name}\n" for name in sorted({name for subject in subjects for name in subject.ids}))


def _commands(command: click.Command = cli, *words: str) -> Iterator[tuple[list[str], click.Command]]:
    yield list(words), command
    for name, one in command.commands.items() if isinstance(command, click.Group) else ():
        yield from _commands(one, *words, name)


def helps() -> dict[str, str]:
    """Return what each command says of itself, 80 columns wide."""
    told = {
        "-".join(words): CliRunner().invoke(cli, [*words, "--help"], terminal_width=80).output
        for words, _ in _commands()
    }
    return {f"help/{name or 'clusterctl'}.txt": text for name, text in told.items()}


def _document(*words: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(CliRunner().invoke(cli, [*words, "--json"]).stdout)
    return document


#: Mappings by names of machines or files, which are data.
_BY_NAME = ("hosts", "undeclared", "files", "written", "swept", "nodes")
_NODES = '{"nodes": [{"name": "node1", "state": ["IDLE"], "reason": "", "gres": "", "gres_used": "", "cpus": 4}]}'
_JOBS = '{"jobs": [{"job_id": 7, "name": "a", "user_name": "ada", "job_state": ["RUNNING"], "nodes": "node1"}]}'


def _ran(stages: Any, *, report: RunReport, **_: Any) -> None:
    """Stand for a run of Ansible: what a good one on a lab has told, then what a bad one would, until it is stopped."""
    for path in (ROOT / "tests/unit/fixtures/verdict/verify.jsonl", HERE / "bad_run.jsonl"):
        for line in path.read_text(encoding="utf-8").splitlines():
            report.add(json.loads(line))
    report.data["cluster_status"] = _job() if list(stages) == ["job"] else status(_NODES, _JOBS)
    report.data["cluster_training"] = [_training()]
    report.rc, report.began, report.stopped_by, report.swept, report.unswept = 4, True, 15, {"node1": 1}, ["node2"]


def _job() -> dict[str, Any]:
    """Return what a lab's Slurm has told of a job that had GPUs, and what Prometheus would."""
    told = (ROOT / "tests/unit/fixtures/job_use/sacct.json").read_text(encoding="utf-8")
    figures = {"gpu_utilization": {"0": 0.0}, "gpu_utilization_max": {"0": 0.0}, "gpu_used_memory": {"0": 4}}
    summary = {"nodes": {"node1": figures}, "total_time": 600, "gpus": 1}
    return {
        "sacct": json.dumps({"jobs": json.loads(told)["jobs"][:1]}),
        "others": "",
        "figures": json.dumps({"summary": summary, "nodes": {"node1": {"cpus": 1.0, "memory_peak": 1.0}}}),
    }


def _training() -> dict[str, Any]:
    """Return what a training job of one rank has measured."""
    result = {"run_id": "", "job_id": "7", "world": 1, "backend": "gloo", "device": "cpu", "simulated": [], "steps": {}}
    record = {"run_id": "", "rank": 0, "node": "node1", "state": "done", "step": "end"}
    times = {name: {"p50": 0.1, "p95": 0.2} for name in ("data", "forward", "optimiser", "step")}
    told: dict[str, Any] = {
        "learning": {"losses": [4.5]},
        "reference": {"curve": [4.5], "largest": 1e-7},
        "gradients": {"relative_error": 1e-8, "parameter": "a"},
        "speed": {"per_rank": [times], "samples_per_s": 1.0, "tokens_per_s": 1.0},
    }
    left = json.dumps({"records": [record], "result": {**result, "sabotage": ""}, "figures": told})
    return training(evidence_from({}, "", {"node1": left}, Wants({"node1": 1}), {}, "/runs"))


def documents() -> str:
    """Return the keys of each command's document, with the types of their values."""
    found: dict[str, set[str]] = {}
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        site, script = Path(folder, "inventory.ini"), Path(folder, "train.sh")
        shutil.copy(ROOT / "inventory/lab/inventory.ini", site)
        script.write_text("#!/bin/bash\ntorchrun train.py\n#SBATCH --nodes=2\n", encoding="utf-8")
        machine = dict.fromkeys(("name", "address", "state", "kind", "container"), "x")
        patch.setattr(flow.runner, "run", _ran)
        patch.setattr(reach, "probe", lambda *_, **__: [Check("access.ready", "node1", Verdict.PASS)])
        patch.setattr(labs, "_refuse_unfit", lambda: None)
        patch.setattr(labs, "_play", lambda *_, **__: RunReport(data={"cluster_data": {"machines": [machine]}}))
        patch.setattr(labs, "up", lambda *_, **__: site)
        patch.setattr(labs, "recorded_kind", lambda _: "container")
        patch.setenv("XDG_STATE_HOME", folder)
        whole = str(INVENTORIES["elsewhere"])
        means = {"lint-job": [[str(script)]], "lab": [["golden"]], "render": [[whole, "-o", folder]]}
        means["job"] = [["9", "-i", str(site)], ["x", "-i", str(site)]]
        means["node drain"] = [["node1", "--reason", "fans", "-i", str(site)]]
        means["node resume"] = [["node1", "-i", str(site)]]
        means["node reboot"] = [["node1", "-i", str(site)]]
        means["node replace"] = [["node1", "-i", str(site)]]
        other = shutil.copy(site, Path(folder, "other.ini"))
        means["node remove"] = [["node1", "-i", str(other)]]
        means["reset"] = [[str(site), "--yes", "lab"]]
        means["check"] = [[whole], [str(site)], ["nowhere.ini"]]
        for words, command in _commands():
            asked = (
                means.get(" ".join(words)) or means.get(words[0], [[str(site)]])
                if any("--json" in one.opts for one in command.params)
                else []
            )
            for arguments in asked:
                for keys, kind in _kinds(_document(*words, *arguments)):
                    found.setdefault(f"{' '.join(words)}: {keys}", set()).add(kind)
    return "".join(f"{keys}: {'|'.join(sorted(kinds))}\n" for keys, kinds in sorted(found.items()))


def _kinds(value: Any, keys: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and value:
        by_name = keys.rpartition(".")[2] in _BY_NAME
        for key, one in value.items():
            yield from _kinds(one, f"{keys}.{'*' if by_name else key}".lstrip("."))
    elif isinstance(value, list) and value:
        for one in value:
            yield from _kinds(one, f"{keys}[]")
    else:
        yield keys, value if keys == "schema" else "null" if value is None else type(value).__name__


def main() -> None:
    """Write all of it; remove the files that nothing writes any more."""
    texts = {"refusals.yml": refusals(), "checks.txt": checks(), "json.txt": documents(), **files(), **helps()}
    for folder in ("files", "help"):
        shutil.rmtree(HERE / folder, ignore_errors=True)
    for name, text in texts.items():
        (HERE / name).parent.mkdir(parents=True, exist_ok=True)
        (HERE / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
