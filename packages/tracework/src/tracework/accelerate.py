"""What `Accelerator(dynamo_plugin=...)` takes to compile with this compiler; needs the package `accelerate`, 1.7 or newer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from accelerate.utils import TorchDynamoPlugin


@dataclass
class TraceworkPlugin(TorchDynamoPlugin):
    """accelerate's plugin, with its fields and its variables ACCELERATE_DYNAMO_*, for backend="tracework" of torch.compile.

    Models are captured by torch.compile and compiled here; after replace_torch_compile(), and in `tracework run`, captured here as well.

    Attributes:
        backend: "inductor", or "eager" or "aot_eager" of torch.compile; "no" compiles nothing. The variable is not read.
        options: of torch.compile or of this compiler, instead of `mode`.
    """

    def __post_init__(self) -> None:
        self.backend: Any = self.backend or "inductor"
        super().__post_init__()

    def to_kwargs(self) -> dict[str, Any]:
        """Arguments of torch.compile."""
        given = super().to_kwargs()
        return given | {"backend": "tracework" if self.backend.value == "INDUCTOR" else self.backend.value.lower()}
