"""The cluster's page in Prometheus, and the same as Grafana's dashboards: one list of panels for both. Pure."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

#: Below this name dashboards find their data source (roles/monitoring/templates/grafana-source.yml.j2).
SOURCE = {"type": "prometheus", "uid": "clusterctl"}
#: What a reader of a dashboard chooses, by the word that stands for it in an expression.
_CHOICES = {
    "$node": ("node", "label_values(up, node)"),
    "$job": ("job", "label_values(slurm_job_gpu, jobid)"),
}
_HIGH, _WIDE, _ACROSS = 8, 8, 24


def panels(text: str) -> dict[str, Any]:
    """Return the views of panels.yaml; the interfaces that are none of a machine's own are put in."""
    found = yaml.safe_load(text)
    virtual = found.pop("virtual")

    def put(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: put(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [put(inner) for inner in value]
        return value.replace("$virtual", virtual) if isinstance(value, str) else value

    views: dict[str, Any] = put(found)
    return views


def inlined(text: str) -> str:
    """Return a script or a style without its comments.

    Prometheus serves the page as a template of Go, which drops comments; the browser would then refuse what is left,
    because it is no longer what the page's policy names.
    """
    return re.sub(r"^[ \t]*//.*\n|/\*[^*]*\*/\n?", "", text, flags=re.MULTILINE).strip()


def scripted(value: Any) -> str:
    """Return a value as an expression of JavaScript that can end no script of a page."""
    return json.dumps(value).replace("<", "\\u003c")


def digest(text: str) -> str:
    """Return the word by which a Content-Security-Policy allows a script or a style."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def grafana(view: Mapping[str, Any], name: str) -> str:
    """Return a view as a dashboard's JSON."""
    return json.dumps(dashboard(view, name), indent=1) + "\n"


def dashboard(view: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a view as a dashboard: what it asks about now as tables, then its rows of plots."""
    placed = [{**panel, "id": number} for number, panel in enumerate(_placed(view), 1)]
    said = str(view)
    return {
        "uid": f"clusterctl-{name}",
        "title": f"clusterctl: {view['title']}",
        "tags": ["clusterctl"],
        "editable": False,
        "schemaVersion": 39,
        "time": {"from": "now-6h", "to": "now"},
        "refresh": "30s",
        "templating": {"list": [_choice(*choice) for word, choice in _CHOICES.items() if word in said]},
        "panels": placed,
    }


def _choice(name: str, query: str) -> dict[str, Any]:
    return {"type": "query", "name": name, "datasource": SOURCE, "query": query, "refresh": 2, "sort": 3}


def _placed(view: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    across, down = 0, 0
    for name, expression in view["now"].items():
        yield _panel("table", name, across, down) | {
            "targets": [_target("A", expression) | {"format": "table", "instant": True}]
        }
        across, down = (across + _WIDE, down) if across + _WIDE < _ACROSS else (0, down + _HIGH)
    for row in view["rows"]:
        down += _HIGH
        yield {
            "type": "row", "title": row["title"], "collapsed": False, "panels": [],
            "gridPos": {"h": 1, "w": _ACROSS, "x": 0, "y": down},
        }  # fmt: skip
        down, across = down + 1, 0
        for panel in row["panels"]:
            yield _plot(panel, across, down)
            across, down = (across + _WIDE, down) if across + _WIDE < _ACROSS else (0, down + _HIGH)


def _panel(kind: str, title: str, across: int, down: int) -> dict[str, Any]:
    place = {"h": _HIGH, "w": _WIDE, "x": across, "y": down}
    return {"type": kind, "title": title, "datasource": SOURCE, "gridPos": place}


def _plot(panel: Mapping[str, Any], across: int, down: int) -> dict[str, Any]:
    legend = ":".join("{{" + label + "}}" for label in panel.get("by", ()))
    told = [
        *((name, legend or name, expression) for name, expression in panel["lines"].items()),
        *((name, name, expression) for name, expression in panel.get("limit", {}).items()),
    ]
    dashed = [
        {
            "matcher": {"id": "byName", "options": name},
            "properties": [{"id": "custom.lineStyle", "value": {"fill": "dash", "dash": [3, 5]}}],
        }
        for name in panel.get("limit", {})
    ]
    stacked = {"stacking": {"mode": "normal", "group": "A"}, "fillOpacity": 40} if panel.get("stack") else {}
    return _panel("timeseries", panel["title"], across, down) | {
        "fieldConfig": {"defaults": {"unit": panel["unit"], "min": 0, "custom": stacked}, "overrides": dashed},
        "targets": [
            _target(chr(ord("A") + place), expression) | {"legendFormat": shown}
            for place, (_, shown, expression) in enumerate(told)
        ],
    }


def _target(place: str, expression: str) -> dict[str, Any]:
    return {"refId": place, "datasource": SOURCE, "expr": expression}
