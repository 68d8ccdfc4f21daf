"""Apache TVM, by its Relax frontend for ONNX."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import tvm
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx

from ..model import Model
from ..writer import Traits

Tensors = list[torch.Tensor]


class Tvm:
    """Models built for a target; tensors go in and out by DLPack."""

    name = "tvm"
    traits = Traits(
        not_for_special=frozenset({"Relu", "Max", "Min", "ReduceMax", "ReduceMin"}), lacks_operators=frozenset({"MaxPool"})
    )

    def __init__(self, options: Mapping[str, Any], device: torch.device) -> None:
        default = "cuda" if device.type == "cuda" else "llvm"
        self._target = tvm.target.Target(options.get("target") or default)
        self._pipeline = options.get("pipeline") or "default"
        self._device = tvm.cuda(device.index or 0) if device.type == "cuda" else tvm.cpu()

    def load(self, model: Model) -> Callable[[Tensors, Callable[[], Tensors]], Tensors]:
        """A virtual machine. Raises TVM's errors for what it cannot build."""
        module = from_onnx(model.proto, sanitize_input_names=False)
        built = tvm.compile(module, self._target, relax_pipeline=self._pipeline)
        main = relax.VirtualMachine(built, self._device)["main"]

        def run(inputs: Tensors, empty: Callable[[], Tensors]) -> Tensors:
            found = main(*[tvm.runtime.from_dlpack(x) for x in inputs])
            several = found if not isinstance(found, tvm.runtime.Tensor) else (found,)
            return [torch.from_dlpack(x) for x in several]

        return run
