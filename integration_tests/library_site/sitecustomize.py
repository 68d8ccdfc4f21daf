"""What the programs of libraries.py start with, where something is not installed as it is at a user's."""

from importlib.metadata import PackageNotFoundError, entry_points, version
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


def register_backend(registry: ModuleType) -> None:
    """backend="tracework" of torch.compile, where this runs from the source tree, which has no entry points."""
    if not entry_points(group="torch_dynamo_backends", name="tracework"):
        from tracework.torch_backend import tracework_backend

        registry.register_backend(tracework_backend, name="tracework")


after_import("torch", declare_missing_operators)
after_import("torch._dynamo.backends.registry", register_backend)
