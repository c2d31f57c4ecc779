# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Have on the machine what a role manages, from the same data that ``observe`` compares the machine with.

``role``: whose ``__<role>_managed`` (provision.model.managed) it is; with ``part`` it is ``__<role>_<part>``, some of
that data under a name of its own, for what has to be there before the rest.

``kinds`` are done in this order, whatever order they are named in:

- ``packages``: by ``apt``, where one of them is missing.
- ``directories``, ``files``, ``links``, ``absent``: those where ``kinds`` is left out; together one call of
  ``managed_places``, and none where there are none. A file of which nobody has said what is in it is not written.
- ``services``: by ``service_current``.
"""

from __future__ import annotations

import json

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.template import trust_as_template

from provision.model.managed import ManagedError, managed_from
from provision.runner.rendered import rendered

PLACES = ("directories", "files", "links", "absent")
KINDS = ("packages", *PLACES, "services")


class ActionModule(ActionBase):
    """``managed``: see the module's docstring."""

    _supports_check_mode = True
    _supports_diff = True

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        args = self._task.args
        role, kinds = str(args.get("role", "")), args.get("kinds") or PLACES
        name = f"__{role}_{args.get('part') or 'managed'}"
        if set(args) - {"role", "part", "kinds"} or set(kinds) - set(KINDS) or name not in task_vars:
            raise AnsibleActionFail(f"managed takes role, part and kinds ({', '.join(KINDS)}); {name} is its data")
        # What is not asked for may rest on what is not known yet.
        data = {kind: entries for kind, entries in task_vars[name].items() if kind in kinds}
        try:
            wants = managed_from(rendered(role, data, self._templar, self._template))
        except ManagedError as error:
            raise AnsibleActionFail(str(error)) from error
        result["changed"] = False
        for module, options in self._calls(wants, task_vars):
            done = self._execute_module(module_name=module, module_args=options, task_vars=task_vars)
            result = {**result, **done, "changed": result["changed"] or bool(done.get("changed"))}
            if done.get("failed") or done.get("unreachable"):
                break
        return result

    def _template(self, path):
        return trust_as_template(self._loader.get_text_file_contents(path))

    def _calls(self, wants, task_vars):
        """Yield the modules that are to be called, with their options."""
        # Where none is missing no index is fetched: a closed network has none to give.
        if not set(wants.packages) <= set(self._templar.template(task_vars.get("cluster_packages_here") or [])):
            yield "ansible.legacy.apt", _apt(wants.packages)
        if wants.directories or wants.files or wants.links or wants.absent:
            yield "managed_places", _places(wants)
        for service in wants.services:
            files, units = list(service.started_after), list(service.units)
            yield "service_current", {"name": service.name, "files": files, "units": units}


def _apt(names):
    return {
        "name": list(names),
        "state": "present",
        "lock_timeout": 600,
        "update_cache": True,
        "cache_valid_time": 3600,
        "install_recommends": False,
    }


def _places(wants):
    return {
        "directories": [_owned(place) for place in wants.directories],
        # Of a program that comes with a role nobody reads the difference.
        "files": [
            {**_owned(place), "shown": not place.secret and not place.program, "validate": place.validate}
            for place in wants.files
        ],
        "texts": json.dumps([place.text for place in wants.files]),
        "links": dict(wants.links),
        "absent": list(wants.absent),
    }


def _owned(place):
    return {key: getattr(place, key) for key in ("path", "owner", "group", "mode")}
