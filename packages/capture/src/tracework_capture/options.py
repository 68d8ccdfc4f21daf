"""Options of capture: a frozen value handed to everything below; the environment is never read here."""

import functools
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from types import CodeType
from typing import Any

from .errors import ControlMisuse


def _ignore(stage: str, printable: Any) -> None:
    """The default observer."""


@dataclass(frozen=True)
class CaptureOptions:
    r"""How to capture.

    fullgraph: a graph break raises Unsupported. dynamic: None makes a size or number a symbol when it changed between calls, True at once
    where it is of an argument, False never. recompile_limit: entries per code object before plain Python runs, with one warning. guard_filter_fn: called with
    a list of guards.filters.FilterEntry, returns one bool each (False drops the guard). observe: called with (stage, printable).
    dynamic_sources, static_sources: names of arguments and the like, or regular expressions for whole names, whose sizes and numbers are
    symbols from the start, or never; "x:0" means one dim, and what starts as torch.compile spells names, L\['x.*'\], is matched as
    there. dynamic_values: sizes and numbers of these values are symbols.
    unbacked_sources: names of tensors on whose sizes nothing may be decided.
    unbacked: item(), nonzero, masks and the like stay in the graph, with sizes that are symbols without a value; without it they break.
    None keeps sizes, not numbers, in frames that go into one graph without a decision on them; the backend must know such sizes.
    on_failure: called with (graph module, exception) where the backend raised; gives what runs instead of a compiled graph, or raises.
    symbolic_sizes: whether graphs have sizes and ints that are symbols; without them each one is a constant, whatever marks and other
    options say. None finds it out: as long as the backend gives the graphs back as they are (see contracts.Backend).
    shapes: declared sizes of arguments (shapes.py); those that are not declared are fixed then, but for ones that tensors are marked with.
    idle_limit: instructions and iterations of loops in a row that are traced without meeting a tensor; then the graph breaks. Where there
    are tensors, six times as many are.
    name: what messages on recompiling and limits show beside the function.
    fail_on_limit: raise RecompileLimitError at the limit. error_on_recompile: raise RecompileError where an entry would be made beside another.
    settings: called with the options before a frame is captured; gives those that hold from then on.
    places: file of code that stands for a function of the program -> the place that messages show instead.
    around: called with the code of a frame, gives the context in which the frame is captured and its graph compiled.
    keep_empty: frames without tensor operations are replaced, too, instead of left alone; for calls that are captured as a whole, and tests.
    whole: for calls that are captured as a whole: what runs in the frame's place never runs the frame, as where a graph raises.
    Backends are given graphs without operations, too.
    repeats_writes: whether checkpoints in graphs may write to inputs; the attribute REPEATS_WRITES of the backend decides.
    """

    fullgraph: bool = False
    dynamic: bool | None = None
    recompile_limit: int = 8
    fail_on_limit: bool = False
    error_on_recompile: bool = False
    settings: Callable[["CaptureOptions"], "CaptureOptions"] | None = None
    guard_filter_fn: Callable[[Any], Iterable[bool]] | None = None
    observe: Callable[[str, Any], None] = _ignore
    around: Callable[[CodeType], AbstractContextManager[Any]] = nullcontext
    inline_depth_limit: int = 200
    name: str | None = None
    places: Mapping[str, str] = field(default_factory=dict)
    unbacked: bool | None = False
    on_failure: Callable[[Any, Exception], Callable[..., Any]] | None = None
    symbolic_sizes: bool | None = None
    shapes: Mapping[tuple[Any, ...], Any] | None = None
    idle_limit: int = 50_000
    keep_empty: bool = False
    whole: bool = False
    repeats_writes: bool = False
    dynamic_sources: frozenset[str] = frozenset()
    static_sources: frozenset[str] = frozenset()
    unbacked_sources: frozenset[str] = frozenset()
    dynamic_values: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        """Raises ControlMisuse for values that mean nothing."""
        for name, wanted in (("fullgraph", (True, False)), ("dynamic", (None, True, False)), ("unbacked", (None, True, False))):
            if getattr(self, name) not in wanted:
                raise ControlMisuse(f"{name}= takes {' or '.join(map(str, wanted))}, not {getattr(self, name)!r}.")
        if type(self.recompile_limit) is not int or self.recompile_limit < 1:
            raise ControlMisuse(f"recompile_limit= takes a positive int, not {self.recompile_limit!r}.")
        if self.shapes is not None and not all(type(path) is tuple for path in self.shapes):
            raise ControlMisuse(
                "shapes= takes what declared_shapes({...}, function) gives, which knows the function's parameters."
            )
        for name in (*self.dynamic_sources, *self.static_sources, *self.unbacked_sources):
            try:
                re.compile(name)
            except re.error as error:
                raise ControlMisuse(f"the source {name!r} is neither a name nor a regular expression: {error}.") from error

    @property
    def allows_symbolic_sizes(self) -> bool:
        """Whether sizes and ints may be symbols; floats that change are tensors, which no backend takes for constants."""
        return self.symbolic_sizes is not False

    def with_writes(self, repeated: bool) -> "CaptureOptions":
        """These options with another value of repeats_writes."""
        return self if repeated is self.repeats_writes else replace(self, repeats_writes=repeated)

    def with_sizes(self, symbolic: bool | None) -> "CaptureOptions":
        """These options with another value of symbolic_sizes; false, none is kept that depends on data, either."""
        if symbolic is self.symbolic_sizes:
            return self
        return replace(self, symbolic_sizes=symbolic, unbacked=False if symbolic is False else self.unbacked)

    def shown(self, code: CodeType) -> str:
        """A function in messages: its name, its place, and the name that the user gave this compile call."""
        label = f", {self.name!r}" if self.name else ""
        return f"{code.co_qualname} ({self.place(code, code.co_firstlineno)}{label})"

    def named(self, code: CodeType) -> str:
        """file:line of a function and its name."""
        return f"{self.place(code, code.co_firstlineno)} in {code.co_qualname}"

    def place(self, code: CodeType, line: int | None) -> str:
        """file:line of code in messages."""
        return self.places.get(code.co_filename) or f"{code.co_filename}:{line}"

    def chosen_dims(self, source: str, shape: tuple[int, ...]) -> frozenset[int]:
        """Dims of the tensor at `source` that these options make symbols."""
        if not (self.dynamic_sources or self.dynamic_values):
            return frozenset()
        valued = {d for d, size in enumerate(shape) if size in self.dynamic_values}
        return (_named(self.dynamic_sources, source, shape) | valued) - self.fixed_dims(source, shape)

    def fixed_dims(self, source: str, shape: tuple[int, ...]) -> frozenset[int]:
        """Dims of the tensor at `source` that are never symbols."""
        return _named(self.static_sources, source, shape)

    def unbacked_dims(self, source: str, shape: tuple[int, ...]) -> frozenset[int]:
        """Dims of the tensor at `source` that are symbols on which nothing may be decided."""
        return _named(self.unbacked_sources, source, shape)

    def chosen_number(self, source: str, value: int) -> bool:
        """Whether the int at `source` is a symbol from the start."""
        chosen = value in self.dynamic_values or _is_named(self.dynamic_sources, source)
        return chosen and not _is_named(self.static_sources, source)


def _named(names: frozenset[str], source: str, shape: tuple[int, ...]) -> frozenset[int]:
    """The dims of the tensor at `source` that are among `names`, all of them or one by one."""
    return frozenset(d for d in range(len(shape)) if _is_named(names, source, d)) if names else frozenset()


@functools.lru_cache(4096)
def _is_named(names: frozenset[str], source: str, dim: int | None = None) -> bool:
    """Whether one of the names means this dim of what is at `source`; without a dim: anything of it."""
    return any(_means(name, source) and (dim is None or only is None or dim == only) for name, only in map(_split, names))


def _split(name: str) -> tuple[str, int | None]:
    start, colon, dim = name.rpartition(":")
    return (start, int(dim)) if colon and dim.isdecimal() else (name, None)


def _means(name: str, source: str) -> bool:
    if name == source or re.fullmatch(name, source):
        return True
    root = re.split(r"[.\[]", source, maxsplit=1)[0]
    return any(re.match(name, f"{scope}['{root}']{source[len(root) :]}") for scope in "LG")
