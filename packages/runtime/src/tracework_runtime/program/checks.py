"""What a program asks of a call's arguments: their structure, of tensors what the graph was compiled for, of other things their values.

A pattern is a tree (values.py) whose leaves are also ["tensor", facts] and ["any"].
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence, Sized
from types import CodeType
from typing import Any, NoReturn

import torch

from tracework_runtime.errors import InputError
from tracework_runtime.program.values import NotData, constant, constant_of, getter, imported, is_same, object_kind, parts_of

__all__ = ["ArgumentCheck", "is_autocast_on", "names_of", "shown_path", "signature_of"]

Check = Callable[[Any], None]
_TENSORS = (torch.Tensor, torch.nn.Parameter)
_MATH: dict[str, Any] = {"__builtins__": {}, "min": min, "max": max, "Min": min, "Max": max}
_READS: dict[str, Callable[..., int]] = {
    "size": lambda x, dim: x.shape[dim],
    "stride": lambda x, dim: x.stride(dim),
    "offset": lambda x: x.storage_offset(),
    "value": lambda x: x,
}


def signature_of(parameters: Sequence[Sequence[Any]]) -> inspect.Signature:
    """A signature from (name, kind, default as data in a list, or an empty one)."""
    return inspect.Signature(
        [
            inspect.Parameter(
                name, getattr(inspect.Parameter, kind), default=constant_of(default[0]) if default else inspect.Parameter.empty
            )
            for name, kind, default in parameters
        ]
    )


def is_autocast_on(devices: Sequence[str]) -> bool:
    """Whether autocast is on for one of these types of devices."""
    return any(torch.is_autocast_enabled(kind) for kind in devices)


def names_of(signature: inspect.Signature) -> list[tuple[str, bool]]:
    """Of each parameter the name, and whether it takes all that are left."""
    return [(p.name, p.kind is p.VAR_POSITIONAL) for p in signature.parameters.values()]


def shown_path(path: Sequence[Any], names: Sequence[tuple[str, bool]]) -> str:
    """What the user calls the argument at a path, whose first item is "args" or "kwargs"."""
    root, *rest = path
    if not rest:
        return str(root)
    first, *rest = rest
    start = str(first)
    if root == "args":
        place = next((n for n, (_, is_rest) in enumerate(names) if is_rest), len(names))
        if first < place:
            start = names[first][0]
        elif place < len(names):
            start = f"{names[place][0]}[{first - place}]"
    return start + "".join(f".{step}" if isinstance(step, str) and step.isidentifier() else f"[{step!r}]" for step in rest)


class ArgumentCheck:
    """Raises InputError for arguments that one entry was not compiled for; gives the numbers that symbols stand for."""

    def __init__(self, entry: Mapping[str, Any], signature: inspect.Signature) -> None:
        self._names = names_of(signature)
        self._parameters = signature.parameters
        (_, positional), (_, named, _) = entry["arguments"]
        self._positional, self._named = len(positional), [constant_of(name) for name in named]
        self._checks: list[tuple[Callable[[Any], Any], Check]] = []
        self._texts: dict[tuple[Any, ...], str] = {}
        for root, pattern in zip(("args", "kwargs"), entry["arguments"], strict=True):
            self._add(pattern, (root,))
        self._symbols = [(name, _READS[how], getter(path), rest) for name, (how, path, *rest) in entry["symbols"].items()]
        self._said = {name: _said(how, self._name(path), rest) for name, (how, path, *rest) in entry["symbols"].items()}
        self._conditions = [(text, compile(text, text, "eval"), origin) for text, origin in entry["conditions"]]
        self._same = [(getter(one), getter(other), self._name(one), self._name(other)) for one, other in entry["same"]]
        self._places = [(getter(path), self._name(path), offset, period) for path, offset, period in entry["places"]]
        self._shown = {
            name: self._texts[at] for name, (_, path, *_) in entry["symbols"].items() if (at := tuple(path)) in self._texts
        }
        self._state = entry["state"]
        self._kinds = sorted({name.partition(":")[0] for name in entry["devices"]})

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, int]:
        self._check_state()
        given = {"args": args, "kwargs": kwargs}
        for get, check in self._checks:
            try:
                part = get(given)
            except AttributeError as error:
                _refuse(f"a module of the call: {error}")
            check(part)
        for one, other, name, other_name in self._same:
            if one(given) is not other(given):
                _refuse(f"{name} and {other_name}: one tensor expected, two given")
        for get, name, offset, period in self._places:
            distance = get(given).storage_offset() - offset
            if distance and (not period or distance % period):
                _refuse(
                    f"{name}: storage offset: expected {offset}, got {get(given).storage_offset()}, which the graph depends on"
                )
        values = {name: read(get(given), *rest) for name, read, get, rest in self._symbols}
        for text, code, origin in self._conditions:
            try:
                holds = eval(code, _MATH, values)
            except ZeroDivisionError:
                holds = False
            if not holds:
                self._refuse_condition(text, code, origin, values)
        return values

    def as_compiled(self, arguments: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """A call's arguments by the names of parameters, with defaults, as (args, kwargs) of the call that was compiled. Raises InputError for
        one that was not given there, unless it is its default."""
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for name, parameter in self._parameters.items():
            value = arguments[name]
            if parameter.kind is parameter.VAR_POSITIONAL:
                args += value
            elif parameter.kind is parameter.VAR_KEYWORD:
                kwargs.update(value)
            elif parameter.kind is not parameter.KEYWORD_ONLY and len(args) < self._positional:
                args.append(value)
            elif name in self._named:
                kwargs[name] = value
            elif value is not parameter.default and not is_same(value, parameter.default):
                _refuse(f"{name}: expected {parameter.default!r}, which it was compiled with, got {_shown(value)}")
        in_order = {name: kwargs.pop(name) for name in self._named if name in kwargs}
        return tuple(args), {**in_order, **kwargs}

    def _check_state(self) -> None:
        state = self._state
        if (dtype := str(torch.get_default_dtype()).removeprefix("torch.")) != state["default_dtype"]:
            _refuse(f"torch.get_default_dtype(): expected {state['default_dtype']}, got {dtype}")
        if (wanted := torch.are_deterministic_algorithms_enabled()) != state["deterministic"]:
            _refuse(f"torch.are_deterministic_algorithms_enabled(): expected {state['deterministic']}, got {wanted}")
        if is_autocast_on(self._kinds):
            _refuse(
                "torch.autocast is on around the call: expected off",
                "put autocast inside of the function, and make the file again",
            )

    def _refuse_condition(self, text: str, code: CodeType, origin: str, values: Mapping[str, int]) -> NoReturn:
        names = [name for name in dict.fromkeys(code.co_names) if name in values]
        shown = text
        for name in names:
            shown = shown.replace(name, self._said[name]) if name.isidentifier() else shown
        now = ", ".join(f"{self._said[name]} is {values[name]}" for name in names)
        needed = f" (needed at {origin})" if ":" in origin else ""
        compiled = "".join(
            f"; compiled for {text}" for text in dict.fromkeys(self._shown[name] for name in names if name in self._shown)
        )
        _refuse(f"{shown} does not hold{needed}: {now}{compiled}")

    def _name(self, path: Sequence[Any]) -> str:
        return shown_path(path, self._names)

    # patterns, one check for each part

    def _add(self, pattern: Any, path: tuple[Any, ...]) -> None:
        name = self._name(path)
        match pattern:
            case ["any"]:
                return
            case ["tensor", facts]:
                self._texts[path] = f"{name}: {facts['shown']}"
                self._checks.append((getter(path), _tensor_check(facts, name)))
            case ["module", tensors, constants]:
                self._checks.append((getter(path), _module_check(name)))
                for rest, facts in tensors:
                    at = (*path, *rest)
                    self._checks.append((getter(at), _tensor_check(facts, self._name(at), of_module=True)))
                for rest, data in constants:
                    at = (*path, *rest)
                    self._checks.append((getter(at), _constant_check(constant_of(data), self._name(at))))
            case ["constant", data]:
                self._checks.append((getter(path), _constant_check(constant_of(data), name)))
            case ["tuple" | "list" | "size" as kind, parts]:
                container = {"tuple": tuple, "list": list, "size": torch.Size}[kind]
                self._checks.append((getter(path), _length_check(container, len(parts), name)))
                for place, part in enumerate(parts):
                    self._add(part, (*path, place))
            case ["dict", keys, parts]:
                found = [constant_of(key) for key in keys]
                self._checks.append((getter(path), _keys_check(found, name)))
                for key, part in zip(found, parts, strict=True):
                    self._add(part, (*path, key))
            case ["object", kind, how, keys, parts]:
                found = [constant_of(key) for key in keys]
                self._checks.append((getter(path), _object_check(kind, how, found, name)))
                for key, part in zip(found, parts, strict=True):
                    self._add(part, (*path, key))


def _said(how: str, name: str, rest: Sequence[int]) -> str:
    return name if how == "value" else f"{name}.storage_offset()" if how == "offset" else f"{name}.{how}({rest[0]})"


_ADVICE = "call it with what it was compiled for, or make the file again for such arguments"


def _refuse(what: str, advice: str = _ADVICE) -> NoReturn:
    raise InputError(what, advice=advice)


def layout_advice(shape: Sequence[int], wanted: Sequence[tuple[int, int]]) -> str:
    """What gives a tensor of this shape the strides that are wanted of it."""
    formats = {4: ("channels_last",), 5: ("channels_last_3d",)}
    for name in ("contiguous_format", *formats.get(len(shape), ())):
        strides = torch.empty(shape, device="meta", memory_format=getattr(torch, name)).stride()
        if all(strides[dim] == stride or shape[dim] < 2 for dim, stride in wanted):
            named = "" if name == "contiguous_format" else f"memory_format=torch.{name}"
            return f"call .contiguous({named}), or make the file again"
    return _ADVICE


def _module_check(name: str) -> Check:
    def check(value: Any) -> None:
        if not isinstance(value, torch.nn.Module):
            _refuse(f"{name}: expected an nn.Module, got {_type_name(value)}")

    return check


def _tensor_check(facts: Mapping[str, Any], name: str, of_module: bool = False) -> Check:
    """of_module: its gradient is not asked for, as that of no weight is."""
    dtype, device = getattr(torch, facts["dtype"]), torch.device(facts["device"])
    sizes, strides, shown, requires_grad = tuple(facts["sizes"]), facts["strides"], facts["shown"], facts["requires_grad"]
    known = tuple((dim, size) for dim, size in enumerate(sizes) if size is not None)
    wanted = () if strides is None else tuple((dim, stride) for dim, stride in enumerate(strides) if stride is not None)

    def check(x: Any) -> None:
        if type(x) not in _TENSORS:
            _refuse(f"{name}: expected a tensor, {shown}, got {_type_name(x)}")
        if x.dtype is not dtype:
            _refuse(f"{name}: dtype: expected {facts['dtype']}, got {_short(x.dtype)}")
        if x.device != device:
            _refuse(f"{name}: device: expected {device}, got {x.device}")
        if not of_module and x.requires_grad is not requires_grad:
            advice = "call it with a detached tensor: gradients are not carried" if x.requires_grad else _ADVICE
            _refuse(f"{name}: requires_grad: expected {requires_grad}, got {x.requires_grad}", advice)
        if not of_module and requires_grad and torch.is_grad_enabled():
            _refuse(f"{name}: it requires grad, and gradients are not carried", "call it under torch.no_grad()")
        if x.layout is not torch.strided:
            _refuse(f"{name}: layout: expected torch.strided, got {x.layout}")
        shape = x.shape
        if len(shape) != len(sizes) or any(shape[dim] != size for dim, size in known):
            _refuse(f"{name}: sizes: expected {shown}, got {list(shape)}")
        given = x.stride()
        if any(given[dim] != stride and shape[dim] > 1 for dim, stride in wanted) and x.numel():
            _refuse(f"{name}: strides: expected {tuple(strides)}, got {given}", layout_advice(shape, wanted))
        if x.is_conj() or x.is_neg():
            _refuse(f"{name}: it is conjugated or negated when it is read", "call resolve_conj() or resolve_neg()")

    return check


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _type_name(value: Any) -> str:
    return "None" if value is None else type(value).__qualname__


def _constant_check(wanted: Any, name: str) -> Check:
    def check(value: Any) -> None:
        if not is_same(value, wanted):
            _refuse(f"{name}: expected {wanted!r}, got {_shown(value)}")

    return check


def _shown(value: Any) -> str:
    """A constant, or of other things their type."""
    try:
        constant(value)
    except NotData:
        return _type_name(value)
    return repr(value)


def _length_check(container: type, length: int, name: str) -> Check:
    def check(value: Any) -> None:
        if not (isinstance(value, Sized) and type(value) is container):
            _refuse(f"{name}: expected a {container.__name__} of {length}, got {_type_name(value)}")
        if (given := len(value)) != length:
            _refuse(f"{name}: expected {length} items, got {given}")

    return check


def _keys_check(keys: list[Any], name: str) -> Check:
    def check(value: Any) -> None:
        if type(value) is not dict:
            _refuse(f"{name}: expected a dict with the keys {keys}, got {_type_name(value)}")
        if list(value) != keys:
            _refuse(f"{name}: expected the keys {keys}, got {list(value)}")

    return check


def _object_check(kind: str, how: str, keys: list[Any], name: str) -> Check:
    known, short = imported(kind), kind.partition(":")[2]

    def check(value: Any) -> None:
        fits = type(value) is known if known is not None else type(value).__qualname__ == short
        if not fits or object_kind(value) != how or list(parts_of(value, how)) != keys:
            _refuse(f"{name}: expected a {short} with {keys}, got {_type_name(value)}")

    return check
