"""Where a value came from: pure frozen data, hashable, printed as the Python expression a user would write.

Sources know nothing of guards or bytecode: guards.access.ACCESS says how to fetch one natively, bytecode.reload.RELOAD how to
emit code that fetches it. Every source is either a root (no `base`) or one step away from its `base`.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from re import Pattern
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any, TypeVar, dataclass_transform

import torch

from . import _C
from .weakly_held import held_if_of_program, there

_BY_VALUE = (int, str, bytes, bool, float, complex, type(None))
_OF_TORCH = (torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size)
_SHOWN = frozenset(
    {*_BY_VALUE, *_OF_TORCH, range, type(Ellipsis), Pattern, CodeType, FunctionType, BuiltinFunctionType, ModuleType}
)
"""Types whose repr runs no code of the user's."""
_BRACKETS: dict[type, tuple[str, str]] = {tuple: ("(", ")"), list: ("[", "]"), set: ("{", "}"), frozenset: ("frozenset({", "})")}


class Source:
    """One place a value can be read from. `base` is the source it is read out of, None for a root."""

    __slots__ = ()
    base: "Source | None" = None

    def __str__(self) -> str:
        raise NotImplementedError

    def part(self, key: Any) -> str:
        """How an item of what is here is written."""
        return f"{self}[{text_of(key)}]"


_AnySource = TypeVar("_AnySource", bound=Source)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def _source(text: str = "") -> Callable[[type[_AnySource]], type[_AnySource]]:
    """Frozen dataclass whose hash is computed once: sources are dict keys everywhere and chains get long. text: how it prints, with its
    fields in braces."""

    def decorate(cls: Any) -> Any:
        if "base" in cls.__annotations__:
            cls.base = field()  # else dataclass would take Source.base, None, for a default
        made: Any = dataclass(frozen=True, eq=True, repr=False)(cls)
        plain_hash = made.__hash__

        def __hash__(self: Any) -> int:
            known: dict[str, int] = self.__dict__
            try:
                return known["_hash"]
            except KeyError:
                value = known["_hash"] = hash((type(self).__name__, plain_hash(self)))
                return value

        made.__hash__ = __hash__
        made.__repr__ = lambda self: f"<{type(self).__name__} {self}>"
        if text:
            made.__str__ = lambda self: text.format_map(self.__dict__)
        return made

    return decorate


@_source("{name}")
class Local(Source):
    """A local variable (argument) of the captured frame; `parts` are names that the user knows items of it by."""

    name: str
    parts: tuple[tuple[Any, str], ...] = field(default=(), compare=False)

    def part(self, key: Any) -> str:
        return next((text for at, text in self.parts if at == key and type(at) is type(key)), None) or Source.part(self, key)


@_source("{name}")
class Global(Source):
    """A name in the captured frame's globals (builtins: use Const)."""

    name: str


@_source("globals()")
class FrameGlobals(Source):
    """The captured frame's globals themselves."""


@_source("{name}")
class Closure(Source):
    """The contents of a free variable's cell of the captured frame."""

    name: str


def text_of(value: Any, depth: int = 4) -> str:
    """A text for an object, without running code of the user's: of containers in containers so many levels, since they may be in
    themselves."""
    kind = type(value)
    if kind in _SHOWN:
        return repr(value)
    if kind is _C.WeakKey:
        return "an object that is gone" if value() is None else text_of(value(), depth)
    if kind in _BRACKETS:
        left, right = _BRACKETS[kind]
        inside = "".join(f"{text_of(item, depth - 1)}, " for item in value).removesuffix(", ") if depth else "..."
        return left + inside + right
    if issubclass(kind, Enum):
        return f"{kind.__qualname__}.{_C.instance_dict(value).get('_name_')}"
    return type.__repr__(value) if issubclass(kind, type) else object.__repr__(value)


@_source("(the cell of {name})")
class ClosureCell(Source):
    """The cell itself of a free variable of the captured frame."""

    name: str


class Const(Source):
    """An object known at capture time: a module's globals dict, a class, a builtin; or the one that a WeakKey is of. The compiled entry
    keeps no class, function or module of the program alive, nor an instance of such a class.

    Compared by identity, plain constants by type and value. `text` is how it prints.
    """

    __slots__ = ("holder", "text", "key")
    holder: Any
    text: str
    key: tuple[Any, ...]

    def __init__(self, value: Any, text: str | None = None) -> None:
        object.__setattr__(self, "holder", held_if_of_program(value))
        value = self.value
        object.__setattr__(self, "text", text if text is not None else text_of(value))
        object.__setattr__(self, "key", (type(value), repr(value)) if type(value) in _BY_VALUE else (id(value),))

    @property
    def value(self) -> Any:
        """The object, None when it is dead."""
        return there(self.holder)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"Const is frozen, cannot set {name}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Const) and self.key == other.key

    def __hash__(self) -> int:
        return hash(("Const", self.key))

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<Const {self.text}>"


@_source("state.{name}")
class Ambient(Source):
    """A piece of interpreter-wide torch state, by the name of its row in guards.kinds.STATES ("grad_mode", ...)."""

    name: str


@_source("new_{what}_{token}")
class NewlyCreated(Source):
    """An object made while capturing: cannot be fetched, `token` tells objects apart."""

    token: int
    what: str = "object"


@_source("{base}.{name}")
class Attr(Source):
    """getattr(base, name)."""

    base: Source
    name: str


@_source("{descriptor.__objclass__.__qualname__}.{descriptor.__name__}.__get__({base})")
class Member(Source):
    """descriptor.__get__(base): a slot, or an attribute that a class in C has, where the class of `base` has something else under its name."""

    base: Source
    descriptor: Any


@_source("{base}.__dict__")
class InstanceDict(Source):
    """base.__dict__."""

    base: Source


@_source("{base}.{name}")
class InstanceAttr(Source):
    """base.__dict__[name]: past every descriptor and __getattr__."""

    base: Source
    name: str


@_source()
class ModuleEntry(Source):
    """base.__dict__[table][name] of an nn.Module; table is "_parameters", "_buffers" or "_modules"."""

    base: Source
    table: str
    name: str

    def __str__(self) -> str:
        return f"{self.base}.{self.name}" if self.name.isidentifier() else f"{self.base}.{self.table}[{self.name!r}]"


@_source("inspect.getattr_static({base}, {name!r})")
class ClassAttr(Source):
    """What the MRO of the class `base` holds under name, descriptors not applied."""

    base: Source
    name: str


@_source("type({base})")
class TypeOf(Source):
    """type(base)."""

    base: Source


@_source("{base}()")
class Referent(Source):
    """What the weak reference at base refers to."""

    base: Source


@_source("{base}.gi_frame.f_locals[{name!r}]")
class GeneratorLocal(Source):
    """The argument `name` of the generator at base, which has not started."""

    base: Source
    name: str


@_source("{base}.__reduce__()[1][0]")
class IteratedList(Source):
    """The list that the iterator at base goes over, another one at its end."""

    base: Source


@_source("next(itertools.islice({base}, {count}, None))")
class ItemAhead(Source):
    """What the iterator at base gives after `count` other items; nothing when it has fewer left."""

    base: Source
    count: int


@_source("torch.from_numpy({base})")
class ArrayTensor(Source):
    """A tensor over the memory of the NumPy array base, whose dims `flips` run backwards and which may be written to, or not."""

    base: Source
    flips: tuple[int, ...] = ()
    writeable: bool = True


@_source()
class Item(Source):
    """base[index] of a list, tuple or other sequence, index a Python int (may be negative)."""

    base: Source
    index: int

    def __str__(self) -> str:
        return self.base.part(self.index)


@_source("{base}[{index}]")
class PartItem(Source):
    """An item of the list, tuple or deque that base is by inheritance, past what its class overrides."""

    base: Source
    index: int


@_source("plain {base}")
class PlainPart(Source):
    """The int, float, str or bytes that base is by inheritance, past what its class overrides."""

    base: Source


@dataclass(frozen=True, eq=False, repr=False)
class DictItem(Source):
    """dict.__getitem__(base, key); the key is a constant, any hashable object compared by identity, or a WeakKey of one."""

    base: Source = field()
    key: Any

    def _identity(self) -> tuple[Any, ...]:
        key = self.key
        return (self.base, type(key), key if type(key) in _BY_VALUE else id(key))

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, DictItem) and self._identity() == other._identity())

    def __hash__(self) -> int:
        known: dict[str, int] = self.__dict__
        try:
            return known["_hash"]
        except KeyError:
            value = known["_hash"] = hash(("DictItem", self._identity()))
            return value

    def __str__(self) -> str:
        return self.base.part(self.key)

    def __repr__(self) -> str:
        return f"<DictItem {self}>"


@_source("list({base})[{index}]")
class DictKeyAt(Source):
    """list(base)[index]: a key of a dict, by position."""

    base: Source
    index: int


@_source("list({base}.values())[{index}]")
class DictValueAt(Source):
    """list(base.values())[index]: a value of a dict, by position."""

    base: Source
    index: int


@_source("{base}.__globals__")
class FunctionGlobals(Source):
    """base.__globals__ of a Python function."""

    base: Source


@_source("{base}.__closure__[{index}].cell_contents")
class CellContents(Source):
    """base.__closure__[index].cell_contents of a Python function."""

    base: Source
    index: int


@_source("{base}.__defaults__[{index}]")
class DefaultArg(Source):
    """base.__defaults__[index] of a Python function."""

    base: Source
    index: int


@_source("{base}.__kwdefaults__[{name!r}]")
class KwDefaultArg(Source):
    """base.__kwdefaults__[name] of a Python function."""

    base: Source
    name: str


@_source("{base}.size({dim})")
class TensorSize(Source):
    """base.shape[dim] as a Python int."""

    base: Source
    dim: int


@_source("{base}.stride({dim})")
class TensorStride(Source):
    """base.stride(dim) as a Python int."""

    base: Source
    dim: int


@_source("{base}.storage_offset()")
class TensorOffset(Source):
    """base.storage_offset() as a Python int."""

    base: Source


@_source()
class ComputedInt(Source):
    """The int that Python computes from the number at base: `text` over `name`. There is none where that is no int of 62 bits."""

    base: Source
    text: str
    name: str

    def __str__(self) -> str:
        return re.sub(rf"\b{self.name}\b", lambda _: str(self.base), self.text)


def ancestors(source: Source) -> list[Source]:
    """The chain from the root to `source`, both included."""
    chain = [source]
    while source.base is not None:
        source = source.base
        chain.append(source)
    return chain[::-1]


IN_OBJECTS = (Attr, CellContents, Closure, DictItem, InstanceAttr, Item, Member, PartItem)
"""Places in objects of the program."""


def root(source: Source) -> Source:
    """The first source of the chain: Local, Global, Closure, Const, Ambient or NewlyCreated."""
    while source.base is not None:
        source = source.base
    return source
