"""What torch and tracework are set to where a traced instruction is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ...regions import regions
from ..protocol.value import Value
from .context import ContextValue
from .hooks import FrameHook
from .regions.transforms import Level


@dataclass(eq=False)
class Modes:
    """regions: of error_on_graph_break, the innermost last. grad_at_start, autocast_at_start: as they were when the frame began."""

    regions: list[bool] = field(default_factory=lambda: list(regions()))
    grad_at_start: bool = True
    autocast_at_start: tuple[Any, ...] = ()
    autocast_ended: list[Any] = field(default_factory=list)
    """Nodes that enter what held before blocks that began before the frame."""
    states_written: dict[str, Any] = field(default_factory=dict)
    """Name in guards.kinds.STATES -> what it was at the start."""
    entered: list[tuple[ContextValue, int, Any]] = field(default_factory=list)
    """Managers that were entered and not left: manager, step, places."""
    function_modes: list[Value] = field(default_factory=list)
    """The TorchFunctionModes that are on, the innermost last."""
    modes_at_start: tuple[Value, ...] = ()
    subclass_functions_off: int = 0
    """How many blocks switch __torch_function__ of subclasses off."""
    all_functions_off: int = 0
    """How many of them switch off modes, too."""
    transforms: tuple[Level, ...] = ()
    """The transforms of torch.func that the function being traced is under."""
    inference: list[bool] = field(default_factory=list)
    """Modes of the inference_mode blocks entered, the innermost last."""
    uses_inference: bool = False
    """Whether there was such a block, or an input that one made."""
    storages: dict[Any, int | None] = field(default_factory=dict)
    """Of inference tensors -> the version that is allowed, of others -> None."""
    frame_hooks: list[FrameHook] = field(default_factory=list)
    """Hooks that the frame put on modules."""
    hook_numbers: int = 0
    """How many it put on."""
    saved_hooks_refused: int = 0
    """How many blocks that disable hooks of saved tensors are entered."""
    uses_saved_hooks: bool = False
    """Whether the graph enters such hooks."""
    uses_dual_levels: bool = False
    """Whether the graph enters a level of forward-mode AD."""
