"""What must hold for a compiled graph to be used again: Guard is one fact about one source, GuardSet an ordered set of them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from .. import _C
from .._torch.tensors import dispatch_keys
from ..signals import let_through
from ..sources import Ambient, Source
from ..weakly_held import held, there

_AS_THEY_ARE = (int, str, bytes)
_BY_VALUE = (bool, float, complex, type(None))


def payload_key(payload: Any) -> Any:
    """A hashable stand-in: plain constants by type and value or text (1, 1.0 and True differ; -0.0 and nan too), the rest by identity."""
    if type(payload) in _AS_THEY_ARE:
        return (type(payload).__name__, payload)
    if type(payload) in _BY_VALUE:
        return (type(payload).__name__, repr(payload))
    if type(payload) in (tuple, list, frozenset):
        return (type(payload).__name__, tuple(payload_key(item) for item in payload))
    if type(payload) is TensorFacts:
        return payload
    return ("id", id(payload() if type(payload) is _C.WeakKey else payload))


@dataclass(frozen=True)
class TensorFacts:
    """Payload of a TENSOR guard. A size or stride of None is not checked here (a symbol's conditions check it)."""

    type_held: Any
    dtype: Any
    device: Any
    requires_grad: bool
    sizes: tuple[int | None, ...]
    strides: tuple[int | None, ...] | None
    layout: Any = None
    is_conj: bool = False
    is_neg: bool = False
    is_inference: bool = False
    dispatch_keys: int = 0

    @property
    def type(self) -> Any:
        """The class of the tensor, None when it is dead."""
        return there(self.type_held)

    def text(self) -> str:
        """One line: `float32[3, ?] on cpu, strides (?, 1)`; a question mark is not checked here."""
        sizes = ", ".join("?" if n is None else str(n) for n in self.sizes)
        lines = [f"{str(self.dtype).removeprefix('torch.')}[{sizes}] on {self.device}"]
        if self.strides is not None:
            lines.append(f"strides ({', '.join('?' if n is None else str(n) for n in self.strides)})")
        lines += ["requires grad"] if self.requires_grad else []
        lines += [self.type.__name__] if self.type.__name__ != "Tensor" else []
        return ", ".join(lines)

    @classmethod
    def of(cls, tensor: Any, dynamic: Iterable[int] = (), check_strides: bool = True) -> "TensorFacts":
        """The facts of `tensor`; sizes of the dims in `dynamic` and, when there are any, all strides are left open."""
        open_dims = frozenset(dynamic)
        strided = str(tensor.layout) == "torch.strided"
        sizes = tuple(None if d in open_dims else int(n) for d, n in enumerate(tensor.shape))
        strides = tuple(tensor.stride()) if strided and check_strides and not open_dims else None
        return cls(
            held(type(tensor)),
            tensor.dtype,
            tensor.device,
            tensor.requires_grad,
            sizes,
            strides,
            tensor.layout,
            tensor.is_conj(),
            tensor.is_neg(),
            tensor.is_inference(),
            dispatch_keys(tensor),
        )


@dataclass(frozen=True, eq=False)
class Guard:
    """One fact: `kind` is a key of GUARD_KINDS, `payload` what the kind compares with, `origin` the user's file:line."""

    kind: str
    source: Source
    payload: Any = None
    origin: str = ""

    @property
    def key(self) -> tuple[Any, ...]:
        return (self.kind, self.source, payload_key(self.payload))

    def __str__(self) -> str:
        shown = "" if self.payload is None else f" {_short(self.payload)}"
        return f"{self.kind} {self.source}{shown}" + (f"  # {self.origin}" if self.origin else "")


def _short(payload: Any) -> str:
    if isinstance(payload, TensorFacts):
        return payload.text()
    try:
        text = repr(payload)
    except Exception as error:
        let_through(error)
        text = f"a {type(payload).__qualname__} without a repr"
    return text if len(text) <= 120 else text[:117] + "..."


class GuardSet:
    """Guards in the order they were first recorded; a fact recorded twice is kept once."""

    def __init__(self, guards: Iterable[Guard] = ()) -> None:
        self._guards: dict[tuple[Any, ...], Guard] = {}
        for guard in guards:
            self.add(guard)

    def add(self, guard: Guard) -> bool:
        """Adds one guard; False when it was there."""
        key = guard.key
        if key in self._guards:
            return False
        self._guards[key] = guard
        return True

    def record(self, kind: str, source: Source, payload: Any = None, origin: str = "") -> bool:
        """`add(Guard(...))`."""
        return self.add(Guard(kind, source, payload, origin))

    def state(self, name: str, value: Any, origin: str = "") -> bool:
        """Guards a piece of ambient torch state, a row of guards.kinds.STATES."""
        return self.add(Guard("STATE", Ambient(name), value, origin))

    def update(self, guards: Iterable[Guard]) -> None:
        for guard in guards:
            self.add(guard)

    def filter(self, keep: Any) -> "GuardSet":
        """The guards for which keep(guard) is true, as a new set."""
        return GuardSet(guard for guard in self if keep(guard))

    def __iter__(self) -> Iterator[Guard]:
        return iter(list(self._guards.values()))

    def __len__(self) -> int:
        return len(self._guards)

    def __contains__(self, guard: Guard) -> bool:
        return guard.key in self._guards

    def text(self) -> str:
        """One guard a line."""
        return "\n".join(str(guard) for guard in self)
