"""Imports torchvision beside a torch that its compiled operators were not built for."""

from __future__ import annotations

from types import ModuleType

import torch

_library: list[torch.library.Library] = []


def torchvision_models() -> ModuleType:
    """torchvision.models; declares the two operators that its import looks up where they are missing."""
    if not hasattr(torch.ops.torchvision, "nms") and not _library:
        library = torch.library.Library("torchvision", "DEF")
        library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _library.append(library)
    import torchvision.models

    return torchvision.models
