"""ENGINES: what runs ONNX models, by the name of the backend; each module imports its package when a graph is compiled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class EngineRow:
    """One engine.

    Attributes:
        module, attribute: where its class is, called with the options.
        package: what is imported.
        extra: of `pip install tracework[...]`.
        options: the options it takes -> their meaning.
        trains: whether gradients are computed by it; else it is given inference alone.
    """

    module: str
    attribute: str
    package: str
    extra: str
    options: Mapping[str, str]
    trains: bool = True


ENGINES: Mapping[str, EngineRow] = {
    "onnxrt": EngineRow(
        "onnxrt",
        "OnnxRuntime",
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
        "tvm",
        {
            "target": 'what tvm.target.Target takes, "llvm" for the CPU if left out',
            "pipeline": "a pass over the relax module, or a name of tvm.relax.get_pipeline",
        },
        trains=False,
    ),
    "tensorrt": EngineRow(
        "tensorrt",
        "TensorRt",
        "tensorrt",
        "tensorrt",
        {
            "workspace_size": "bytes of scratch memory",
            "optimization_level": "builder_optimization_level, 0 to 5",
            "tf32": "float32 products may be rounded to TF32",
            "strongly_typed": "True: the dtypes of the graph are kept",
            "timing_cache": "file of measured kernels",
            "profile": "(smallest, usual, largest) size of each open dim",
        },
    ),
}


def options_of(name: str) -> Mapping[str, Any]:
    """The options of an engine."""
    return ENGINES[name].options
