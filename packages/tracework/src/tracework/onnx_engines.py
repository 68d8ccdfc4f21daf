"""ENGINES: what runs ONNX models, by the name of the backend; each module imports its package when a graph is compiled."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class EngineRow:
    """One engine.

    Attributes:
        module, attribute: where its class is in onnx/engines, called with the options.
        package, distribution: what is imported, and its name on an index.
        extra: of `pip install tracework[...]`.
        options: the options it takes -> their meaning.
    """

    module: str
    attribute: str
    package: str
    distribution: str
    extra: str
    options: Mapping[str, str]


ENGINES: Mapping[str, EngineRow] = {
    "onnxrt": EngineRow(
        "onnxrt",
        "OnnxRuntime",
        "onnxruntime",
        "onnxruntime",
        "onnxrt",
        {
            "providers": "execution providers, the first that can run a node runs it; None: CUDA's for tensors on a GPU, and the CPU's",
            "provider_options": "a dict for each provider",
            "session_options": "an onnxruntime.SessionOptions, or a dict of its attributes",
        },
    ),
    "openvino": EngineRow(
        "openvino",
        "OpenVino",
        "openvino",
        "openvino",
        "openvino",
        {
            "device": 'where it runs, "CPU" if left out',
            "config": "properties of the compiled model",
            "cache_dir": "folder in which OpenVINO keeps compiled models",
            "model_caching": "True: keep compiled models, in ./cache if cache_dir is left out",
        },
    ),
    "tvm": EngineRow(
        "tvm",
        "Tvm",
        "tvm",
        "apache-tvm",
        "tvm",
        {
            "target": 'what tvm.target.Target takes, "llvm" for the CPU if left out',
            "pipeline": "a pass over the relax module, or a name of tvm.relax.get_pipeline",
        },
    ),
    "tensorrt": EngineRow(
        "tensorrt",
        "TensorRt",
        "tensorrt",
        "tensorrt",
        "tensorrt",
        {
            "workspace_size": "bytes of scratch memory",
            "optimization_level": "builder_optimization_level, 0 to 5",
            "tf32": "float32 products may be rounded to TF32",
            "strongly_typed": "False: TensorRT may compute in other dtypes than the graph says",
            "timing_cache": "file of measured kernels",
            "profile": "(smallest, usual, largest) size of every open dim; else an engine serves sizes up to twice those it was built for",
        },
    ),
}


def missing_package(name: str) -> str | None:
    """The first package that an engine's backend needs and that is not installed."""
    return next((p for p in ("onnx", ENGINES[name].package) if importlib.util.find_spec(p) is None), None)
