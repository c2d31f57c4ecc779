"""srun, sbatch and salloc with pyxis's options: an ordinary user's tasks on two nodes, in rootless Podman."""

from __future__ import annotations

import labs
import locked_registry
import pytest
from container_starts import LEFT, image, left, on_node, run, said, starts_leave_nothing
from labs import Lab

INSIDE = "Debian GNU/Linux 12 (bookworm)"


def test_a_task_is_as_without_container_but_for_the_image(provisioned_lab: Lab) -> None:
    look = "ulimit -l; ulimit -n; stat --format=%d /dev/shm /tmp; id -u; id -g; env | grep ^SLURM_JOB_CPUS; umask"
    look += "; grep ^SigIgn /proc/self/status"
    both = f"srun sh -c '{look}; echo $MARK'; srun --container-image=$I sh -c '{look}; echo $MARK'"
    lines = said(provisioned_lab, f'export MARK=mine; umask 027; salloc --quiet sh -c "{both}"')
    inside = said(
        provisioned_lab,
        "srun --container-image=$I sh -c '. /etc/os-release; echo $PRETTY_NAME; pwd; touch /new /root/new'",
    )

    assert len(lines) == 20
    assert lines[:10] == lines[10:]
    assert inside == [INSIDE, "/"]
    # The cluster hands no limit of the submitter's on (PropagateResourceLimits=NONE), but one that is asked for.
    limits = ("srun", "srun --propagate=NOFILE", "srun --propagate=NOFILE --container-image=$I")
    script = "; ".join(["ulimit -n 512", *(f"{step} sh -c 'ulimit -n'" for step in limits)])
    assert [line == "512" for line in said(provisioned_lab, script)] == [False, True, True]
    # What the step's own prolog says, as the user before each task, and where the user wants what is temporary.
    prolog = "printf '#!/bin/sh\\necho export MARK=of-the-prolog\\n' >before.sh; chmod +x before.sh"
    told = "sh -c 'echo $MARK $TMPDIR; touch $TMPDIR/x && echo written'"
    steps = f"srun --task-prolog=$PWD/before.sh {told}; srun --task-prolog=$PWD/before.sh --container-image=$I {told}"
    lines = said(provisioned_lab, f"{prolog}; export TMPDIR=/tmp/of-ada; {steps}; rm before.sh")
    assert lines == ["of-the-prolog /tmp/of-ada", "written"] * 2


def test_a_terminal_and_signals_are_the_tasks_own(provisioned_lab: Lab) -> None:
    lab = provisioned_lab
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


#: An image of one shell, made from the node's own files, in the job; and a program for another processor.
SMALL = r"""
set -e
root=$(mktemp -d); mkdir -p "$root/bin" "$root/etc" "$root/work"
cp /bin/sh /bin/cat "$root/bin"
for file in $(ldd /bin/sh /bin/cat | grep -o '/lib[^ ]*' | sort -u); do
    mkdir -p "$root$(dirname $file)"; cp "$file" "$root$file"
done
touch "$root/etc/passwd" "$root/etc/group"; cp /bin/sh "$root/bin/foreign"
printf '\267' | dd of="$root/bin/foreign" bs=1 seek=18 conv=notrunc status=none
tar -C "$root" -cf root.tar .
podman --log-level fatal import -q -c 'WORKDIR /work' -c 'ENV OWN=image' -c 'ENV MARK=image' \
    -c 'ENTRYPOINT ["/bin/sh", "-c", "echo first; exec \"$@\"", "entry"]' root.tar small:1
rm -f ./small.tar; podman --log-level fatal save -q -o small.tar small:1
cp "$root/bin/foreign" "$root/bin/sh"; tar -C "$root" -cf root.tar .
podman --log-level fatal import -q --arch arm64 root.tar foreign:1
rm -f ./foreign.tar; podman --log-level fatal save -q -o foreign.tar foreign:1
rm -rf "$root" root.tar; : >empty.tar; printf hsqs >x.sqsh
"""


@pytest.fixture(scope="module")
def small(provisioned_lab: Lab) -> str:
    """The path of such an archive, in the home of the user."""
    provisioned_lab.said(f"cat >small.sh <<'END'\n{SMALL}END\nsrun sh small.sh 2>&1; rm small.sh")
    return "./small.tar"


#: What is asked for, the exit code, and words of the refusal: those of which Podman and the kernel know. Options that
#: cannot be are a unit test's (test_container_task).
REFUSED = [
    ("--container-image=./small.tar /bin/foreign", 126, "is for another architecture than x86_64; take an image"),
    ("--container-image=./foreign.tar sh -c true", 126, "is for another architecture than x86_64; take an image"),
    ("--container-image=no/such:1 true", 125, "no image no/such:1 here. There are: "),
    ("--container-image=head:5000/no/such:1 true", 125, "manifest unknown; name one that the nodes have"),
    (
        "--container-image=./x.sqsh true",
        125,
        "is a squashfs of enroot's, which only enroot can mount; make an archive",
    ),
]


@pytest.fixture(scope="module")
def refusals(provisioned_lab: Lab, small: str) -> list[tuple[int, list[str]]]:
    """Exit code and lines of each, with two tasks of one job; Slurm's own lines are left out."""
    steps = "".join(f"srun --quiet {words}; echo code $?\n" for words, _, _ in REFUSED)
    script = f"cat >steps.sh <<'END'\n{steps}END\nsalloc --quiet -w node1 -n 2 sh steps.sh 2>&1; rm steps.sh"
    found: list[tuple[int, list[str]]] = []
    lines: list[str] = []
    for line in said(provisioned_lab, script):
        if line.startswith("code "):
            found.append((int(line[5:]), lines))
            lines = []
        elif not line.startswith(("srun: ", "slurmstepd")):
            lines.append(line)
    return found


@pytest.mark.parametrize("number", range(len(REFUSED)), ids=[words for words, _, _ in REFUSED])
def test_what_cannot_work_is_one_line_with_the_node_and_what_to_do(
    refusals: list[tuple[int, list[str]]], number: int
) -> None:
    _, code, says = REFUSED[number]
    found, lines = refusals[number]

    assert {line for line in lines if not line.startswith("container: node1: ")} == set()
    assert (found, says in lines[0]) == (code, True), lines
    # Of what is refused before there is a container, the first task tells for both.
    assert len(set(lines)) == 1
    assert len(lines) == 1 or code != 125


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--multi-prog multi.conf", "--multi-prog and --container-image do not go together: start the programs by"),
        ("--bcast hostname", "--bcast and --container-image do not go together: the image has the program"),
    ],
)
def test_what_an_image_has_no_part_in_is_refused(provisioned_lab: Lab, words: str, says: str) -> None:
    done = run(
        provisioned_lab, f"echo '* true' >multi.conf; srun --container-image=$I {words}; c=$?; rm multi.conf; exit $c"
    )

    assert says in done.stderr
    assert (done.stdout, done.returncode) == ("", 1)
    labs.until(lambda: provisioned_lab.said("squeue --me --noheader") == "", "its allocation stays")


def test_the_program_is_the_images_where_srun_has_found_another_of_that_name(provisioned_lab: Lab) -> None:
    """As LaunchParameters=test_exec would have it for everybody, which check refuses."""
    mine = "mkdir mine; printf '#!/bin/sh\\necho mine\\n' >mine/hostname; chmod +x mine/hostname"
    tried = "PATH=$PWD/mine:$PATH SLURM_TEST_EXEC=1 srun -w node1 --container-image=$I hostname"

    assert said(provisioned_lab, f"{mine}; {tried}; rm -r mine") == ["node1"]


def test_an_archives_image_has_its_own_variables_directory_and_entry_point(provisioned_lab: Lab, small: str) -> None:
    lab, show = provisioned_lab, "/bin/sh -c 'echo $OWN $MARK $MINE $PWD'"
    given = f"export MARK=job MINE=mine; srun --container-image={small}"

    assert said(lab, f"{given} {show}") == ["image image mine /work"]
    assert said(lab, f"{given} --container-env=MARK,NONE {show}") == ["image job mine /work"]
    entry = "--container-entrypoint --container-workdir=/etc"
    assert said(lab, f"{given} {entry} {show}") == ["first", "image image mine /etc"]


def test_mounts_home_and_root_are_as_pyxis_has_them(provisioned_lab: Lab) -> None:
    lab, given = provisioned_lab, "srun --container-image=$I"
    mounts = "--container-mounts='./a dir:/data:ro+rprivate,tmpfs:/empty,/usr/share/doc' --container-workdir=/data"
    look = "cat .mark; : >/empty/x; ls -A /empty /usr/share/doc | head -n 2; : >x"

    done = run(lab, f"mkdir -p 'a dir'; echo here >'a dir/.mark'; {given} {mounts} sh -c '{look}'; rm -r 'a dir'")
    assert (done.stdout.splitlines()[:2], "Read-only file system" in done.stderr) == (["here", "/empty:"], True)
    assert run(lab, f"{given} ls $HOME").returncode == 2
    number = lab.said("id -u")
    home = "sh -c 'pwd; id -u; id -un; : >made; stat --format=%u made; rm made'"
    assert said(lab, f"{given} --container-mount-home {home}") == ["/home/ada", number, "ada", number]
    root = said(lab, f"{given} --container-mount-home --container-remap-root --container-workdir=/root {home}")
    assert root == ["/root", "0", "root", "0"]
    assert run(lab, f"{given} --container-readonly touch /new").returncode == 1
    assert said(lab, "PYXIS_CONTAINER_IMAGE=$I PYXIS_CONTAINER_WORKDIR=/usr srun pwd") == ["/usr"]


def test_a_batch_script_runs_in_its_container_and_an_allocations_steps_do(provisioned_lab: Lab) -> None:
    look = ". /etc/os-release; echo $PRETTY_NAME ${RANK-none}"
    script = (
        "printf '#!/bin/sh\\n#SBATCH --container-image %s\\n#SBATCH --output=batch.out\\n%s\\n' $I "
        f"'{look}' >batch.sh; sbatch --quiet --wait batch.sh; cat batch.out; rm batch.sh batch.out"
    )

    assert said(provisioned_lab, script) == [f"{INSIDE} none"]
    assert said(provisioned_lab, f"salloc --quiet --container-image=$I srun sh -c '{look}'") == [f"{INSIDE} 0"]


def test_a_container_of_a_name_is_found_again_in_its_job_and_what_is_saved_afterwards(
    provisioned_lab: Lab, small: str
) -> None:
    steps = (
        f"srun --container-image={small} --container-name=mine /bin/sh -c 'echo kept >/kept'; "
        "srun --container-name=mine /bin/cat /kept; "
        f"srun --container-image={small} /bin/sh -c 'cat /kept || echo gone'; "
        "srun --container-name=mine:create /bin/cat /kept; srun --container-name=mine:exec /bin/cat /kept"
    )
    found = run(provisioned_lab, f'salloc --quiet --nodes=1 sh -c "{steps}"')
    other = run(provisioned_lab, "srun --container-name=mine /bin/cat /kept")
    saved = said(
        provisioned_lab,
        f"srun --ntasks=2 --nodes=1 --container-image={small} --container-save=./saved.tar"
        " /bin/sh -c 'echo saved >/saved'"
        "; srun --container-image=./saved.tar --container-entrypoint /bin/cat /saved; rm saved.tar",
    )

    assert found.stdout.splitlines()[:2] == ["kept", "gone"], found.stderr
    assert "the job has no container mine here" in other.stderr
    assert saved == ["first", "saved"]


def test_a_registry_that_asks_for_a_password_is_told_with_what_to_do(provisioned_lab: Lab) -> None:
    lab, step = provisioned_lab, "srun --quiet --nodelist=node1 --container-image=head:5443/team/train:1 true"
    with locked_registry.served(lab, ["node1"]):
        try:
            refused = run(lab, step)
            docker_refused = run(lab, "srun --quiet --nodelist=node1 docker run head:5443/team/train:1 true")
            login = "docker login --username ada --password-stdin head:5443"
            said(lab, f"echo of-a-test | srun --quiet --nodelist=node1 {login}")
            let_in = run(lab, step)
        finally:
            lab.said("rm -f .config/containers/auth.json")

    (line,) = (one for one in refused.stderr.splitlines() if not one.startswith("srun: "))
    assert line.startswith("container: node1: --container-image=head:5443/team/train:1: ")
    assert line.endswith("; log in once, for all your jobs: srun --pty docker login REGISTRY")
    assert refused.returncode == docker_refused.returncode == 125
    assert "srun --pty docker login head:5443" in docker_refused.stderr
    assert "manifest unknown" in let_in.stderr, "the next job has the password"


def test_a_node_that_has_not_loaded_the_plugin_refuses_containers_and_nothing_else(provisioned_lab: Lab) -> None:
    lab, plugin = provisioned_lab, "/usr/local/lib/spank_container.so"
    says = "container: node1: this node does not know --container-image yet, and nothing was started"
    script = "sbatch --quiet --wait -w node1 -o no.out --container-image=$I --wrap='echo ran'; cat no.out; rm no.out"
    on_node(lab, f"mount -o remount,bind,rw /; mv {plugin} {plugin}.away")
    try:
        step = run(lab, "srun --nodelist=node1 --container-image=$I echo ran")
        batch = run(lab, script)
        without = run(lab, "srun --nodelist=node1 echo ran")
    finally:
        on_node(lab, f"mv {plugin}.away {plugin}; mount -o remount,bind,ro /")

    for refused in (step, batch):
        assert says in refused.stdout, refused.stderr
        assert "ran" not in refused.stdout.splitlines()
    assert step.returncode == 1
    assert (without.stdout, without.returncode) == ("ran\n", 0)


#: One's own container beside another's job; $JOB is the other's, whose files are seen by its user alone.
PROBES = (
    "ls /var/lib/clusterctl/jobs/$JOB",
    "ls /run/clusterctl/jobs/$JOB/runtime",
    "cat /proc/$OTHER/root/secret",
    "ls /proc/$OTHER/root/",
)


def test_a_container_sees_nothing_of_anothers_job_on_the_node(provisioned_lab: Lab) -> None:
    lab = provisioned_lab
    node = f"srun --quiet --nodelist=node1 --mem=200 --container-image={image(lab)}"
    keeps = f"{node} --job-name=kept sh -c 'echo of-ben >/secret; exec sleep 271' >/dev/null 2>&1 &"
    lab.said(f"{keeps} until squeue --me -h -n kept -t running -o %i | grep -q .; do sleep 0.2; done", user="ben")
    try:
        # The program itself, not the shell that is about to become it.
        program = "pgrep -f '^sleep 271' || true"
        labs.until(lambda: on_node(lab, program), "it does not start")
        job = lab.said("squeue --me -h -n kept -o %i", user="ben")
        other = on_node(lab, program)
        seen = on_node(lab, f"cat /proc/{other}/root/secret")
        own = lab.said(f"job-exec {job} cat /secret", user="ben")
        tried = "; ".join(f"{probe}; echo code $?" for probe in PROBES)
        paths = "--container-mounts=/var/lib/clusterctl,/run/clusterctl"
        bare = run(lab, f"export JOB={job} OTHER={other}; {node} sh -c '{tried}' 2>&1")
        mounted = run(lab, f"export JOB={job} OTHER={other}; {node} {paths} sh -c '{tried}' 2>&1")
        entered = run(lab, f"job-exec {job} cat /secret")
    finally:
        lab.said("scancel --me --name=kept", user="ben")

    assert seen == "of-ben", "root sees what is looked for"
    assert own == "0: of-ben", "and so does the job's user"
    for done in (bare, mounted):
        assert "of-ben" not in done.stdout
        assert "code 0" not in done.stdout, done.stdout
    assert "of-ben" not in entered.stdout + entered.stderr
    assert entered.returncode != 0


@pytest.mark.parametrize("times", [8, pytest.param(200, marks=pytest.mark.night)])
def test_containers_leave_nothing_behind(provisioned_lab: Lab, times: int) -> None:
    starts_leave_nothing(provisioned_lab, times)


#: A job that leaves what it can: a container of a name, a process of its own session. Of /tmp nothing is said: it is
#: the node's own on machines whose control groups are of version 1.
LITTERS = """#!/bin/sh
#SBATCH --nodelist=node1 --mem=500M --output=litters.log --no-requeue
srun --container-image=$I --container-name=mine sh -c ': >/left; setsid -f sleep 900 </dev/null >/dev/null 2>&1'
srun docker run --detach --network none $I sleep 901
srun --container-image=$I --overlap sleep 900
"""


@pytest.mark.night
@pytest.mark.parametrize("end", ["timeout", "reboot"])
def test_a_job_that_is_ended_by_its_time_or_with_its_node_leaves_nothing_behind(provisioned_lab: Lab, end: str) -> None:
    lab = provisioned_lab
    assert run(lab, "srun --nodelist=node1 --container-image=$I true").returncode == 0
    labs.until(lambda: "ada " not in on_node(lab, LEFT), lambda: on_node(lab, LEFT))
    before = left(lab)
    lab.said(f"cat >litters.sh <<'END'\n{LITTERS}END")
    job = said(lab, "sbatch --parsable --time=1 litters.sh")[0]
    state = f"sacct --noheader --parsable2 --allocations --jobs={job} --format=State"
    # What it has is seen here, or its absence says nothing.
    has = (job, "sleep 900", "sleep 901")
    labs.until(lambda: all(one in on_node(lab, LEFT) for one in has), lambda: on_node(lab, LEFT))

    if end == "timeout":
        labs.until(lambda: lab.said(state) == "TIMEOUT", lambda: lab.said(state))
    else:
        lab.restart("node1")
        labs.until(lambda: lab.state(job) != "RUNNING", lambda: lab.said(state))
        labs.until(lambda: lab.node_is_well("node1"), lambda: lab.node("node1").told)

    labs.until(lambda: left(lab) <= before, lambda: "\n".join(left(lab) - before))
    lab.said("rm litters.sh litters.log")
