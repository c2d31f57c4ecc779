"""The order in which Slurm is set up: what is enforced comes after who it would keep out."""

from __future__ import annotations

import yaml

from provision import content


def test_accounts_are_in_the_database_before_slurmctld_enforces_them_and_their_limits_follow() -> None:
    """Each order ends with the same cluster; in another one, who has a job in between is refused."""
    plays = yaml.safe_load(content.playbook("slurm").read_text(encoding="utf-8"))

    def places(role: str) -> list[int]:
        return [place for place, play in enumerate(plays) if role in str((play.get("roles"), play.get("tasks")))]

    accounts, users = places("slurm_accounts"), places("'name': 'ddp_validation', 'tasks_from': 'user'")
    assert len(accounts) == 2
    (database,) = places("slurm_database")
    assert database < accounts[0]
    assert users[0] < accounts[0], "the proof's user is in the database, too"
    daemons = [place for place in places("slurm_service") if "fetch" not in str(plays[place])]
    assert accounts[0] < places("slurm_conf")[0] < daemons[0] < accounts[1]
