"""Locals, globals, cells and constants."""

from __future__ import annotations

from types import CellType, CodeType
from typing import Any

from ...bytecode.code import Instruction
from ...bytecode.facts import VERSION
from ...bytecode.reload import builtins_of
from ...bytecode.resume import original_code
from ...sources import Const, DictItem, FrameGlobals, Global, Source
from ...values.objects.function import CellValue
from ...values.plain.mapping import MISSING, dict_of, touched_name, write_name
from ...values.plain.sequence import constant_of_code
from ...values.protocol.value import LazyValue, Value
from ..frame import NULL, SymbolicFrame
from .table import opcode


@opcode("LOAD_CONST")
def load_const(frame: SymbolicFrame, instruction: Instruction) -> None:
    """A constant of the code object."""
    frame.stack.append(constant_of_code(frame, instruction.value))


@opcode("LOAD_FAST", "LOAD_FAST_CHECK")
def load_fast(frame: SymbolicFrame, instruction: Instruction) -> None:
    """A local variable; what a continuation only pushes is not looked at yet."""
    name = instruction.value
    if frame.parent is None and name.startswith("__tw_stack"):
        held = frame.locals.take(name)
        if held is not None:
            frame.deferred = True
            frame.stack.append(LazyValue(*held))
            return
    if instruction.arg >= frame.code.co_nlocals and name in frame.cells:  # a class body may have the name for another object
        frame.stack.append(frame.cells[name])
    else:
        frame.stack.append(read_local(frame, name))


def read_local(frame: SymbolicFrame, name: str) -> Value:
    """Value of a local; 3.13 reads cells with LOAD_FAST too."""
    value: Value | None = frame.locals.get(name)
    if value is None:
        value = frame.cells.get(name)
    if value is None:
        frame.raise_new(UnboundLocalError, f"cannot access local variable '{name}' where it is not associated with a value")
    return value


def write_local(frame: SymbolicFrame, name: str, value: Value) -> None:
    """Store a local; inlined comprehensions (3.12) save and restore cells and NULLs this way."""
    if type(value) is LazyValue and type(value.obj) is CellType:  # the cell that a comprehension kept on the stack
        value = frame.wrap(value.obj, value.source)
    if type(value) is LazyValue and frame.parent is None:
        frame.locals.hold(name, value.obj, value.source)
    elif isinstance(value, CellValue) and is_cell(original_code(frame.code), name):
        frame.locals.pop(name, None)  # what the comprehension had in the slot
        frame.cells[name] = value
    elif value is NULL:
        frame.locals.pop(name, None)
        if name not in original_code(frame.code).co_freevars:
            frame.cells.pop(name, None)
    else:
        frame.locals[name] = value


def is_cell(code: CodeType, name: str) -> bool:
    """Whether it is the name of a cell."""
    return name in code.co_cellvars or name in code.co_freevars


@opcode("LOAD_FAST_AND_CLEAR")
def load_fast_and_clear(frame: SymbolicFrame, instruction: Instruction) -> None:
    """Save a local around an inlined comprehension; NULL when unbound."""
    name = instruction.value
    value = frame.locals.pop(name, None)
    if value is None and name in frame.cells and name not in original_code(frame.code).co_freevars:
        value = frame.cells.pop(name)
    frame.stack.append(NULL if value is None else value)


@opcode("STORE_FAST", "STORE_FAST_MAYBE_NULL")
def store_fast(frame: SymbolicFrame, instruction: Instruction) -> None:
    """Store a local."""
    write_local(frame, instruction.value, frame.stack.pop())


@opcode("DELETE_FAST")
def delete_fast(frame: SymbolicFrame, instruction: Instruction) -> None:
    """Unbind a local; a continuation does so with what it put on the stack, looked at or not."""
    name = instruction.value
    if frame.parent is None and name.startswith("__tw_stack"):
        frame.locals.take(name)
        return
    read_local(frame, name)
    del frame.locals[name]


@opcode("LOAD_FAST_LOAD_FAST", "STORE_FAST_LOAD_FAST", "STORE_FAST_STORE_FAST")
def two_locals(frame: SymbolicFrame, instruction: Instruction) -> None:
    """Two instructions on locals in one (3.13)."""
    for kind, name in zip(instruction.opname.split("_FAST_"), instruction.value):
        if kind.startswith("STORE"):
            write_local(frame, name, frame.stack.pop())
        else:
            frame.stack.append(read_local(frame, name))


@opcode("LOAD_GLOBAL")
def load_global(frame: SymbolicFrame, instruction: Instruction) -> None:
    """A global or builtin; the lowest bit asks for a NULL (before it up to 3.12, after it in 3.13)."""
    value = read_global(frame, instruction.value)
    if instruction.arg & 1 and VERSION < (3, 13):
        frame.stack.append(NULL)
    frame.stack.append(value)
    if instruction.arg & 1 and VERSION >= (3, 13):
        frame.stack.append(NULL)


def read_global(frame: SymbolicFrame, name: str) -> Value:
    """Value of a global, as the traced program left it."""
    globals_ = frame.globals
    touched = touched_name(frame, globals_, name)
    if touched is not MISSING and touched is not None:
        value: Value = touched
        return value
    if touched is MISSING and name in globals_:
        return frame.wrap(globals_[name], Const(globals_[name], name) if frame.is_fixed else global_source(frame, name))
    table = builtins_of(globals_)
    if not frame.is_fixed:
        guard_builtin(frame, name, table, touched is MISSING)
    if name not in table:
        error = frame.new_exception(NameError, f"name '{name}' is not defined")
        error.fields["name"] = frame.constant(name)
        frame.raise_user(error)
    return frame.wrap(table[name], Const(table[name], name))


def guard_builtin(frame: SymbolicFrame, name: str, table: dict[str, Any], untouched: bool) -> None:
    """Globals that the program left alone do not come to have the name, nor do the builtins get something else under it."""
    key = (id(frame.globals), name)
    if key in frame.memory.builtins_read:
        return
    frame.memory.builtins_read.add(key)
    if untouched:
        frame.guard("DICT_LACKS", globals_source(frame), name)
    found = Const(table, "builtins")
    if name in table:
        frame.guard("IDENTITY", DictItem(found, name), table[name])
    else:
        frame.guard("DICT_LACKS", found, name)


def globals_source(frame: SymbolicFrame) -> Source:
    """Where the globals themselves are: of the captured frame, or of the inlined function's module."""
    if frame.globals is frame.memory.globals:
        return FrameGlobals()
    return Const(frame.globals, f"{frame.globals.get('__name__', 'globals')}.__dict__")


def global_source(frame: SymbolicFrame, name: str) -> Source:
    """Where a global is read: the captured frame's globals, or those of the inlined function's module."""
    if frame.globals is frame.memory.globals:
        return Global(name)
    return DictItem(globals_source(frame), name)


@opcode("STORE_GLOBAL")
def store_global(frame: SymbolicFrame, instruction: Instruction) -> None:
    """Store a global; replayed after the graph."""
    write_name(frame, frame.globals, instruction.value, frame.stack.pop())


@opcode("DELETE_GLOBAL")
def delete_global(frame: SymbolicFrame, instruction: Instruction) -> None:
    """Delete a global; replayed after the graph."""
    read_global(frame, instruction.value)
    write_name(frame, frame.globals, instruction.value, None)


@opcode("LOAD_NAME")
def load_name(frame: SymbolicFrame, instruction: Instruction) -> None:
    """Class and module bodies only."""
    value = frame.locals.get(instruction.value)
    frame.stack.append(value if value is not None else read_global(frame, instruction.value))


@opcode("STORE_NAME")
def store_name(frame: SymbolicFrame, instruction: Instruction) -> None:
    """Class and module bodies only."""
    frame.locals[instruction.value] = frame.stack.pop()


@opcode("DELETE_NAME")
def delete_name(frame: SymbolicFrame, instruction: Instruction) -> None:
    """Class and module bodies only."""
    frame.locals.pop(instruction.value)


@opcode("MAKE_CELL")
def make_cell(frame: SymbolicFrame, instruction: Instruction) -> None:
    """Turn a local into a cell."""
    name = instruction.value
    if name in frame.cells and frame.cells[name].mutability == "existing" and frame.parent is None:
        return
    cell = CellValue()
    cell.set(frame, frame.locals.pop(name, None))
    frame.cells[name] = cell


@opcode("LOAD_CLOSURE")
def load_closure(frame: SymbolicFrame, instruction: Instruction) -> None:
    """A cell itself."""
    frame.stack.append(frame.cells[instruction.value])


@opcode("LOAD_DEREF")
def load_deref(frame: SymbolicFrame, instruction: Instruction) -> None:
    """Contents of a cell."""
    frame.stack.append(read_cell(frame, instruction.value))


def read_cell(frame: SymbolicFrame, name: str) -> Value:
    """Contents of a cell, or NameError."""
    value = frame.cells[name].get(frame)
    if value is None:
        frame.raise_new(*unbound(frame, name))
    return value


def unbound(frame: SymbolicFrame, name: str) -> tuple[type[NameError], str]:
    """The class and text of the error that an empty cell is."""
    missing = "where it is not associated with a value"
    if name in original_code(frame.code).co_freevars:  # a continuation has all cells as free variables
        return NameError, f"cannot access free variable '{name}' {missing} in enclosing scope"
    return UnboundLocalError, f"cannot access local variable '{name}' {missing}"


class Namespace(Value):
    """The names of a class body, as the next instruction asks them."""

    def __init__(self, frame: SymbolicFrame) -> None:
        super().__init__(None)
        self.names = frame.locals


@opcode("LOAD_LOCALS")
def load_locals(frame: SymbolicFrame, instruction: Instruction) -> None:
    """The namespace of a class body."""
    frame.stack.append(Namespace(frame))


@opcode("LOAD_CLASSDEREF")
def load_class_name(frame: SymbolicFrame, instruction: Instruction) -> None:
    """A name of a class body, or a free variable."""
    value = frame.locals.get(instruction.value)
    frame.stack.append(value if value is not None else read_cell(frame, instruction.value))


@opcode("LOAD_FROM_DICT_OR_DEREF", "LOAD_FROM_DICT_OR_GLOBALS")
def load_from_namespace(frame: SymbolicFrame, instruction: Instruction) -> None:
    """The same from a namespace on the stack."""
    namespace = frame.stack.pop()
    if not isinstance(namespace, Namespace):
        frame.break_graph("class_building", f"{instruction.opname} of {namespace.describe()}")
    value = namespace.names.get(instruction.value)
    if value is None:
        elsewhere = read_cell if instruction.opname == "LOAD_FROM_DICT_OR_DEREF" else read_global
        value = elsewhere(frame, instruction.value)
    frame.stack.append(value)


@opcode("SETUP_ANNOTATIONS")
def setup_annotations(frame: SymbolicFrame, instruction: Instruction) -> None:
    """The annotations of a class body."""
    if "__annotations__" not in frame.locals:
        frame.locals["__annotations__"] = dict_of(frame, [])


@opcode("STORE_DEREF")
def store_deref(frame: SymbolicFrame, instruction: Instruction) -> None:
    """Store into a cell."""
    frame.cells[instruction.value].set(frame, frame.stack.pop())


@opcode("DELETE_DEREF")
def delete_deref(frame: SymbolicFrame, instruction: Instruction) -> None:
    """Empty a cell."""
    read_cell(frame, instruction.value)
    frame.cells[instruction.value].set(frame, None)
