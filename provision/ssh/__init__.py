"""Reaching machines before Ansible does: which step fails, on which machine, and what to do about it."""
