"""A new configuration is tried in a slurmctld of its own; what that says decides, and leads to the inventory's line."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

import pytest
from declare import A40, cluster
from machines import act, plugin, run_module

from provision import content
from provision.inventory.where import spoken_written
from provision.judge.slurm_conf import CANDIDATE, candidate
from provision.model.checks import Check, Verdict, check_from
from provision.slurm.candidate import Spoken, prepared, spoken_of
from provision.slurm.render import render
from provision.slurm.taken import FORMAT, jobs_in

action = plugin("plugins/action/slurm_candidate.py")
module = plugin("plugins/modules/slurm_candidate.py")

#: What slurmctld of this release has said, started as the module does. ``good`` ran until it was ended.
RECORDED = content.ROOT / "tests/unit/fixtures/slurmctld/24.11.5"
IMAGE = f"head:5000/clusterctl/slurm@sha256:{'a' * 64}"
PARTITION = {"PartitionName": "gpu", "MaxTime": "7-0"}


def said(name: str) -> list[str]:
    return (RECORDED / f"{name}.txt").read_text(encoding="utf-8").splitlines()


def rendered(**site: Any) -> dict[str, str]:
    return render(cluster(**site))


def with_line(line: str) -> dict[str, str]:
    """Return the files of a site with one more line, whatever the inventory would have said of it."""
    texts = rendered()
    return {**texts, "slurm.conf": f"{texts['slurm.conf']}{line}\n"}


def conf(text: str) -> str:
    return "".join(f"{line}\n" for line in prepared({"slurm.conf": text})["slurm.conf"].splitlines()[:-2])


@pytest.mark.parametrize(
    "line",
    [
        "AccountingStorageType=accounting_storage/slurmdbd", "AccountingStorageTRES=gres/gpu", "JobCompHost=db",
        "PrologSlurmctld=/usr/local/sbin/begin", "SlurmctldPrimaryOnProg=/bin/mount", "resumeprogram=/bin/boot",
        "MailProg=/usr/bin/mail", "AuthType=auth/munge", "BurstBufferType=burst_buffer/lua",
    ],
)  # fmt: skip
def test_what_would_reach_out_is_no_line_of_its_files(line: str) -> None:
    assert conf(f"ClusterName=a\n{line}\nSlurmUser=slurm\n") == f"ClusterName=a\n# {line}\nSlurmUser=slurm\n"


@pytest.mark.parametrize(
    ("line", "left"),
    [
        ("JobSubmitPlugins=all_partitions,lua", "JobSubmitPlugins=all_partitions"),
        ("JobSubmitPlugins=lua", ""),
        ("PriorityFlags=NO_FAIR_TREE,CALCULATE_RUNNING", "PriorityFlags=CALCULATE_RUNNING"),
        ("CommunicationParameters=NoAddrCache,DisableIPv4", "CommunicationParameters=NoAddrCache"),
        (
            'PartitionName=p Nodes=ALL TRESBillingWeights="CPU=1.0,GRES/gpu=2.0" State=UP',
            "PartitionName=p Nodes=ALL TRESBillingWeights=CPU=1.0 State=UP",
        ),
        ("# JobSubmitPlugins=lua", "# JobSubmitPlugins=lua"),
        ("Prolog=job_begin", "Prolog=job_begin"),
    ],
)
def test_words_that_only_the_real_one_knows_are_out_and_the_rest_of_the_line_stays(line: str, left: str) -> None:
    assert conf(f"{line}\n") == f"{left}\n"


def test_a_rendered_configuration_keeps_its_lines_where_they_are() -> None:
    texts = rendered(nodes={"node1": A40})
    there, then = texts["slurm.conf"].splitlines(), prepared(texts)["slurm.conf"].splitlines()

    assert then[: len(there)] == there
    assert then[len(there) :] == ["AuthType=auth/none", "CredType=cred/none"]
    assert prepared(texts).keys() == texts.keys()


#: What was recorded: the line that was no good, a part of what is shown, and the parameter that this speaks of.
REFUSED = {
    "unknown_key": ("Frobnicate=1", "Parsing error at unrecognized key: Frobnicate", "Frobnicate"),
    "max_time": ("PartitionName=q MaxTime=1:2:3:4", 'Bad value "1:2:3:4" for MaxTime', "MaxTime"),
    "partition_state": ("PartitionName=q State=FOO", 'Bad value "FOO" for State', "State"),
    "slurmd_timeout": ("SlurmdTimeout=abc", 'SlurmdTimeout value "abc" is not a valid number', "SlurmdTimeout"),
    "plugin": ("SchedulerType=sched/none-such", "cannot find sched plugin for sched/none-such", "SchedulerType"),
    "unknown_node": ("PartitionName=q Nodes=node1,ghost", 'lookup failure for node "ghost"', "Nodes"),
    "select_type_parameters": ("SelectTypeParameters=CR_Nonsense", "CR_Nonsense", "SelectTypeParameters"),
    "node_twice": ("NodeName=node1 CPUs=48", "Duplicated NodeName node1", "NodeName"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_is_shown_in_slurms_words_and_leads_to_what_they_speak_of(name: str) -> None:
    line, words, parameter = REFUSED[name]

    code, lines = module.judged(False, 1, said(name))
    spoken = spoken_of(with_line(line), lines)

    assert code == "refused"
    assert words in " ".join(lines)
    assert lines[-1].startswith("fatal: ")
    assert not any(noise in " ".join(lines) for noise in ("not stored", "MailProg", "state file", "NOTE"))
    assert spoken is not None
    assert (spoken.file, spoken.name) == ("slurm.conf", parameter)
    assert f"{parameter}={spoken.value}" in line


def test_a_line_that_slurm_names_by_its_number_is_that_line() -> None:
    texts = with_line("PartitionName=a PriorityTier=1\nPartitionName=b PriorityTier=-3")
    last = len(texts["slurm.conf"].splitlines())

    lines = [line.replace("line 68", f"line {last}") for line in module.judged(False, 1, said("priority_tier"))[1]]

    assert spoken_of(texts, lines[1:]) == Spoken("slurm.conf", last, "PriorityTier", "-3")


def test_a_file_of_the_sites_own_is_led_to_by_what_stands_in_it() -> None:
    texts = {**rendered(), "acct_gather.conf": "# ours\nNonsense=3\n"}

    # Slurm 24.11.5 of such a slurmctld, which has no database.
    noise = "slurmctld: error: PriorityWeightAge can only be used with SlurmDBD, ignoring"
    lines = module.judged(False, 1, [noise, *said("acct_gather")])[1]

    assert spoken_of(texts, lines) == Spoken("acct_gather.conf", 2, "Nonsense", "3")
    assert not any("SlurmDBD" in line for line in lines)


def test_what_is_wrong_with_a_nodes_hardware_is_called_as_in_the_inventory() -> None:
    spoken = spoken_of(rendered(nodes={"node1": A40}), ["error: Invalid GRES configured on node node1: gpu:A40:4"])

    assert spoken is not None
    assert (spoken.name, spoken.value) == ("node_gres", "gpu:A40:4")


def test_words_that_speak_of_nothing_lead_nowhere() -> None:
    texts = with_line("MaxArraySize=4")

    assert spoken_of(texts, ["fatal: Unable to process configuration file", "error: out of 4 things"]) is None


@pytest.mark.parametrize(
    ("ready", "code", "name", "expected"),
    [
        pytest.param(True, 0, "good", "started", id="it runs"),
        pytest.param(False, 124, "no_topology", "unknown", id="it still waits for a file at its limit"),
        pytest.param(False, 137, "max_time", "unknown", id="somebody has killed it"),
    ],
)
def test_only_what_it_has_ended_by_is_a_refusal(ready: bool, code: int, name: str, expected: str) -> None:
    assert module.judged(ready, code, said(name))[0] == expected


def test_an_engine_that_starts_nothing_has_refused_nothing() -> None:
    assert module.judged(False, 125, ["docker: Error response from daemon: no"]) == (
        "unknown", ["docker: Error response from daemon: no"],
    )  # fmt: skip
    assert module.judged(False, 1, ["Cannot connect to the Docker daemon"])[0] == "unknown"


#: An engine that has the image, says what is recorded, and goes on until it is told to remove the container.
ENGINE = """#!/bin/sh
echo "$@" >>"{folder}/asked"
case "$1" in
    image) exit {image} ;;
    exec) case "$*" in *squeue*) echo "7|ada|RUNNING|batch|node1||gres/gpu:2" ;; *) echo "ReservationName=r" ;; esac ;;
    run) cat "{said}"; [ {code} != runs ] || {{ echo $$ >"{folder}/pid"; exec sleep 600; }}; exit {code} ;;
    rm) [ ! -e "{folder}/pid" ] || kill -9 "$(cat "{folder}/pid")" ;;
    pull) exit 0 ;;
esac
"""


class Machine:
    """A controller: what slurmctld runs with, its state, and an engine that says what is recorded."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.conf, self.state = folder, folder / "slurm", folder / "state"
        self.conf.mkdir()
        self.state.mkdir()
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def engine(self, name: str, code: str | int, image: int = 0) -> None:
        program = self.folder / "docker"
        text = ENGINE.format(folder=self.folder, said=RECORDED / f"{name}.txt", code=code, image=image)
        program.write_text(text, encoding="utf-8")
        program.chmod(0o755)

    def ask(self, texts: dict[str, str], **more: Any) -> dict[str, Any]:
        arguments = {
            "texts": texts, "sums": module.checksums.sums(texts), "names": ["head", "node1"], "image": IMAGE,
            "directory": str(self.conf), "state": str(self.state), "format": FORMAT, **more,
        }  # fmt: skip
        return run_module("plugins/modules/slurm_candidate.py", arguments)

    @property
    def asked(self) -> list[str]:
        file = self.folder / "asked"
        return file.read_text(encoding="utf-8").splitlines() if file.exists() else []


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


TEXTS = {"slurm.conf": "ClusterName=a\nProlog=begin.sh\n", "begin.sh": "#!/bin/sh\n"}


def test_it_is_ended_as_soon_as_it_runs(machine: Machine) -> None:
    machine.engine("good", "runs")

    assert machine.ask(TEXTS)["code"] == "started"
    name = " ".join(machine.asked).split(" --name ")[1].split()[0]
    assert machine.asked[-1] == f"rm --force {name}"


def test_it_has_no_network_and_no_right_but_to_give_itself_an_address() -> None:
    words = module.command(Path("/scratch"), "name", {"image": IMAGE, "user": "64030:64030", "wait": 20})
    pairs = list(itertools.pairwise(words))

    assert ("--network", "none") in pairs
    assert "--rm" in words
    assert "--read-only" in words
    assert [right for option, right in pairs if option == "--cap-add"] == ["NET_ADMIN", "SETGID", "SETUID"]
    assert not any("/run/munge" in word or "docker.sock" in word for word in words)
    assert words[-6:] == ["timeout", "--kill-after=5", "20", "slurmctld", "-D", "-v"]


def test_what_it_refuses_comes_back_in_its_words(machine: Machine) -> None:
    machine.engine("max_time", 1)

    answer = machine.ask(TEXTS)

    assert answer["code"] == "refused"
    assert answer["lines"] == [
        'error: Bad value "1:2:3:4" for MaxTime', "fatal: Unable to process configuration file",
    ]  # fmt: skip
    assert not answer["changed"]


def test_nothing_is_started_where_slurmctld_has_these_files(machine: Machine) -> None:
    machine.engine("good", "runs")
    for name, text in TEXTS.items():
        (machine.conf / name).write_text(text, encoding="utf-8")

    assert machine.ask(TEXTS)["code"] == "same"
    assert machine.asked == []


def test_a_file_that_goes_is_a_change(machine: Machine) -> None:
    machine.engine("max_time", 1)
    for name, text in {**TEXTS, "topology.conf": "SwitchName=a\n"}.items():
        (machine.conf / name).write_text(text, encoding="utf-8")

    assert machine.ask(TEXTS)["code"] == "refused"


def test_an_image_that_is_not_there_is_brought_only_where_slurmctld_is_about_to_run(machine: Machine) -> None:
    machine.engine("max_time", 1, image=1)

    assert machine.ask(TEXTS, image="")["code"] == "absent"
    assert machine.ask(TEXTS)["code"] == "absent"
    assert machine.ask(TEXTS, pull=True)["code"] == "refused"
    assert f"pull --quiet {IMAGE}" in machine.asked


def test_the_queue_comes_back_where_the_files_change(machine: Machine) -> None:
    machine.engine("good", "runs")
    assert (machine.ask(TEXTS)["live"], machine.asked[0][:5]) == ("", "image")
    (machine.conf / "slurm.conf").write_text("ClusterName=b\n", encoding="utf-8")

    answer = machine.ask(TEXTS)

    assert answer["live"] == "ClusterName=b\n"
    assert jobs_in(answer["queue"])[0].nodes == "node1"
    assert answer["reservations"] == "ReservationName=r\n"


def test_it_has_a_copy_of_the_state_and_no_password_of_the_database(tmp_path: Path) -> None:
    conf, state, scratch = (tmp_path / name for name in ("slurm", "state", "scratch"))
    for folder in (conf, state, scratch):
        folder.mkdir()
    for path in (conf / "slurmdbd.conf", conf / "slurm.key", conf / "topology.conf", state / "job_state"):
        path.write_text(path.name, encoding="utf-8")
    (state / "slurmctld.pid").write_text("1", encoding="utf-8")
    (state / "hash.1").mkdir()
    user = f"{os.getuid()}:{os.getgid()}"

    params = {"texts": TEXTS, "directory": conf, "state": state, "user": user, "names": ["head", "node1"]}
    module.laid_out(scratch, params)

    assert sorted(path.name for path in (scratch / "conf").iterdir()) == ["begin.sh", "slurm.conf", "slurm.key"]
    assert [path.name for path in (scratch / "state").iterdir()] == ["job_state"]
    assert "127.0.0.1\tnode1\n" in (scratch / "hosts").read_text(encoding="utf-8")


def acted(answer: dict[str, Any], **variables: Any) -> tuple[dict[str, Any], Check]:
    found = act(action, {"texts": with_line("SlurmdTimeout=abc")}, lambda **_: {"live": "", **answer}, **variables)
    return found, check_from(found["cluster_checks"][0], host="head")


def test_a_refusal_fails_the_controller_for_the_whole_cluster_and_names_the_inventorys_line(tmp_path: Path) -> None:
    inventory = tmp_path / "inventory.ini"
    inventory.write_text("[slurm_controller]\nhead\n", encoding="utf-8")
    (tmp_path / "group_vars").mkdir()
    variables = tmp_path / "group_vars/all.yml"
    variables.write_text("slurm_conf_parameters:\n  MessageTimeout: 30\n  SlurmdTimeout: abc\n", encoding="utf-8")
    lines = module.judged(False, 1, said("slurmd_timeout"))[1]

    found, check = acted({"code": "refused", "lines": lines}, inventory_file=str(inventory))

    assert found["failed"]
    assert check.whole
    assert check.source == f"{variables}, line 3: SlurmdTimeout=abc"
    assert 'SlurmdTimeout value "abc" is not a valid number' in found["msg"]


def test_where_no_slurmctld_could_be_asked_the_run_goes_on_with_a_warning() -> None:
    found, check = acted({"code": "unknown", "lines": ["no"]})

    assert "failed" not in found
    assert check.verdict is Verdict.WARN


def test_one_that_was_not_asked_is_no_pass() -> None:
    verdicts = {code: candidate(code, [], "").verdict for code in ("same", "absent", "started", "unknown", "")}

    assert [code for code, verdict in verdicts.items() if verdict is Verdict.PASS] == ["started"]
    assert CANDIDATE.whole == ("candidate",)


@pytest.mark.parametrize(
    ("text", "spoken", "expected"),
    [
        ("slurm_partitions:\n- name: q\n  MaxTime: 1:2:3:4\n", Spoken("slurm.conf", 9, "MaxTime", "1:2:3:4"), "line 3"),
        ("slurm_conf_files:\n  mpi.conf: |\n    a=1\n    b=2\n", Spoken("mpi.conf", 2, "b", "2"), "line 4: mpi.conf"),
        ("slurm_partitions: [{Nodes: [node1, ghost]}]\n", Spoken("slurm.conf", 9, "Nodes", "node1,ghost"), "line 1"),
        ("a: 1\n", Spoken("slurm.conf", 9, "MaxTime", "1"), ""),
        ("a: 1\n", Spoken("gres.conf", 9), ""),
    ],
)
def test_what_slurm_speaks_of_is_found_where_the_inventory_says_it(
    tmp_path: Path, text: str, spoken: Spoken, expected: str
) -> None:
    inventory = tmp_path / "inventory.yml"
    inventory.write_text(text, encoding="utf-8")

    found = spoken_written(inventory, spoken, ["mpi.conf"])

    assert expected in found if expected else found == ""
