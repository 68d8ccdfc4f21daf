"""A functional ATen graph as the lines of a host program, for the backend `cudagraphs`: CUDA graphs record parts of it."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from tracework_runtime.host.lines import Call, Free, Inputs, Line, Return

from . import _torch

__all__ = ["fx_lines", "places"]


def fx_lines(gm: Any) -> tuple[tuple[Line, ...], dict[str, Any]]:
    """The lines, one for each operator with the parts of its result that are read, and the globals that they name."""
    nodes = [node for node in gm.graph.nodes if node.op == "call_function" and not _is_part(node)]
    inputs = [node for node in gm.graph.nodes if node.op == "placeholder"]
    returned = next(iter(reversed(gm.graph.nodes))).args[0]
    results = dict.fromkeys(value for value in returned if isinstance(value, torch.fx.Node) and value.op != "get_attr")
    last = {operand: node for node in nodes for operand in _operands(node)}
    names: dict[str, Any] = {}
    lines: list[Line] = [Inputs(tuple(node.name for node in inputs))]
    lines += _freed(node for node in inputs if node not in last and node not in results)
    for node in nodes:
        lines.append(_call(gm, node, names))
        touched = dict.fromkeys((*_operands(node), *_made(node)))
        lines += _freed(n for n in touched if last.get(n, node) is node and n not in results)
    values = tuple(value.name if value in results else _constant(gm, value, names) for value in returned)
    lines.append(Return(values, tuple(node.name for node in results)))
    return tuple(lines), names


def places(gm: Any) -> dict[str, dict[str, tuple[int, ...]]]:
    """Operator -> "file:line in function operator" of the program's calls, as far as they are known, and their numbers."""
    found: dict[str, dict[str, tuple[int, ...]]] = {}
    for number, node in enumerate(node for node in gm.graph.nodes if node.op == "call_function"):
        if origin := node.meta.get("origin"):
            known = found.setdefault(_torch.operator_of(node)[0], {})
            known[origin] = (*known.get(origin, ()), number)
    return found


def _freed(nodes: Iterable[Any]) -> list[Line]:
    names = tuple(node.name for node in nodes)
    return [Free(names)] if names else []


def _is_part(node: Any) -> bool:
    """Whether a node takes one of several results of another."""
    return node.target is operator.getitem and isinstance(node.args[0].meta.get("val"), (tuple, list))


def _parts(node: Any) -> list[Any]:
    return [user for user in node.users if _is_part(user)]


def _made(node: Any) -> list[Any]:
    """What a node gives: the parts of its result that are read, or the whole."""
    return _parts(node) or [node]


def _operands(node: Any) -> list[Any]:
    """What a node reads, but constants of the module."""
    return [n for n in node.all_input_nodes if n.op != "get_attr"]


def _call(gm: Any, node: Any, names: dict[str, Any]) -> Call:
    reads, function = _operands(node), f"tracework_{len(names)}"
    names[function] = _runner(gm, node, reads)
    text = [f"{node.name} = {function}({', '.join(n.name for n in reads)})"]
    text += [f"{part.name} = {node.name}[{part.args[1]}]" for part in _parts(node)]
    name, written = _torch.operator_of(node)
    changes = [a.name for n, a in enumerate(node.args) if n in written and isinstance(a, torch.fx.Node)]
    values = [n.meta.get("val") for n in (*node.all_input_nodes, *_made(node))]
    devices = sorted({str(value.device) for value in values if isinstance(value, torch.Tensor)})
    made = tuple(n.name for n in _made(node))
    return Call(
        tuple(text),
        tuple(n.name for n in reads),
        made,
        (name,) if devices else (),  # numbers are made where they are needed
        tuple(changes),
        tuple(devices),
    )


def _runner(gm: Any, node: Any, reads: Sequence[Any]) -> Callable[..., Any]:
    """A node as a function of what it reads."""
    constants = {n: _attribute(gm, n) for n in node.all_input_nodes if n.op == "get_attr"}
    target = _torch.run_below_views(node.target)

    def run(*values: Any) -> Any:
        known = {**constants, **dict(zip(reads, values, strict=True))}
        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), known.__getitem__)
        return target(*args, **kwargs)

    return run


def _attribute(gm: Any, node: Any) -> Any:
    return operator.attrgetter(str(node.target))(gm)


def _constant(gm: Any, value: Any, names: dict[str, Any]) -> str:
    """A result that no line makes, as the name of a global."""
    name = f"tracework_{len(names)}"
    names[name] = _attribute(gm, value) if isinstance(value, torch.fx.Node) else value
    return name
