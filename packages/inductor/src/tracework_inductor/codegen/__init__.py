"""TARGETS: device type -> how to make its Renderer, which is imported when the first kernel is for such a device."""

from collections.abc import Callable
from typing import Any

from ..errors import InductorError
from ..options import InductorOptions


def _cpu(options: InductorOptions) -> Any:
    from .cpp import CppRenderer

    return CppRenderer(options.parallel_grain, options.rounds)


def _cuda(options: InductorOptions) -> Any:
    from .triton import TritonRenderer

    return TritonRenderer(options.rounds)


TARGETS: dict[str, Callable[[InductorOptions], Any]] = {"cpu": _cpu, "cuda": _cuda}


def renderer_for(device_type: str, options: InductorOptions) -> Any:
    """The renderer that claims a device type. Raises InductorError naming those that are known."""
    make = TARGETS.get(device_type)
    if make is None:
        raise InductorError(f"no renderer for device {device_type!r}; TARGETS has {sorted(TARGETS)}")
    return make(options)
