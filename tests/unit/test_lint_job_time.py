"""A job script, whatever stands in it, is read in a time that grows as the script does: sbatch waits for it."""

from __future__ import annotations

import gc
import re
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from provision.slurm.jobs.lint import findings

#: Without it, rules of batch scripts have nothing to look for.
HEAD = "#!/bin/bash\n#SBATCH --nodes=2 --ntasks-per-node=8 --gpus-per-node=8\n"
#: What is repeated stands between two %, with numbers for {0} and {1}.
TEXTS = [
    '%srun bash -c "%',
    '%srun bash -c "hostname"\n%',
    "%srun %",
    "echo %srun %",
    "echo %A=b %%srun %",
    "%srun x | %",
    "%srun python x || true\n%",
    "%bash %",
    "%bash <<E\n%",
    "%a=(%",
    "%$(%",
    "%cat >r{0}.sh <<E\nsrun bash r{1}.sh\nE\n%",
    "cat >r.sh <<E\n%hostname\n%E\n%echo r.sh\n%",
    "%cat >r-$SLURM_JOB_ID.sh <<E\nhostname\nE\n%",
    "%f{0}() {{ f{1}; srun x; }}\nf{0} | tee y\n%",
    "%f{0}() {{ f{1}; srun python x || true; }}\n%",
    "%x{0}=$x{1}/a\ncd $x{0}\necho >hosts\n%",
    '%eval "%',
    "%{{ (%",
    "%if %",
    "%\n%srun x\n",
    "set %-o %",
    "a=(%\n%b\nMASTER_ADDR=`scontrol show hostnames`\nsrun torchrun --nnodes=2 --master-addr=$MASTER_ADDR x\n",
    "%MASTER_ADDR=`scontrol show hostnames`\n%srun python x\n",
    "%A+=(--x $A)\n%srun python $A\n",
    "%A+=(--x)\n%srun python $A $A\n",
    "A=%$B%\nB=%$C%\nC=%$D%\nD=%$E%\nE=%$F%\nMASTER_PORT=$A\nsrun python $A\n",
    "A=(%$B %)\nB=(%$C %)\nC=(%$D %)\nD=(%$E %)\nsrun python ${A[@]}\n",
    "A=$((%B*%B))\nB=$((%C*%C))\nC=$((%D*%D))\nD=$((%E*%E))\nsrun -N $((%A*%A)) torchrun --nnodes=2 x\n",
    "srun -N $((8% %x)) y\n",
    "srun bash -c '%word{0} %'\n",
    "echo %word %bash -c '%x y\n%'\n",
    "srun torchrun --nnodes=2 --rdzv-endpoint=$%ADDR%! x\n",
    'MASTER_ADDR="$(echo %SLURM_NODELIST %"\n',
    'srun bash -c "PORT=%${{%"\n',
    "srun --container-image=x:1 bash -c 'echo %$(/%'\n",
    "%docker run -e A=b x\n%",
    "docker run %-e A=b %x:1\n",
    "echo %SLURM_NODELIST %%>f$A %\n",
    "# lint-job: ignore %a, %\n%# lint-job: %\n",
]


def text(form: str, times: int) -> str:
    """Return a script with as many of what is repeated."""

    def repeated(found: re.Match[str]) -> str:
        return "".join(found[1].format(one, one + 1) for one in range(times))

    return HEAD + re.sub("%(.*?)%", repeated, form, flags=re.DOTALL)


LONGEST = 60


@contextmanager
def cut_off(times: int) -> Iterator[None]:
    """End what takes far too long, in seconds of the processor, which other work does not stretch."""

    def ended(*_: object) -> None:
        pytest.fail(f"{times} times takes more than {LONGEST} seconds of the processor")

    before = signal.signal(signal.SIGVTALRM, ended)
    signal.setitimer(signal.ITIMER_VIRTUAL, LONGEST)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def took(form: str, times: int) -> float:
    """Return the processor's seconds."""
    read = text(form, times)
    gc.disable()  # it would count what all other tests have left
    try:
        with cut_off(times):
            begun = time.process_time()
            findings(read)
            return time.process_time() - begun
    finally:
        gc.enable()


def calls(form: str, times: int) -> int:
    """Return how many functions are called, which is the same on each computer."""
    count = 0

    def counted(*_: object) -> None:
        nonlocal count
        count += 1

    read = text(form, times)
    with cut_off(times):
        sys.setprofile(counted)
        try:
            findings(read)
        finally:
            sys.setprofile(None)
    return count


@pytest.mark.slow
@pytest.mark.parametrize("form", TEXTS)
def test_a_script_is_read_in_a_time_that_grows_as_it_does(form: str) -> None:
    assert calls(form, 800) < 3 * calls(form, 400)


@pytest.mark.slow
@pytest.mark.parametrize("form", TEXTS)
def test_the_processor_needs_no_more_for_it_than_the_script_grows(form: str) -> None:
    times = 1000
    while (short := took(form, times)) < 0.05 and times < 16000:
        times *= 2

    # Four times as much takes four times as long, and sixteen times as long if each piece is compared with each other.
    assert any(took(form, 4 * times) < 9 * max(short, 0.02) for _ in range(3))
