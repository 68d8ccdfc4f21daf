"""A package `tensorrt` for machines without one: the names that the engine uses, with ONNX Runtime in the place of the GPU.

What is built is checked by onnx.checker; sizes outside of the profile are refused, as by TensorRT.
"""

from __future__ import annotations

import ctypes
import sys
import types
from typing import Any

import onnx
import onnxruntime
import torch

TYPES = {1: torch.float32, 7: torch.int64, 9: torch.bool, 6: torch.int32, 10: torch.float16}
BUILT: list[dict[str, Any]] = []
"""What was built: the profile and the settings of each engine."""


class Logger:
    ERROR = 1

    def __init__(self, severity: int):
        self.severity = severity


class _Input:
    def __init__(self, described: Any):
        self.name = described.name
        self.shape = tuple(-1 if d.dim_param else d.dim_value for d in described.type.tensor_type.shape.dim)


class Network:
    def __init__(self) -> None:
        self.proto: Any = None

    @property
    def num_inputs(self) -> int:
        return len(self.proto.graph.input)

    def get_input(self, i: int) -> _Input:
        return _Input(self.proto.graph.input[i])


class OnnxParser:
    def __init__(self, network: Network, logger: Logger):
        self.network, self.errors = network, []

    def parse(self, text: bytes) -> bool:
        proto = onnx.load_from_string(text)
        if any(node.op_type == "CumSum" for node in proto.graph.node):  # an operator that the stub does not know
            self.errors = ["no importer for CumSum"]
            return False
        onnx.checker.check_model(proto, full_check=True)
        self.network.proto = proto
        return True

    @property
    def num_errors(self) -> int:
        return len(self.errors)

    def get_error(self, i: int) -> str:
        return self.errors[i]


class Profile(dict):
    def set_shape(self, name: str, low: Any, usual: Any, high: Any) -> None:
        self[name] = low, usual, high


class Config:
    def __init__(self) -> None:
        self.profile: dict[str, Any] = {}
        self.settings: dict[str, Any] = {}

    def set_memory_pool_limit(self, pool: str, size: int) -> None:
        self.settings[pool] = size

    def clear_flag(self, flag: str) -> None:
        self.settings[flag] = False

    def add_optimization_profile(self, profile: Profile) -> None:
        self.profile = profile

    def create_timing_cache(self, known: bytes) -> bytes:
        return known

    def set_timing_cache(self, cache: bytes, ignore_mismatch: bool) -> None:
        self.settings["timing_cache"] = cache

    def get_timing_cache(self) -> Any:
        return types.SimpleNamespace(serialize=lambda: b"measured")


class Builder:
    def __init__(self, logger: Logger):
        pass

    def create_network(self, flags: int) -> Network:
        return Network()

    def create_builder_config(self) -> Config:
        return Config()

    def create_optimization_profile(self) -> Profile:
        return Profile()

    def build_serialized_network(self, network: Network, config: Config) -> Any:
        BUILT.append({"profile": dict(config.profile), **vars(config), **config.settings})
        return network.proto, config.profile


class Runtime:
    def __init__(self, logger: Logger):
        pass

    def deserialize_cuda_engine(self, plan: Any) -> Any:
        return types.SimpleNamespace(create_execution_context=lambda: Context(*plan))


class Context:
    def __init__(self, proto: Any, profile: dict[str, Any]):
        self.session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
        self.profile, self.shapes, self.addresses = profile, {}, {}
        self.types = {v.name: TYPES[v.type.tensor_type.elem_type] for v in (*proto.graph.input, *proto.graph.output)}

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> None:
        low, _, high = self.profile.get(name, (shape, shape, shape))
        assert all(a <= s <= b for a, s, b in zip(low, shape, high)), f"{name}: {shape} is outside of the profile"
        self.shapes[name] = shape

    def set_tensor_address(self, name: str, address: int) -> None:
        self.addresses[name] = address

    def execute_async_v3(self, stream: int) -> bool:
        feeds = {name: self._memory(name, shape).numpy() for name, shape in self.shapes.items()}
        for described, value in zip(self.session.get_outputs(), self.session.run(None, feeds)):
            self._memory(described.name, value.shape).copy_(torch.from_numpy(value))
        return True

    def _memory(self, name: str, shape: Any) -> torch.Tensor:
        dtype = self.types[name]
        count = int(torch.Size(shape).numel())
        raw = (ctypes.c_byte * (count * dtype.itemsize)).from_address(self.addresses[name])
        return torch.frombuffer(raw, dtype=dtype).view(tuple(shape))


def module() -> types.ModuleType:
    """The package."""
    made = types.ModuleType("tensorrt")
    made.__dict__.update(Logger=Logger, Builder=Builder, OnnxParser=OnnxParser, Runtime=Runtime, __spec__=sys.__spec__)
    made.NetworkDefinitionCreationFlag = types.SimpleNamespace(STRONGLY_TYPED=1)
    made.MemoryPoolType = types.SimpleNamespace(WORKSPACE="workspace")
    made.BuilderFlag = types.SimpleNamespace(TF32="tf32")
    return made
