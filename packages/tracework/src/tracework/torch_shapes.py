"""Sizes that change, as torch.export spells them, and programs that torch.export made, as what capture takes."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import tracework_capture as capture

from .errors import InvalidArgument


@dataclass
class Shapes:
    """declared: capture's declared shapes, None where nothing is. maybe: tensors and those dims of theirs that the program may fix."""

    declared: dict[tuple[Any, ...], Any] | None = None
    maybe: list[tuple[torch.Tensor, list[int]]] = field(default_factory=list)


def given_shapes(spec: Any, signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Shapes:
    """What `dynamic_shapes` says of calls with these arguments, which are bound to the signature. Raises InvalidArgument."""
    if spec is None:
        return Shapes()
    found = Shapes({})
    for name, path, value, part in _parameters(spec, signature, args, kwargs):
        _walk(part, value, path, name, found)
    return found


def _parameters(
    spec: Any, signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Iterator[tuple[str, tuple[Any, ...], Any, Any]]:
    """(name, path, value, what is said of it) of each parameter that is named."""
    parameters = signature.parameters
    if isinstance(spec, (tuple, list)):
        if len(spec) > len(parameters):
            raise InvalidArgument(f"dynamic_shapes has {len(spec)} items, and the function {len(parameters)} parameters.")
        spec = dict(zip(parameters, spec))
    if not isinstance(spec, Mapping):
        raise InvalidArgument(f"dynamic_shapes takes a dict by the names of parameters, or a tuple, not {spec!r}.")
    unknown = [name for name in spec if name not in parameters]
    if unknown:
        raise InvalidArgument(f"dynamic_shapes names {unknown[0]!r}, which is no parameter: they are {', '.join(parameters)}.")
    place = 0
    for name, parameter in parameters.items():
        part = spec.get(name)
        if parameter.kind is parameter.VAR_POSITIONAL:
            rest = args[place:]
            for number, (value, one) in enumerate(zip(rest, part or ())):
                yield f"{name}[{number}]", ("args", place + number), value, one
            place = len(args)
        elif parameter.kind is parameter.VAR_KEYWORD:
            for key, one in (part or {}).items():
                yield f"{name}[{key!r}]", ("kwargs", key), kwargs.get(key), one
        elif parameter.kind is parameter.KEYWORD_ONLY:
            yield name, ("kwargs", name), kwargs.get(name), part
        elif place < len(args):
            yield name, ("args", place), args[place], part
            place += 1
        else:
            yield name, ("kwargs", name), kwargs.get(name), part


def _walk(spec: Any, value: Any, path: tuple[Any, ...], name: str, found: Shapes) -> None:
    if spec is None:
        return
    if isinstance(value, torch.Tensor):
        _tensor(spec, value, path, name, found)
    elif isinstance(spec, Mapping) and isinstance(value, Mapping):
        for key, part in spec.items():
            _walk(part, value.get(key), (*path, key), f"{name}[{key!r}]", found)
    elif isinstance(spec, (tuple, list)) and isinstance(value, (tuple, list)):
        for number, (part, one) in enumerate(zip(spec, value)):
            _walk(part, one, (*path, number), f"{name}[{number}]", found)
    elif type(value) is int:
        entry = _entry(spec, name)
        if entry is not None and not isinstance(entry, str):
            _declared(found)[path] = entry
    else:
        raise InvalidArgument(f"dynamic_shapes says {spec!r} of {name}, which is a {type(value).__name__}.")


def _tensor(spec: Any, value: torch.Tensor, path: tuple[Any, ...], name: str, found: Shapes) -> None:
    if not isinstance(spec, (Mapping, tuple, list)):
        raise InvalidArgument(
            f"dynamic_shapes says {spec!r} of {name}: give a dict by dims, or a list with an entry for each dim."
        )
    by_dim = dict(spec) if isinstance(spec, Mapping) else dict(enumerate(spec))
    if any(type(dim) is not int or not 0 <= dim < value.dim() for dim in by_dim):
        raise InvalidArgument(f"dynamic_shapes says {spec!r} of {name}, a tensor of {value.dim()} dims.")
    entries: list[Any] = [None] * value.dim()
    maybe = []
    for dim, one in by_dim.items():
        entry = _entry(one, f"dim {dim} of {name}")
        if entry == _AUTO:
            maybe.append(dim)
        else:
            entries[dim] = entry
    _declared(found)[path] = tuple(entries)
    if maybe:
        found.maybe.append((value, maybe))


def _declared(found: Shapes) -> dict[tuple[Any, ...], Any]:
    if found.declared is None:
        found.declared = {}
    return found.declared


_AUTO = "auto"


def _entry(spec: Any, where: str) -> Any:
    """None, an int, a DimRange, or _AUTO."""
    if spec is None or type(spec) is int or isinstance(spec, capture.DimRange):
        return spec
    hint = getattr(getattr(spec, "type", None), "name", None)  # Dim.AUTO, Dim.DYNAMIC and Dim.STATIC
    if hint in ("AUTO", "DYNAMIC", "STATIC"):
        return {"AUTO": _AUTO, "DYNAMIC": capture.DimRange(_bound(spec.min), _bound(spec.max)), "STATIC": None}[hint]
    if hasattr(spec, "root"):
        raise InvalidArgument(
            f"dynamic_shapes of {where}: {spec} is computed from another size. Give Dim.DYNAMIC: how it follows from others is found."
        )
    if hasattr(spec, "min") and hasattr(spec, "max"):
        return capture.DimRange(_bound(spec.min), _bound(spec.max), f"{spec.__name__}#{id(spec)}")
    raise InvalidArgument(f"dynamic_shapes of {where} takes a torch.export.Dim, an int or None, not {spec!r}.")


def _bound(value: Any) -> int | None:
    """A bound of a size; None where there is none, as for torch's infinite one and 0."""
    is_whole = isinstance(value, int) or getattr(value, "is_Integer", False)
    return int(value) or None if is_whole else None


_MOST_ONES = 3
"""Further graphs for sizes of 1, which are always compiled by themselves."""


def ones(shapes: Shapes, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """The arguments with a size that may be 1 at 1: one size after the other, then all of them. Sizes of one group go together."""
    groups: dict[Any, dict[tuple[Any, ...], list[int]]] = {}
    for path, entries in (shapes.declared or {}).items():
        for dim, entry in enumerate(entries if isinstance(entries, tuple) else ()):
            if isinstance(entry, capture.DimRange) and (entry.lower or 0) <= 1:
                groups.setdefault(entry.group or (path, dim), {}).setdefault(path, []).append(dim)
    everything: dict[tuple[Any, ...], list[int]] = {}
    for places in groups.values():
        for path, dims in places.items():
            everything.setdefault(path, []).extend(dims)
    chosen = [*groups.values(), everything] if len(groups) > 1 else list(groups.values())
    for places in chosen if len(chosen) <= _MOST_ONES else chosen[-1:]:
        smaller = _narrowed(args, ("args",), places), _narrowed(kwargs, ("kwargs",), places)
        yield smaller


def _narrowed(value: Any, path: tuple[Any, ...], places: Mapping[tuple[Any, ...], list[int]]) -> Any:
    if isinstance(value, torch.Tensor):
        for dim in places.get(path, ()):
            value = value.narrow(dim, 0, min(value.shape[dim], 1))
        return value.clone() if path in places else value
    if type(value) in (tuple, list):
        return type(value)(_narrowed(part, (*path, place), places) for place, part in enumerate(value))
    if type(value) is dict:
        return {key: _narrowed(part, (*path, key), places) for key, part in value.items()}
    return value


def of_exported(program: torch.export.ExportedProgram) -> tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any], Any]:
    """The module of a program that torch.export made, the arguments that it was made with, and which sizes change.

    Raises InvalidArgument where the program does not have its example arguments."""
    if program.example_inputs is None:
        raise InvalidArgument("aot_compile(): the exported program has no example inputs. Give args=, of sizes that it takes.")
    args, kwargs = program.example_inputs
    taken = set(program.graph_signature.user_inputs)
    examples = [n.meta.get("val") for n in program.graph.nodes if n.op == "placeholder" and n.name in taken]
    limits = {str(symbol): limit for symbol, limit in program.range_constraints.items()}
    left = iter(examples)
    spec = [_sizes(arg, left, limits) for arg in args], {name: _sizes(arg, left, limits) for name, arg in kwargs.items()}
    return program.module(check_guards=False), args, kwargs, spec


def _sizes(value: Any, examples: Iterator[Any], limits: Mapping[str, Any]) -> Any:
    """What changes of an argument, from the values that the program was traced with, in the order of its parts."""
    if isinstance(value, (tuple, list)):
        return [_sizes(part, examples, limits) for part in value]
    if isinstance(value, dict):
        return {key: _sizes(part, examples, limits) for key, part in value.items()}
    traced = next(examples, None)
    if isinstance(traced, torch.Tensor):
        return {dim: _range(size, limits) for dim, size in enumerate(traced.shape)}
    return _range(traced, limits) if isinstance(traced, torch.SymInt) else None


def _range(size: Any, limits: Mapping[str, Any]) -> Any:
    if not isinstance(size, torch.SymInt):
        return None
    known = limits.get(str(size))
    low, high = (None, None) if known is None else (_bound(known.lower), _bound(known.upper))
    return capture.DimRange(low, high, str(size) if known is not None else None)
