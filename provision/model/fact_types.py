"""The bounded types of which a machine's answer is made: the words of :mod:`provision.model.facts`. Pure."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field, StringConstraints

Text = Annotated[str, StringConstraints(max_length=4096)]
Word = Annotated[str, StringConstraints(max_length=255, pattern=r"^[A-Za-z0-9._:+~@%-]*$")]
#: KiB, or ``unlimited``.
Limit = Annotated[str, StringConstraints(pattern=r"^(unlimited|[0-9]{1,19})$")]
Count = Annotated[int, Field(ge=0, le=2**20)]
#: MiB.
Memory = Annotated[int, Field(ge=0, le=2**40)]
Seconds = Annotated[float, Field(ge=-(2**40), le=2**40)]

STRICT = ConfigDict(strict=True, extra="allow", hide_input_in_errors=True)
