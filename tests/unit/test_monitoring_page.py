"""The page that Prometheus serves, and Grafana's dashboards: what they ask exists, and the page reaches nobody else.

A browser is no part of any lane: whoever changes the page looks at it (CONTRIBUTING.md).
"""

from __future__ import annotations

import json
import re
import runpy
import subprocess
from collections.abc import Iterator, Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import managed_things
import pytest
import yaml
from ansible.template import trust_as_template
from test_monitoring_alerts import promtool  # noqa: F401 - a fixture

from provision import content
from provision.report import dashboards
from provision.runner.rendered import rendered

FILES = content.ROOT / "roles/monitoring/files/page"
PANELS = dashboards.panels((FILES / "panels.yaml").read_text(encoding="utf-8"))
METRICS = Path(__file__).with_name("fixtures") / "metrics"
INVENTORY = """\
[slurm_controller]
head ansible_host=10.0.0.1
[slurm_compute]
node1 ansible_host=10.0.0.2
[monitoring]
head
[all:vars]
cluster_name=lab
"""
#: Words of PromQL that are no metrics, where they are not followed by a bracket.
WORDS = {"and", "or", "unless", "bool", "inf"}
ROLE = content.ROOT / "roles/machine_metrics"


def files(directory: Path, more: str = "") -> Mapping[str, str]:
    """Return what the role writes on the host of monitoring, by path."""
    (inventory := directory / "inventory.ini").write_text(INVENTORY + more, encoding="utf-8")
    machines = {name: (constants, templar) for name, constants, templar in managed_things.on_machines(inventory)}
    constants, templar = machines["head"]
    data = {key: constants["__monitoring_managed"][key] for key in ("files", "absent")}
    found = rendered("monitoring", data, templar, lambda path: trust_as_template(Path(path).read_text("utf-8")))
    return {one["path"]: one["text"] for one in found["files"]} | dict.fromkeys(found["absent"], "absent")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    return files(tmp_path_factory.mktemp("page"))["/etc/clusterctl/monitoring/consoles/clusterctl.html"]


def expressions(view: Mapping[str, Any]) -> Iterator[str]:
    """Yield all that a view asks."""
    yield from view["now"].values()
    yield from view.get("life", {}).values()
    for panel in (panel for row in view["rows"] for panel in row["panels"]):
        yield from panel["lines"].values()
        yield from panel.get("limit", {}).values()


def metrics(expression: str) -> set[str]:
    """Return the metrics that an expression names."""
    bare = re.sub(r'"[^"]*"', "", expression)
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]|\b(by|on|group_left|ignoring) \([^)]*\)", " ", bare)
    return {word for word in re.findall(r"(?<![\w.])[a-zA-Z_][\w:]*\b(?!\s*\()", bare) if word not in WORDS}


class Seen(HTMLParser):
    """The scripts and styles of a page, its policy, and the attributes of its elements."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.texts: dict[str, list[str]] = {"script": [], "style": []}
        self.policy = ""
        self.attributes: set[str] = set()
        self._in = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes |= {name for name, _ in attrs}
        if ("http-equiv", "Content-Security-Policy") in attrs:
            self.policy = dict(attrs)["content"] or ""
        if tag in self.texts:
            self._in = tag
            self.texts[tag].append("")

    def handle_endtag(self, tag: str) -> None:
        self._in = ""

    def handle_data(self, data: str) -> None:
        if self._in:
            self.texts[self._in][-1] += data


def test_the_page_allows_its_own_scripts_and_style_and_nothing_else(page: str) -> None:
    seen = Seen(page)

    policy = dict(part.strip().split(" ", 1) for part in seen.policy.split(";"))
    for kind, texts in seen.texts.items():
        assert policy[f"{kind}-src"].split() == [f"'{dashboards.digest(text)}'" for text in texts], kind
    assert (policy["default-src"], policy["connect-src"]) == ("'none'", "'self'")
    assert not {name for name in seen.attributes if name.startswith("on") or name in ("style", "src")}


def test_prometheus_serves_the_page_as_it_is_written(page: str) -> None:
    # To Go's templates two braces begin an action; and they drop comments, of which an address would look like one.
    assert [word for word in ("{{", "//", "/*", "<!--") if word in page] == []
    # How the policy's text is cut from it: a script that ends early would be another one.
    assert page.count("</script>") == 2
    assert "uPlot 1.6.32" in page
    # The panels arrive as they are written, whatever is escaped on the way.
    told = next(line for line in page.splitlines() if line.startswith("const PANELS = "))
    assert json.loads(told.removeprefix("const PANELS = ").removesuffix(";")) == json.loads(json.dumps(PANELS))
    assert "(v1.6.32)" in (FILES / "uPlot.iife.min.js").read_text(encoding="utf-8")


def test_what_machines_say_becomes_text_and_never_markup() -> None:
    program = (FILES / "clusterctl.js").read_text(encoding="utf-8")

    assert (
        re.findall(r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|Function\(|javascript:", program) == []
    )


@pytest.mark.parametrize("name", PANELS)
def test_a_page_asks_at_most_twelve_questions(name: str) -> None:
    # Beside the rows: the alerts, what is now, and of a job when it ran.
    assert 2 + len(PANELS[name].get("life", ())) + len(PANELS[name]["rows"]) <= 12


@pytest.mark.parametrize("name", PANELS)
def test_each_metric_that_is_asked_for_exists(name: str) -> None:
    known = {
        "up",
        *re.findall(
            r"record: (\S+)", (content.ROOT / "roles/monitoring/files/alerts.rules").read_text(encoding="utf-8")
        ),
        *(
            one
            for program in ("slurm-metrics", "node-metrics", "gpu_metrics.py")
            for one in runpy.run_path(str(ROLE / "files" / program))["METRICS"]
        ),
        *(
            one
            for text in (ROLE / "templates").glob("*.prom.j2")
            for one in re.findall(r"^(clusterctl_\w+)", text.read_text(encoding="utf-8"), re.MULTILINE)
        ),
        *(line for file in METRICS.iterdir() for line in file.read_text(encoding="utf-8").splitlines()),
    }

    asked = {metric for expression in expressions(PANELS[name]) for metric in metrics(expression)}

    assert asked - known == set()
    assert asked


@pytest.mark.slow
def test_each_question_is_one_that_prometheus_can_read(promtool: str, tmp_path: Path) -> None:  # noqa: F811
    asked = [one for view in PANELS.values() for one in expressions(view)]
    rules = [
        {"record": f"asked:{number}", "expr": one.replace("$__rate_interval", "2m")} for number, one in enumerate(asked)
    ]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "page", "rules": rules}]}), "utf-8")

    done = subprocess.run(
        [promtool, "check", "rules", "rules.yml"], cwd=tmp_path, capture_output=True, text=True, timeout=600
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(asked)} rules found" in done.stdout


def test_grafanas_dashboards_ask_what_the_page_asks_where_a_site_wants_them(tmp_path: Path) -> None:
    without, found = files(tmp_path), files(tmp_path, "monitoring_grafana=true\n")

    assert without["/etc/clusterctl/grafana"] == "absent"
    assert not [path for path in without if path.startswith("/etc/clusterctl/grafana/")]
    source = yaml.safe_load(found["/etc/clusterctl/grafana/datasources/clusterctl.yml"])["datasources"][0]
    (provider,) = yaml.safe_load(found["/etc/clusterctl/grafana/dashboards/clusterctl.yml"])["providers"]
    assert (source["type"], source["uid"]) == (dashboards.SOURCE["type"], dashboards.SOURCE["uid"])
    for name, view in PANELS.items():
        told = json.loads(found[f"{provider['options']['path']}/{name}.json"])
        asked = [target["expr"] for panel in told["panels"] for target in panel.get("targets", ())]
        assert set(asked) == set(expressions(view)) - set(view.get("life", {}).values())
        chosen = {f"${one['name']}" for one in told["templating"]["list"]}
        assert chosen == set(re.findall(r"\$(?!__)\w+", str(asked)))
        places = [
            (x, y)
            for panel in told["panels"]
            for at in [panel["gridPos"]]
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        ]
        assert len(places) == len(set(places)), name
