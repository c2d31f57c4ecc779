"""The rules of the house that a machine can keep."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from provision import content
from provision.inventory import variables
from provision.judge import road
from provision.judge.manifest import GROUPS
from provision.model.versions import SLURM_VERSION

#: What roles share: it has defaults and no task, and its specification is the site's.
SHARED = content.ROOT / "roles/cluster"
ROLES = sorted(path for path in (content.ROOT / "roles").iterdir() if path.is_dir() and path != SHARED)
ROLE_IDS = [role.name for role in ROLES]


PRODUCT = ("provision", "plugins", "roles", "playbooks")


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def tracked() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=content.ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    paths = (content.ROOT / name for name in listed.split("\0") if name)
    return [path for path in paths if path.is_file()]


def task_files() -> list[Path]:
    return [path for path in tracked() if re.search(r"/(tasks|handlers)/[^/]+\.yml$", str(path))]


def tasks_in(entries: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for entry in entries or []:
        found.append(entry)
        for part in ("block", "rescue", "always"):
            found += tasks_in(entry.get(part))
    return found


@pytest.mark.parametrize("role", ROLES, ids=ROLE_IDS)
def test_specs_and_defaults_say_the_same(role: Path) -> None:
    options = load(role / "meta/argument_specs.yml")["argument_specs"]["main"].get("options", {})
    defaults = load(role / "defaults/main.yml") or {}

    documented = {name: option["default"] for name, option in options.items() if "default" in option}

    assert set(defaults) == set(documented)
    for name, value in defaults.items():
        assert documented[name] == value, name
    assert all(option.get("description") for option in options.values())


PLAYBOOKS = sorted((content.ROOT / "playbooks").glob("*.yml"))

#: The stages that change machines.
STAGES = [content.playbook(name) for name in ("base", "containers", "gpu", "rdma", "munge", "slurm", "monitoring")]


def test_both_doors_ask_the_same_before_anything_is_changed() -> None:
    observed = load(content.ROOT / "playbooks/preflight.yml")[0]

    assert set(observed["vars"]["__stage_roles"]) == set(road.roles_of(["preflight"]))


@pytest.mark.parametrize("path", STAGES, ids=lambda path: path.stem)
def test_a_role_of_a_stage_runs_where_a_check_of_its_own_fails(path: Path) -> None:
    """Parts of the driver's role run where it has sorted the machines, whose checks had failed, by their plans."""
    for play in (play for play in load(path) if "hosts" in play):
        named = [str(role["role"]) for role in play.get("roles", [])]
        parts = (f"ansible.builtin.{way}_role" for way in ("import", "include"))
        named += [task[part]["name"] for part in parts for task in play.get("tasks", []) if part in task]
        asked = set(re.findall(r"'(\w+)'", " ".join(re.findall(r"query\('pending'([^)]*)\)", play["hosts"]))))
        assert asked - {"controller", "others"} == set(named) or play["name"] in BY_THEIR_OWN, play["name"]


@pytest.mark.parametrize("path", STAGES, ids=lambda path: path.stem)
def test_a_stage_takes_the_lease_before_it_changes_anything_and_releases_it_last(path: Path) -> None:
    imported = [play.get("ansible.builtin.import_playbook") for play in load(path)]

    assert (imported[:2], imported[-1]) == (["observe.yml", "lease.yml"], "release.yml")
    assert [imported.count(name) for name in ("lease.yml", "release.yml")] == [1, 1]


def test_a_whole_run_has_the_lease_to_its_end() -> None:
    stages = [play for play in load(content.playbook("site")) if content.playbook(
        Path(play["ansible.builtin.import_playbook"]).stem) in STAGES]  # fmt: skip

    assert [bool(play.get("vars", {}).get("__goes_on")) for play in stages] == [True] * 6 + [False]


#: Plays of a stage whose machines an earlier play of it has chosen from those on which the role has something to do,
#: and one for those of them alone on which another role has, too.
BY_THEIR_OWN = {
    "Change the driver, one machine first",
    "Resume the nodes where jobs can use the GPUs",
    "Ask the controller about the compute nodes",
    "Give back nodes whose GPUs were divided",
    "Keep new nodes for verify",
    "Place job images on new nodes before they take jobs",
    "Judge the nodes whose slurmd was to be replaced",
}


@pytest.mark.parametrize("path", PLAYBOOKS, ids=lambda path: path.stem)
def test_every_play_marks_what_it_starts_with_the_run(path: Path) -> None:
    for play in load(path):
        if "hosts" in play:
            assert "CLUSTERCTL_RUN" in play.get("environment", {}), play["name"]


#: What roles say of other machines than their own, file by file, with why there is no better place. A comparison of
#: machines is an action's (``action_plugins``), what the inventory says of all of them the lookup ``declared``'s.
OF_OTHERS = {
    "roles/cluster/defaults/main.yml": "the one place where roles read what the controller has told and who is left",
}


def speaks_of_others(path: Path) -> list[str]:
    """Return the words by which a role's file reads other machines' variables, or who else is in the play."""
    words = re.findall(r"\b(?:hostvars|ansible_play_\w+|ansible_delegated_vars)\b", path.read_text(encoding="utf-8"))
    # An action is where machines are compared, and is told which.
    return [word for word in words if "action_plugins" not in path.parts or word.startswith("ansible_play_")]


def roles_files() -> list[Path]:
    return [
        path
        for path in tracked()
        if "roles" in path.relative_to(content.ROOT).parts[:1] and path.suffix in {".yml", ".j2", ".py"}
    ]


def test_no_roles_name_begins_anothers() -> None:
    clashes = [(a, b) for a in ROLE_IDS for b in ROLE_IDS if a != b and b.startswith(f"{a}_")]
    assert clashes == []


def foreign_privates(path: Path) -> list[str]:
    """Return the private variables of other roles in a role's file."""
    mine = path.relative_to(content.ROOT / "roles").parts[0]
    words = set(re.findall(r"\b__\w+", path.read_text(encoding="utf-8")))
    return sorted(word for word in words for role in ROLE_IDS if role != mine and word.startswith(f"__{role}_"))


def test_a_role_reads_no_private_variable_of_another() -> None:
    found = {str(path.relative_to(content.ROOT)): words for path in roles_files() if (words := foreign_privates(path))}

    assert found == {}


#: Parts of roles that judge by what was said to others, each with the part that has to ask before it.
ASKED_BEFORE = {
    ("slurm_service", "verify"): ("slurm_service", "verify_controller"),
    ("slurm_service", "verify_jobs"): ("slurm_service", "verify_submit"),
    ("ddp_validation", "verify"): ("ddp_validation", "verify_submit"),
}


@pytest.mark.parametrize("path", [*PLAYBOOKS, *task_files()], ids=lambda path: str(path.relative_to(content.ROOT)))
def test_what_is_judged_by_the_controllers_words_has_asked_it_before(path: Path) -> None:
    plays = [play for play in load(path) if "tasks" in play]
    asked: set[tuple[str, str]] = set()
    for task in tasks_in([task for play in plays for task in play["tasks"]] if plays else load(path)):
        part = task.get("ansible.builtin.import_role", {})
        own = (path.parent.parent.name, Path(str(task.get("ansible.builtin.import_tasks", ""))).stem)
        for here in ((part.get("name"), part.get("tasks_from")), own):
            assert ASKED_BEFORE.get(here, here) in asked or here not in ASKED_BEFORE, f"{task['name']} asks nobody"
            asked.add(here)


def test_a_role_speaks_of_its_own_machine() -> None:
    found = {str(path.relative_to(content.ROOT)) for path in roles_files() if speaks_of_others(path)}

    assert found == OF_OTHERS.keys()


def asked_for_others(entries: Any) -> list[str]:
    """Return the tasks, and plays, that whoever is first asks another machine in: if that fails, all machines do."""
    # To cluster_lease silence is an answer, and a refusal is meant for all machines.
    own = [one for one in tasks_in(entries) if "cluster_lease" not in one]
    return [str(one.get("name")) for one in own if "delegate_to" in one and one.get("run_once")]


@pytest.mark.parametrize("path", [*task_files(), *PLAYBOOKS], ids=lambda path: str(path.relative_to(content.ROOT)))
def test_nobody_is_asked_by_whichever_machine_is_first(path: Path) -> None:
    entries = load(path)
    plays = [play for play in entries if "tasks" in play]

    assert asked_for_others(entries if not plays else [task for play in plays for task in play["tasks"]]) == []
    assert not any(entry.get("run_once") for entry in tasks_in(entries) if "block" in entry)


FORBIDDEN = {
    "host keys are always verified": re.compile(
        r"StrictHostKeyChecking[= ]+(no|off|accept-new)|UserKnownHostsFile[= ]+/dev/null"
        r"|AutoAddPolicy\(|WarningPolicy\("  # paramiko's two policies that go on with a key nobody knows
    ),
    "package registries are the machine's own": re.compile(
        r"deb\.debian" r"\.org|pypi" r"\.org|python" r"hosted\.org|registry\.npm" r"js\.org"
    ),
    "no open ends": re.compile(r"\b(TO" r"DO|FIX" r"ME)\b|ignore_errors: *(true|yes)"),
    "no path of the machine it was written on": re.compile(r"/wo" r"rk/(main|shared|\.library)|/tmp/br" r"ief"),
}


@pytest.mark.parametrize("rule", FORBIDDEN, ids=str)
def test_the_tree_is_free_of(rule: str) -> None:
    found = []
    for path in tracked():
        if path == Path(__file__) or path.suffix in {".whl", ".png"} or "LICENSE" in str(path):
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            if FORBIDDEN[rule].search(line):
                found.append(f"{path.relative_to(content.ROOT)}:{number}: {line.strip()[:100]}")
    assert found == []


_ROLES_WORD = re.compile(rf"(?<![\w./-])(?:{'|'.join(ROLE_IDS)})_\w+\b(?![(./])")


def test_shared_values_have_one_home_and_the_site_describes_it() -> None:
    shared = load(SHARED / "defaults/main.yml")
    described = load(content.ROOT / "provision/inventory/site_variables.yml")["options"]

    assert [path.name for path in SHARED.iterdir()] == ["defaults"]
    assert shared.keys() <= described.keys()
    assert not [name for name in shared if "default" in described[name]], "said once, in the role"
    assert shared["slurm_version"] == SLURM_VERSION


@pytest.mark.parametrize("role", ROLES, ids=ROLE_IDS)
def test_a_role_that_reads_a_shared_value_depends_on_its_home(role: Path) -> None:
    shared = load(SHARED / "defaults/main.yml")
    texts = {path: path.read_text(encoding="utf-8") for path in role.rglob("*") if path.suffix in (".yml", ".j2")}
    reads = {name for name in shared for text in texts.values() if re.search(rf"\b{name}\b", text)}
    meta = load(role / "meta/main.yml") if (role / "meta/main.yml").is_file() else {}

    assert not reads or {"role": "cluster"} in meta.get("dependencies", [])


def unspecified(text: str, names: set[str]) -> list[str]:
    """Return the words of a text that look like a role's variable, and are neither specified nor in ``names``."""
    return sorted({word for word in _ROLES_WORD.findall(text) if word not in variables.options() and word not in names})


def test_every_variable_that_is_read_or_named_in_a_fix_is_specified() -> None:
    product = [path for path in tracked() if path.relative_to(content.ROOT).parts[0] in PRODUCT]
    texts = {path: path.read_text(encoding="utf-8") for path in product if path.suffix in {".py", ".yml", ".j2", ""}}
    # Filters, modules, functions and what a loop is over bear their role's name too, so do the groups that roles
    # make, and what templates are given. Those of earlier releases are named to be refused.
    names = {path.stem for path in texts} | {"slurm_conf_values", *variables.INSTEAD}
    for text in texts.values():
        names |= set(re.findall(r"^\s*(?:def|loop_var:) (\w+)", text, re.MULTILINE))
    for path in task_files():
        for task in tasks_in(load(path)):
            names |= set(re.findall(r"\w+", str(task.get("ansible.builtin.group_by", ""))))

    found = {
        str(path.relative_to(content.ROOT)): words
        for path, text in texts.items()
        if (words := unspecified(text, names))
    }

    assert found == {}


#: What sites declare of a cluster and its nodes, whatever role reads it.
_SITES_WORD = re.compile(r"(?<![\w./<-])(?:node|slurm|cluster)_[a-z]\w*\b(?![(./])")

#: Words of that kind that are none of the inventory's: what a script prints, what a kernel's file is called, and what
#: actions and roles of ours hand on.
_NO_VARIABLES = {
    *("node_log", "node_type", "slurm_removed"),
    *("cluster_checks", "cluster_check_collect", "cluster_status", "cluster_data"),
    *("cluster_pending", "cluster_passed", "cluster_shared", "cluster_asked_for", "cluster_rdma"),
}


def texts_of_python(text: str) -> str:
    """Return what is read by name, and what a check says of where it comes from and what to do."""
    found = []
    for node in ast.walk(ast.parse(text)):
        parts: list[ast.AST] = []
        if isinstance(node, ast.Call):
            parts += [word.value for word in node.keywords if word.arg in ("fix", "source", "cause", "problem")]
            parts += node.args[:1] if isinstance(node.func, ast.Attribute) and node.func.attr == "get" else []
        elif isinstance(node, ast.Subscript):
            parts.append(node.slice)
        constants = [one for part in parts for one in ast.walk(part) if isinstance(one, ast.Constant)]
        found += [str(one.value) for one in constants if isinstance(one.value, str)]
    return "\n".join(found)


def undeclared(path: Path, text: str, names: set[str]) -> list[str]:
    """Return the words of a file that look like a site's variable, and are neither specified nor in ``names``."""
    words = set(_SITES_WORD.findall(texts_of_python(text) if path.suffix == ".py" else text))
    return sorted(words - names - _NO_VARIABLES - variables.options().keys())


def test_every_variable_of_a_site_that_is_read_or_named_in_a_fix_is_specified() -> None:
    product = [path for path in tracked() if path.relative_to(content.ROOT).parts[0] in PRODUCT]
    texts = {path: path.read_text(encoding="utf-8") for path in product if path.suffix in {".py", ".yml", ".j2"}}
    names = {path.stem for path in texts} | {*GROUPS, *ROLE_IDS}
    for text in texts.values():
        names |= set(re.findall(r"^\s*(?:def|loop_var:) (\w+)", text, re.MULTILINE))
        # What one role finds out in a run and another reads is a fact, and nobody's to declare.
        names |= set(re.findall(r"\b(?:ansible|cluster_controller)_facts\.(\w+)", text))

    found = {
        str(path.relative_to(content.ROOT)): words
        for path, text in texts.items()
        if (words := undeclared(path, text, names))
    }

    assert found == {}


def test_python_that_imports_ansible_says_its_licence() -> None:
    for path in tracked():
        if path.suffix == ".py" and "provision" not in path.parts and "tests" not in path.parts:
            text = path.read_text(encoding="utf-8")
            if re.search(r"^\s*(from|import) ansible\b(?!\.module_utils)", text, re.MULTILINE):
                assert "GPL-3.0-or-later" in text, path


def is_python(path: Path) -> bool:
    """Return whether a file is Python's: by its name or, of a program, by its first line."""
    if path.suffix:
        return path.suffix == ".py"
    with path.open("rb") as file:
        return re.match(rb"#!.*\bpython", file.readline(200)) is not None


def test_files_of_python_stay_small() -> None:
    ours = [path for path in tracked() if path.relative_to(content.ROOT).parts[0] in PRODUCT and is_python(path)]
    assert content.ROOT / "roles/slurm_image/files/image/own-images" in ours

    long = {str(path.relative_to(content.ROOT)) for path in ours if len(path.read_text("utf-8").splitlines()) > 600}
    assert long == set()
