"""BREAK_TEXT: how the instruction that broke the graph is executed in plain Python, and what it leaves on the stack.

Each row gets the texts of the whole operand stack (None for NULL) and returns statements, the texts of the stack after it, and
for conditional jumps the two ways to go on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import CellType
from typing import Any, TypeAlias

from .. import _C
from ..bytecode.facts import BINARY_OPERATORS, COMPARE_SHIFT, VERSION
from ..bytecode.resume import original_place
from ..errors import SkipFrame
from ..exception_table import cleans_up
from ..values.plain.type_parameter import intrinsic_text
from .handlers.attributes import is_builtin_super
from .handlers.names import unbound


@dataclass
class Executed:
    """The breaking instruction as text: `lines` run it, `stack` holds after it; `condition` chooses between two continuations."""

    lines: list[str]
    stack: list[str | None]
    condition: str | None = None
    taken: list[str | None] = field(default_factory=list)
    taken_index: int = -1
    """Where the condition leads, when that is not the target of the instruction."""
    leaves: bool = False
    stores: tuple[str, str] | None = None
    """A local that is bound anew, and the text of what to."""


Rule: TypeAlias = "Callable[[Any, Any, Any, list[str | None]], Executed]"
BREAK_TEXT: dict[str, Rule] = {}
_COMPARE = ("<", "<=", "==", "!=", ">", ">=")
R = "__tw_r"
_MISSING = object()


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Add rows."""

    def register(function: Rule) -> Rule:
        for name in names:
            BREAK_TEXT[name] = function
        return function

    return register


def execute_text(frame: Any, emit: Any, instruction: Any, stack: list[str | None]) -> Executed:
    """Text of the instruction; SkipFrame when there is none."""
    row = BREAK_TEXT.get(instruction.opname)
    if row is None:
        raise SkipFrame(f"no way to continue after {instruction.opname}")
    return row(frame, emit, instruction, stack)


def _result(expression: str, stack: list[str | None]) -> Executed:
    return Executed([f"{R} = {expression}"], [*stack, R])


def _call_text(callee: str | None, owner: str | None, args: list[str | None], names: tuple[str, ...]) -> str:
    split = len(args) - len(names)
    texts = ([owner] if owner is not None else []) + list(args[:split])
    keywords = list(zip(names, args[split:]))
    if all(name.isidentifier() for name, _ in keywords):
        texts += [f"{name}={text}" for name, text in keywords]
    else:
        texts.append("**{" + ", ".join(f"{name!r}: {text}" for name, text in keywords) + "}")
    return f"{callee}({', '.join(str(t) for t in texts)})"


def _call(frame: Any, stack: list[str | None], count: int, names: tuple[str, ...]) -> Executed:
    args = stack[len(stack) - count :]
    below = stack[: len(stack) - count]
    first, second = below[-2:]
    if VERSION >= (3, 13):
        callee, owner = first, second
    else:
        callee, owner = (second, None) if first is None else (first, second)
    return _result(_call_text(callee, owner, args, names), below[:-2])


@rule("CALL")
def call(frame: Any, emit: Any, instruction: Any, stack: list[str | None]) -> Executed:
    """f(...)"""
    if instruction.arg == 0 and any(is_builtin_super(value) for value in frame.stack[-2:]):
        raise SkipFrame("super() looks for the first argument of the frame that calls it")
    return _call(frame, stack, instruction.arg, frame.keyword_names)


@rule("CALL_KW")
def call_kw(frame: Any, emit: Any, instruction: Any, stack: list[str | None]) -> Executed:
    """f(..., k=...) (3.13)"""
    return _call(frame, stack[:-1], instruction.arg, tuple(frame.stack[-1].constant()))


@rule("CALL_FUNCTION_EX")
def call_function_ex(frame: Any, emit: Any, instruction: Any, stack: list[str | None]) -> Executed:
    """f(*a, **k)"""
    count = 2 if instruction.arg & 1 else 1
    operands, below = stack[len(stack) - count :], stack[: len(stack) - count]
    args = f"*{operands[0]}" + (f", **{operands[1]}" if count == 2 else "")
    callee, rest = (below[-2], below[:-2]) if VERSION >= (3, 13) else (below[-1], below[:-2])
    return _result(f"{callee}({args})", rest)


@rule("LOAD_ATTR", "LOAD_METHOD")
def load_attr(frame: Any, emit: Any, instruction: Any, stack: list[str | None]) -> Executed:
    """x.name"""
    executed = _result(f"{stack[-1]}.{instruction.value}", stack[:-1])
    if instruction.opname == "LOAD_METHOD" or (VERSION >= (3, 12) and instruction.arg & 1):
        executed.stack[-1:] = [R, None] if VERSION >= (3, 13) else [None, R]
    return executed


@rule("LOAD_SUPER_ATTR")
def load_super_attr(frame: Any, emit: Any, instruction: Any, stack: list[str | None]) -> Executed:
    """super(cls, self).name, or super().name; the second bit says which (3.12+)"""
    given = instruction.arg & 2 or is_builtin_super(frame.stack[-3])
    bound = f"{stack[-3]}({f'{stack[-2]}, {stack[-1]}' if given else ''})"
    return load_attr(frame, emit, instruction, [*stack[:-3], bound])


@rule("STORE_FAST")
def store_fast(frame: Any, emit: Any, instruction: Any, stack: list[str | None]) -> Executed:
    """x = v: what goes on gets v, and not what x was"""
    if original_place(frame.code, instruction).opname != "STORE_FAST":
        raise SkipFrame("no way to continue inside of an instruction on two locals")
    return Executed([], stack[:-1], stores=(instruction.value, str(stack[-1])))


@rule("BINARY_OP")
def binary_op(frame: Any, emit: Any, instruction: Any, stack: list[str | None]) -> Executed:
    """a op b, in place too"""
    op = BINARY_OPERATORS[instruction.arg]
    if op.endswith("="):
        return Executed([f"{R} = {stack[-2]}", f"{R} {op} {stack[-1]}"], [*stack[:-2], R])
    return _result(f"{stack[-2]} {op} {stack[-1]}", stack[:-2])


@rule("COMPARE_OP")
def compare_op(frame: Any, emit: Any, instruction: Any, stack: list[str | None]) -> Executed:
    """a op b"""
    text = f"{stack[-2]} {_COMPARE[instruction.arg >> COMPARE_SHIFT]} {stack[-1]}"
    if VERSION >= (3, 13) and instruction.arg & 16:
        text = f"not not ({text})"
    return _result(text, stack[:-2])


@rule("CONTAINS_OP")
def contains_op(frame: Any, emit: Any, instruction: Any, stack: list[str | None]) -> Executed:
    """a in b"""
    return _result(f"{stack[-2]} {'not in' if instruction.arg else 'in'} {stack[-1]}", stack[:-2])


@rule("IS_OP")
def is_op(frame: Any, emit: Any, instruction: Any, stack: list[str | None]) -> Executed:
    """a is b"""
    return _result(f"{stack[-2]} {'is not' if instruction.arg else 'is'} {stack[-1]}", stack[:-2])


EXPRESSIONS = {
    "UNARY_NEGATIVE": (1, "-{0}"),
    "UNARY_POSITIVE": (1, "+{0}"),
    "UNARY_INVERT": (1, "~{0}"),
    "UNARY_NOT": (1, "not {0}"),
    "TO_BOOL": (1, "not not {0}"),
    "BINARY_SUBSCR": (2, "{0}[{1}]"),
    "BINARY_SLICE": (3, "{0}[{1}:{2}]"),
}
"""Instruction -> how many operands it takes from the stack, and the expression of what it leaves in their place."""
CALLS_OF: dict[str, tuple[int, Callable[..., Any]]] = {
    "FORMAT_SIMPLE": (1, format),
    "FORMAT_WITH_SPEC": (2, format),
    "GET_ITER": (1, iter),
}
"""The same for instructions that call a function with their operands."""
STATEMENTS = {
    "STORE_ATTR": (2, "{1}.{name} = {0}"),
    "DELETE_ATTR": (1, "del {0}.{name}"),
    "STORE_SUBSCR": (3, "{1}[{2}] = {0}"),
    "STORE_SLICE": (4, "{1}[{2}:{3}] = {0}"),
    "DELETE_SUBSCR": (2, "del {0}[{1}]"),
    "POP_TOP": (1, ""),  # what goes on does not get it, and nothing else holds it
    "DELETE_FAST": (0, ""),
}
"""Instruction -> how many operands it takes from the stack, and the statement that it is, of which nothing stays there."""


def _expression(count: int, text: str) -> Rule:
    def written(frame: Any, emit: Any, instruction: Any, stack: list[str | None]) -> Executed:
        return _result(text.format(*stack[-count:]), stack[:-count])

    return written


def _call_of(count: int, function: Callable[..., Any]) -> Rule:
    def written(frame: Any, emit: Any, instruction: Any, stack: list[str | None]) -> Executed:
        return _result(f"{emit.const(function)}({', '.join(map(str, stack[-count:]))})", stack[:-count])

    return written


def _statement(count: int, text: str) -> Rule:
    def written(frame: Any, emit: Any, instruction: Any, stack: list[str | None]) -> Executed:
        below = len(stack) - count
        lines = [text.format(*stack[below:], name=instruction.value)] if text else []
        return Executed(lines, stack[:below])

    return written


BREAK_TEXT |= {name: _expression(*row) for name, row in EXPRESSIONS.items()}
BREAK_TEXT |= {name: _call_of(*row) for name, row in CALLS_OF.items()}
BREAK_TEXT |= {name: _statement(*row) for name, row in STATEMENTS.items()}


@rule("BUILD_MAP")
def build_map(frame: Any, emit: Any, instruction: Any, stack: list[str | None]) -> Executed:
    """{k: v}: a key says how it is hashed"""
    below = len(stack) - 2 * instruction.arg
    pairs = zip(stack[below::2], stack[below + 1 :: 2])
    return _result(f"{{{', '.join(f'{key}: {value}' for key, value in pairs)}}}", stack[:below])


@rule("BUILD_SET")
def build_set(frame: Any, emit: Any, instruction: Any, stack: list[str | None]) -> Executed:
    """{a, b}"""
    below = len(stack) - instruction.arg
    return _result(f"{{{', '.join(str(text) for text in stack[below:])}}}", stack[:below])


@rule("UNPACK_SEQUENCE")
def unpack_sequence(frame: Any, emit: Any, instruction: Any, stack: list[str | None]) -> Executed:
    """a, b = x"""
    names = [f"{R}{i}" for i in range(instruction.arg)]
    return Executed([f"[{', '.join(names)}] = {stack[-1]}"], [*stack[:-1], *reversed(names)])


@rule("FORMAT_VALUE")
def format_value(frame: Any, emit: Any, instruction: Any, stack: list[str | None]) -> Executed:
    """f"{x!r:spec}" """
    has_spec = bool(instruction.arg & 4)
    value, rest = (stack[-2], stack[:-2]) if has_spec else (stack[-1], stack[:-1])
    function = (None, str, repr, ascii)[instruction.arg & 3]
    text = str(value) if function is None else f"{emit.const(function)}({value})"
    return _result(f"{emit.const(format)}({text}{', ' + str(stack[-1]) if has_spec else ''})", rest)


_END = object()


@rule("FOR_ITER")
def for_iter(frame: Any, emit: Any, instruction: Any, stack: list[str | None]) -> Executed:
    """for x in iterator: the next round, or what comes after the loop"""
    code = getattr(frame.stack[-1], "code", None)
    if code is not None and cleans_up(code):
        raise SkipFrame(f"a loop over a generator of {code.co_qualname}, which has to be closed in time")
    end = emit.const(_END)
    executed = _result(f"{emit.const(next)}({stack[-1]}, {end})", stack)
    executed.condition = f"{R} is {end}"
    executed.taken = stack if VERSION >= (3, 13) else stack[:-1]
    executed.taken_index = instruction.target + (VERSION >= (3, 12))  # END_FOR is not run
    return executed


@rule("CALL_INTRINSIC_1", "CALL_INTRINSIC_2")
def call_intrinsic(frame: Any, emit: Any, instruction: Any, stack: list[str | None]) -> Executed:
    """A service of the interpreter (3.12+)"""
    operands = 1 if instruction.opname == "CALL_INTRINSIC_1" else 2
    return _result(intrinsic_text(emit, instruction.arg, [str(text) for text in stack[-operands:]]), stack[:-operands])


@rule("RERAISE")
def reraise(frame: Any, emit: Any, instruction: Any, stack: list[str | None]) -> Executed:
    """An except or finally block ends with its exception."""
    return Executed([_raise(emit, instruction, stack[-1:])], stack[:-1], leaves=True)


def _raise(emit: Any, instruction: Any, texts: list[str | None]) -> str:
    """raise e, or raise e from cause. Where the exception leaves the frame nothing in it holds it: it holds the frame, and with that
    everything below would live until the collector comes."""
    last = str(texts[-1]) if instruction.handler is not None else f"{emit.handed_over(texts[-1:])}.pop()"
    return f"raise {last}" if len(texts) == 1 else f"raise {texts[0]} from {last}"


@rule("IMPORT_NAME")
def import_name(frame: Any, emit: Any, instruction: Any, stack: list[str | None]) -> Executed:
    """__import__"""
    globals_ = emit.const(frame.globals, "globals")
    return _result(f"{emit.const(__import__)}({instruction.value!r}, {globals_}, None, {stack[-1]}, {stack[-2]})", stack[:-2])


@rule("LOAD_GLOBAL")
def load_global(frame: Any, emit: Any, instruction: Any, stack: list[str | None]) -> Executed:
    """A global that cannot be modelled."""
    executed = _result(emit.global_name(instruction.value), stack)
    if instruction.arg & 1:
        executed.stack[-1:] = [R, None] if VERSION >= (3, 13) else [None, R]
    return executed


@rule("LOAD_DEREF")
def load_deref(frame: Any, emit: Any, instruction: Any, stack: list[str | None]) -> Executed:
    """A cell that may be empty."""
    cell, check = checked_cell(frame, emit, instruction.value)
    return Executed([check, f"{R} = {cell}.cell_contents"], [*stack, R])


@rule("DELETE_DEREF")
def delete_deref(frame: Any, emit: Any, instruction: Any, stack: list[str | None]) -> Executed:
    """A cell that may be empty."""
    cell, check = checked_cell(frame, emit, instruction.value)
    return Executed([check, f"del {cell}.cell_contents"], stack)


def checked_cell(frame: Any, emit: Any, name: str) -> tuple[str, str]:
    """Text of a cell, and of what raises where it is empty: the error says whose variable it is, which a continuation has as a free one."""
    cell, empty = emit.load(frame.cells[name]), emit.const(CellType())
    error, text = unbound(frame, name)
    return cell, f"if {cell} == {empty}: raise {emit.const(error)}({text!r})"


@rule("WITH_EXCEPT_START")
def with_except_start(frame: Any, emit: Any, instruction: Any, stack: list[str | None]) -> Executed:
    """exit(type, exception, traceback), at the end of a with block that raised"""
    error = stack[-1]
    return _result(f"{stack[-4]}({emit.const(type)}({error}), {error}, {error}.__traceback__)", stack)


@rule("RAISE_VARARGS")
def raise_varargs(frame: Any, emit: Any, instruction: Any, stack: list[str | None]) -> Executed:
    """raise"""
    if instruction.arg == 0:
        raise SkipFrame("a bare raise")
    return Executed([_raise(emit, instruction, stack[-instruction.arg :])], stack[: -instruction.arg], leaves=True)


def _enter_and_exit(manager: Any) -> list[Any]:
    """Both methods, found in the class and bound, as the with statement looks for them."""
    kind, methods = type(manager), []
    for name, missed in (("__enter__", ""), ("__exit__", " (missed __exit__ method)")):
        found: Any = next((base.__dict__[name] for base in kind.__mro__ if name in base.__dict__), _MISSING)
        if found is _MISSING:
            raise TypeError(f"'{_C.type_name(kind)}' object does not support the context manager protocol{missed}")
        bind = getattr(type(found), "__get__", None)
        methods.append(found if bind is None else bind(found, manager, kind))
    return methods


@rule("BEFORE_WITH")
def before_with(frame: Any, emit: Any, instruction: Any, stack: list[str | None]) -> Executed:
    """with x: its exit method, bound to it, and what __enter__ gave"""
    lines = [f"{R}_enter, {R}_exit = {emit.const(_enter_and_exit)}({stack[-1]})", f"{R} = {R}_enter()"]
    return Executed(lines, [*stack[:-1], f"{R}_exit", R])


def _jump(condition: str) -> Any:
    def text(frame: Any, emit: Any, instruction: Any, stack: list[str | None]) -> Executed:
        rest = stack[:-1]
        return Executed([f"{R} = {condition.format(stack[-1])}"], rest, condition=R, taken=rest)

    return text


for _direction in ("", "_FORWARD", "_BACKWARD"):
    BREAK_TEXT[f"POP_JUMP{_direction}_IF_TRUE"] = _jump("not not {}")
    BREAK_TEXT[f"POP_JUMP{_direction}_IF_FALSE"] = _jump("not {}")


def _jump_or_pop(condition: str) -> Any:
    def text(frame: Any, emit: Any, instruction: Any, stack: list[str | None]) -> Executed:
        return Executed([f"{R} = {condition.format(stack[-1])}"], stack[:-1], condition=R, taken=stack)

    return text


BREAK_TEXT["JUMP_IF_TRUE_OR_POP"] = _jump_or_pop("not not {}")
BREAK_TEXT["JUMP_IF_FALSE_OR_POP"] = _jump_or_pop("not {}")
