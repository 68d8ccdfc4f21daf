"""FakeMode: the owner of the fakes of one trace; as a with-block it also makes factory functions give fakes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

import torch

from .. import _torch
from .._torch import OpOverload
from ..spec import TensorSpec
from ..symbols.expr import Size, Symbol
from ..symbols.table import SymbolTable
from . import dispatch, products
from .convert import Converter
from .memo import memo_of
from .storage import FakeStorage
from .tensor import FakeTensor, make_fake


class FakeMode(_torch.TorchDispatchMode):
    """Fakes that belong together: one memo of real tensors, one table of symbols, one recorder.

    `recorder` is None or is called as `recorder(func, args, kwargs, out)` after every ATen op executed on fakes.
    `allow_unbacked` lets ops whose result sizes depend on data make new symbols instead of raising DataDependentError;
    `unbacked_numbers`, when sizes may, lets `item()` make them, too.
    """

    def __init__(self, table: SymbolTable | None = None, allow_unbacked: bool = False, unbacked_numbers: bool = True) -> None:
        super().__init__()
        self.table: Any = table  # None where all sizes are numbers; who meets a symbol knows that there is one
        self.memo = memo_of(table)
        self.allow_unbacked = allow_unbacked and table is not None
        self.allow_unbacked_numbers = self.allow_unbacked and unbacked_numbers
        self.reads = 0  # how many operators were asked for a size or number that depends on data
        # the number of elements that are not zero in a mask, by its storage, the version of that, and its spec
        self.counts: dict[tuple[int, int, TensorSpec], Symbol] = {}
        self.recorder: Callable[..., None] | None = None
        self._converter = Converter(self)
        self._products: list[products.Products] = []

    def __enter__(self) -> FakeMode:
        if self.table is not None and products.needed():
            self._products.append(products.Products())
            self._products[-1].__enter__()
        return super().__enter__()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        super().__exit__(kind, error, trace)
        if self._products:
            self._products.pop().__exit__(kind, error, trace)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Keeps torch from wrapping our handler with its own compiler's decorator, which would import that compiler."""
        return False

    def __torch_dispatch__(
        self, func: OpOverload, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        for cls in types:
            if cls is not FakeTensor:  # a wrapper around fakes: its own __torch_dispatch__ says which operators run on them
                return NotImplemented
        return self.dispatch(func, args, kwargs or {})

    def dispatch(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Execute one ATen op on fakes."""
        return (dispatch.PLANS.get(func) or dispatch.plan_for(func))(self, func, args, kwargs)

    def forget_reals(self) -> None:
        """The trace is over: real tensors are referred to no more, not even weakly, which torch.utils.swap_tensors refuses."""
        self._converter.forget()

    def from_real(
        self, tensor: torch.Tensor, sizes: Sequence[Size] | None = None, strides: Sequence[Size] | None = None
    ) -> FakeTensor:
        """The fake of a real tensor, the same one each time; `sizes` and `strides` replace the real ones when given."""
        return self._converter.fake_of(tensor, sizes, strides)

    def make(self, spec: TensorSpec, storage: FakeStorage | None = None, requires_grad: bool = False) -> FakeTensor:
        """A fake from nothing but its spec; with its own storage unless one is given."""
        return make_fake(self, spec, storage or FakeStorage(), requires_grad)
