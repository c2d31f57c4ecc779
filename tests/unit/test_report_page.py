"""The report of a run: what it says first, how small it stays, and that nothing in a record is ever executed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from records import check, lab_checks, many, record, training
from test_ddp_judge import evidence, read

from provision.cli.main import cli
from provision.judge import ddp_figures
from provision.report import charts, paper
from provision.report.page import Page, build
from provision.report.record import Record
from provision.report.training import Rank
from provision.runner import journal

HOSTILE = {
    "a script": "<script>alert(1)</script><img src=x onerror=alert(1)>",
    "an end of an attribute": "\" onmouseover=alert(1) x='",
    "an end of a drawing": "</text></svg></style><script src=//example.org/x></script>",
    "control characters": "\x1b]0;title\x07\x1b[2J\x00\u202egpj\u2028next",
    "half a character": "\ud800",
    "a template": "{{ page }}{% for x in y %}{0.__class__}",
}


class Seen(HTMLParser):
    """What a browser makes of a page: its elements, their attributes, and the text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.ids: list[str] = []
        self.targets: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.ids += [value or "" for name, value in attrs if name == "id"]
        self.targets += [value or "" for name, value in attrs if name in ("href", "src", "xlink:href")]

    def handle_data(self, data: str) -> None:
        self.text += data


def bytes_of(page: Page) -> int:
    return len(paper.html(page).encode())


def test_a_pass_says_what_is_proven_and_what_only_simulated():
    page = build(record(lab_checks()))

    assert page.verdict == "pass"
    assert page.headline == "lab: 70 checks proven, none failed"
    assert "18 passed on simulated hardware only" in page.about
    assert page.simulated == ("gpu",)
    assert page.subjects == ("base", "containers", "gpu", "rdma", "munge", "slurm", "jobs", "training")
    assert sum(numbers[0] for _, numbers in page.proven) == 70


def test_a_fail_names_its_cause_first_and_what_rests_on_it_below():
    page = build(many(16))

    assert page.headline.startswith("gpu007: communication delivers wrong numbers")
    assert [(one.word, one.where, one.rests) for one in page.findings] == [
        ("fail", "gpu007", 1),
        ("unknown", "gpu012", 0),
    ]
    assert paper.html(page).index("ddp.collectives") < paper.html(page).index("The cluster")


def test_machines_that_are_alike_share_a_row_and_the_worst_stands_first():
    page = build(many(16))

    assert [(row.name, row.machines, row.word) for row in page.rows] == [
        ("gpu007", 1, "fail"),
        ("gpu012", 1, "unknown"),
        ("gpu[001-006,008-011,013-016]", 14, "warn"),
        ("head", 1, "warn"),
    ]
    assert page.rows[0].cells[page.subjects.index("training")] == "fail"


def test_nodes_that_were_in_a_training_job_that_passed_have_its_word():
    page = build(record(lab_checks()))

    [nodes] = [row for row in page.rows if row.name == "node[1-2]"]
    assert nodes.cells[page.subjects.index("training")] == "simulated"


def test_the_picture_has_each_node_with_its_gpus_adapters_and_word():
    page = build(many(16))

    [kind] = page.kinds
    assert kind.title == "16 with gpu:a40:4 · 32 CPUs · 251 GiB"
    assert [(tile.name, tile.word, tile.gpus, tile.adapters) for tile in kind.tiles][6] == ("gpu007", "fail", 4, 2)
    assert page.machines[0] == ("head", "controller, database", "warn")
    assert page.partitions == (("batch", "gpu[001-016]"),)


def test_of_a_limited_run_the_other_nodes_are_not_called_proven_or_broken():
    made = record([one for one in lab_checks() if one["host"] == "node1"], limited=["node1"])
    made.document["cluster"]["kinds"][0]["nodes"] = "node[1-2]"

    page = build(made)

    assert [tile.word for tile in page.kinds[0].tiles] == ["warn", "unproven"]
    assert page.about.endswith("Only node1 was judged; this says nothing about the rest.")


def test_of_three_machines_each_check_is_listed():
    checks = [
        check(f"hardware.part{number}", host, observed=f"{host} has what is declared for it, as {number} of 180 says")
        for host in ("head", "node1", "node2")
        for number in range(180)
    ]
    checks[7] |= {"verdict": "fail"}

    page = build(record(checks, "fail"))

    assert sum(len(row.lines) * row.machines for row in page.rows) == len(checks)
    assert bytes_of(page) < 300_000


def test_a_page_of_three_machines_and_one_of_four_hundred_stay_small():
    assert bytes_of(build(record(lab_checks()))) < 300_000
    assert bytes_of(build(many(400))) < 3_000_000


@pytest.mark.parametrize(("machines", "limit"), [(3, 300_000), (400, 3_000_000)])
def test_no_record_makes_a_page_large_whatever_its_machines_say(machines: int, limit: int):
    """No two machines are alike, and their texts grow when they are escaped."""
    texts = {host: "<&\"'>" * 900 + str(host) for host in range(machines)}
    checks = [
        check(f"hardware.part{number}", f"<&{host}\"'>" * 20, "fail" if host >> number % 9 & 1 else "unknown")
        | dict.fromkeys(("observed", "expected", "cause", "fix"), texts[host])
        for host in range(machines)
        for number in range(130)
    ]
    made = record(checks, "fail")
    made.document["training"] = [training(["<&>" * 100], 400)]

    page = build(made, record(lab_checks()))

    assert bytes_of(page) < limit
    assert len(page.rows) == machines
    assert all(row.lines and row.name != "…" for row in page.rows)
    assert sum(len(row.lines) + row.more for row in page.rows) == len(checks)


def test_a_megabyte_in_one_value_is_cut_and_says_so():
    page = build(record([check("munge.key_mode", verdict="fail", observed="x" * 1_000_000)], "fail"))

    assert "more characters" in page.findings[0].observed
    assert bytes_of(page) < 40_000


def spoken(text: str) -> str:
    """A page on which a text of a machine's stands wherever one can."""
    words = ("fail", "unknown", "warn", "pass")
    texts = dict.fromkeys(("cause", "fix", "expected", "observed"), text)
    checks = [check(f"munge.{word}", text, word, **texts) for word in words]
    made = record([*checks, check("rdma.ports", "node1", "skip", unproven=True, observed=text)], "fail")
    job = training([text], 4) | {"gradient_parameter": text, "backend": text}
    job["ranks"][0]["own"] = 1.0
    made.document.update(training=[job], why=[text], limited=[text], simulated=[text])
    made.document["cluster"]["partitions"] = [{"name": text, "nodes": text}]
    options = {"inventory": text, "limit": text}
    facts = {**made.facts, "id": text, "user": text, "options": options, "versions": {"clusterctl": text}}
    made = replace(made, facts=facts)
    return paper.html(build(made, replace(made, document={}), release="1"))


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_nothing_that_a_machine_says_becomes_markup(text: str):
    html = spoken(text)
    seen, harmless = Seen(html), Seen(spoken("plain"))

    assert (seen.tags, seen.attributes, seen.targets) == (harmless.tags, harmless.attributes, harmless.targets)
    assert "svg" in seen.tags
    assert re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u202e\ud800-\udfff]", html) is None


def test_a_page_asks_for_nothing_and_runs_nothing():
    html = paper.html(build(many(16), record(lab_checks())))
    seen = Seen(html)

    assert "content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\"" in html
    assert "script" not in seen.tags
    assert all(target.startswith("#") for target in seen.targets)
    assert "url(" not in html
    assert "@import" not in html


def test_each_machine_that_is_chosen_leads_to_its_checks():
    seen = Seen(paper.html(build(many(16))))

    assert {target[1:] for target in seen.targets} == set(seen.ids)
    assert len(seen.ids) == len(set(seen.ids)) == 4


def test_markdown_shows_texts_as_they_are():
    bad = "![x](http://example.org/x.png) @ada <b>#12</b> `rm`\n\n# Heading"
    text = paper.markdown(build(record([check("munge.key_mode", verdict="fail", cause=bad, fix=bad)], "fail")))

    assert text.startswith("## FAIL: node1: ")
    assert not re.search(r"[<>@]|!\[|\]\(|^# |#12", text, re.MULTILINE)
    assert "`munge.key_mode`" in text
    assert "clusterctl verify /srv/lab/inventory.ini" in text


def test_what_became_worse_is_told_and_what_is_new_and_good_is_not():
    before = record([check("munge.key_mode"), check("rdma.ports", verdict="fail"), check("slurm.state")])
    now = record(
        [
            check("munge.key_mode", verdict="fail"),
            check("rdma.ports"),
            check("gpudirect.traffic", verdict="warn"),
            check("hardware.cpus"),
        ],
        "fail",
    )

    compared = build(now, before).comparison

    assert compared is not None
    assert compared.worse == (("pass", "fail", "munge.key_mode on node1"), ("", "warn", "gpudirect.traffic on node1"))
    assert compared.better == (("fail", "pass", "rdma.ports on node1"),)
    assert dict(compared.facts) == {
        "Verdict": "pass then, fail now",
        "Checks": "2 only now, 1 only then",
        "Training": "as fast",
    }


def test_a_run_that_was_cut_off_is_no_verdict_and_says_so():
    page = build(Record({"id": "20261127-224353-1f0a22"}, {}, lab_checks(), "this run was cut off (killed)"))

    assert (page.verdict, page.headline) == ("unknown", "the cluster: this run was cut off (killed)")
    assert "no verdict" in page.notes[0]
    assert page.counts["pass"] == 70
    assert "each check that applies was decided" not in paper.html(page)


def test_a_record_of_another_release_is_named_and_checks_that_cannot_be_read_are_counted():
    made = record([])
    made.document["checks"] = [check("munge.key_mode"), {"id": "x"}, 7, check("Bad Id")]

    page = build(made, release="99")

    assert [note.partition(" ")[0] for note in page.notes] == ["3", "clusterctl"]
    assert page.counts["pass"] == 1


@pytest.mark.parametrize(
    "value", [None, 7, "x", [], [7], {"nodes": 7, "ranks": 7}, [{"ranks": [{"p50": "x"}], "losses": "x"}]]
)
@pytest.mark.parametrize("key", ["checks", "cluster", "training", "why", "limited", "simulated"])
def test_a_record_that_is_none_of_ours_still_makes_a_page(key: str, value: Any):
    made = record(lab_checks())

    assert paper.html(build(replace(made, document={**made.document, key: value}), made))


def test_the_slow_rank_is_named_by_its_own_part_of_a_step():
    ranks = [Rank(f"rank {number}, node1", 12.0, 15.0, 4.0 + number / 10) for number in range(8)]

    assert charts.slowest(ranks) is None
    assert charts.slowest([*ranks, slow := Rank("rank 8, node2", 12.0, 15.0, 9.0)]) is slow
    assert "rank 8, node2 is slower" in charts.steps([*ranks, slow], "9 ranks")


@pytest.mark.parametrize("values", [[], [0.0], [1e-30], [1e30, 1.0], [5.0, -5.0]])
def test_a_curve_of_any_numbers_can_be_drawn(values: list[float]):
    assert "NaN" not in charts.losses(values, values).replace("nan", "NaN")


def test_the_speed_of_simulated_gpus_is_not_taken_for_that_of_real_ones():
    assert "says nothing of real ones" in paper.markdown(build(record(lab_checks())))
    assert "says nothing of real ones" not in paper.markdown(build(record(lab_checks(), simulated=[])))


def test_of_thousands_of_ranks_the_slowest_of_each_node_is_drawn():
    made = record([])
    made.document["training"] = [training([f"gpu{number:03}" for number in range(300)], 8)]

    [job] = build(made).training

    assert (job.title.split(" on ")[0], len(job.ranks)) == ("2400 ranks", 300)
    assert job.shown == "the slowest rank of each of 300 nodes"


# -- what a verify leaves for it -------------------------------------------------------------------------------------

FIGURES: dict[str, Any] = {
    "learning": {"losses": [4.5, 0.25]},
    "reference": {"curve": [4.5, 0.25], "largest": 2.2e-7},
    "gradients": {"relative_error": 3e-8, "parameter": "token.weight"},
    "speed": {
        "tokens_per_s": 100.0,
        "per_rank": [
            {name: {"p50": 0.25, "p95": 0.5} for name in ("data", "forward", "backward", "optimiser", "step")}
        ],
    },
}


def figures(**changes: Any) -> dict[str, Any]:
    found = evidence()
    found["nodes"]["node1"]["figures"] = {**FIGURES, **changes}
    return ddp_figures.training(read(found))


def test_a_job_leaves_its_losses_gradient_and_each_ranks_steps():
    told = figures()

    assert (told["losses"], told["reference"], told["reference_difference"]) == ([4.5, 0.25], [4.5, 0.25], 2.2e-7)
    assert (told["gradient_difference"], told["gradient_parameter"]) == (3e-8, "token.weight")
    assert told["ranks"] == [{"rank": 0, "node": "node1", "p50": 0.25, "p95": 0.5, "own": 0.75}]
    assert told["nodes"][0] == {"name": "node1", "ranks": 2, "adapters": 0}


@pytest.mark.parametrize("bad", [None, 7, "x", [], {"losses": ["x"]}, {"losses": [1.0] * 9999}, {"losses": 7}])
def test_figures_that_cannot_be_read_are_left_out_and_fail_nothing(bad: Any):
    told = figures(learning=bad)

    assert told["losses"] == []
    assert told["ranks"]


def test_a_loss_that_is_no_number_is_null_in_json():
    told = figures(learning={"losses": [4.5, float("nan"), float("inf")]})

    assert told["losses"] == [4.5, None, None]
    assert json.dumps(told, allow_nan=False)


# -- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture
def inventory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "inventory.ini"
    path.write_text("")
    monkeypatch.setenv("CLUSTERCTL_INVENTORY", str(path))
    return path


def left(inventory: Path, made: Record | None = None, command: str = "verify", **document: Any) -> journal.Run:
    """Leave what a run leaves that ended; without a record what one leaves that was killed."""
    run = journal.begin(journal.prepare(journal.state_directory(inventory)), command)
    if made is None:
        run.record({"event": "result", "checks": [check("munge.key_mode")]})
        run.release()
    else:
        run.write_report({**made.document, **document})
        run.finish("done", exit_code=made.document["exit_code"])
    return run


def call(*words: str) -> Result:
    return CliRunner().invoke(cli, ["report", *words])


def test_the_last_verify_is_written_into_its_own_directory_and_its_path_is_printed(inventory: Path):
    left(inventory, record(lab_checks()))
    run = left(inventory, record([check("munge.key_mode", verdict="fail")], "fail"))
    left(inventory, record(lab_checks()), command="provision")

    done = call()

    assert (done.exit_code, done.output) == (0, f"{run.directory / 'report.html'}\n")
    assert "FAIL" in (run.directory / "report.html").read_text(encoding="utf-8")
    assert (run.directory / "report.html").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("name", [lambda run: run.id, lambda run: str(run.directory)])
def test_a_run_is_named_by_its_id_or_its_directory(inventory: Path, name: Callable[[journal.Run], str]):
    first = left(inventory, record(lab_checks()))
    second = left(inventory, record([check("munge.key_mode", verdict="fail")], "fail"))

    done = call(name(first), "--against", name(second), "--output", "-")

    assert f"Since run {second.id}" in done.output
    assert f"run {first.id}" in done.output


def test_markdown_goes_to_standard_output_and_a_file_where_one_is_named(inventory: Path, tmp_path: Path):
    left(inventory, record(lab_checks()))

    assert call("--markdown").output.startswith("## PASS")
    assert call("--markdown", "-o", str(tmp_path / "ticket.md")).output == f"{tmp_path / 'ticket.md'}\n"
    assert (tmp_path / "ticket.md").read_text(encoding="utf-8").startswith("## PASS")


def test_of_a_run_that_was_killed_the_journal_is_shown(inventory: Path):
    left(inventory)

    told = call("-o", "-").output

    assert "this run was cut off (killed)" in told
    assert "munge" in told


def test_what_cannot_be_reported_is_refused_with_what_to_do(inventory: Path, tmp_path: Path):
    told = [call(*words) for words in ([], ["20261127-224353-1f0a22"], [str(tmp_path)])]
    of_another = left(inventory, record(lab_checks()), schema="clusterctl/verify/9")
    no_verdict = left(inventory, record(lab_checks()), command="provision")
    good = left(inventory, record(lab_checks()))
    going_on = journal.begin(journal.state_directory(inventory), "verify")
    told += [call(run.id) for run in (of_another, no_verdict, going_on)]
    told.append(call("--output", str(tmp_path / "no" / "where.html"), good.id))
    going_on.release()

    problems = ("no verdict", "no run", "holds no run", "verify/9", "'provision'", "has not ended", "cannot be written")
    assert [one.exit_code for one in told] == [2] * 7
    assert [problem for problem, one in zip(problems, told, strict=True) if problem not in one.output] == []
    assert all("Fix: " in one.output for one in told)
