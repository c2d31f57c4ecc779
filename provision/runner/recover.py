"""Ending what runs that were killed have left behind, and keeping in mind what could not be asked."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from provision import hostlist
from provision.runner import journal, playbooks
from provision.runner.process import kill_marked


def recover(directory: Path, targets: Sequence[Any], *, become_password: str | None = None) -> list[str]:
    """End what earlier runs have left behind, here and on ``targets``; return a sentence for each.

    Only for a run that changes the cluster, while it holds the lock alone. A run is done with when each machine that it
    worked on was asked; until then the others stay on its record, for the next one to ask.
    """
    told = []
    for dead in journal.unfinished(directory):
        ended = kill_marked(dead.id)
        if dead.directory.parent.name == journal.LOOKS:
            # It only read; what it has asked of machines ends by itself.
            shutil.rmtree(dead.directory, ignore_errors=True)
            continue
        wanted, why = (
            dead.to_sweep,
            "did not reach all machines when it was stopped" if dead.ended else "never finished",
        )
        asked = [target for target in targets if (wanted is None or target.name in wanted) and target.sweepable]
        swept = playbooks.sweep(asked, dead.id, become_password=become_password)
        installing = sorted(name for name, count in swept.items() if count is None)
        left = sorted({target.name for target in asked} - swept.keys())
        playbooks.tidy(dead)
        dead.note(to_sweep=[*left, *installing])
        if not left and not installing and not dead.ended:
            dead.finish("killed")
        ended += sum(count or 0 for count in swept.values())
        words = (
            f"{ended} of its processes were still running and have been ended" if ended else "nothing of it was left"
        )
        if left:
            words += f" elsewhere, but {hostlist.fold(left)} did not answer and will be asked by the next provision"
        if installing:
            words += f"; on {hostlist.fold(installing)} it still installs packages, which this run waits for"
        told.append(f"run {dead.id} ({dead.facts.get('command')}, {dead.facts.get('started')}) {why}; {words}")
    return told
