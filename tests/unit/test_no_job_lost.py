"""The judge of jobs that are there while a cluster changes turns red for what would be a loss."""

from __future__ import annotations

from typing import Any

import no_job_lost
import pytest
from no_job_lost import Job

JOBS = [Job("watched", "5", 3), Job("array", "6_0", 0), Job("array", "6_1", 1)]
ROWS = "5|FAILED|3:0\n6_0|COMPLETED|0:0\n6_1|FAILED|1:0"
NUMBERS = [f"{number} {1000 + number}" for number in range(1, 10)]
FILES = {
    "home": "\n".join(NUMBERS), "tmp": "\n".join(NUMBERS), "loader": "begun\nwhole 7\nloader 0",
    "step": "step 8 1008", "container": "container",
}  # fmt: skip
SAID = {"srun": "still here\n", "salloc": "still here\n"}


def judged(rows: str = ROWS, said: dict[str, str] = SAID, over: int = 1009, **files: str) -> list[str]:
    return no_job_lost.judge(JOBS, rows, {**FILES, **files}, said, (1002, over))


def test_jobs_that_are_all_there_once_with_their_own_exit_codes_are_not_lost() -> None:
    assert judged() == []
    assert no_job_lost.pause("1 1000\n2 1001\n3 1007") == 6


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"home": "\n".join(NUMBERS[:3] + NUMBERS[4:])}, "numbers in home: 1 missing, first 4"),
        ({"tmp": "\n".join([*NUMBERS, NUMBERS[4]])}, "numbers in tmp: 1 double, first 5"),
        ({"home": "\n".join([*NUMBERS, "1 1010", "2 1011"])}, "numbers in home: 2 double, first 1"),
        ({"over": 1010}, "numbers in home: from 1001 to 1009; the changes: 1002 to 1010"),
        ({"tmp": ""}, "numbers in tmp: unreadable or none"),
        ({"loader": "begun"}, "watched: loader says 'begun'"),
        ({"step": "srun: error: Unable to create step"}, "watched: step says 'srun: error"),
        ({"said": {**SAID, "srun": ""}}, "srun: says ''"),
        ({"rows": ROWS.replace("6_0|COMPLETED|0:0", "")}, "array 6_0: 0 rows in sacct, not one"),
        ({"rows": f"5|NODE_FAIL|1:0\n{ROWS}"}, "watched 5: 2 rows in sacct, not one: 5|NODE_FAIL|1:0 5|FAILED|3:0"),
        ({"rows": ROWS.replace("FAILED|3:0", "COMPLETED|0:0")}, "watched 5: 5|COMPLETED|0:0, not 5|FAILED|3:0"),
    ],
    ids=["hole", "double", "begun again", "ended early", "no numbers", "workers", "step", "interactive", "no row",
         "two rows", "exit code"],
)  # fmt: skip
def test_what_is_lost_or_twice_there_is_named(changed: dict[str, Any], problem: str) -> None:
    assert problem in judged(**changed)[0]
