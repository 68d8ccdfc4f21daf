"""Numbers that are not known while tracing."""

from . import (  # noqa: F401
    deferred,
    drawn,
    float_formulas,
    floats,
    number,
    numpy_ints,
    size_floats,
    size_formulas,
    symint,
    unspecialised_fraction,
)
