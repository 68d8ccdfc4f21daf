"""NumPy's arrays and its functions, in a graph of tensors."""

from . import (  # noqa: F401
    arguments,
    array,
    attributes,
    breaks,
    code,
    functions,
    items,
    layouts,
    operands,
    own,
    places,
    products,
    random_numbers,
    reductions,
    shapes,
    spectra,
    table,
    tensors,
    ufuncs,
    views,
)
