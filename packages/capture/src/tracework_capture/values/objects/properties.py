"""Properties of the program's classes: the functions in them are traced; what they refuse is refused in their own words."""

from __future__ import annotations

from ..protocol.constant import raise_python

_FUNCTIONS = {"__get__": "fget", "__set__": "fset", "__delete__": "fdel"}


def is_property(static, operation):
    """Whether a class attribute is a property, or of a class derived from it that leaves the operation as it is."""
    return isinstance(static, property) and getattr(type(static), operation) is getattr(property, operation)


def use_property(frame, static, operation, self, cls, *args):
    """Reads, writes or deletes an attribute of a value of the class `cls` through the property."""
    from ..protocol.binding import function_value, held_function

    function = held_function(frame, static, _FUNCTIONS[operation])
    if function is not None:
        return function_value(frame, function).call(frame, [self, *args], {})
    namesake = type(cls.__name__, (), {"__qualname__": cls.__qualname__})()  # all that the message says of the object
    try:
        return getattr(property, operation)(static, namesake, *[None] * len(args))
    except AttributeError as error:
        return raise_python(frame, error)
