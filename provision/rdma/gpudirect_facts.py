"""What a machine answers about its adapters, GPUs and modules, read as input: bounded and typed. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, model_validator

from provision.model.gpu_facts import Some, Text, Word, read_as
from provision.model.state_facts import PathState

#: Parts that a machine without adapters does not report.
_OF_ADAPTERS = {
    "kernel", "peer_memory", "peer_memory_trees", "peer_memory_changed", "ofed", "modules", "old_service", "packages",
    "acs", "iommu", "virtual",
}  # fmt: skip


class _Answer(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", hide_input_in_errors=True)


class _Gpu(_Answer):
    address: Word = ""
    architecture: Word
    product: Text = ""
    driver: Word = ""
    consumer: bool | None = None


class _Running(_Answer):
    running: Word


class _Driver(_Answer):
    loaded: Word
    open: bool | None
    on_disk: dict[Word, dict[Word, Text] | None] = {}


class _Gpus(_Answer):
    gpus: Annotated[list[_Gpu], Some]
    kernel: _Running
    module: _Driver
    dkms: Annotated[list[Text], Some] = []
    files: Annotated[dict[Text, PathState], Some] = {}


class _Ofed(_Answer):
    kind: Word = ""
    version: Word = ""


class _Module(_Answer):
    loaded: bool = False
    version: Word = ""
    built: int = 0


class _Bridge(_Answer):
    bridge: Word
    set: Annotated[list[Word], Some]


class _Acs(_Answer):
    bridges: Annotated[list[_Bridge], Some] = []
    unread: Annotated[list[Word], Some] = []


class _Iommu(_Answer):
    groups: int = 0
    types: Annotated[list[Text], Some] = []
    arguments: Annotated[list[Text], Some] = []


class _Rdma(_Answer):
    adapters: Annotated[list[Word], Some]
    configured: Annotated[dict[Word, dict[Text, Text]], Some] = {}
    kernel: Word = ""
    peer_memory: bool | None = None
    peer_memory_trees: Annotated[list[Text], Some] = []
    peer_memory_changed: int = 0
    ofed: _Ofed = _Ofed()
    modules: Annotated[dict[Word, _Module], Some] = {}
    old_service: Annotated[list[Text], Some] = []
    packages: Annotated[dict[Word, Word], Some] = {}
    acs: _Acs = _Acs()
    iommu: _Iommu = _Iommu()
    virtual: bool = False

    @model_validator(mode="after")
    def _whole(self) -> _Rdma:
        if self.adapters and (lacking := _OF_ADAPTERS - self.model_fields_set):
            raise ValueError(f"it says nothing of {', '.join(sorted(lacking))}")
        return self


class _Machine(_Answer):
    gpu: _Gpus
    rdma: _Rdma


def read(found: object) -> Mapping[str, Any]:
    """Return a machine's answer as plain values of the right types.

    Raises:
        ValueError: what is wrong with it, and where, in one line.
    """
    return read_as(_Machine, found)
