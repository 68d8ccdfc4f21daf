"""Numbers that are not known while tracing. A file knows those of lines above its own:

- number: what they have in common; numbers that a node of the graph gives
- float_formulas, size_formulas: what Python computes of the numbers that the program was given, and of sizes
- symint: ints, expressions over sizes
- floats, size_floats: floats that change, that are read from tensors, that are computed from sizes
- drawn, deferred: numbers of generators; what Python makes when the graph has run
- numpy_ints, unspecialised_fraction
"""

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
