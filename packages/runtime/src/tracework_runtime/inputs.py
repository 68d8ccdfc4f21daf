"""What a loaded artifact asks of its inputs: their number, and of each tensor dtype, device, sizes, strides, offset and alignment.

Symbols get their values from the inputs themselves, where they are first met; wherever they are met again, and in the artifact's
conditions, these values must fit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any

import torch

from tracework_runtime.artifact import Artifact, Extent, TensorCheck
from tracework_runtime.errors import ArtifactError, InputError
from tracework_runtime.results import difference

__all__ = ["InputCheck", "input_check"]

InputCheck = Callable[[Sequence[Any]], None]
Values = dict[str, int]
_NAMES: dict[str, Any] = {"__builtins__": {}, "min": min, "max": max}


def input_check(artifact: Artifact) -> InputCheck:
    """A function that raises InputError, naming the input, for inputs that the artifact was not compiled for."""
    tensors = [_Tensor(check) for check in artifact.checks]
    numbers = [(binding.name, binding.index) for binding in artifact.symbols if binding.kind == "value"]
    conditions = [(text, _code(text)) for text in artifact.conditions]
    names = artifact.inputs
    least = max((*(t.index for t in tensors), *(index for _, index in numbers)), default=-1) + 1

    def check(inputs: Sequence[Any]) -> None:
        if len(inputs) < least or names is not None and len(inputs) != len(names):
            raise _error(f"{least if names is None else len(names)} inputs expected, {len(inputs)} given")
        values: Values = {}
        for name, index in numbers:
            value = inputs[index]
            if type(value) is not int:
                raise _error(f"input {index}: a number (int) expected, {type(value).__name__} given")
            values[name] = value
        for tensor in tensors:
            tensor.check(inputs[tensor.index], values)
        given = {**{name: x for name, x in zip(names or (), inputs) if isinstance(x, int)}, **values}
        for text, code in conditions:
            _demand(text, code, given)

    return check


class _Tensor:
    """One TensorCheck, ready to be asked."""

    def __init__(self, facts: TensorCheck) -> None:
        self.index, self.facts = facts.index, facts
        self.dtype, self.device = getattr(torch, facts.dtype), torch.device(facts.device)
        self.sizes, self.strides = tuple(map(_extent, facts.sizes)), tuple(map(_extent, facts.strides))
        self.offset = _extent(facts.offset)

    def check(self, x: Any, values: Values) -> None:
        """Raises InputError for another tensor than was compiled for; learns symbols into `values`."""
        facts = self.facts
        if (found := difference(x, self.dtype, self.device)) is not None:
            raise self._differs(*found)
        if x.is_conj() or x.is_neg():
            raise self._differs(
                "memory", "its own values", "a view that is conjugated or negated when it is read; resolve_conj() it"
            )
        sizes = tuple(x.shape)
        if not _fit(self.sizes, sizes, values):
            raise self._differs("sizes", _shown(facts.sizes, values), sizes)
        # A stride over one element, or none, is never walked.
        walked = [d for d, size in enumerate(sizes) if size != 1] if x.numel() else []
        strides = x.stride()
        if not _fit([self.strides[d] for d in walked], [strides[d] for d in walked], values):
            raise self._differs("strides", _shown(facts.strides, values), strides)
        if not _fit([self.offset], [int(x.storage_offset())], values):
            raise self._differs("storage offset", _shown([facts.offset], values), x.storage_offset())
        if facts.alignment > 1 and x.data_ptr() % facts.alignment:
            raise self._differs("address", f"divisible by {facts.alignment}", hex(x.data_ptr()))

    def _differs(self, what: str, expected: object, got: object) -> InputError:
        return _error(f"input {self.index} ({self.facts.name}): {what}: expected {expected}, got {got}")


def _fit(expected: Sequence[int | CodeType], actual: Sequence[int], values: Values) -> bool:
    """Whether extents have their values; an extent that is a symbol not met before takes the value that is there."""
    if len(expected) != len(actual):
        return False
    for wanted, value in zip(expected, actual):
        if isinstance(wanted, int):
            if wanted != value:
                return False
        elif len(wanted.co_names) == 1 and wanted.co_names[0] == wanted.co_filename:
            if values.setdefault(wanted.co_filename, value) != value:
                return False
        elif all(name in values or name in _NAMES for name in wanted.co_names) and eval(wanted, _NAMES, values) != value:
            return False
    return True


def _extent(extent: Extent) -> int | CodeType:
    return extent if isinstance(extent, int) else _code(extent)


def _code(text: str) -> CodeType:
    try:
        return compile(text, text, "eval")  # the text is its name, which tells a lone symbol from an expression
    except (SyntaxError, ValueError) as error:
        raise ArtifactError(f"an artifact's size or condition is no expression: {text!r}") from error


def _demand(text: str, code: CodeType, values: Values) -> None:
    try:
        holds = eval(code, _NAMES, values)
    except NameError as error:
        raise _error(f"for {text} a number (int) is missing among the inputs: {error}") from error
    if not holds:
        known = ", ".join(f"{name} = {values[name]}" for name in code.co_names if name in values)
        raise _error(f"the graph was compiled for {text}, which does not hold where {known}")


def _shown(extents: Sequence[Extent], values: Values) -> str:
    known = {name: values[name] for text in extents if isinstance(text, str) for name in _code(text).co_names if name in values}
    where = " where " + ", ".join(f"{name} = {value}" for name, value in known.items()) if known else ""
    return f"({', '.join(map(str, extents))}){where}"


def _error(what: str) -> InputError:
    return InputError(
        what, advice="compile for these inputs, or load(artifact, check_inputs=False) if they are right all the same"
    )
