"""RELOAD: Source type -> the Python expression that fetches it again, given the expression of its base."""

from __future__ import annotations

import builtins
import keyword
from collections.abc import Callable
from typing import Any, Protocol

from .. import _C
from .. import sources as s
from ..arrays import tensor_maker
from ..formulas import int_of_formula
from ..guards.access import item_ahead, part_item, plain_part
from ..guards.kinds import STATES


class _Names(Protocol):
    def const(self, obj: object, hint: str = "c") -> str: ...
    def known(self, obj: object, hint: str = "c") -> str: ...
    def literal(self, obj: object) -> str: ...
    def global_name(self, name: str) -> str: ...
    def free_name(self, name: str) -> str: ...


def builtins_of(globals_: dict[str, Any]) -> dict[str, Any]:
    """Where names are looked up that the globals lack; globals need not say it."""
    found = globals_.get("__builtins__", builtins)
    return found if isinstance(found, dict) else vars(found)


def local_name(name: str) -> str:
    """The identifier for a local variable in generated code (comprehension arguments are called `.0`, pytest's own `@py_assert1`)."""
    return name if name.isidentifier() else "__tw_arg_" + name.strip(".@")


def _attribute(base: str, name: str) -> str:
    plain = name.isidentifier() and not keyword.iskeyword(name) and not name.startswith("__tw_")
    return f"{base}.{name}" if plain else f"__tw_getattr({base}, {name!r})"


def _key(key: Any, writer: _Names) -> str:
    return f"{writer.const(key)}()" if type(key) is _C.WeakKey else writer.literal(key)


RELOAD: dict[type, Callable[[Any, str, _Names], str]] = {
    s.Local: lambda x, base, w: local_name(x.name),
    s.Global: lambda x, base, w: w.global_name(x.name),
    s.Closure: lambda x, base, w: w.free_name(x.name),
    s.ClosureCell: lambda x, base, w: f"(lambda: {w.free_name(x.name)}).__closure__[0]",
    s.Const: lambda x, base, w: w.known(x.holder),
    s.Ambient: lambda x, base, w: f"{w.const(STATES[x.name], x.name)}()",
    s.Attr: lambda x, base, w: _attribute(base, x.name),
    s.Member: lambda x, base, w: f"{w.const(x.descriptor)}.__get__({base})",
    s.InstanceDict: lambda x, base, w: f"__tw_own_dict({base})",
    s.InstanceAttr: lambda x, base, w: f"__tw_own_dict({base})[{x.name!r}]",
    s.ModuleEntry: lambda x, base, w: f"{base}.{x.table}[{x.name!r}]",
    s.ClassAttr: lambda x, base, w: f"__tw_class_attribute({base}, {x.name!r})",
    s.TypeOf: lambda x, base, w: f"__tw_type({base})",
    s.Referent: lambda x, base, w: f"{base}()",
    s.GeneratorLocal: lambda x, base, w: f"{base}.gi_frame.f_locals[{x.name!r}]",
    s.IteratedList: lambda x, base, w: f"{base}.__reduce__()[1][0]",
    s.ItemAhead: lambda x, base, w: f"{w.const(item_ahead)}({base}, {x.count})",
    s.ArrayTensor: lambda x, base, w: f"{w.const(tensor_maker(x.flips, x.writeable))}({base})",
    s.Item: lambda x, base, w: f"{base}[{x.index}]",
    s.PartItem: lambda x, base, w: f"{w.const(part_item)}({base}, {x.index})",
    s.PlainPart: lambda x, base, w: f"{w.const(plain_part)}({base})",
    s.DictItem: lambda x, base, w: f"__tw_dict_get({base}, {_key(x.key, w)})",
    s.DictKeyAt: lambda x, base, w: f"__tw_list({base})[{x.index}]",
    s.DictValueAt: lambda x, base, w: f"__tw_list({base}.values())[{x.index}]",
    s.FunctionGlobals: lambda x, base, w: f"{base}.__globals__",
    s.CellContents: lambda x, base, w: f"{base}.__closure__[{x.index}].cell_contents",
    s.DefaultArg: lambda x, base, w: f"{base}.__defaults__[{x.index}]",
    s.KwDefaultArg: lambda x, base, w: f"{base}.__kwdefaults__[{x.name!r}]",
    s.ComputedInt: lambda x, base, w: f"{w.const(int_of_formula)}({x.text!r}, {x.name!r}, {base})",
    s.TensorOffset: lambda x, base, w: f"{base}.storage_offset()",
    s.TensorSize: lambda x, base, w: f"{base}.size({x.dim})",
    s.TensorStride: lambda x, base, w: f"{base}.stride({x.dim})",
}


def reload_text(source: s.Source, base: str, writer: _Names) -> str:
    """Expression of `source`; `base` is the expression of source.base (empty for roots)."""
    return RELOAD[type(source)](source, base, writer)
