"""Imports torchvision, also beside a torch that its compiled operators were not built for."""

from __future__ import annotations

import sys
from types import ModuleType

import torch

_library: list[torch.library.Library] = []


def _declare_missing_operators() -> None:
    """The two operators that torchvision's import looks up, without kernels."""
    library = torch.library.Library("torchvision", "DEF")
    library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _library.append(library)


def torchvision_models() -> ModuleType:
    """torchvision.models, importable from now on for everybody in this process."""
    try:
        import torchvision.models
    except RuntimeError as error:
        if "torchvision::nms" not in str(error):
            raise
        for name in [n for n in sys.modules if n.split(".")[0] == "torchvision"]:
            del sys.modules[name]
        _declare_missing_operators()
        import torchvision.models
    return torchvision.models
