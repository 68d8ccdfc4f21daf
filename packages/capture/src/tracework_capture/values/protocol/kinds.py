"""What storeys ask of values whose classes stand above them: one abstract class a kind, which the class there derives from."""

from __future__ import annotations

from .value import Value


class AbstractTensor(Value):
    """A tensor of a graph (torch/tensor.py TensorValue)."""


class AbstractArray(Value):
    """An array or a number of NumPy, as a tensor of a graph (arrays/array.py ArrayValue)."""


class AbstractInstance(Value):
    """An instance of a class of the program (objects/instance.py ObjectValue)."""


class AbstractModule(AbstractInstance):
    """A module of torch.nn (torch/module.py ModuleValue)."""


class AbstractFunction(Value):
    """A Python function (objects/function.py FunctionValue and NewFunctionValue)."""


class AbstractClass(Value):
    """A class (objects/class_value.py ClassValue)."""


class AbstractException(Value):
    """An exception (objects/exception.py ExceptionValue)."""
