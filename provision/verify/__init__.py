"""Judgements of what machines and jobs told: from evidence to checks. Pure."""
