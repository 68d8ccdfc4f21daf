"""What the programs of libraries.py start with: torchvision can be imported beside a torch that its compiled operators were not built for."""

from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from typing import Any

from tracework.after_import import after_import

LIBRARIES: list[Any] = []


def declare_missing_operators(torch: ModuleType) -> None:
    """The two operators that torchvision's import looks up, without kernels, where a CPU's torch stands beside a GPU's torchvision."""
    try:
        built_for_cpu = version("torchvision").endswith("+cpu")
    except PackageNotFoundError:
        return
    if torch.version.cuda is None and not built_for_cpu:
        library = torch.library.Library("torchvision", "DEF")
        library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        LIBRARIES.append(library)


after_import("torch", declare_missing_operators)
