"""NumPy's arrays in a graph: an ndarray is a tensor over the same memory, a number of NumPy that is not known is a tensor of no dims.

ARRAY_ATTRIBUTES and ARRAY_METHODS hold what arrays can do; what is not there breaks the graph. Arrays that torch cannot share memory
with (other dtypes and byte orders) are left to NumPy. Warnings of floating-point errors that
NumPy gives are not given.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable

import torch

from ... import _C
from ...arrays import DTYPES, array_errors, array_number, backwards, numpy, tensor_of_array
from ...graph.known import Known
from ...signals import let_through
from ...sources import ArrayTensor
from ..number.floats import FloatValue
from ..number.late_values import OF_KIND
from ..number.symint import SymNumber
from ..objects.existing import wrap_object
from ..plain.ranges import SliceValue
from ..plain.sequence import SequenceValue, TupleValue
from ..protocol.calls import calls
from ..protocol.constant import ConstantValue, NotPlain, force_plain, literal, plain
from ..protocol.kinds import AbstractArray
from ..protocol.make import make
from ..protocol.value import EXISTING, NEW, Value
from ..protocol.wraps import wraps
from ..torch.tensor import TensorValue, existing_tensor, size_value
from ..torch.tensor_attributes import numel, shape
from ..torch.texts_of_data import late_text, may_be_written_late

NUMPY_DTYPES = {of_torch: of_numpy for of_numpy, of_torch in DTYPES.items()}
LARGEST_CONSTANT = 1 << 20
"""Bytes of an array that is computed while tracing and kept with the graph."""
KNOWN = 16
"""Numbers of an array whose data stays known while tracing."""


def refuse(frame, what):
    """A graph break."""
    return frame.break_graph("numpy_array", what)


def watch_errors(frame):
    """Guards that floating-point errors do not raise."""
    frame.root.guards.state("numpy_errors", array_errors())
    if array_errors():
        refuse(frame, "floating-point errors raise, or call something (numpy.seterr)")


OF_DTYPE_KIND = {"f": OF_KIND[float], "b": OF_KIND[bool], "i": (-1, 0, 1), "u": (0, 1)}
"""Kind of NumPy's dtypes -> numbers that a format takes where it takes any."""


def takes_format(kind: Callable[[float], object], numbers: Iterable[float], spec: str) -> bool:
    """Whether numbers of this class can be written so."""
    try:
        return bool(numbers) and all(type(format(kind(number), spec)) is str for number in numbers)
    except Exception as error:
        let_through(error)
        return False


class ArrayValue(AbstractArray):
    """An array, or a number of NumPy; `memory` is a tensor over its memory. `base` is the array that it is a view of, None where it
    owns its memory, or IN_A_TENSOR; it is not known of an array with a source."""

    def __init__(self, tensor, scalar=False, source=None, base=None):
        super().__init__(source)
        self.memory = tensor
        self.scalar = scalar
        self.base = base
        self.mutability = NEW if source is None else EXISTING

    flips: frozenset[int] = frozenset()
    """Dims that run backwards (numpy_views.py)."""
    writeable = True

    @property
    def tensor(self):
        """What it holds, as a tensor."""
        return self.memory

    @property
    def example(self):
        return self.memory.example

    def shared(self, frame):
        """The tensor over its memory, as torch makes one of it."""
        return self.tensor

    def copied(self, frame):
        """A copy in C order."""
        made = frame.graph.call(frame, torch.clone, (self.tensor,), {"memory_format": torch.contiguous_format})
        return ArrayValue(made, self.scalar)

    def strides(self):
        """In elements; NumPy gives 0 to what it makes without elements, and slices and transposes keep that."""
        made = self.example.storage.first
        if made is not None and 0 in made.sizes and len(made.sizes) == self.example.ndim:
            return (0,) * self.example.ndim
        return tuple(-s if dim in self.flips else s for dim, s in enumerate(self.example.stride()))

    def write(self, frame, source):
        """Writes a tensor to it."""
        frame.graph.call_method(frame, "copy_", (self.tensor, source))

    @property
    def dtype(self):
        """NumPy's dtype."""
        return NUMPY_DTYPES[self.example.dtype]

    def python_type(self):
        return self.dtype.type if self.scalar else numpy.ndarray

    def describe(self):
        shape = "x".join(map(str, self.example.shape))
        return f"NumPy {'number' if self.scalar else 'array'} {self.dtype} [{shape}]"

    def same_object(self, other):
        return self is other

    def hash_key(self, frame):
        if self.scalar:
            return refuse(frame, "the hash of a number that is not known")
        return frame.raise_new(TypeError, "unhashable type: 'numpy.ndarray'")

    def truth(self, frame):
        return self.tensor.truth(frame)

    def as_graph_arg(self, frame):
        return refuse(frame, f"a {self.describe()} as an argument of a function of torch")

    def reload(self, emit):
        return f"{emit.const(array_number)}({emit.load(self.tensor)})" if self.scalar else self.over_memory(emit)

    def over_memory(self, emit):
        """Expression of a new array over `memory`, with the base that NumPy gives it."""
        text = f"{emit.load(self.memory)}.numpy()"
        if self.base is None:
            return f"{emit.const(_C.own_memory)}({text})"
        return text if self.base is IN_A_TENSOR else f"{emit.const(_C.set_base)}({text}, {emit.load(self.holder())})"

    def holder(self):
        """What it is a view of, if it is one, or else itself: NumPy has no views of views."""
        return self.base.holder() if isinstance(self.base, ArrayValue) else self

    def as_operand(self, frame, tensors, op=None):
        """What stands for a number in arithmetic of these tensors with it: it does not change their dtype, as any number."""
        if self.scalar and all(t.example.dtype.is_floating_point and t.example.ndim for t in tensors):
            if self.example.dtype in (torch.float32, torch.float64):
                return self.tensor
        return refuse(frame, f"arithmetic of a tensor and a {self.describe()}")

    # --- texts ---------------------------------------------------------------------------------------------------
    def late_truth(self, frame):
        return None if self.example.ndim else self.tensor.late_truth(frame)

    def data_text(self, frame, fn, *rest):
        if type(self) is not ArrayValue or not may_be_written_late(frame):
            return None
        kept = self.copied(frame)
        return late_text(frame, lambda emit: emit.load(kept), fn, rest)

    def own_format(self, frame, spec):
        if type(self) is not ArrayValue or not self.scalar:
            return None
        takes = takes_format(self.dtype.type, OF_DTYPE_KIND.get(self.dtype.kind, ()), spec)
        return self.data_text(frame, format, spec) if takes else None

    def conversion_operand(self, frame, kind):
        return self.data_text(frame, str) or self if kind == "s" else self

    # --- what arrays do ------------------------------------------------------------------------------------------
    def getattr(self, frame, name):
        from ..protocol.binding import BoundBuiltin

        row = ARRAY_ATTRIBUTES.get(name)
        if row is not None:
            return row(frame, self)
        if callable(getattr(self.python_type(), name, None)):
            return BoundBuiltin(self, name)
        return frame.break_graph("attribute_unknown", f"{name} of a {self.describe()}")

    def setattr(self, frame, name, value):
        if name == "shape" and self.mutability is NEW and type(self) is ArrayValue and self.example.is_contiguous():
            from .table import sizes_of

            self.memory = frame.graph.call(frame, torch.reshape, (self.tensor, sizes_of(frame, value)))
            return
        frame.break_graph("side_effect_unknown", f"assignment to {name} of a {self.describe()}")

    def call_method(self, frame, name, args, kwargs):
        if name == "item" and len(args) == 1 and not kwargs and not isinstance(args[0], SequenceValue):
            return flat(self).getitem(frame, args[0]).tensor.call_method(frame, name, [], {})
        if name in NUMBER_METHODS:
            return self.tensor.call_method(frame, name, args, kwargs)
        row = ARRAY_METHODS.get(name)
        if row is None:
            return refuse(frame, f"{name}() of a {self.describe()}")
        return row(frame, [self, *args], kwargs)

    def length(self, frame):
        if self.example.ndim == 0:
            return frame.raise_new(TypeError, "len() of unsized object")
        return size_value(frame, self.example.shape[0])

    def unpack(self, frame):
        if self.example.ndim == 0:
            return refuse(frame, "iteration over an array of no dims")
        return [self.getitem(frame, ConstantValue(i)) for i in range(force_plain(frame, self.length(frame)))]

    def is_fixed(self):
        return False

    def iterate(self, frame):
        from ..plain.iterators import SequenceIterator

        return SequenceIterator(self.unpack(frame))

    def contains(self, frame, item):
        return refuse(frame, "membership in an array")

    def getitem(self, frame, key):
        from .views import item

        return item(frame, self, key)

    def setitem(self, frame, key, value):
        from .views import is_special_place, set_item

        if self.scalar or not self.writeable:
            return refuse(frame, "an item of a number, or of an array that is read-only, is set")
        keys = index(frame, self, key)
        if any(isinstance(k, TensorValue) and k.example.dtype is not torch.bool for k in keys):
            return refuse(frame, "items set by an array of indices, of which the last one counts")
        source = self.to_store(frame, value)
        if is_special_place(frame, self, key):
            set_item(frame, self, key, source)
        else:
            frame.graph.call(frame, operator.setitem, (self.tensor, keys, source))

    def to_store(self, frame, value):
        """A tensor of what is written to some of it."""
        from .ufuncs import prepared

        source = as_operand(frame, value)
        if isinstance(source, ArrayValue):
            source = cast(frame, source.tensor, self.dtype)
            if source.example.storage is self.example.storage:
                source = frame.graph.call_method(frame, "clone", (source,))
            return source
        if self.dtype.kind in "iu" and isinstance(source, (float, FloatValue)):
            return refuse(frame, "a float written into an array of integers")
        return prepared(frame, source, self.dtype)

    def binary(self, frame, op, other, reverse=False):
        from .ufuncs import BINARY, apply

        if isinstance(other, TensorValue):
            return self.as_operand(frame, [other]) and refuse(frame, f"arithmetic of a {self.describe()} and a tensor")
        in_place = op.endswith("=")
        if op == "@=":
            return refuse(frame, "matrix multiplication in place")
        if self.scalar and isinstance(other, SequenceValue):
            return refuse(frame, "a number of NumPy and a sequence")
        if as_operand(frame, other, refusing=False) is None:
            return refuse(frame, f"arithmetic with a {other.describe()}")
        pair = [other, self] if reverse else [self, other]
        if op.startswith("**") and isinstance(pair[0], ArrayValue) and pair[0].dtype.kind == "b":
            return refuse(frame, "powers of booleans, whose dtype depends on the exponent")
        return apply(frame, BINARY[op.rstrip("=")], pair, out=self if in_place and not self.scalar else None)

    def compare(self, frame, op, other):
        from .ufuncs import COMPARE, apply

        if as_operand(frame, other, refusing=False) is None:
            return refuse(frame, f"comparison with a {other.describe()}")
        return apply(frame, COMPARE[op], [self, other])

    def unary(self, frame, op):
        from .ufuncs import UNARY, apply

        return apply(frame, UNARY[op], [self])


IN_A_TENSOR = object()
"""The base of an array that a tensor gave: NumPy sees a tensor of its own there."""
NUMBER_METHODS = frozenset("item tolist __bool__ __int__ __float__ __index__ __complex__".split())
"""Methods that give Python's numbers, as a tensor's do."""


# --- making arrays -------------------------------------------------------------------------------------------------------


@wraps(numpy.ndarray)
def wrap_array(frame, obj, source):
    """An array of the user's program: an input of the graph that shares its memory."""
    from .views import SpecialView

    frame.guard("TYPE", source, type(obj))
    flips, writeable = backwards(obj), obj.flags.writeable
    tensor = tensor_of_array(obj, flips, writeable)
    if tensor is None or any(obj.shape[dim] == 1 for dim in flips):  # of one item both directions are in order
        return wrap_object(frame, obj, source)
    frame.root.keep.append(tensor)
    memory = existing_tensor(frame, tensor, ArrayTensor(source, flips, writeable))
    special = flips or not writeable
    return SpecialView(frame, memory, flips, writeable, None, source) if special else ArrayValue(memory, source=source)


def constant_array(frame, array):
    """A new array with data that is known now."""
    from .views import held_sizes, inside_of

    if not isinstance(array, numpy.ndarray) or array.dtype not in DTYPES or array.nbytes > LARGEST_CONSTANT:
        return refuse(frame, "an array that NumPy makes")
    real = torch.from_numpy(array.copy(order="K"))
    node = frame.graph.tensor_constant(real)
    frame.root.keep.append(real)
    made = frame.graph.call_method(frame, "clone", (TensorValue(node, node.meta["example_value"]),))
    if real.numel() <= KNOWN and real.ndim <= 1:
        made.node.meta["known"] = Known(real, made.example.storage.version)
    sizes = held_sizes(array)
    return ArrayValue(made) if sizes is None else inside_of(frame, ArrayValue(made), sizes)


def array_from_tensor(frame, tensor):
    """tensor.numpy(): an array over its memory. Writes to it are not counted by the tensor."""
    example = tensor.example
    turned = example.is_conj() or example.is_neg()
    if example.device.type != "cpu" or example.dtype not in NUMPY_DTYPES or example.requires_grad or turned:
        return frame.break_graph("tensor_to_numpy", f"numpy() of a {tensor.describe()}")
    return ArrayValue(frame.graph.call(frame, getattr, (tensor, "data")), base=IN_A_TENSOR)


def across(frame, args, kwargs):
    """What wrap_numpy does with its arguments and results: nothing, but for what they are called."""
    value = args[0]
    if isinstance(value, ArrayValue):
        return value.shared(frame)
    if not isinstance(value, TensorValue) or value.example.dtype not in NUMPY_DTYPES:
        return frame.break_graph("tensor_to_numpy", f"wrap_numpy of a function with a {value.describe()}")
    return ArrayValue(value, base=IN_A_TENSOR)


ACROSS_ROWS = {
    "tracework_capture.array_functions.across": across,
}
calls(ACROSS_ROWS)


def as_operand(frame, value, refusing=True):
    """The array, the Python or NumPy number, or the array made of a list of numbers, that a function of NumPy works on; None else."""
    if isinstance(value, (ArrayValue, SymNumber)) or is_open_float(value):
        return value
    if is_open_number(value):
        return ArrayValue(value.as_array_tensor(frame), scalar=True)
    try:
        known = plain(value)
    except NotPlain:
        known = None
    if isinstance(known, (bool, int, float, complex, numpy.generic)):
        return known
    if isinstance(known, (list, tuple)):
        return constant_array(frame, numpy.array(known))
    if isinstance(value, SequenceValue):
        from .shapes import stacked

        return stacked(frame, value)
    return refuse(frame, f"a function of NumPy with a {value.describe()}") if refusing else None


def is_open_float(value):
    """Whether it is a float of Python's that changes from call to call, or that is drawn."""
    return isinstance(value, FloatValue) and not value.known and value.python_type() is float


def is_open_number(value):
    """Whether it is a number of NumPy's that changes from call to call, of a dtype that tensors have."""
    is_number = issubclass(value.python_type(), numpy.generic) and numpy.dtype(value.python_type()) in DTYPES
    return is_number and hasattr(value, "as_array_tensor") and not value.is_constant()


def as_array(frame, value):
    """as_operand, numbers as arrays of no dims."""
    found = as_operand(frame, value)
    if is_open_float(found):
        return ArrayValue(found.as_tensor(frame))
    if isinstance(found, SymNumber):
        found = force_plain(frame, found)
    return found if isinstance(found, ArrayValue) else constant_array(frame, numpy.asarray(found))


def cast(frame, tensor, dtype):
    """The tensor in a dtype of NumPy."""
    wanted = DTYPES.get(dtype)
    if wanted is None:
        return refuse(frame, f"numbers of dtype {dtype}")
    return tensor if tensor.example.dtype is wanted else frame.graph.call_method(frame, "to", (tensor, wanted))


def dtype_of(frame, value):
    """The dtype that an argument names; None when it was not given."""
    if value is None:
        return None
    known = force_plain(frame, value) if isinstance(value, Value) else value
    try:
        return None if known is None else numpy.dtype(known)
    except TypeError as error:
        return frame.raise_new(TypeError, *error.args)


# --- items ---------------------------------------------------------------------------------------------------------------


def index(frame, array, key):
    """The key of an array as a tuple of parts that mean the same for a tensor."""
    parts = key.all_items(frame) if isinstance(key, TupleValue) else [key]
    keys = tuple(index_part(frame, part) for part in parts)
    advanced = [i for i, k in enumerate(keys) if isinstance(k, (TensorValue, SymNumber, int))]
    arrays = any(isinstance(k, TensorValue) for k in keys)
    if arrays and not all(isinstance(keys[i], TensorValue) for i in advanced):
        if advanced[-1] - advanced[0] + 1 != len(advanced):
            return refuse(frame, "integers and arrays as indices with a slice between them")
    return keys


def index_part(frame, part):
    """None, an int, a slice, an ellipsis, or a tensor of indices or of booleans."""
    if isinstance(part, SliceValue):
        return part
    if isinstance(part, SymNumber):
        return part
    if isinstance(part, ArrayValue) or isinstance(part, SequenceValue):
        found = as_array(frame, part).tensor
        if found.example.dtype is torch.bool:
            return found if found.example.ndim else refuse(frame, "a single boolean as an index")
        if found.example.dtype.is_floating_point or found.example.numel() == 0:
            return refuse(frame, "indices that are no integers")
        return cast(frame, found, numpy.dtype("int64"))
    known = force_plain(frame, part)
    if known is None or known is Ellipsis:
        return known
    if isinstance(known, bool) or not hasattr(type(known), "__index__"):
        return refuse(frame, f"the index {known!r}")
    return int(known)


def is_element(keys, ndim):
    """Whether the key names one item, which NumPy gives as a number."""
    return len(keys) == ndim and all(isinstance(k, (int, SymNumber)) for k in keys)


# --- attributes and methods ------------------------------------------------------------------------------------------------


def transposed(frame, self):
    from .shapes import permuted

    return permuted(frame, self, reversed(range(self.example.ndim)))


def matrix_transposed(frame, self):
    from .shapes import permuted

    if self.example.ndim < 2:
        return refuse(frame, "mT of an array of less than two dims")
    dims = list(range(self.example.ndim))
    return permuted(frame, self, [*dims[:-2], dims[-1], dims[-2]])


def part(frame, self, which):
    """real and imag: views of complex arrays; real arrays are their own real part, and their imaginary one is read-only."""
    from .views import SpecialView, viewed

    if self.dtype.kind == "c":
        pairs = frame.graph.call(frame, torch.view_as_real, (self.memory,))
        found = frame.graph.call(frame, torch.select, (pairs, -1, which))
        return viewed(frame, self, found, range(self.example.ndim))
    if which == 0:
        return self
    from .attributes import in_fortran_order

    layout = torch.preserve_format if in_fortran_order(self) else torch.contiguous_format
    zeros = frame.graph.call(frame, torch.zeros_like, (self.tensor,), {"memory_format": layout})
    return ArrayValue(zeros, scalar=True) if self.scalar else SpecialView(frame, zeros, (), False, None)


def flags(self):
    from .attributes import Flags

    return Flags(self)


def flat(self):
    from .attributes import Flat

    return Flat(self)


def strides(frame, self):
    if self.example._is_view() and 1 in self.example.shape:
        return refuse(frame, "strides of a view with a dim of size 1, which is 0 for some")
    size = self.dtype.itemsize
    return TupleValue([size_value(frame, s * size) for s in self.strides()])


def base(frame, self):
    """Known of what the graph made."""
    holder = self.holder()
    if holder.source is not None or self.base is IN_A_TENSOR:
        return refuse(frame, f"the base of a {self.describe()}")
    return ConstantValue(None) if self.base is None else holder


def nbytes(frame, self):
    return self.tensor.getattr(frame, "nbytes")


ARRAY_ATTRIBUTES = {
    "shape": lambda frame, self: TupleValue(shape(frame, self, "shape").items),
    "ndim": lambda frame, self: ConstantValue(self.example.ndim),
    "size": lambda frame, self: numel(frame, self, "size", [], {}),
    "dtype": lambda frame, self: literal(frame, self.dtype),
    "itemsize": lambda frame, self: ConstantValue(self.dtype.itemsize),
    "nbytes": nbytes,
    "base": base,
    "strides": strides,
    "T": transposed,
    "mT": lambda frame, self: matrix_transposed(frame, self),
    "real": lambda frame, self: part(frame, self, 0),
    "imag": lambda frame, self: part(frame, self, 1),
    "flags": lambda frame, self: flags(self),
    "flat": lambda frame, self: flat(self),
    "__class__": lambda frame, self: literal(frame, self.python_type()),
}
ARRAY_METHODS = {}
"""Name of a method -> fn(frame, args, kwargs), the array being the first argument."""


make.provide(array=constant_array, array_of=array_from_tensor)
