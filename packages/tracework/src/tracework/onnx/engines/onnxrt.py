"""ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import onnxruntime
import torch
from onnxruntime.capi import _pybind_state as state

from ..model import Model
from ..writer import ELEMENT_TYPES, Traits

Tensors = list[torch.Tensor]
NOTHING = torch.empty(1)
"""What stands for the memory of a result without elements, whose address is 0."""


class OnnxRuntime:
    """Sessions with these options; tensors are given and taken by address, without copies."""

    name = "onnxrt"

    def __init__(self, options: Mapping[str, Any], device: torch.device) -> None:
        self._device = device
        self._providers = options.get("providers") or self._default_providers()
        if device.type == "cuda" and not options.get("providers") and "CUDAExecutionProvider" not in self._providers:
            raise ValueError(
                "this ONNX Runtime has no CUDAExecutionProvider, and the graph's tensors are on a GPU: install onnxruntime-gpu"
            )
        self._provider_options = options.get("provider_options")
        self._session_options = _session_options(options.get("session_options"))
        on_cpu = all((p if isinstance(p, str) else p[0]) == "CPUExecutionProvider" for p in self._providers)
        self.traits = Traits(native=frozenset() if on_cpu else frozenset({torch.float16}), sums_below=2**53)  # in float64

    def _default_providers(self) -> list[str]:
        wanted = ["CUDAExecutionProvider", "CPUExecutionProvider"] if self._device.type == "cuda" else ["CPUExecutionProvider"]
        return [p for p in wanted if p in onnxruntime.get_available_providers()]

    def load(self, model: Model) -> Callable[[Tensors, Callable[[], Tensors]], Tensors]:
        """A session. Raises ONNX Runtime's errors, such as NotImplemented for a dtype that a kernel lacks."""
        session = onnxruntime.InferenceSession(
            model.proto.SerializeToString(), self._session_options, self._providers, self._provider_options
        )
        names = [name for name in model.inputs if name is not None]

        def run(inputs: Tensors, empty: Callable[[], Tensors]) -> Tensors:
            outputs = empty()
            binding = session.io_binding()._iobinding
            for name, x in zip(names, inputs):
                binding.bind_input(name, _ort_device(x.device), ELEMENT_TYPES[x.dtype], tuple(x.shape), x.data_ptr())
            for name, x in zip(model.outputs, outputs):
                binding.bind_output(
                    name, _ort_device(x.device), ELEMENT_TYPES[x.dtype], tuple(x.shape), x.data_ptr() or NOTHING.data_ptr()
                )
            if self._device.type == "cuda":
                torch.cuda.current_stream(self._device).synchronize()
            session._sess.run_with_iobinding(binding, None)
            return outputs

        return run


def _ort_device(device: torch.device) -> Any:
    kind = state.OrtDevice.cuda() if device.type == "cuda" else state.OrtDevice.cpu()
    return state.OrtDevice(kind, state.OrtDevice.default_memory(), device.index or 0)


def _session_options(given: Any) -> Any:
    """What the user gave, or defaults: as many threads as torch has, and no log, as its errors are told."""
    if isinstance(given, onnxruntime.SessionOptions):
        return given
    made = onnxruntime.SessionOptions()
    made.intra_op_num_threads = torch.get_num_threads()
    made.log_severity_level = 4
    for name, value in (given or {}).items():
        setattr(made, name, value)
    return made
