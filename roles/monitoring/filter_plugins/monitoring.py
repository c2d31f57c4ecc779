# Copyright the clusterctl authors
# SPDX-License-Identifier: Apache-2.0
"""Ansible's door to the parts of the page, and to what is asked about a job. Translation only."""

from __future__ import annotations

from provision import content
from provision.report import dashboards, job


def monitoring_asked(sacct, scontrol, name):
    """Return how Slurm is asked for the other jobs of a job's nodes, and Prometheus for its figures."""
    return job.asked(str(sacct), str(scontrol), str(name))


def _text(name):
    return (content.ROOT / "roles/monitoring/files/page" / name).read_text(encoding="utf-8")


def monitoring_inlined(name):
    """Return the text of one of the page's files, without comments."""
    return dashboards.inlined(_text(name))


def monitoring_panels(name):
    """Return the views that a list of panels declares."""
    return dashboards.panels(_text(name))


def monitoring_scripted(value):
    """Return a value as an expression of JavaScript."""
    return dashboards.scripted(value)


def monitoring_digest(text):
    """Return the word by which the page's policy allows a text."""
    return dashboards.digest(text)


def monitoring_grafana(view, name):
    """Return a view as the JSON of a dashboard."""
    return dashboards.grafana(view, name)


class FilterModule:
    """The filters of this role."""

    def filters(self):
        """Return them by name."""
        return {
            "monitoring_asked": monitoring_asked,
            "monitoring_inlined": monitoring_inlined,
            "monitoring_panels": monitoring_panels,
            "monitoring_scripted": monitoring_scripted,
            "monitoring_digest": monitoring_digest,
            "monitoring_grafana": monitoring_grafana,
        }
