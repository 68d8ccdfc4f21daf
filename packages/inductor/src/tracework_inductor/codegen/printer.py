"""Index expressions as text of a C-like language."""

from typing import Any

from tracework_primops.symbols.expr import Expr, FloorDiv, Max, Min, Mod, Symbol

from ..ir.index import Size


def c_index(expr: Size) -> str:
    """C++ text of a non-negative index; floors and mods of what may be negative go through tw_floordiv and tw_mod."""
    if isinstance(expr, int):
        return f"{expr}" if abs(expr) < 2**31 else f"{expr}LL"
    if isinstance(expr, (Symbol, FloorDiv, Mod, Max, Min)):
        return _atom(expr)
    parts = []
    for monomial, coefficient in expr.terms.items():
        factors = [_atom(a) for a in monomial]
        if coefficient != 1 or not factors:
            factors.append(f"{coefficient}" if abs(coefficient) < 2**31 else f"{coefficient}LL")
        parts.append(" * ".join(factors))
    return f"({' + '.join(parts)})"


def _atom(atom: Any) -> str:
    return ATOMS[type(atom)](atom)


def _divided(atom: Any) -> str:
    return f"tw_floordiv({c_index(atom.numerator)}, {c_index(atom.denominator)})"


def _rest(atom: Any) -> str:
    return f"tw_mod({c_index(atom.numerator)}, {c_index(atom.denominator)})"


def _fold(name: str) -> Any:
    def text(atom: Any) -> str:
        result = c_index(atom.operands[0])
        for o in atom.operands[1:]:
            result = f"{name}({result}, {c_index(o)})"
        return result

    return text


ATOMS: dict[type, Any] = {
    Symbol: lambda a: a.name,
    FloorDiv: _divided,
    Mod: _rest,
    Max: _fold("tw_imax"),
    Min: _fold("tw_imin"),
}

__all__ = ["Expr", "c_index"]
