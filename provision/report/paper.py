"""A report's page as one HTML file that needs nothing else, and as Markdown for a ticket."""

from __future__ import annotations

import re

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from provision.report import charts
from provision.report.page import Page
from provision.report.record import WORDS

#: What Markdown would take for more than text, mentions and references of trackers too.
_MARKS = re.compile(r"[&<>\[\]`*_|@#\\~!]")


def html(page: Page) -> str:
    """Return the page as HTML."""
    return _environment(autoescape=True).get_template("page.html.j2").render(page=page)


def markdown(page: Page) -> str:
    """Return the page as Markdown: verdict, findings, subjects, what stays open, how to repeat it."""
    return _environment(autoescape=False).get_template("page.md.j2").render(page=page)


def quoted(text: object) -> str:
    """Return a text so that Markdown shows it as it is."""
    return _MARKS.sub(lambda found: f"&#{ord(found[0])};", str(text))


def _environment(*, autoescape: bool) -> Environment:
    made = Environment(
        loader=PackageLoader("provision.report", ""),
        autoescape=autoescape,  # noqa: S701 - Markdown is no HTML: its template quotes each text
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"breakable": _breakable, "md": quoted, "code": lambda text: f"`{str(text).replace('`', chr(39))}`"}
    made.globals |= {"words": WORDS, "losses": charts.losses, "steps": charts.steps, "sign": _sign}
    return made


def _sign(word: str) -> Markup:
    """Return a state's sign for eyes, and its word for a screen reader."""
    mark, told = WORDS[word]
    return Markup('<b aria-hidden="true">{}</b><i>{}</i>').format(mark, told)


def _breakable(name: str) -> Markup:
    """Return a check's name that is broken, where it must be, after a dot or an underscore."""
    return Markup(re.sub(r"([._])", r"\1<wbr>", str(escape(name))))  # noqa: S704 - escaped
