"""What eager gives for an ATen overload where its decomposition does not say it: ATEN_META, REFUSALS and LAYOUTS.

ATEN_META has rules over specs, with eager's exact sizes, strides and dtype, of overloads that have no decomposition, or one that says less;
REFUSALS raise where eager does, and LAYOUTS lay results out as eager does, beside decompositions that are run on specs.
"""

from . import attention, conv, creation, fft, indexing, matmul, pointwise, reduction, view, window  # noqa: F401  (fill the tables)
from .rows import ATEN_META, LAYOUTS, REFUSALS, overload, row

__all__ = ["ATEN_META", "LAYOUTS", "REFUSALS", "overload", "row"]
