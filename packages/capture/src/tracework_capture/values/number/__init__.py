"""Numbers that are not known while tracing."""

from . import (  # noqa: F401
    drawn,
    float_formulas,
    floats,
    late_values,
    numpy_arithmetic,
    numpy_ints,
    open_fraction,
    size_floats,
    size_formulas,
    symint,
)
