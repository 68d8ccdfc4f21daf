"""torch.func.functional_call: a module called with other parameters and buffers, which its values see while the call is traced."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from ..plain.mapping import DictValue
from ..plain.sequence import TupleValue
from ..protocol.calls import call
from ..protocol.constant import force_plain
from ..protocol.kinds import AbstractModule, AbstractTensor
from ..protocol.value import Frame, Value, is_none
from .module import ModuleValue, walk

NAMES = ("module", "parameter_and_buffer_dicts", "args", "kwargs")


@call(torch.func.functional_call)
def functional_call_row(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """torch.func.functional_call(module, dicts, args, kwargs, tie_weights=True, strict=False)"""
    given: dict[str, Any] = dict(zip(NAMES, args)) | kwargs
    module, dicts = given["module"], given["parameter_and_buffer_dicts"]
    if not isinstance(module, ModuleValue) or set(given) - {*NAMES, "tie_weights", "strict"}:
        return frame.break_graph("call_unknown", "functional_call")
    dicts = [dicts] if isinstance(dicts, DictValue) else dicts.unpack(frame)
    new = [(force_plain(frame, k), v) for d in dicts for k, v in d.all_items(frame)]
    if len(dict(new)) != len(new) or not all(isinstance(v, AbstractTensor) for _, v in new):
        return frame.break_graph("call_unknown", "functional_call with a name twice, or with something that is no tensor")
    tie = "tie_weights" not in given or force_plain(frame, given["tie_weights"])
    places = entries_for(frame, module, dict(new), tie)
    strict = "strict" in given and force_plain(frame, given["strict"])
    if strict and any(t is not None and (owner, name) not in places for _, owner, name, t in entries_of(frame, module)):
        return frame.break_graph("call_unknown", "functional_call, strict, with less than all parameters and buffers")
    with replaced(frame, places):
        return module.call(frame, positional(frame, given.get("args")), keywords(frame, given.get("kwargs")))


def positional(frame: Frame, value: Value | None) -> list[Value]:
    if value is None or is_none(value):
        return []
    return value.unpack(frame) if isinstance(value, TupleValue) else [value]


def keywords(frame: Frame, value: Any) -> dict[Any, Any]:
    return {} if is_none(value) else {force_plain(frame, k): v for k, v in value.all_items(frame)}


def entries_for(
    frame: Frame, module: AbstractModule, new: dict[str, AbstractTensor], tie: bool
) -> dict[tuple[ModuleValue, str], Value]:
    """{(module value, name): tensor value} for every entry that the call sees changed; with `tie`, all names of one tensor."""
    found: dict[tuple[ModuleValue, str], Value] = {}
    tied: dict[int, Value] = {}
    entries = list(entries_of(frame, module))
    if any(isinstance(owner.obj, torch.nn.RNNBase) for _, owner, _, _ in entries):
        return frame.break_graph("call_unknown", "functional_call of an RNN, which keeps its weights in a list, too")
    for path, owner, name, tensor in entries:
        value = new.pop(path, None)
        if value is not None:
            found[owner, name] = value
            tied.setdefault(id(tensor), value)
    if new:
        return frame.break_graph("call_unknown", f"functional_call: the module has no {next(iter(new))}")
    for _, owner, name, tensor in entries if tie else ():
        if tensor is not None and id(tensor) in tied:
            found.setdefault((owner, name), tied[id(tensor)])
    return found


def entries_of(frame: Frame, module: AbstractModule) -> Iterator[tuple[str, Any, str, Any]]:
    """(path, module value, name, tensor or None) of every entry for parameters and buffers."""
    for prefix, owner in walk(frame, module, "", True, set()):
        for table in ("_parameters", "_buffers"):
            for name, tensor in owner.obj.__dict__[table].items():
                yield f"{prefix}.{name}" if prefix else name, owner, name, tensor


@contextlib.contextmanager
def replaced(frame: Frame, places: dict[tuple[ModuleValue, str], Value]) -> Iterator[None]:
    """Entries as the call sees them; afterwards as they were. Modules with such entries take no assignments to them."""
    before = {key: key[0].seen_entries.get(key[1]) for key in places}
    for (owner, name), value in places.items():
        owner.seen_entries[name] = value
        owner.replaced += 1
    yield
    for (owner, name), entry in before.items():
        owner.seen_entries.pop(name)
        owner.replaced -= 1
        if entry is not None:
            owner.seen_entries[name] = entry
