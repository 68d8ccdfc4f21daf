"""ATEN_META: ATen overload -> rule over specs with eager's exact sizes, strides and dtype, for the ops that programs run most.

It makes an op on fakes cheap and keeps symbols alive; an overload without a row goes to its decomposition or torch's meta kernel.
"""

from . import attention, conv, creation, fft, indexing, matmul, pointwise, reduction, view, window  # noqa: F401  (fill the table)
from .rows import ATEN_META, overload, row

__all__ = ["ATEN_META", "overload", "row"]
