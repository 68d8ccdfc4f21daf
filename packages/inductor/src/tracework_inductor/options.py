"""InductorOptions: what a caller may choose; frozen and fingerprinted."""

import dataclasses
import hashlib

from tracework_primops import NUMERICS
from tracework_runtime import Settings

from .errors import InductorError


@dataclasses.dataclass(frozen=True)
class InductorOptions:
    """Choices of one compilation.

    Every field can change the generated code, so all of them are in the fingerprint.
    """

    max_fusion_size: int = 64
    """Loop nodes in one kernel at most."""
    max_body_instructions: int = 160
    """A lazy value whose loop body would be larger becomes a buffer."""
    inline_cost: int = 8
    """A lazy value with several users and at least this cost becomes a buffer."""
    parallel_grain: int = 16384
    """Weighted elements per thread below which a CPU loop stays on one thread."""
    fuse: bool = True
    memory_reuse: bool = True
    index_checks: bool = True
    """Whether kernels check indices. Without, one that is out of range reads or writes memory that is another's."""
    fallback_ops: frozenset[str] = frozenset()
    """Ops that call the eager kernel instead of being lowered."""
    max_autotune: bool = False
    """Whether block sizes are chosen by measuring, where the tuning book has none."""
    numerics: str = "default"
    """A word of primops' NUMERICS: what has eager's bits."""
    deterministic: bool = False
    """Whether algorithms are to be deterministic: no kernel on a GPU writes to computed positions, which it does in any order."""
    packs: bool = True
    """Whether convolutions and linear layers of a CPU may be given to oneDNN."""
    numbers_in_memory: frozenset[str] = frozenset()
    """Types of devices whose kernels read numbers that no size depends on from memory: a CUDA graph is recorded for all of them then."""
    products: str = "book"
    """What computes large products on a GPU: "book", the library unless the tuning book, or a prediction that was calibrated, has another answer;
    "tiles", cores of ours where they can."""
    graph_passes: int | None = None
    """How many of GRAPH_PASSES run, from the first; None for all. This and the next one say which rule is at fault."""
    fusions: int | None = None
    """How many times a loop joins others, from the first; None for as often as it may."""
    half_accumulation: bool = False
    """Whether the library may add up float16 products in float16."""

    def __post_init__(self) -> None:
        if self.numerics not in NUMERICS:
            raise InductorError(f"unknown numerics {self.numerics!r}; known: {', '.join(NUMERICS)}")

    @property
    def rounds(self) -> bool:
        """Whether each operation on an element is rounded as eager does it."""
        return "pointwise" in NUMERICS[self.numerics]

    @property
    def keeps_order(self) -> bool:
        """Whether elements are added up in eager's order, by its kernels."""
        return "reduction" in NUMERICS[self.numerics]

    def under(self, settings: "Settings") -> "InductorOptions":
        """These options under settings of torch."""
        return dataclasses.replace(self, **settings._asdict())

    def fingerprint(self) -> str:
        """A digest of all fields."""
        rows = [f"{f.name}={_stable(getattr(self, f.name))}" for f in dataclasses.fields(self)]
        return hashlib.sha256("\n".join(rows).encode()).hexdigest()


def _stable(value: object) -> str:
    return repr(sorted(value)) if isinstance(value, frozenset) else repr(value)
