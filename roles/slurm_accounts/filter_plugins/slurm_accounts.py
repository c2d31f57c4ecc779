# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""Ansible's door to what is asked of the accounting database."""

from __future__ import annotations

from provision import content
from provision.slurm import account_changes


def slurm_account_questions(cluster):
    """Return what sacctmgr is asked: a heading and words each."""
    return account_changes.questions(str(cluster))


def slurm_accounts_file(name):
    """Return the text of one of the role's files."""
    return (content.ROOT / "roles/slurm_accounts/files" / name).read_text(encoding="utf-8")


class FilterModule:
    """The filters of this role."""

    def filters(self):
        """Return them by name."""
        return {"slurm_account_questions": slurm_account_questions, "slurm_accounts_file": slurm_accounts_file}
