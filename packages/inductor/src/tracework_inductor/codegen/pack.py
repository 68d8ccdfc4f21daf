"""KernelPlan and rendered kernels -> Artifact."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from tracework_primops import place_of
from tracework_primops.symbols.expr import Symbol
from tracework_runtime import Artifact, OutputRecipe, SymbolBinding, TensorCheck
from tracework_runtime.host.lines import Call, Line, Number

from ..autotune.record import report
from ..ir.index import Expr, Size
from ..schedule.graph import alias_root
from ..schedule.operators import operators_of
from ..schedule.plan import ExternKernel, KernelPlan, Output, Program
from .steps import step_notes


def pack(
    plan: KernelPlan,
    host_source: str,
    host_lines: Sequence[Line],
    spans: Sequence[tuple[int, int]],
    kernels: Sequence[Any],
    functions: Mapping[str, str],
    places: Sequence[str],
    key: str,
) -> Artifact:
    """All facts about a compiled graph in one storable value. spans: which of the lines are each kernel's; functions: kernel of the plan ->
    its function; places: of the graph's calls."""
    program = plan.program
    told = {line.given for line in host_lines if isinstance(line, Number)}
    devices = {str(b.layout.device) for name, b in program.buffers.items() if name not in told}
    static = program.static_inputs
    mutated_names = {alias_root(program.buffers, b) for b in program.mutated}
    mutated = {n for n, name in enumerate(program.inputs) if name in mutated_names}
    bound = _bindings(program)
    return Artifact(
        key or hashlib.sha256(host_source.encode()).hexdigest(),
        host_source,
        tuple(kernels),
        host_lines=tuple(host_lines),
        checks=tuple(_checks(plan)),
        outputs=tuple(_recipe(plan, o) for o in program.outputs),
        devices=frozenset(devices),
        static_inputs=frozenset(static),
        mutated_inputs=frozenset(mutated),
        externs=frozenset(name for line in host_lines if isinstance(line, Call) for name in line.operators),
        symbols=tuple(bound.values()),
        conditions=_conditions(program, bound),
        inputs=program.inputs,
        places=_places(plan, functions, places),
        notes={
            "fallbacks": [list(f) for f in program.fallbacks],
            "kernels": len(plan.kernels),
            **_choices(plan, functions),
            **step_notes(plan, functions, places, host_lines, spans),
        },
    )


def _choices(plan: KernelPlan, functions: Mapping[str, str]) -> dict[str, dict[str, list[str]]]:
    """The candidates that kernels were chosen from, as lines, under "choices"; nothing where none was looked at."""
    found = {functions.get(name, name): report(candidates) for name, candidates in plan.choices.items()}
    return {"choices": found} if found else {}


def _places(plan: KernelPlan, functions: Mapping[str, str], calls: Sequence[str]) -> dict[str, dict[str, tuple[int, ...]]]:
    """What a kernel computes, and what the operators that library calls run are called for."""
    numbers: dict[str, list[int]] = {}
    for number, place in enumerate(calls):
        numbers.setdefault(place, []).append(number)
    found: dict[str, dict[str, tuple[int, ...]]] = {}
    for kernel in plan.kernels:
        if isinstance(kernel, ExternKernel):
            names, origins = operators_of(plan.program, kernel.node), kernel.node.origins
        else:
            names, origins = (functions[kernel.name],), kernel.origins
        for name in names:
            known = found.setdefault(name, {})
            for origin in origins:
                place = place_of(origin)
                known[place] = tuple(numbers.get(place, ()))
    return found


def _checks(plan: KernelPlan) -> list[TensorCheck]:
    found = []
    for n, name in enumerate(plan.program.inputs):
        buffer = plan.program.buffers.get(name)
        if buffer is not None:
            layout = buffer.layout
            dtype = str(layout.dtype).removeprefix("torch.")
            sizes, strides = tuple(map(_extent, layout.sizes)), tuple(map(_extent, layout.strides))
            found.append(TensorCheck(n, name, dtype, str(layout.device), sizes, strides, _extent(buffer.offset)))
    return found


def _bindings(program: Program) -> dict[Symbol, SymbolBinding]:
    """Where the host program reads each symbol: from a number, else from the first tensor that has it."""
    found: dict[Symbol, SymbolBinding] = {}
    for n, name in enumerate(program.inputs):
        expr = program.size_inputs.get(name)
        if isinstance(expr, Symbol):
            found.setdefault(expr, SymbolBinding(expr.name, "value", n, of_data=expr.of_data))
    for n, name in enumerate(program.inputs):
        layout = program.buffers[name].layout if name in program.buffers else None
        for kind, extents in (("size", layout.sizes), ("stride", layout.strides)) if layout is not None else ():
            for d, extent in enumerate(extents):
                if isinstance(extent, Symbol):
                    found.setdefault(extent, SymbolBinding(extent.name, kind, n, d, extent.of_data))
    return found


def _conditions(program: Program, bound: Mapping[Symbol, SymbolBinding]) -> tuple[str, ...]:
    """What numbers among the inputs are that stand for no symbol, the ranges of symbols, and what was found out about them."""
    found = [
        f"{name} == {expr}"
        for n, name in enumerate(program.inputs)
        if (expr := program.size_inputs.get(name)) is not None and not (isinstance(expr, Symbol) and bound[expr].index == n)
    ]
    for symbol in bound:
        found += [f"{symbol} >= {symbol.lower}"] if symbol.lower is not None else []
        found += [f"{symbol} <= {symbol.upper}"] if symbol.upper is not None else []
    recorded = [r.condition for r in program.symbols.conditions] if program.symbols is not None else []
    found += [str(condition) for condition in recorded if condition.free_symbols <= bound.keys()]
    return tuple(dict.fromkeys(found))


def _recipe(plan: KernelPlan, o: Output) -> OutputRecipe:
    if o.buffer is None:
        return OutputRecipe("none" if o.value is None else "constant")
    root = plan.program.buffers[alias_root(plan.program.buffers, o.buffer)]
    kind = "view" if root.kind == "input" else "buffer"
    dtype = str(root.layout.dtype).removeprefix("torch.")
    source = plan.program.inputs.index(root.name) if kind == "view" else root.name
    return OutputRecipe(kind, dtype, tuple(map(_extent, o.sizes)), tuple(map(_extent, o.strides)), _extent(o.offset), source)


def _extent(size: Size) -> int | str:
    return str(size) if isinstance(size, Expr) else size
