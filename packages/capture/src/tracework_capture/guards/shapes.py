"""Guards over symbolic sizes: conditions of a SymbolTable -> small stack programs over integer slots.

Expressions print as Python text, so the program is made from that text's syntax tree. OPS repeats the numbers of guard_tree.c.
"""

import ast
import re
from collections.abc import Callable, Iterable
from typing import Any

from ..errors import GuardBuildError
from ..sources import Source
from .access import Scope, fetch

OPS = {
    name: number
    for number, name in enumerate(
        ("CONST", "SLOT", "ADD", "SUB", "MUL", "FLOORDIV", "MOD", "MAX", "MIN", "NEG", "EQ", "NE", "LT", "LE", "GT", "GE")
    )
}
BINARY = {ast.Add: "ADD", ast.Sub: "SUB", ast.Mult: "MUL", ast.FloorDiv: "FLOORDIV", ast.Mod: "MOD"}
CALLS = {"max": "MAX", "min": "MIN", "Max": "MAX", "Min": "MIN"}
COMPARISONS = {"==": "EQ", "!=": "NE", "<": "LT", "<=": "LE", ">": "GT", ">=": "GE"}
LARGEST_POWER = 16


def symbol_sources(table: Any) -> dict[str, Source]:
    """Symbol name -> where its value is read; unbacked symbols have none."""
    return {str(symbol): origin for symbol, origin in table.origins.items() if isinstance(origin, Source)}


def relevant_conditions(table: Any, sources: dict[str, Source]) -> list[Any]:
    """The recorded conditions, then the ranges of the symbols, without repetition, over symbols that can be read."""
    found: dict[str, Any] = {}
    for recorded in [*table.range_conditions(), *table.conditions]:
        names = {str(symbol) for symbol in recorded.condition.free_symbols}
        if names and names <= sources.keys():
            found.setdefault(str(recorded.condition), recorded)
    return list(found.values())


def compile_condition(condition: Any, slot_of: Callable[[str], int]) -> tuple[int, ...]:
    """The numbers of a stack program for `expr op 0`."""
    code: list[int] = []
    _compile(ast.parse(str(condition.expr), mode="eval").body, slot_of, code)
    code += [OPS["CONST"], 0, OPS[COMPARISONS[condition.op]]]
    return tuple(code)


def _compile(node: ast.expr, slot_of: Callable[[str], int], code: list[int]) -> None:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        code += [OPS["CONST"], node.value]
    elif isinstance(node, ast.Name):
        code += [OPS["SLOT"], slot_of(node.id)]
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        _compile(node.operand, slot_of, code)
        code.append(OPS["NEG"])
    elif isinstance(node, ast.BinOp) and type(node.op) in BINARY:
        _compile(node.left, slot_of, code)
        _compile(node.right, slot_of, code)
        code.append(OPS[BINARY[type(node.op)]])
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        _compile_power(node, slot_of, code)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CALLS:
        _compile_call(node, slot_of, code)
    else:
        raise GuardBuildError(f"size expression {ast.unparse(node)!r} has no native form")


def _compile_power(node: ast.BinOp, slot_of: Callable[[str], int], code: list[int]) -> None:
    exponent = node.right.value if isinstance(node.right, ast.Constant) else None
    if not isinstance(exponent, int) or not 1 <= exponent <= LARGEST_POWER:
        raise GuardBuildError(f"size expression {ast.unparse(node)!r} has no native form")
    for i in range(exponent):
        _compile(node.left, slot_of, code)
        if i:
            code.append(OPS["MUL"])


def _compile_call(node: ast.Call, slot_of: Callable[[str], int], code: list[int]) -> None:
    for i, argument in enumerate(node.args):
        _compile(argument, slot_of, code)
        if i:
            code.append(OPS[CALLS[node.func.id]])  # type: ignore[attr-defined]


def evaluate(condition: Any, values: dict[str, int]) -> bool:
    """The same in Python, from sizes by symbol name; division by zero counts as false."""
    names = {"max": max, "min": min, "Max": max, "Min": min, "__builtins__": {}, **values}
    try:
        return bool(eval(f"({condition.expr}) {condition.op} 0", names))
    except ZeroDivisionError:
        return False


def first_failure(conditions: Iterable[Any], symbols: dict[str, Source], scope: Scope) -> tuple[Any, str] | None:
    """(the first condition that does not hold, how it reads with the sizes of the program), None when all hold.

    Raises what reading a size raises.
    """
    values = {name: fetch(source, scope) for name, source in symbols.items()}
    for recorded in conditions:
        if not evaluate(recorded.condition, values):
            return recorded, _failure_text(recorded.condition, symbols, values)
    return None


def _failure_text(condition: Any, symbols: dict[str, Source], values: dict[str, int]) -> str:
    """x.shape[0] < 40 does not hold: x.shape[0] is 41"""
    said = re.sub(r"\b[a-z_]\w*\b", lambda found: str(symbols.get(found[0], found[0])), str(condition))
    names = [name for name in dict.fromkeys(re.findall(r"\b[a-z_]\w*\b", str(condition))) if name in symbols]
    return f"{said} does not hold: {', '.join(f'{symbols[name]} is {values[name]}' for name in names)}"


def names_in(conditions: Iterable[Any]) -> set[str]:
    """The symbol names that occur in the conditions."""
    found: set[str] = set()
    left: list[ast.AST] = [ast.parse(str(recorded.condition.expr), mode="eval") for recorded in conditions]
    while left:  # ast.walk imports at each call, and a program may have exchanged the module
        node = left.pop()
        left += ast.iter_child_nodes(node)
        if isinstance(node, ast.Name):
            found.add(node.id)
    return found - CALLS.keys()
