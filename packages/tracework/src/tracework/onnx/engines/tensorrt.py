"""TensorRT, by its parser for ONNX."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tensorrt
import torch

from ..model import Model
from ..writer import Traits

Tensors = list[torch.Tensor]
DEVICE = "cuda"
SPAN = 2
"""How much larger than the sizes that an engine is built for those may become that it serves."""


class TensorRt:
    """Engines with these options. One with open sizes is built at its first call, and again where sizes leave its range."""

    name = "tensorrt"
    traits = Traits(native=frozenset({torch.float16, torch.bfloat16}), lacks=frozenset({torch.float64}))

    def __init__(self, options: Mapping[str, Any], device: torch.device) -> None:
        if device.type != DEVICE:
            raise ValueError("TensorRT runs on NVIDIA GPUs, and the graph's tensors are on the " + device.type.upper())
        self._options = options
        self._logger = tensorrt.Logger(tensorrt.Logger.ERROR)

    def load(self, model: Model) -> Callable[[Tensors, Callable[[], Tensors]], Tensors]:
        """An engine. Raises RuntimeError with the parser's or the builder's words for what it cannot build."""
        text = model.proto.SerializeToString()
        open_sizes = any(d.dim_param for i in model.proto.graph.input for d in i.type.tensor_type.shape.dim)
        names = [name for name in model.inputs if name is not None]
        built: list[_Built] = [] if open_sizes else [self._build(text, {})]

        def run(inputs: Tensors, empty: Callable[[], Tensors]) -> Tensors:
            shapes = {name: tuple(x.shape) for name, x in zip(names, inputs)}
            if not built or not built[0].takes(shapes):
                built[:] = [self._build(text, shapes)]
            outputs = empty()
            built[0](dict(zip(names, inputs)), dict(zip(model.outputs, outputs)))
            return outputs

        return run

    def _build(self, text: bytes, shapes: Mapping[str, tuple[int, ...]]) -> _Built:
        builder = tensorrt.Builder(self._logger)
        flags = 0
        if self._options.get("strongly_typed", True):
            flags |= 1 << int(tensorrt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
        network = builder.create_network(flags)
        parser = tensorrt.OnnxParser(network, self._logger)
        if not parser.parse(text):
            raise RuntimeError("; ".join(str(parser.get_error(i)) for i in range(parser.num_errors)))
        config = builder.create_builder_config()
        if "workspace_size" in self._options:
            config.set_memory_pool_limit(tensorrt.MemoryPoolType.WORKSPACE, int(self._options["workspace_size"]))
        if "optimization_level" in self._options:
            config.builder_optimization_level = int(self._options["optimization_level"])
        if not self._options.get("tf32", torch.backends.cuda.matmul.allow_tf32):
            config.clear_flag(tensorrt.BuilderFlag.TF32)
        ranges = self._ranges(network, shapes)
        if ranges:
            profile = builder.create_optimization_profile()
            for name, (low, usual, high) in ranges.items():
                profile.set_shape(name, low, usual, high)
            config.add_optimization_profile(profile)
        cache = self._options.get("timing_cache")
        if cache:
            known = Path(cache).read_bytes() if Path(cache).exists() else b""
            config.set_timing_cache(config.create_timing_cache(known), False)
        plan = builder.build_serialized_network(network, config)
        if plan is None:
            raise RuntimeError("TensorRT could not build an engine of the graph")
        if cache:
            Path(cache).write_bytes(bytes(config.get_timing_cache().serialize()))
        return _Built(tensorrt.Runtime(self._logger).deserialize_cuda_engine(plan), ranges)

    def _ranges(self, network: Any, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[Any, Any, Any]]:
        """Name of an input with open sizes -> the smallest, usual and largest sizes."""
        ranges: dict[str, tuple[Any, Any, Any]] = {}
        for i in range(network.num_inputs):
            given = network.get_input(i)
            if given.name not in shapes or -1 not in tuple(given.shape):
                continue
            low, usual, high = self._options.get("profile") or (1, None, None)
            picks = (lambda s: min(low, s)), (lambda s: usual or s), (lambda s: max(high or SPAN * s, s))
            sizes = list(zip(shapes[given.name], tuple(given.shape)))
            smallest, typical, largest = (tuple(pick(s) if declared == -1 else s for s, declared in sizes) for pick in picks)
            ranges[given.name] = smallest, typical, largest
        return ranges


def stream_of(device: torch.device) -> int:
    """The stream that torch's own kernels go to."""
    return torch.cuda.current_stream(device).cuda_stream


class _Built:
    """An engine, and the range of sizes that it takes."""

    def __init__(self, engine: Any, ranges: Mapping[str, tuple[Any, Any, Any]]) -> None:
        self._engine, self._ranges = engine, ranges
        self._context = engine.create_execution_context()

    def takes(self, shapes: Mapping[str, tuple[int, ...]]) -> bool:
        return all(all(a <= s <= b for a, s, b in zip(low, shapes[name], high)) for name, (low, _, high) in self._ranges.items())

    def __call__(self, inputs: Mapping[str, torch.Tensor], outputs: Mapping[str, torch.Tensor]) -> None:
        device = next(iter(outputs.values())).device
        on_gpu = {name: x.to(device) for name, x in inputs.items()}
        for name, x in on_gpu.items():
            self._context.set_input_shape(name, tuple(x.shape))
        for name, x in {**on_gpu, **outputs}.items():
            self._context.set_tensor_address(name, x.data_ptr())
        if not self._context.execute_async_v3(stream_of(device)):
            raise RuntimeError("TensorRT could not run the engine")
