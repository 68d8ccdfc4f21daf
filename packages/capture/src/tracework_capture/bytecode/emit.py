"""CodeWriter: the Python text that runs around a compiled graph, turned into a code object.

The text has three parts, in this order: loads of everything that is read from a source (so that they see the state before the
graph and before replayed side effects), the graph call, and the body (side effects, rebuilt values, return). Objects that have
no literal are constants of the code object: a marker string is compiled and then exchanged in co_consts, which makes the
result independent of the CPython version.
"""

from __future__ import annotations

import keyword
import re
import sys
import types
from typing import TYPE_CHECKING, Any

from .. import _C
from ..errors import BreakGraph, SkipFrame
from ..guards.classes import class_attribute
from ..sources import Const, Local, NewlyCreated
from ..weakly_held import held_if_of_program, there
from .assemble import at_one_place
from .reload import builtins_of, local_name, reload_text

if TYPE_CHECKING:
    from ..sources import Source
    from ..values.protocol.value import Value

_MISSING = object()
_SMALL = (-5, 256)  # CPython has one object of each of these
_FORGET, _FORGET_UNUSED = "__tw_forget", "__tw_forget_unused"
_PLAIN = (bool, type(None))  # keywords: other names may mean something else in the program
_HELPERS = {
    "__tw_getattr": getattr,
    "__tw_own_dict": _C.instance_dict,
    "__tw_class_attribute": class_attribute,
    "__tw_type": type,
    "__tw_dict_get": dict.__getitem__,
    "__tw_list": list,
}


class CodeWriter:
    """Collects statements and constants; `finish` compiles them."""

    def __init__(self, code: types.CodeType, globals_: dict[str, Any], made: dict[int, Value]) -> None:
        self.code = code
        self.new_classes = made
        self.globals = globals_
        self.constants: dict[str, Any] = {}
        self.constant_names: dict[int, str] = {}
        self.held: list[str] = []
        self.prologue: list[str] = []
        self.body: list[str] = []
        self.outputs: dict[Any, int] = {}
        self._sources: dict[Any, str] = {}
        self._built: dict[int, str] = {}
        self._keep: list[Any] = []
        self._building: set[int] = set()
        self._pending_temporaries: list[tuple[Value, str]] = []
        self._counter = 0
        self._indent = ""
        self._quietly: tuple[str, int] | None = None

    # --- the Emitter protocol ------------------------------------------------------------------------------------
    def load(self, value: Value) -> str:
        """Expression of a value."""
        if value.source is None and value.is_constant() and not value.constructor_text:
            place = value.identity_source
            return self.literal(value.constant()) if place is None else self.source(place)
        name = self._built.get(id(value))
        if name is not None:
            return name
        if id(value) in self._building:
            raise BreakGraph("cannot_rebuild", f"an object that contains itself: {value.describe()}")
        self._keep.append(value)
        if value.source is not None and not value.needs_reload_from_graph():
            name = self._built[id(value)] = self.source(value.source)
            return name
        self._building.add(id(value))
        name = self.temp(value.reload(self))
        self._building.discard(id(value))
        self._built[id(value)] = name
        if value.two_phase and value.filled_last and self._building:
            self._pending_temporaries.append((value, name))
        elif value.two_phase:
            value.fill(self, name)
        while self._pending_temporaries and not self._building:
            late, deferred_name = self._pending_temporaries.pop()
            late.fill(self, deferred_name)
        return name

    def const(self, obj: object, hint: str = "c") -> str:
        """Name of a constant of the generated code, or of what the program makes where that is meant."""
        if id(obj) in self.new_classes:
            return self.load(self.new_classes[id(obj)])
        text = self.constant_names.get(id(obj))
        if text is None:
            text = name = f"__tw_{hint}{len(self.constants)}"
            self.constants[name] = obj
            if _is_exchanged(obj):
                self.constants[name], text = [obj], f"{name}[0]"
            self.constant_names[id(obj)] = text
        return text

    def known(self, obj: object, hint: str = "c") -> str:
        """Expression of an object of the program's, or of the one that a WeakKey is of. The generated code keeps it alive while it runs."""
        holder, obj = held_if_of_program(obj), there(obj)
        if holder is obj or id(obj) in self.new_classes:
            return self.const(obj, hint)
        text = self.constant_names.get(id(obj))
        if text is None:
            reference = self.const(holder, hint)
            text = self.constant_names[id(obj)] = f"{reference}_held"
            self._keep.append(holder)
            self.held.append(f"{text} = {reference}()")
        return text

    def own_globals(self) -> str:
        """Expression of the frame's globals. They are no constant: names that are no module's, as exec has them, may hold the function
        that the code is for, and the collector does not see into code objects."""
        return f"{self.const(globals, 'globals')}()"

    def function(self, code: types.CodeType, globals_: dict[str, Any], hint: str) -> str:
        """Expression of the function of a code without free variables."""
        module = sys.modules.get(globals_.get("__name__", ""))
        if module is not None and getattr(module, "__dict__", None) is globals_:
            return self.const(types.FunctionType(code, globals_, code.co_name), hint)
        make = self.const(types.FunctionType, "FunctionType")
        return f"{make}({self.const(code, 'code')}, {self.own_globals()}, {code.co_name!r})"

    def literal(self, obj: Any) -> str:
        """Expression of a constant: its repr where a code object cannot hold this very object, else a constant of the code."""
        if type(obj) is int and _SMALL[0] <= obj <= _SMALL[1]:
            return f"({obj!r})"  # 1.name and -1 ** 2 mean something else
        if type(obj) in _PLAIN or (type(obj) is str and _C.is_interned(obj) and _is_name(obj) and len(obj) <= _LONGEST_NAME):
            return repr(obj)
        if type(obj) is tuple:
            return "(" + "".join(self.literal(item) + ", " for item in obj) + ")"
        return self.known(obj)

    def source(self, source: Source) -> str:
        """Expression of the object at a source, loaded before the graph runs."""
        name = self._sources.get(source)
        if name is not None:
            return name
        if isinstance(source, NewlyCreated):
            raise BreakGraph("cannot_rebuild", str(source))
        base = self.source(source.base) if source.base is not None else ""
        text = reload_text(source, base, self)
        if not isinstance(source, (Local, Const)):  # a cell may be written to before what was in it is asked for
            self._counter += 1
            name = f"__tw_s{self._counter}"
            self.prologue.append(f"{name} = {text}")
            text = name
        self._sources[source] = text
        return text

    def known_source(self, source: Source, text: str) -> None:
        """Declare that `source` is available as expression `text`."""
        self._sources.setdefault(source, text)

    def global_name(self, name: str) -> str:
        """Expression of a global of the frame: its name, so that its absence is an error of this code, unless the code means
        something else by it."""
        code = self.code
        taken = name in {*code.co_varnames, *code.co_cellvars, *code.co_freevars} or name.startswith("__tw_")
        plain = name.isidentifier() and not keyword.iskeyword(name)
        return name if plain and not taken else f"__tw_lookup_global({name!r})"

    def free_name(self, name: str) -> str:
        """The identifier for a free variable. Those of classes with type parameters have names like `.type_params`: then all get other
        ones, since the compiler sorts free variables by name."""
        names = self.code.co_freevars
        return name if all(map(str.isidentifier, names)) else f"__tw_free{names.index(name):03}"

    def graph_output(self, node: Any) -> str:
        """Expression of an fx node's result."""
        index = self.outputs.setdefault(node, len(self.outputs))
        return f"__tw_out[{index}]"

    def line(self, text: str) -> None:
        """One statement of the body."""
        self.body.append(self._indent + text)

    def temp(self, expression: str) -> str:
        """Assign to a fresh local."""
        self._counter += 1
        name = f"__tw_t{self._counter}"
        self.line(f"{name} = {expression}")
        return name

    def handed_over(self, args: list[str]) -> str:
        """A list of these expressions, after which the generated code holds nothing any more: a traceback may hold its frame."""
        return f"([{', '.join(args)}], {_FORGET})[0]"

    def forget_unused(self) -> None:
        """From here on the generated code holds only what the lines that follow read."""
        self.line(_FORGET_UNUSED)

    def is_built(self, value: Value) -> bool:
        """Whether an object was made for the value, or fetched."""
        return id(value) in self._built

    def indent(self, step: int) -> None:
        """Nest the following lines (+1) or end a nested block (-1)."""
        self._indent = " " * (len(self._indent) + 4 * step)

    def quietly(self, block: str) -> None:
        """What the generated code does by itself, up to here, is inside of `block`: a `with` and what it enters."""
        self._quietly = block, len(self.body)

    def _lines(self, graph_call: list[str]) -> list[str]:
        """All statements; what calls the graph may run the frame as it is, and looks after itself."""
        if self._quietly is None:
            return self.held + self.prologue + graph_call + self.body
        block, count = self._quietly
        parts = (self.prologue, self.body[:count])
        loads, replayed = ([block, *("    " + line for line in part)] if part else [] for part in parts)
        return self.held + loads + graph_call + replayed + self.body[count:]

    # --- the code object -----------------------------------------------------------------------------------------
    def finish(self, graph_call: list[str], position: tuple[int | None, ...], with_inputs: bool = True) -> types.CodeType:
        """Compile everything to a code object with the frame's argument slots and free variables; `graph_call` leaves __tw_out. All of
        it is at one place of the user's: (line, end line, column, end column)."""
        code = self.code
        nargs = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)
        parameters = (["__tw_inputs"] if with_inputs else []) + [local_name(name) for name in code.co_varnames[:nargs]]
        lines = self._lines(graph_call)
        text_of_body = "\n".join(lines)
        for name, helper in _HELPERS.items():
            if name in text_of_body:
                self.constants[name] = helper
        if "__tw_lookup_global" in text_of_body:
            self.constants["__tw_lookup_global"] = _global_lookup(self.globals)
        header = [f"{name} = {_marker(name)!r}" for name in self.constants]
        freevars = self._free_names()
        if freevars:
            header.append(f"if 0: {', '.join(freevars)}")
        source = _wrap(header + lines, parameters, freevars)
        return self._compile(source, position)

    def _compile(self, source: str, position: tuple[int | None, ...]) -> types.CodeType:
        code = self._replacement_of(source)
        if _FORGET in source:
            names = {*code.co_varnames, *code.co_cellvars} - {*self.constants}
            code = self._replacement_of(_forgotten(source, names))
        if code.co_freevars != self._free_names():
            raise SkipFrame("free variables in an unusual order")
        by_marker = {_marker(name): obj for name, obj in self.constants.items()}
        consts = tuple(by_marker.get(c, c) if type(c) is str else c for c in code.co_consts)
        code = code.replace(
            co_consts=consts,
            co_name=self.code.co_name,
            co_qualname=self.code.co_qualname,
            co_freevars=self.code.co_freevars,
            co_firstlineno=self.code.co_firstlineno,
        )
        return at_one_place(code, position)

    def _free_names(self) -> tuple[str, ...]:
        return tuple(map(self.free_name, self.code.co_freevars))

    def _replacement_of(self, source: str) -> types.CodeType:
        # no tree: making one is not re-entrant, and this may run in the middle of it, when the collector runs code of the user's
        return _inner(compile(source, self.code.co_filename, "exec", dont_inherit=True), "__tw_replacement")


def _forgotten(source: str, names: set[str]) -> str:
    """Puts `name := None` for every one of the locals in the place of _FORGET, and assignments of None for those that nothing reads
    after it in that of _FORGET_UNUSED."""
    lines = source.split("\n")
    walruses = ", ".join(f"({name} := None)" for name in sorted(names))
    for at, line in enumerate(lines):
        if line.lstrip() == _FORGET_UNUSED:
            further = {name for later in lines[at + 1 :] for name in _NAMES.findall(later)}
            targets = "".join(f"{name} = " for name in sorted(names - further))
            lines[at] = line.replace(_FORGET_UNUSED, f"{targets}None")
        elif _FORGET in line:
            lines[at] = line.replace(_FORGET, walruses)
    return "\n".join(lines)


_NAMES = re.compile(r"(?<![\w.'])[^\W\d]\w*")
"""Names in generated text, but for those of attributes."""


def _is_name(text: str) -> bool:
    """Whether code objects intern the text: they do so with what looks like a name."""
    return text.isascii() and text.replace("_", "a").isalnum()


def _is_exchanged(obj: object) -> bool:
    """Whether a code object would exchange the constant for an equal one: a name that was computed, and is not the interned one."""
    if type(obj) is tuple:
        return any(map(_is_exchanged, obj))
    return type(obj) is str and _is_name(obj) and not _C.is_interned(obj)


_LONGEST_NAME = 1000
"""One that is longer is better held than written into the generated source."""


def _marker(name: str) -> str:
    return f"\x00tracework:{name}"


def _wrap(lines: list[str], parameters: list[str], freevars: tuple[str, ...]) -> str:
    head = [f"def __tw_replacement({', '.join(parameters)}):"]
    body = ["    " + line for line in lines] or ["    pass"]
    if not freevars:
        return "\n".join(head + body)
    outer = ["def __tw_outer():", f"    {' = '.join(freevars)} = None"]
    return "\n".join(outer + ["    " + line for line in head + body])


def _inner(code: types.CodeType, name: str) -> types.CodeType:
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            return const if const.co_name == name else _inner(const, name)
    raise LookupError(name)


def _global_lookup(globals_: dict[str, Any]) -> Any:
    def lookup(name: str) -> Any:
        if name in globals_:
            return globals_[name]
        found = builtins_of(globals_).get(name, _MISSING)
        if found is _MISSING:
            raise NameError(f"name '{name}' is not defined", name=name)
        return found

    return lookup
