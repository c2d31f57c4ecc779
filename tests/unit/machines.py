"""Made-up machines for tests: trees of files, and the modules that read them."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from provision import content
from provision.model.managed import Managed


def plugin(path: str, name: str = "") -> ModuleType:
    """Import a file of our Ansible content by its path below the repository's root; once under a ``name`` of Ansible's.

    Two copies of a module would have two classes of each error, and which one a test sees would rest on its place.
    """
    if name in sys.modules:
        return sys.modules[name]
    file = content.ROOT / path
    spec = importlib.util.spec_from_file_location(name or f"content_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    if name:
        sys.modules[name] = module
        package, _, attribute = name.rpartition(".")
        setattr(importlib.import_module(package), attribute, module)
    spec.loader.exec_module(module)
    return module


#: Ansible puts our module_utils where its own are.
_AS_ANSIBLE = (
    "import runpy, sys; from ansible import module_utils as own; module = sys.argv.pop();"
    "own.__path__.append(sys.argv.pop()); runpy.run_path(module, run_name='__main__')"
)


def ran_module(path: str, arguments: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    """Run a module of ours on this computer as Ansible would, and return all that it writes."""
    utils = str(content.ROOT / "plugins/module_utils")
    return subprocess.run(
        [sys.executable, "-c", _AS_ANSIBLE, utils, str(content.ROOT / path)],
        input=json.dumps({"ANSIBLE_MODULE_ARGS": arguments}),
        capture_output=True,
        text=True,
        check=False,
    )


def run_module(path: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Run a module of ours on this computer as Ansible would, and return what it answers."""
    found: dict[str, Any] = json.loads(ran_module(path, arguments).stdout)
    return found


telling = plugin("plugins/module_utils/telling.py", "ansible.module_utils.telling")
plugin("plugins/module_utils/checksums.py", "ansible.module_utils.checksums")
plugin("plugins/module_utils/systemd_units.py", "ansible.module_utils.systemd_units")
commands = plugin("plugins/module_utils/machine_commands.py", "ansible.module_utils.machine_commands")
hardware = plugin("plugins/module_utils/machine_hardware.py", "ansible.module_utils.machine_hardware")
mounts = plugin("plugins/module_utils/machine_mounts.py", "ansible.module_utils.machine_mounts")
hosts = plugin("plugins/module_utils/hosts_text.py", "ansible.module_utils.hosts_text")
plugin("plugins/module_utils/openpgp_keys.py", "ansible.module_utils.openpgp_keys")
state = plugin("plugins/module_utils/machine_state.py", "ansible.module_utils.machine_state")
key = plugin("plugins/module_utils/machine_key.py", "ansible.module_utils.machine_key")
users = plugin("plugins/module_utils/machine_users.py", "ansible.module_utils.machine_users")
system = plugin("plugins/module_utils/machine_system.py", "ansible.module_utils.machine_system")
plugin("plugins/module_utils/machine_gpu_ids.py", "ansible.module_utils.machine_gpu_ids")
for part in ("bus", "kernel", "packages", "users"):
    plugin(f"plugins/module_utils/machine_gpu_{part}.py", f"ansible.module_utils.machine_gpu_{part}")
gpu = plugin("plugins/module_utils/machine_gpu.py", "ansible.module_utils.machine_gpu")


slurm_running = plugin("plugins/module_utils/slurm_running.py", "ansible.module_utils.slurm_running")


def tree(root: Path, files: dict[str, str]) -> Path:
    """Write ``files`` (path -> text) below ``root`` and return it."""
    for path, text in files.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


#: Whose a place is that a role has made.
OURS = {"owner": "root", "group": "root", "uid": 0, "gid": 0}


def as_declared(wanted: Managed) -> dict[str, dict[str, Any]]:
    """Return what a machine answers about paths on which all is as it should be."""
    states: dict[str, dict[str, Any]] = {path: {"kind": "absent"} for path in wanted.absent}
    for place in wanted.directories:
        states[place.path] = {"kind": "directory", **OURS, "mode": place.mode}
    for place in wanted.files:
        states[place.path] = {"kind": "file", **OURS, "mode": place.mode, "fingerprints": list(place.fingerprints)}
        if place.text is not None:
            states[place.path]["sha256"] = hashlib.sha256(place.text.encode()).hexdigest()
    return states


def processors(root: Path, *, sockets: int, cores: int, threads: int, offline: frozenset[int] = frozenset()) -> Path:
    """Write a topology in which, as usual, thread n of a core is numbered after all first threads."""
    count = sockets * cores * threads
    online = [cpu for cpu in range(count) if cpu not in offline]
    files = {"sys/devices/system/cpu/online": ",".join(map(str, online)) + "\n"}
    for cpu in online:
        core = cpu % (sockets * cores)
        siblings = [other for other in range(core, count, sockets * cores) if other not in offline]
        place = f"sys/devices/system/cpu/cpu{cpu}/topology"
        files[f"{place}/physical_package_id"] = f"{core // cores}\n"
        # Core numbers repeat in every socket, as they do on real machines.
        files[f"{place}/core_id"] = f"{core % cores}\n"
        files[f"{place}/core_cpus_list"] = ",".join(map(str, siblings)) + "\n"
        package = [other for other in online if other % (sockets * cores) // cores == core // cores]
        files[f"{place}/core_siblings_list"] = ",".join(map(str, package)) + "\n"
    return tree(root, files)


def act(action: ModuleType, args: dict[str, Any], machine: Any = None, **variables: Any) -> dict[str, Any]:
    """Return what an action of ours answers to ``args``, without Ansible around it.

    ``variables`` are the task's, with ``delegate_to`` for the task itself; ``machine`` stands for the machine that is
    asked, as a function of a module's name and arguments.
    """
    made = action.ActionModule.__new__(action.ActionModule)
    delegate = variables.pop("delegate_to", None)
    made._task = SimpleNamespace(args=args, delegate_to=delegate, async_val=0, check_mode=False, diff=False, timeout=3)
    made._execute_module = machine
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(action.ActionBase, "run", lambda *_: {})
        answered: dict[str, Any] = made.run(task_vars=variables)
    return answered
