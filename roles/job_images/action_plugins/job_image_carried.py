# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Carry a directory that an image is built in: exactly the files that its recipe counts, as one archive.

Why not C(ansible.builtin.copy): it takes all of a directory, also git's history, which has secrets of before and may
have gigabytes, and needs a connection or more for each file. No figure: safety, as a secret must not get into an
image.
"""

from __future__ import annotations

import tarfile
import tempfile
from pathlib import Path

from ansible.plugins.action import ActionBase

from provision.inventory import declared_images


def archive(source, target):
    """Write the files of a directory that an image is made of into a tar; a link is what it leads to, as in the recipe.

    Raises:
        OSError: one of them cannot be read.
    """
    with tarfile.open(target, "w:gz", compresslevel=1, dereference=True) as tar:
        for file in declared_images.files_of(Path(source)):
            tar.add(file, str(file.relative_to(source)), recursive=False, filter=_owned)


def _owned(member):
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    return member


class ActionModule(ActionBase):
    """``job_image_carried``: see the module's docstring."""

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        source, target = str(self._task.args["src"]), str(self._task.args["dest"])
        with tempfile.TemporaryDirectory() as place:
            file = Path(place) / "context.tar.gz"
            try:
                archive(source, file)
            except OSError as error:
                return {**result, "failed": True, "msg": f"{error.filename or source}: {error.strerror}"}
            task = self._task.copy()
            task.args = {"src": str(file), "dest": target, "owner": "root", "group": "root"}
            parts = {
                "connection": self._connection,
                "play_context": self._play_context,
                "loader": self._loader,
                "templar": self._templar,
                "shared_loader_obj": self._shared_loader_obj,
            }
            action = self._shared_loader_obj.action_loader.get("ansible.builtin.unarchive", task=task, **parts)
            return {**result, **action.run(task_vars=task_vars)}
