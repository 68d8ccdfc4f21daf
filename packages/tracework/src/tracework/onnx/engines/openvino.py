"""OpenVINO."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import openvino
import torch

from ..model import Model
from ..writer import ELEMENT_TYPES, Traits

Tensors = list[torch.Tensor]
_TYPES = {d: getattr(openvino.Type, name) for d, name in {
    torch.float32: "f32", torch.float64: "f64", torch.float16: "f16", torch.bfloat16: "bf16", torch.int64: "i64", torch.int32: "i32",
    torch.int16: "i16", torch.int8: "i8", torch.uint8: "u8", torch.uint16: "u16", torch.uint32: "u32", torch.bool: "boolean",
}.items()}  # fmt: skip
_SAME_WIDTH = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class OpenVino:
    """Compiled models with these options; results are written to torch's memory. float32 is kept unless the config says otherwise."""

    name = "openvino"

    def __init__(self, options: Mapping[str, Any], device: torch.device) -> None:
        if device.type != "cpu":
            raise ValueError(f"OpenVINO takes tensors on the CPU, and the graph's are on {device}")
        self._device = str(options.get("device") or "CPU")
        self._config = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY", **dict(options.get("config") or {})}
        if self._device == "CPU":
            self._config.setdefault("INFERENCE_NUM_THREADS", torch.get_num_threads())
        self._core = openvino.Core()
        if options.get("model_caching") or options.get("cache_dir"):
            self._core.set_property({"CACHE_DIR": str(options.get("cache_dir") or "./cache")})
        self.traits = Traits(
            native=frozenset() if self._device == "CPU" else frozenset({torch.float16}),
            lacks=frozenset({torch.float64}),
            not_for_special=frozenset({"Relu", "Exp", "Max", "Min", "ReduceMax", "ReduceMin", "Softmax", "LogSoftmax"}),
            lacks_operators=frozenset({"Mod"}),
            integers_below=2**24,  # int64 is computed as int32, and reduced as float32
            sums_below=2**24,
        )

    def load(self, model: Model) -> Callable[[Tensors, Callable[[], Tensors]], Tensors]:
        """A compiled model. Raises OpenVINO's errors for what it cannot compile."""
        read = self._core.read_model(model.proto.SerializeToString())
        compiled = self._core.compile_model(read, self._device, self._config)
        names = [name for name in model.inputs if name is not None]
        inputs = [_port(compiled.inputs, name) for name in names]
        outputs = [_port(compiled.outputs, name) for name in model.outputs]
        requests = threading.local()

        def run(given: Tensors, empty: Callable[[], Tensors]) -> Tensors:
            if not hasattr(requests, "own"):
                requests.own = compiled.create_infer_request()
            request, made = requests.own, empty()
            for port, x in zip(inputs, given):
                if port is not None:
                    request.set_tensor(port, _shared(x))
            for port, x in zip(outputs, made):
                request.set_tensor(port, _shared(x))
            request.infer()
            for port, x in zip(outputs, made):
                kept = request.get_tensor(port)
                if kept.data.ctypes.data != x.data_ptr():  # a result that is a constant, or an input, stays where it is
                    x.copy_(torch.from_numpy(kept.data.copy()).view(x.dtype).view(x.shape))
            return made

        return run


def _port(ports: Any, name: str) -> Any:
    return next((p for p in ports if name in p.names), None)


def _shared(x: torch.Tensor) -> Any:
    """A tensor of OpenVINO's in the memory of torch's."""
    assert x.dtype in ELEMENT_TYPES
    raw = x.view(_SAME_WIDTH[x.element_size()]).numpy()
    return openvino.Tensor(raw, openvino.Shape(list(x.shape)), _TYPES[x.dtype])
