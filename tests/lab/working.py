"""An ordinary user's jobs of many kinds, which are there while a lab's cluster changes."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import labs
import no_job_lost

#: An ordinary user whom every lab declares.
USER = "ada"
PROGRAM = Path(no_job_lost.__file__).read_text(encoding="utf-8")

#: Several jobs share a processor: one small node has them all.
PARTITION = {"PartitionName": "main", "Nodes": "ALL", "Default": "YES", "OverSubscribe": "FORCE:8"}


def no_job_is_lost(lab: labs.Lab, node: str, changes: Mapping[str, Callable[[], object]]) -> None:
    """See that nothing is lost of what is on the node, waits, or is submitted while these happen one by one."""
    lab.said(f"cat >no_job_lost.py <<'END_OF_PROGRAM'\n{PROGRAM}END_OF_PROGRAM\n")
    pipe = subprocess.PIPE
    words = lab.entering("head", f"python3 no_job_lost.py {node} 2>&1", user=USER)
    program = subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True)
    told = ""

    def tell(line: str = "") -> None:
        assert program.stdin
        with suppress(BrokenPipeError):  # it has ended, and said why
            program.stdin.write(f"{line}\n")
            program.stdin.flush()

    def hear(start: str) -> None:
        nonlocal told
        assert program.stdout
        line = ""
        while not line.startswith(start):
            line = program.stdout.readline()
            assert line, told
            told += line

    try:
        hear("ready")
        for name, change in changes.items():
            tell(name)
            change()
            tell()
            hear(f"{name}: ")
        told += program.communicate(timeout=labs.LIMIT)[0]
        print(told)
        assert program.returncode == 0, told
    finally:
        program.kill()
        lab.said("scancel --me; rm -rf no-job-lost no_job_lost.py")
        labs.until(lambda: not lab.said("squeue --me --noheader"))
