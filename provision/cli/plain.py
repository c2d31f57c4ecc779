"""The other door: what clusterctl does around a run of ansible-playbook that it has not started.

``playbooks/callback_plugins/cluster_door.py`` calls it. The functions are the command line's own, so that no inventory
passes here that is refused there, and no cluster passes here that would not pass there.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from provision import content
from provision.cli import judged
from provision.cli.extra import refuse_redirections
from provision.errors import ClusterctlError, ExitCode
from provision.events.exit import exit_code
from provision.events.fold import RunReport
from provision.events.verdict import JUDGING
from provision.inventory.file import require_plain
from provision.inventory.loader import Inventory, cluster_hosts
from provision.inventory.valid import declared
from provision.judge import manifest
from provision.model.cluster import Cluster
from provision.model.text import clean
from provision.report.plan import show_plan
from provision.report.summary import Printer, show_run


@dataclass
class PlainRun:
    """One run of ansible-playbook on a cluster that was found well declared; its events are folded as they come."""

    inventory: Inventory
    cluster: Cluster
    hosts: tuple[str, ...]
    report: RunReport = field(default_factory=lambda: RunReport(began=True))
    _stages: dict[str, None] = field(default_factory=dict)

    def play(self, stage: str, name: str, pattern: str) -> None:
        """Begin a play for the hosts of a pattern; ``stage`` is its playbook's name, empty for one of somebody else."""
        self._stages[stage] = None
        self.report.plays = [*self.report.plays, (stage, name)]
        self.add({"event": "playbook_on_play_start", "event_data": {"name": name, "pattern": pattern}})

    def add(self, event: Mapping[str, Any]) -> None:
        """Fold one event in, of the shape that ansible-runner gives them."""
        self.report.add(event)

    def end(self, *, failed: bool, unreachable: bool, check_mode: bool = False) -> ExitCode | None:
        """Show the verdict and return the exit code that follows; None where the playbooks were none that judge.

        ``failed`` and ``unreachable`` are what Ansible has counted: its own return code follows from them. What would
        be done is shown of a run in check mode.
        """
        self.report.rc = 4 if unreachable else 2 if failed else 0
        if self.report.refused:
            return ExitCode.LOCKED
        command = self._command()
        if command is None:
            if check_mode:
                show_plan(Printer(), self.report)
            return None
        begun = judged.begun(command, self.inventory, self.hosts)
        # Nobody looked at the machines before: who could not be entered is unreachable to Ansible.
        self.report.owed = frozenset(item for item in begun.owed if item[1] not in manifest.ACCESS.ids)
        self.report.machines, self.report.limited = begun.machines, begun.limited
        self.report.checks += begun.checks
        judgement = judged.judged(command, self.report, self.cluster.controller)
        show_run(Printer(), command, self.report, simulated=self.cluster.simulated, judgement=judgement)
        return exit_code(command, self.report, root=str(content.ROOT))

    def _command(self) -> str | None:
        """Return the judging command that the playbooks are: what they do beside it must have gone well, too."""
        if "verify" in self._stages:
            return "verify"
        stages = set(self._stages).difference(content.PARTS)
        return next((name for name in JUDGING if stages == {name}), None)


def begin(
    sources: Sequence[Path],
    groups: Mapping[str, tuple[str, ...]],
    hostvars: Mapping[str, Mapping[str, Any]],
    scope: Sequence[str],
    extra: Iterable[str],
) -> PlainRun:
    """Return the run of an inventory that ``clusterctl`` would take.

    ``sources`` are its files, ``scope`` what ``--limit`` leaves of its machines, ``extra`` what ``-e`` sets, by name.

    Raises:
        ClusterctlError: it is refused.
    """
    files = [source for source in sources if source.exists()]
    for source in files:
        require_plain(source)
    refuse_redirections((name, "-e") for name in extra)
    inventory = Inventory(files[0] if files else Path(), groups, hostvars)
    return PlainRun(
        inventory, declared(inventory), tuple(host for host in cluster_hosts(inventory) if host in set(scope))
    )


def refuse(error: ClusterctlError) -> None:
    """Tell why a run does not begin, in the command line's words."""
    click.echo(f"Error: {clean(error.problem)}\n  Fix: {clean(error.fix)}", err=True)


def crashed(error: Exception) -> None:
    """Show a mistake of ours whole: nobody else keeps it."""
    click.echo("".join(traceback.format_exception(error)), err=True)
