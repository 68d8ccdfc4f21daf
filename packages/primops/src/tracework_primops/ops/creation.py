"""Tensors from nothing; device and dtype are always given."""

from ..op import Kind, declarer

op = declarer("creation", Kind.CREATION)

op("iota(n, start, step, dtype, device)", "start + i*step for i < n")
op("full(sizes, value, dtype, device)", "every element is the Python number `value`")
op("empty(sizes, dtype, device)", "contents are not defined")
op("empty_strided(sizes, strides, dtype, device)", "contents are not defined; this layout")
op("scalar_tensor(value, dtype, device)", "a 0-dim tensor holding a Python number or a Size")
op("linspace(start, end, steps, dtype, device)", "steps numbers from start to end inclusive, eager's rounding")
op("logspace(start, end, steps, base, dtype, device)", "base ** linspace", kind=Kind.LIBRARY)
op("eye(n, m, dtype, device)", "1 on the diagonal")
op("tril_indices(row, col, offset, dtype, device)", "coordinates of the lower triangle", kind=Kind.LIBRARY)
op("triu_indices(row, col, offset, dtype, device)", "coordinates of the upper triangle", kind=Kind.LIBRARY)
