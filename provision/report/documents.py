"""What a command reports, as a JSON document and as JUnit XML. Pure."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from provision import hostlist
from provision.errors import ClusterctlError
from provision.events.fold import Failure, RunReport
from provision.events.verdict import JUDGING, RunVerdict, interruptions, verdict
from provision.model.checks import Check, Verdict
from provision.model.text import clean
from provision.report.plan import in_order, planned


def schema(command: str) -> str:
    """Return the name and version of a command's document."""
    return f"clusterctl/{command.replace(' ', '-')}/1"


def run_document(
    command: str,
    exit_code: int,
    report: RunReport,
    *,
    simulated: Sequence[str] = (),
    run: Mapping[str, Any],
    judgement: RunVerdict | None = None,
    goes_with: Mapping[tuple[str, str], Sequence[str]] | None = None,
) -> dict[str, Any]:
    """Return the document of a command that ran playbooks; the first keys are the same for all of them.

    ``judgement`` is the run's verdict where the command judges; left out, it is made here. ``goes_with`` says for what
    is to be done, by (host, id), with whose mending it is gone.
    """
    goes_with = goes_with or {}
    document: dict[str, Any] = {
        "schema": schema(command),
        "command": command,
        "exit_code": int(exit_code),
    }
    if command in JUDGING:
        judgement = judgement or verdict(report)
        document |= _judged(judgement)
        checks = [
            check.as_document() | {"follows": list(judgement.follows.get((check.host, check.id), ()))}
            for check in judgement.checks
        ]
    else:
        document["why"] = [check.observed for check in interruptions(report)]
        checks = [check.as_document() for check in report.checks]
    document |= {
        "simulated": list(simulated),
        "hosts": {host: report.hosts[host].as_dict() for host in sorted(report.hosts)},
        "changed": report.changed,
        "pending_checks": [
            {"stage": one.stage, "consequences": [], **one.check.as_document()}
            | {"follows": list(goes_with.get((one.check.host, one.check.id), ()))}
            for one in in_order(report)
        ],
        "checks": checks,
        "failures": _failures(report.failures),
        "unreachable": _failures(report.unreachable),
        "changes": [
            {"stage": task.stage, "role": task.role, "task": task.name, "hosts": sorted(hosts)}
            for task, hosts in report.changes.items()
        ],
        "stages": [
            {
                "name": stage.name,
                "seconds": round(stage.seconds, 1),
                "hosts": len(stage.hosts),
                "changed": sorted(stage.changed),
                "failed": sorted(stage.failed),
                "unreachable": sorted(stage.unreachable),
            }
            for stage in report.stages.values()
        ],
        "warnings": list(report.warnings),
        "messages": report.messages,
        "run": dict(run),
    }
    if report.stopped_by is not None:
        document["stopped_by"] = report.stopped_by
        document["swept"] = report.swept
        document["installing"] = report.installing
        document["unswept"] = report.unswept
    for key, name in (("declared", "cluster"), ("cluster_training", "training")):
        if command == "verify" and key in report.data:
            document[name] = report.data[key]
    if planned(command, report):
        document["pending"] = report.changes_pending
        document["diffs"] = [
            {"hosts": sorted(hosts), "path": diff.path}
            | ({"diff": diff.text} if diff.lines is None else {"lines": diff.lines})
            for diff, hosts in sorted(report.diffs.items(), key=lambda one: one[0].path)
        ]
    return document


def _judged(judgement: RunVerdict) -> dict[str, Any]:
    return {
        "verdict": str(judgement.word),
        "why": list(judgement.why),
        "counts": judgement.counts,
        "limited": list(judgement.limited),
        "strict": judgement.strict,
    }


def error_document(command: str, error: ClusterctlError) -> dict[str, Any]:
    """Return the document of a command that could not begin."""
    return {
        "schema": schema(command),
        "command": command,
        "exit_code": int(error.exit_code),
        "error": {"problem": error.problem, "fix": error.fix},
    }


def junit(judgement: RunVerdict, *, seconds: float = 0.0) -> str:
    """Return the verdict as JUnit XML: a suite per level and subject, a case per check and machine.

    A fail is a failure; unknown is an error, because nothing was proven; warn passes and says so in its output. Where
    the run was strict, warn is a failure, and so is a skip that leaves open what should be proven.
    """
    suites: dict[str, list[Check]] = defaultdict(list)
    for check in judgement.checks:
        suites[f"{check.level}.{check.id.partition('.')[0]}"].append(check)
    root = ElementTree.Element("testsuites", name="clusterctl verify", time=f"{seconds:.1f}")
    # Of its own, because the format has no place for properties above the suites.
    whole = ElementTree.SubElement(root, "testsuite", name="verdict", tests="0", failures="0", errors="0", skipped="0")
    properties = ElementTree.SubElement(whole, "properties")
    facts = {"verdict": str(judgement.word), "why": "; ".join(judgement.why), "limited": ",".join(judgement.limited)}
    for name, value in (facts | judgement.counts).items():
        ElementTree.SubElement(properties, "property", name=name, value=_xml(str(value)))
    tags = {_tag(check, judgement.strict) for check in judgement.checks}
    if not judgement.passed and not tags & {"failure", "error"}:
        # Where no check says why this is no pass, for example because nothing was checked, nobody may read it as one.
        whole.set("tests", "1")
        whole.set("errors", "1")
        _case(whole, Check("run.verdict", "", judgement.word, observed="; ".join(judgement.why)), "error")
    for name, members in sorted(suites.items()):
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=name,
            tests=str(len(members)),
            failures=str(sum(_tag(check, judgement.strict) == "failure" for check in members)),
            errors=str(sum(check.verdict is Verdict.UNKNOWN for check in members)),
            skipped=str(sum(_tag(check, judgement.strict) == "skipped" for check in members)),
        )
        for check in members:
            _case(suite, check, _tag(check, judgement.strict))
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _tag(check: Check, strict: bool) -> str:
    if strict and (check.unproven or check.verdict is Verdict.WARN):
        return "failure"
    return {Verdict.FAIL: "failure", Verdict.UNKNOWN: "error", Verdict.SKIP: "skipped"}.get(check.verdict, "")


def _case(suite: ElementTree.Element, check: Check, tag: str) -> None:
    case = ElementTree.SubElement(suite, "testcase", classname=_xml(check.host or "cluster"), name=_xml(check.id))
    if check.simulated:
        properties = ElementTree.SubElement(case, "properties")
        ElementTree.SubElement(properties, "property", name="simulated", value="true")
    told = _xml(
        "\n".join(
            f"{word}: {text}"
            for word, text in (
                ("observed", check.observed),
                ("expected", check.expected),
                ("source", check.source),
                ("cause", check.cause),
                ("fix", check.fix),
            )
            if text
        )
    )
    if tag:
        child = ElementTree.SubElement(case, tag, message=_xml(check.cause or check.observed))
        child.text = told
    elif check.verdict is Verdict.WARN:
        ElementTree.SubElement(case, "system-out").text = told


def _xml(text: str) -> str:
    return clean(text).encode("utf-8", errors="replace").decode("utf-8")


def _failures(group: Mapping[Failure, set[str]]) -> list[dict[str, Any]]:
    return [
        {
            "hosts": sorted(hosts),
            "hostlist": hostlist.fold(hosts),
            "stage": failure.task.stage,
            "role": failure.task.role,
            "task": failure.task.name,
            "reason": failure.reason,
        }
        for failure, hosts in group.items()
    ]
