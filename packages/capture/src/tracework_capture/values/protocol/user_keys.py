"""Keys and members whose class has an equality of its own: tables of values compare them by the traced `__hash__` and `__eq__`.

Both must be pure: they read fields and compute, so that nobody can tell how often, and in which order, a table calls them. What else they
do breaks the graph. Tables with such keys do not leave the graph: building them again would ask for hashes that may have changed since.
"""

from __future__ import annotations

import collections
import contextlib
import dis
import functools
import types
from collections.abc import Iterable, Iterator
from typing import Any

from ...atoms import is_atom
from ...errors import BreakGraph
from ...signals import let_through
from .constant import fold_plain, force_plain
from .operators import equal
from .record_keys import RecordKey
from .value import Frame, Value

PURE = frozenset(
    "RESUME NOP CACHE POP_TOP COPY SWAP PUSH_NULL PRECALL KW_NAMES CALL CALL_KW RETURN_VALUE RETURN_CONST COPY_FREE_VARS LOAD_DEREF"
    " LOAD_FAST LOAD_FAST_CHECK LOAD_FAST_LOAD_FAST STORE_FAST STORE_FAST_LOAD_FAST LOAD_CONST LOAD_GLOBAL LOAD_ATTR LOAD_METHOD"
    " LOAD_SUPER_ATTR COMPARE_OP IS_OP CONTAINS_OP BINARY_OP BINARY_SUBSCR BUILD_TUPLE BUILD_STRING FORMAT_VALUE FORMAT_SIMPLE"
    " CONVERT_VALUE UNARY_NOT UNARY_NEGATIVE TO_BOOL JUMP_FORWARD JUMP_IF_TRUE_OR_POP JUMP_IF_FALSE_OR_POP POP_JUMP_IF_TRUE"
    " POP_JUMP_IF_FALSE POP_JUMP_IF_NONE POP_JUMP_IF_NOT_NONE POP_JUMP_FORWARD_IF_TRUE POP_JUMP_FORWARD_IF_FALSE"
    " POP_JUMP_FORWARD_IF_NONE POP_JUMP_FORWARD_IF_NOT_NONE".split()
)
"""Instructions without effects, but for what they call."""
PURE_BUILTINS = frozenset(
    {abs, bool, float, hash, id, int, isinstance, issubclass, len, max, min, repr, round, sorted, str, sum, super, type}
)
CHANGING = frozenset(
    name
    for kind in (list, dict, set, bytearray, collections.deque, collections.OrderedDict)
    for name in dir(kind)
    if not any(hasattr(fixed, name) for fixed in (tuple, frozenset, types.MappingProxyType, str))
)
"""Names of methods that change a container."""
MOST_KEYS = 64
"""Keys of an existing dict, each of which the guard looks up before every call."""


@functools.lru_cache(maxsize=1000)
def is_pure(code: types.CodeType) -> bool:
    """Whether nothing but what the code calls can have an effect."""
    for instruction in dis.get_instructions(code):
        in_place = instruction.opname == "BINARY_OP" and instruction.argrepr.endswith("=")
        if instruction.opname not in PURE or in_place or instruction.argval in CHANGING and "GLOBAL" not in instruction.opname:
            return False
    return True


def globals_read(code: types.CodeType, names: dict[str, Any]) -> list[Any]:
    """The globals and builtins that the code reads; None for those that are not there."""
    builtins = names.get("__builtins__", {})
    builtins = builtins if isinstance(builtins, dict) else vars(builtins)
    read = [i.argval for i in dis.get_instructions(code) if i.opname == "LOAD_GLOBAL"]
    return [names.get(name, builtins.get(name)) for name in read]


def is_pure_builtin(found: Any) -> bool:
    """Whether it is a builtin function without effects."""
    return isinstance(found, types.BuiltinFunctionType) and found in PURE_BUILTINS


def calls_what_is_pure(code: types.CodeType, names: dict[str, Any]) -> bool:
    """Whether the globals that the code reads are classes, constants, functions that are traced in turn, or builtins without effects."""
    for found in globals_read(code, names):
        known = isinstance(found, (types.FunctionType, type)) and found not in (iter, map, zip, filter, enumerate, reversed)
        if not known and not is_atom(found) and not is_pure_builtin(found):
            return False
    return True


def refuse_effects(frame: Frame, function: Any) -> None:
    """A function is called by a `__hash__` or `__eq__` that is traced for a table."""
    if not is_pure(function.code) or not calls_what_is_pure(function.code, function.globals):
        frame.break_graph("unhashable_value", f"{function.name}, which a table asks about its keys, may do more than to compare")


@contextlib.contextmanager
def tracing_equality(frame: Frame) -> Iterator[None]:
    """While the program's own equality is traced for a table."""
    before, outer, frame.queries.traces_equality = frame.mutations.changes, frame.queries.traces_equality, True
    try:
        yield
    finally:
        frame.queries.traces_equality = outer
    if frame.mutations.changes != before:
        frame.break_graph("unhashable_value", "equality of keys that has effects")


class UserKey:
    """Stands for such a key: its hash when the table was asked, and equality as the program computes it."""

    __slots__ = ("value", "number", "frame")

    def __init__(self, value: Value, number: int, frame: Frame) -> None:
        self.value, self.number, self.frame = value, number, frame

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        if type(other) is UserKey and other.value is self.value:
            return True
        frame = self.frame.progress.current or self.frame
        if type(other) is not UserKey:
            return frame.break_graph("unhashable_value", f"{self.value.describe()} among keys of another kind with its hash")
        with tracing_equality(frame):
            answers = equal(frame, self.value, other.value), equal(frame, other.value, self.value)
        if answers[0] != answers[1]:  # then it matters which of them was in the table
            frame.break_graph("unhashable_value", f"{self.value.describe()}, whose equality depends on the order")
        return bool(same_as_before(frame, frozenset((self.value, other.value)), answers[0]))


def user_key(frame: Frame, value: Value) -> Any:
    """The key of an instance whose class has a `__hash__` in Python."""
    with tracing_equality(frame):
        found = hash_of(frame, value)
    return UserKey(value, same_as_before(frame, value, found), frame)


def hash_of(frame: Frame, value: Value) -> int:
    """hash(value)"""
    found = value.own_hash(frame)
    return fold_plain(frame, hash, force_plain(frame, value)) if found is None else found


def same_as_before(frame: Frame, asked: Any, answer: Any) -> Any:
    """The hash of a value, or whether two are equal. Tables keep what they were told; what changes its mind is left to Python."""
    if frame.queries.key_answers.setdefault(asked, answer) != answer:
        frame.break_graph("unhashable_value", "a key that was changed while it was one")
    return answer


def has_user_key(hashed: Any) -> bool:
    """Whether it is, or holds, a UserKey."""
    return type(hashed) is UserKey or isinstance(hashed, (tuple, frozenset)) and any(map(has_user_key, hashed))


def is_hashed_alike(hashed: Any) -> bool:
    """Whether what stands for a key has the hash of the object itself."""
    return type(hashed) in (UserKey, RecordKey) or (
        all(map(is_hashed_alike, hashed)) if type(hashed) is tuple else is_atom(hashed)
    )


def refuse_user_keys(frame: Frame, keys: Iterable[Any]) -> None:
    """Of an existing table that is changed: it would ask for the hashes when the graph has run."""
    if any(map(has_user_key, keys)):
        frame.break_graph("unhashable_value", "an existing table gets, or loses, a key that defines equality itself")


def refuse_rebuilding_user_keys(keys: Iterable[Any]) -> None:
    """Raises BreakGraph for keys of a table that the program made."""
    if any(map(has_user_key, keys)):
        raise BreakGraph("cannot_rebuild", "a table with keys that define equality themselves")


class FindsItsKeys:
    """each of its keys is where its hash says"""

    runs_program = True

    def __init__(self, disabled: Any) -> None:
        self.disabled = disabled

    def __call__(self, table: Any) -> Any:
        try:
            return self.disabled(finds_its_keys)(table)
        except Exception as error:  # the program meets it where it looks a key up
            let_through(error)
            return False


def finds_its_keys(table: Any) -> Any:
    return all(dict.__contains__(table, key) for key in table)
