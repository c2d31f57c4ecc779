"""srun, sbatch and salloc with pyxis's options: an ordinary user's tasks on two nodes, in rootless Podman."""

from __future__ import annotations

import subprocess

from labs import Lab

#: The image that is in every node's store, for the proof of training.
IMAGE = "$(srun podman images --quiet | head -n 1)"
INSIDE = "Debian GNU/Linux 12 (bookworm)"


def run(lab: Lab, words: str) -> subprocess.CompletedProcess[str]:
    """Run a command line as an ordinary user on the controller, in their home; $I is the image."""
    return lab.ssh("head", f"I={IMAGE}; {words}", user="ada")


def said(lab: Lab, words: str) -> list[str]:
    """Return the lines that such a command prints; it must succeed."""
    done = run(lab, words)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_tasks_of_a_step_share_one_container_on_each_node_and_know_their_ranks(provisioned_lab: Lab) -> None:
    look = (
        "echo $RANK $LOCAL_RANK $WORLD_SIZE $MASTER_ADDR:$MASTER_PORT $(readlink /proc/self/ns/mnt) $(id -un) $HOSTNAME"
    )

    lines = said(provisioned_lab, f"srun --nodes=2 --ntasks-per-node=2 --container-image=$I sh -c '{look}'")

    found = sorted(line.split() for line in lines)
    assert [one[:3] for one in found] == [[str(rank), str(rank % 2), "4"] for rank in range(4)]
    (meeting,) = {one[3] for one in found}
    assert meeting.startswith(f"{provisioned_lab.address('node1')}:2")
    spaces = [one[4] for one in found]
    assert spaces[0] == spaces[1] != spaces[2] == spaces[3]
    assert {one[5] for one in found} == {"ada"}
    assert [one[6] for one in found] == ["node1", "node1", "node2", "node2"]
    # What the user has set stays.
    assert said(provisioned_lab, "RANK=77 srun --container-image=$I printenv RANK") == ["77"]


def test_a_task_is_as_without_container_but_for_the_image(provisioned_lab: Lab) -> None:
    look = "ulimit -l; ulimit -n; stat --format=%d /dev/shm /tmp; id -u; id -g; env | grep ^SLURM_JOB_CPUS; umask"
    both = f"srun sh -c '{look}; echo $MARK'; srun --container-image=$I sh -c '{look}; echo $MARK'"
    lines = said(provisioned_lab, f'export MARK=mine I={IMAGE}; umask 027; salloc --quiet sh -c "{both}"')
    image = said(
        provisioned_lab,
        "srun --container-image=$I sh -c '. /etc/os-release; echo $PRETTY_NAME; pwd; touch /new /root/new'",
    )

    assert len(lines) == 18
    assert lines[:9] == lines[9:]
    assert image == [INSIDE, "/"]


def test_streams_signals_and_exit_codes_are_the_tasks_own(provisioned_lab: Lab) -> None:
    lab = provisioned_lab
    assert said(lab, "echo through | srun --container-image=$I cat") == ["through"]
    for program, code in (("exit 7", 7), ("kill -9 $$", 137), ("kill -USR1 $$", 138)):
        assert run(lab, f"srun --container-image=$I sh -c '{program}'").returncode == code
    terminal = run(lab, "script -qec \"srun --pty --container-image=$I sh -c 'tty; exit 5'\" /dev/null")
    assert (terminal.returncode, "/dev/pts/0" in terminal.stdout) == (5, True)
    traps = "trap 'echo got TERM; exit 3' TERM; trap 'echo got USR1' USR1; echo ready; while :; do sleep 0.1; done"
    script = (
        f'srun --job-name=signals --container-image=$I sh -c "{traps}" >signals.out 2>/dev/null & process=$!\n'
        "until grep -q ready signals.out; do sleep 0.1; done; job=$(squeue --me --noheader -n signals -o %i)\n"
        "scancel --signal=USR1 $job; until grep -q USR1 signals.out; do sleep 0.1; done; scancel --signal=TERM $job\n"
        "wait $process; echo code $?; cat signals.out; rm signals.out"
    )
    assert said(lab, script) == ["code 3", "ready", "got USR1", "got TERM"]


def test_a_task_has_the_gpus_that_it_was_granted_and_no_other(provisioned_lab: Lab) -> None:
    look = "srun --container-image=$I sh -c 'ls /dev | grep ^nvidia; echo visible $CUDA_VISIBLE_DEVICES'"

    one = said(provisioned_lab, f"salloc --quiet --nodelist=node1 --gres=gpu:1 {look}")
    other = said(provisioned_lab, f"salloc --quiet --nodelist=node1 --gres=gpu:2 {look}")
    none = said(provisioned_lab, look)

    assert one[0] in ("nvidia0", "nvidia1")
    # The container has one GPU, which is the first there.
    assert one[1:] == ["visible 0"]
    assert other == ["nvidia0", "nvidia1", "visible 0,1"]
    assert none == ["visible"]
