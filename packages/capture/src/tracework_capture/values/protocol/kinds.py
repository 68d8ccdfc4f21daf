"""What storeys ask of values whose classes stand above them: one abstract class a kind, which the class there derives from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeGuard

from .value import Frame, Value

if TYPE_CHECKING:
    import numpy
    import torch
    from torch import fx

    from .value import Frame


class AbstractTensor(Value):
    """A tensor of a graph (torch/tensor.py TensorValue)."""

    is_chosen_by_data = True

    node: Any
    """Its fx.Node; None when that became part of an inner graph."""
    example: Any
    """Its FakeTensor."""
    obj: torch.Tensor | None
    """The real tensor, when it existed before the graph."""
    attributes: dict[str, Value]
    """What the program has set on it."""
    may_be_freed: Any = False
    """False, or the values of the graph by their fakes, once a backward was run."""
    of_inference = False
    """Whether this graph makes it as an inference tensor."""
    hooks: tuple[Any, ...] = ()
    """Registered on it in this frame, to take effect after the graph."""
    retains_grad = False
    keeps_leaf = False
    """A leaf whose data is another node now."""
    is_another_kind = False
    """It requires a gradient, and its data became another kind of tensor."""
    metadata_mutated = False
    """Turned by t_ or its like: no view, where its example is one."""
    versions: list[Any]
    """Fakes of what its data became."""
    requiring_grad: tuple[fx.Node, Any] | None = None
    """Its node and fake that ask for a gradient, while it does not."""
    is_chosen = False
    """Whether data decides which other tensor it is the same object as (graph/replaced.py)."""
    stored_back = False
    """Whether it is read by `x[i] += y` of an i out of data (torch/indices.py)."""
    overrides_torch_function: bool
    """Whether its class has a __torch_function__ of its own."""
    is_plain = True
    """Whether it is neither of a traced subclass nor a parameter that the program made."""

    def is_leaf(self) -> bool:
        """What is_leaf of the tensor says, apart from guards."""
        raise NotImplementedError

    def log_attribute(self, frame: Frame, name: str, value: Value) -> None:
        """An attribute that is set when the graph has run."""
        raise NotImplementedError


def is_plain_tensor(value: Value | None) -> TypeGuard[AbstractTensor]:
    """Whether it is a tensor, neither of a traced subclass nor a parameter that the program made."""
    return isinstance(value, AbstractTensor) and value.is_plain


def tensor_value(value: Value) -> AbstractTensor:
    """What an operation of the graph gave that makes one tensor of any tensors."""
    assert isinstance(value, AbstractTensor), value
    return value


class AbstractArray(Value):
    """An array or a number of NumPy, as a tensor of a graph (arrays/array.py ArrayValue)."""

    scalar: bool
    """Whether it is a number of NumPy."""
    memory: AbstractTensor
    """A tensor over its memory."""
    flips: frozenset[int]
    """Dims that run backwards in it."""
    writeable: bool

    @property
    def tensor(self) -> AbstractTensor:
        """What it holds, as a tensor."""
        raise NotImplementedError

    @property
    def example(self) -> Any:
        """The FakeTensor of that."""
        raise NotImplementedError

    @property
    def dtype(self) -> numpy.dtype[Any]:
        """NumPy's."""
        raise NotImplementedError

    is_plain = True
    """Whether it holds its memory in its own order, and may be written to."""

    def shared(self, frame: Frame) -> AbstractTensor:
        """The tensor over its memory, as torch makes one of it."""
        raise NotImplementedError

    def copied(self, frame: Frame) -> AbstractArray:
        """A copy in C order."""
        raise NotImplementedError

    def strides(self) -> tuple[Any, ...]:
        """In elements; NumPy gives 0 to what it makes without elements, and slices and transposes keep that."""
        raise NotImplementedError


class AbstractFloat(Value):
    """A float that changes from call to call (number/floats.py FloatValue)."""

    known: bool
    """Whether the entry holds for this number only."""


class AbstractSequence(Value):
    """A list, tuple or deque (plain/sequence.py SequenceValue)."""

    items: list[Any]
    """Its items; those that nobody has read yet are no values."""

    def item(self, frame: Frame, index: int) -> Value:
        """The item at a plain, valid index."""
        raise NotImplementedError

    def all_items(self, frame: Frame) -> list[Value]:
        """All items as values."""
        raise NotImplementedError


class AbstractTuple(AbstractSequence):
    """A tuple (plain/sequence.py TupleValue)."""


class AbstractCell(Value):
    """A closure cell (objects/function.py CellValue)."""

    _contents: Value | None
    """What is in it, once it was read."""


class AbstractInstance(Value):
    """An instance of a class of the program (objects/instance.py ObjectValue)."""

    def field(self, frame: Frame, name: str) -> Value | None:
        """What the instance dict holds, past what the class says; None where it has no such name."""
        raise NotImplementedError

    def set_field(self, frame: Frame, name: str, value: Value) -> None:
        """Writes to the instance dict, past what the class says."""
        raise NotImplementedError

    def call_native(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """A method that C defines: on the built-in part, or object's own."""
        raise NotImplementedError

    def required(self, frame: Frame, name: str, args: list[Value], text: str) -> Value:
        """What a special method of its class gives; a TypeError that ends in the text where the class has none."""
        raise NotImplementedError

    def special(self, frame: Frame, name: str, args: list[Value]) -> Value | None:
        """What a special method of its class gives; None where the class has none."""
        raise NotImplementedError


class AbstractModule(AbstractInstance):
    """A module of torch.nn (torch/module.py ModuleValue)."""

    cls: type
    obj: torch.nn.Module
    seen_entries: dict[str, Value]
    """Parameters and buffers that a functional call puts in the places of the module's own."""
    replaced: int
    """How many of them."""

    def existing(self, frame: Frame, table: str) -> dict[str, Any]:
        """The object's own dict of a table; breaks the graph where Module.__init__ has not run yet."""
        raise NotImplementedError


class AbstractFunction(Value):
    """A Python function (objects/function.py FunctionValue and NewFunctionValue)."""


class AbstractClass(Value):
    """A class (objects/class_value.py ClassValue)."""

    cls: type
    """The class itself; of one that the traced program makes its template."""

    def of_type(self, frame: Frame, descriptor: Any, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """type.name(cls, ...): past what the class itself and its metaclass have under the name."""
        raise NotImplementedError


class AbstractException(Value):
    """An exception (objects/exception.py ExceptionValue)."""

    fields: dict[str, Value]
    """What the program stored in it."""

    def call_native(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """A method that BaseException and its built-in subclasses define."""
        raise NotImplementedError


def holds_own_instance(key: Value) -> bool:
    """Whether it is an instance of an own class, of a number or text, say, or a tuple that has one: what keeps it keeps its class."""
    return isinstance(key, AbstractInstance) or isinstance(key, AbstractTuple) and any(map(holds_own_instance, key.items))
