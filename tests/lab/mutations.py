"""The mutation table: which rows are broken together."""

from __future__ import annotations

from mutation import Batch
from mutations_files import FILES, MORE_FILES
from mutations_services import SERVICES

BATCHES = (
    Batch("files", FILES),
    Batch("services", (*SERVICES, *MORE_FILES)),
)
