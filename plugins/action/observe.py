# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask a machine once for all that the named roles manage, and judge the answer here, in the worker of this machine.

``roles``: the roles to judge, in order. Of each, three variables are read, templates and all: ``__<role>_managed``,
what it leaves behind (provision.model.managed); ``__<role>_asks``, options of ``machine_facts`` beyond that; and
``__<role>_wants``, what its own judge compares with. The last two may be absent; texts and wants may rest on the
answer, as ``ansible_facts.cluster_machine``.

``then`` says what a check means that does not pass:

- ``act`` (the default): there is something to do. The machine joins the group ``pending_<role>`` of each such role,
  and ``replaces_<role>`` where a container that is there makes room for another, except in check mode, where no role
  runs; the checks travel as ``cluster_pending``. What is *unknown* is asked once more with five times the limits; then
  it fails the machine: nothing is changed because one was slow.
  Where a role refuses (preflight), what it judges and what others judge before anything is changed is no such thing:
  what does not pass fails the machine, so that the others go on without it. One that only such roles are for is not
  asked.
- ``refuse`` (preflight): the same, but where what does not pass concerns the whole cluster, the machine joins the group
  ``refuses_all`` instead, whose play ends the run.
- ``prove``: what does not pass is a failure. After a role's work a machine is at its slowest: what is unknown is asked
  once more, too. For verify (``cluster_check_collect``) it is asked once, as one that hangs would be lost by then, and
  recorded.
- ``share``: what the machine tells others, with patience; of one that the task is delegated to, silence is an answer.

What goes back is small, as the main process reads every byte of it: ids of what passed, whole checks of the rest, and
what roles and other machines' wants read. Why not tasks in check mode: there are hundreds. Measured (November 2026):
over ssh each is 0.03 s of the control node's processor a machine, all of this 0.13 s (C(make bench)).
"""

from __future__ import annotations

import hashlib
import time
from contextlib import contextmanager
from itertools import chain

from ansible import constants as C  # noqa: N812 - Ansible's own name for it
from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure, AnsibleTemplateError
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.action import ActionBase
from ansible.plugins.loader import add_all_plugin_dirs
from ansible.template import trust_as_template

from provision import content
from provision.judge import road
from provision.judge.managed import text_changes
from provision.model.checks import PATIENCE, Verdict
from provision.model.facts import answered
from provision.model.managed import ManagedError, managed_from, questions
from provision.runner import compiled
from provision.runner.bad_checks import record
from provision.runner.rendered import rendered

# Private to Ansible. A release that has them elsewhere gives the same answers, for more of the processor.
try:
    from ansible._internal._templating import _lazy_containers as lazy
    from ansible._internal._templating._jinja_bits import AnsibleEnvironment
except ImportError:
    lazy = AnsibleEnvironment = None
try:
    from ansible._internal._errors._task_timeout import TaskTimeoutError
except ImportError:
    TaskTimeoutError = AnsibleConnectionFailure


def _data():
    """Return defaults and constants of all roles that are observed, their templates unresolved.

    Read once, before the first worker is made: a play that imported the roles for them would cost more than all that a
    machine on which nothing is to be done is asked.
    """
    loader = DataLoader()
    defaults: dict = {}
    constants: dict = {}
    for role in ("cluster", *road.ROLES):
        directory = content.ROOT / "roles" / role
        add_all_plugin_dirs(str(directory))  # the filters that its data goes through
        for part, found in (("defaults", defaults), ("vars", constants)):
            file = directory / part / "main.yml"
            if file.is_file():
                # "Unsafe" is Ansible's word for what is not copied; nobody else has this.
                data = loader.load_from_file(str(file), cache="none", unsafe=True, trusted_as_template=True)
                found.update(data or {})
    return defaults, constants


def _compiled(*data):
    """Compile all texts of roles' data and of their templates, for all workers."""
    if AnsibleEnvironment is None:
        return {}
    kept = compiled.keep(AnsibleEnvironment)
    templates = sorted(path for role in road.ROLES for path in content.ROOT.glob(f"roles/{role}/templates/*.j2"))
    files = [trust_as_template(path.read_text(encoding="utf-8")) for path in templates]
    compiled.prepare(AnsibleEnvironment(), [*compiled.texts(data), *files])
    return kept


_DEFAULTS, _CONSTANTS = _data()
_COMPILED = _compiled(_DEFAULTS, _CONSTANTS)


def _sharing(templar, variables):
    """Return a templar of these variables that resolves each once, however many others rest on it.

    Ansible's own resolves them again for each text, 0.2 s of processor a machine; its containers would remember.
    """
    if lazy is None:
        return templar.copy_with_new_env(available_variables=variables)
    sharing = templar.copy_with_new_env()
    values = ((name, lazy._LazyValue(value)) for name, value in variables.items())
    options = {"templar": sharing._engine, "lazy_options": lazy.LazyOptions.DEFAULT}
    sharing.available_variables = lazy._AnsibleLazyTemplateDict(lazy._LazyValueSource(source=values, **options))
    return sharing


class ActionModule(ActionBase):
    """``observe``: see the module's docstring."""

    _supports_check_mode = True

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        args = self._task.args
        roles, then = [str(role) for role in args.get("roles") or ()], str(args.get("then", "act"))
        if set(args) - {"roles", "then"} or then not in ("act", "refuse", "prove", "share"):
            raise AnsibleActionFail("observe takes roles, a list, and then: act, refuse, prove or share")
        for_all, then = then == "refuse", "act" if then == "refuse" else then
        if unknown := [role for role in roles if role not in road.ROLES]:
            raise AnsibleActionFail(f"observe does not know {', '.join(unknown)}")
        task_vars = {**_DEFAULTS, **task_vars, **_CONSTANTS}
        verify = then != "act" and boolean(task_vars.get("cluster_check_collect", False), strict=False)
        if then == "act" and "slurm_conf" in roles and not task_vars["cluster_slurm_files"]:
            # Of some nodes no hardware is declared: Slurm's stage asks for its roles when it comes, and says so.
            roles = [role for role in roles if road.ROLES[role].stage != "slurm"]
        result["changed"] = False
        # Of a machine that none of them is for there is nothing to ask, either.
        parents = [f"observed_{role}" for role in roles]
        roles = roles if then == "share" else _for(roles, task_vars)
        if all(then == "act" and road.ROLES[role].refuses for role in roles):
            return _grouped(result, parents)
        try:
            if then == "share":
                return {**result, "ansible_facts": self._shared(roles, task_vars, 1 if verify else PATIENCE)}
            facts, known, wanted, judged = self._judged(roles, task_vars, 1, verify)
            if not verify and any(check.verdict is Verdict.UNKNOWN for check in chain(*judged.values())):
                facts, known, wanted, judged = self._judged(roles, task_vars, PATIENCE, verify)
        except ManagedError as error:
            raise AnsibleActionFail(str(error)) from error
        except ValueError as error:
            return {**result, "failed": True, "msg": str(error)}
        result["ansible_facts"] = known
        if then == "act":
            parents += self._to_do(result, judged, task_vars, for_all)
            if self._task.diff and not result.get("failed") and (diffs := self._diffs(wanted, facts, task_vars)):
                result["diff"] = diffs
        else:
            checks = list(chain(*judged.values()))
            if verify:
                result["cluster_checks"] = [check.as_dict() for check in checks]
                _record(task_vars, checks)
            else:
                _fail(result, checks, [check for check in checks if not check.ok])
        return result if result.get("failed") else _grouped(result, parents)

    def _to_do(self, result, judged, task_vars, for_all):
        """Put into the result what there is to do, or fail where that is unknown or refused; return the groups."""
        before, found = road.before(judged, task_vars["group_names"])
        checks = list(chain(*found.values()))
        stops = [check for check in before if not check.ok]
        stops += [check for check in checks if check.verdict is Verdict.UNKNOWN]
        if stops:
            # Nothing is done here: what else would be is not told.
            told = dict.fromkeys([*before, *stops, *(check for check in checks if check.verdict is Verdict.WARN)])
            if for_all and any(check.whole for check in stops):
                _fail(result, told, [])
                _record(task_vars, stops)
                return ["refuses_all"]
            _fail(result, told, stops)
            return []
        result["cluster_passed"] = [check.id for check in checks if check.verdict is Verdict.PASS]
        result["cluster_pending"] = [
            {"stage": road.ROLES[role].stage, **check.as_dict()}
            for role, checks in found.items()
            for check in checks
            if check.verdict is not Verdict.PASS
        ]
        result["cluster_checks"] = [check.as_dict() for check in before]
        if self._task.check_mode:  # no role runs
            return []
        full = boolean(task_vars.get("cluster_full", False), strict=False)
        return road.joins(judged, full=full)

    def _shared(self, roles, task_vars, patience):
        """Return what is told others: by this machine, or by that of the delegation, of which the data then speaks."""
        if not (name := self._task.delegate_to):
            return self._answered(_for(roles, task_vars), task_vars, patience)[1]
        own = {"inventory_hostname": name, "ansible_delegated_vars": task_vars["ansible_delegated_vars"]}
        variables = {**_DEFAULTS, **own["ansible_delegated_vars"][name], **_CONSTANTS, **own}
        try:
            return self._answered(_for(roles, variables), variables, patience)[1]
        except (AnsibleConnectionFailure, TaskTimeoutError) as error:
            late = getattr(error, "timeout", None)
            return {"cluster_unreached": f"it did not answer within {late} s" if late else str(error)}

    def _answered(self, roles, task_vars, patience):
        """Return the machine's facts, and what goes on from them as Ansible's."""
        facts = self._asked(roles, task_vars, patience)
        return facts, road.handed_on(facts, task_vars.get("ansible_facts"))

    def _judged(self, roles, task_vars, patience, verify):
        """Return the machine's facts, what goes on from them, what each role wants, and the checks of each role."""
        facts, known = self._answered(roles, task_vars, patience)
        variables = _with_facts(task_vars, **known)
        templar = _sharing(self._templar, variables)
        wanted, judged = {}, {}
        for role in roles:
            with _naming(role):
                wanted[role] = managed_from(self._rendered(role, templar, variables))
                wants = templar.template(variables.get(f"__{role}_wants") or {})
            judged[role] = road.checks(role, facts, wanted[role], wants, verify=verify)
        return facts, known, wanted, judged

    def _diffs(self, wanted, facts, task_vars):
        """Return the differences of files that may be shown: a second question, over the same connection.

        A program that comes with a role is no configuration: it is named, with the number of its lines.
        """
        places = [place for managed in wanted.values() for place in text_changes(managed, facts.get("state") or {})]
        programs = [_program(place) for place in places if place.program]
        texts = {place.path: place.text for place in places if not place.program}
        if not texts:
            return programs
        ask = {"paths": sorted(texts), "texts": sorted(texts)}
        module_args = {"gather": [], "state": ask}
        answer = self._execute_module(module_name="machine_facts", module_args=module_args, task_vars=task_vars)
        found = answered(answer, [], 0, 0)["state"]["paths"]
        return programs + [
            {"before_header": path, "after_header": path, "before": found[path].get("text", ""), "after": texts[path]}
            for path in sorted(texts)
        ]

    def _asked(self, roles, variables, patience):
        """Return the machine's answer to the questions of all roles, read as input."""
        templar = _sharing(self._templar, variables)
        options: dict = {"gather": [], "state": {}}
        for role in roles:
            with _naming(role):
                for kind, names in questions(variables.get(f"__{role}_managed") or {}, templar.template).items():
                    options["state"].setdefault(kind, []).extend(names)
                for option, value in templar.template(variables.get(f"__{role}_asks") or {}).items():
                    road.merge(options, option, value)
        before = time.time()
        # Who changes the cluster is asked with all else, as a run that changes nothing asks nothing more.
        options["lease"] = "slurm_controller" in variables["group_names"]
        options["patience"] = patience
        answer = self._execute_module(module_name="machine_facts", module_args=options, task_vars=variables)
        return answered(answer, options["gather"], before, time.time())

    def _rendered(self, role, templar, variables):
        """Return the role's data as it is on this machine, each file's text among it."""
        data = variables.get(f"__{role}_managed") or {}
        return rendered(role, data, templar, lambda path: trust_as_template(self._loader.get_text_file_contents(path)))


def _for(roles, variables):
    return road.roles_for(roles, variables["group_names"], variables["groups"])


@contextmanager
def _naming(role):
    """Say which role's variables do not go together: Ansible's own words name none of them."""
    try:
        yield
    except AnsibleTemplateError as error:
        raise AnsibleActionFail(
            f"a variable of the role {role} has a value of another type than it takes: {error}. Fix: compare the "
            f"inventory's variables {role}_* with the reference (roles/{role}/meta/argument_specs.yml)"
        ) from None


def _program(place):
    lines = len(place.text.splitlines())
    return {"after_header": place.path, "lines": lines, "prepared": f"{place.path}: a program of {lines} lines\n"}


def _with_facts(task_vars, **facts):
    return {**task_vars, "ansible_facts": {**(task_vars.get("ansible_facts") or {}), **facts}}


def _record(task_vars, checks):
    """Keep what did not pass for the play that ends the run by it."""
    record(C.DEFAULT_LOCAL_TMP, task_vars["inventory_hostname"], [check.sentence for check in checks if not check.ok])


def _fail(result, checks, bad):
    result["cluster_checks"] = [check.as_dict() for check in checks]
    if bad:
        result.update(failed=True, msg="\n".join(check.sentence for check in bad))


def _grouped(result, parents):
    """Put the machine into groups. A result can name one: there is one for each set, and it is in all of them."""
    result["add_group"] = f"observed_{hashlib.sha256(' '.join(parents).encode()).hexdigest()[:16]}"
    result["parent_groups"] = parents
    return result
