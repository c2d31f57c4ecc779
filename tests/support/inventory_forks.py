# Copyright the clusterctl authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read inventories in forks of one process that has imported Ansible, instead of starting Ansible for each.

Usage: inventory_forks DUMP
For each line on standard input, a JSON object with ``words`` (of ``ansible-inventory``), ``out`` and ``err`` (files to
write), the program DUMP runs in a fork, as it would in a process of its own; its status is a line on standard output.
Importing Ansible takes 0.5 s of the processor, a fork 0.05 s, and unit tests read some 200 inventories.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import traceback
from typing import Any


def read(dump: Any, asked: dict[str, Any]) -> None:
    """Do in a fork what a line asks for, and end it."""
    code = 1
    try:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for number, name in ((1, asked["out"]), (2, asked["err"])):
            os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
        dump.cli_executor(["ansible-inventory", *asked["words"]])
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main(program: str) -> None:
    """Answer until standard input ends."""
    # Not as "__main__": the program is read, not run.
    dump = runpy.run_path(program)["Dump"]
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    for line in sys.stdin:
        if not (child := os.fork()):
            read(dump, json.loads(line))
        answers.write(f"{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}\n")


if __name__ == "__main__":
    main(sys.argv[1])
