"""EngineCompiler: functional ATen graph -> Program, as aotautograd asks of a compiler; what an engine refuses is compiled by ours."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import torch
import tracework_primops as primops

from ..errors import InvalidArgument, UnknownName
from ..onnx_engines import ENGINES, missing_package
from .program import Engine, Program
from .table import ONNX_ROWS

Report = Callable[[str, str], None]
KEPT: Mapping[Any, None] = {target: None for target in ONNX_ROWS if not isinstance(target, primops.Op)}
"""ATen kernels that are left whole: changes of `decompose`."""


def check(name: str, options: Mapping[str, Any], numerics: str) -> None:
    """Raises InvalidArgument where the backend cannot be used so, UnknownName for an option that it does not take."""
    row = ENGINES[name]
    package = missing_package(name)
    if package is not None:
        raise InvalidArgument(f"backend {name!r} needs the package {package}: pip install 'tracework[{row.extra}]'.")
    for option in options:
        if option not in row.options:
            raise UnknownName(f"option of backend {name!r}", option, row.options)
    if numerics != "default":
        raise InvalidArgument(f"numerics={numerics!r} asks for eager's bits, and {name} has its own. Use backend='inductor'.")


class EngineCompiler:
    """Compiles graphs for one engine.

    Args:
        fallback: compiles what the engine refuses.
        stage: runs and observes a stage of the compiler, assemble's Stage.
    """

    def __init__(
        self, name: str, options: Mapping[str, Any], index_checks: bool, fallback: Callable[..., Any], stage: Any
    ) -> None:
        self._name, self._options, self._index_checks = name, options, index_checks
        self._fallback, self._stage = fallback, stage

    def __call__(self, gm: torch.fx.GraphModule, spec: Any, report: Report) -> Callable[[list[Any]], Any]:
        """The graph as a Program, or as the fallback makes it."""
        prims = self._stage.observed("primops", self._prims, gm, spec)
        try:
            program = Program(prims, self._engine(prims), report, self._index_checks)
        except Exception as error:  # an engine's own: a dtype that its kernels lack, a node that its parser does not know
            text = " ".join(str(error).split())[:300]
            report(
                f"{self._name} refuses the {spec.role} graph, which is compiled by tracework: {type(error).__name__}: {text}", ""
            )
            return self._fallback(gm, spec, report)
        self._stage.observe("onnx", program)
        return program

    def _prims(self, gm: torch.fx.GraphModule, spec: Any) -> primops.PrimGraph:
        return primops.run_passes(primops.decompose(gm, spec=spec, changes=KEPT).replace(editable=True))

    def _engine(self, prims: primops.PrimGraph) -> Engine:
        device = next((i.spec.device for i in prims.inputs if isinstance(i.spec, primops.TensorSpec)), torch.device("cpu"))
        row = ENGINES[self._name]
        module = importlib.import_module(f".engines.{row.module}", __package__)
        return getattr(module, row.attribute)(self._options, device)
