"""ATen rows: views."""

from __future__ import annotations

from ..spec import TensorSpec
from ..symbols import active
from ..symbols.expr import Expr, Size, floordiv, maximum, minimum
from .rows import ATEN_META, contiguous, fresh, overload, row, slice_bounds, wrap_dim, wrap_index


def _view(spec: TensorSpec, sizes, strides, offset=None) -> TensorSpec:
    return TensorSpec(spec.dtype, spec.device, tuple(sizes), tuple(strides), spec.offset if offset is None else offset)


def _is(size: Size, value: int) -> bool:
    """size == value without asking about symbols that are known to be 2 or more."""
    return size == value if size.__class__ is int else active.equal(size, value)


def infer_sizes(spec_numel: Size, sizes) -> tuple[Size, ...]:
    """With -1 filled in. Raises RuntimeError when the number of elements does not fit."""
    sizes = tuple(sizes)
    known: Size = 1
    unknown = None
    for i, size in enumerate(sizes):
        if size.__class__ is int and size == -1:
            unknown = i
        else:
            known = size * known
    if unknown is None:
        if not active.equal(known, spec_numel):
            raise RuntimeError(f"shape '{list(sizes)}' is invalid for input of size {spec_numel}")
        return sizes
    if known.__class__ is int and known == 0:
        raise RuntimeError(
            f"cannot reshape tensor of 0 elements into shape {list(sizes)} because the unspecified dimension size -1 can be any value"
        )
    missing = floordiv(spec_numel, known)
    if not active.equal(missing * known, spec_numel):
        raise RuntimeError(f"shape '{list(sizes)}' is invalid for input of size {spec_numel}")
    return (*sizes[:unknown], missing, *sizes[unknown + 1 :])


def view_strides(sizes, strides, new_sizes) -> tuple[Size, ...] | None:
    """The strides that show the same elements in new sizes, or None when only a copy can."""
    if strides == contiguous(sizes):
        return contiguous(new_sizes)
    if any(s.__class__ is int and s == 0 for s in sizes):
        return strides if sizes == new_sizes else contiguous(new_sizes)
    result: list[Size] = [0] * len(new_sizes)
    place = len(new_sizes) - 1
    step = strides[-1] if strides else 1
    chunk: Size = 1
    done: Size = 1
    for dim in range(len(sizes) - 1, -1, -1):
        chunk = chunk * sizes[dim]
        if dim > 0 and (_is(sizes[dim - 1], 1) or active.equal(strides[dim - 1], chunk * step)):
            continue
        while place >= 0 and (not active.equal(done, chunk) or _is(new_sizes[place], 1)):
            if _exceeds(done * new_sizes[place], chunk):
                return None
            result[place] = done * step
            done = done * new_sizes[place]
            place -= 1
        if not active.equal(done, chunk):
            return None
        if dim > 0:
            step, chunk, done = strides[dim - 1], 1, 1
    return tuple(result) if place == -1 else None


def _exceeds(a: Size, b: Size) -> bool:
    return a > b if a.__class__ is int and b.__class__ is int else active.decide(">", a, b)


@row("view.default", "_unsafe_view.default", "_reshape_alias.default")
def view(x, sizes, strides=None):
    new = infer_sizes(x.numel(), sizes)
    found = view_strides(x.sizes, x.strides, new)
    if found is None:
        raise RuntimeError(
            "view size is not compatible with input tensor's size and stride (at least one dimension spans across two contiguous subspaces). "
            "Use .reshape(...) instead."
        )
    return _view(x, new, found)


@row("detach.default", "alias.default", "lift.default", "_conj.default", "_neg_view.default", "detach_.default")
def alias(x):
    return x


@row("permute.default")
def permute(x, dims):
    order = [wrap_dim(d, x.ndim) for d in dims]
    if len(set(order)) != len(order) or len(order) != x.ndim:
        raise RuntimeError(
            f"permute(sparse_coo): number of dimensions in the tensor input does not match the length of the desired ordering {dims}"
        )
    return _view(x, [x.sizes[d] for d in order], [x.strides[d] for d in order])


@row("transpose.int")
def transpose(x, dim0, dim1):
    a, b = wrap_dim(dim0, x.ndim), wrap_dim(dim1, x.ndim)
    if not x.ndim:
        return x
    sizes, strides = list(x.sizes), list(x.strides)
    sizes[a], sizes[b] = sizes[b], sizes[a]
    strides[a], strides[b] = strides[b], strides[a]
    return _view(x, sizes, strides)


@row("t.default")
def t(x):
    if x.ndim > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {x.ndim}D")
    return x if x.ndim < 2 else _view(x, x.sizes[::-1], x.strides[::-1])


@row("expand.default")
def expand(x, sizes, *, implicit=False):
    lead = len(sizes) - x.ndim
    if lead < 0:
        raise RuntimeError(
            f"expand({list(x.sizes)}, size={list(sizes)}): the number of sizes provided must be greater or equal to the number of dimensions"
        )
    if not x.ndim:
        if any(s.__class__ is int and s < 0 for s in sizes):
            raise RuntimeError("expand: -1 is not allowed in a leading, non-existing dimension")
        return _view(x, sizes, (0,) * len(sizes))
    out_sizes, strides = [0] * len(sizes), [0] * len(sizes)
    for i in range(len(sizes) - 1, -1, -1):
        old = x.sizes[i - lead] if i >= lead else 1
        stride = x.strides[i - lead] if i >= lead else (out_sizes[i + 1] * strides[i + 1] if i + 1 < len(sizes) else 1)
        wanted = sizes[i]
        if wanted.__class__ is int and wanted == -1:
            if i < lead:
                raise RuntimeError("expand: -1 is not allowed in a leading, non-existing dimension")
            wanted = old
        if wanted is not old and not (old.__class__ is int and old == 1 and wanted.__class__ is int and wanted == 1):
            if old.__class__ is int and old == 1:
                stride = 0
            elif active.equal(old, wanted):
                pass
            elif active.is_fixed_one(old):
                stride = 0
            else:
                raise RuntimeError(
                    f"The expanded size of the tensor ({wanted}) must match the existing size ({old}) at non-singleton dimension {i}"
                )
        out_sizes[i], strides[i] = wanted, stride
    return _view(x, out_sizes, strides)


@row("slice.Tensor")
def slice(x, dim=0, start=None, end=None, step=1):
    if not x.ndim:
        raise RuntimeError("slice() cannot be applied to a 0-dim tensor.")
    dim = wrap_dim(dim, x.ndim)
    size, stride = x.sizes[dim], x.strides[dim]
    if step.__class__ is int and step <= 0:
        raise RuntimeError("slice step must be positive")
    first, last = slice_bounds(start, end, size)
    length = last - first
    if not (step.__class__ is int and step == 1):
        length = floordiv(length + step - 1, step)
    sizes, strides = list(x.sizes), list(x.strides)
    sizes[dim], strides[dim] = length, stride * step
    return _view(x, sizes, strides, x.offset + first * stride)


@row("select.int")
def select(x, dim, index):
    if not x.ndim:
        raise IndexError("select() cannot be applied to a 0-dim tensor.")
    dim = wrap_dim(dim, x.ndim)
    place = wrap_index(index, x.sizes[dim])
    if place is None:
        raise IndexError(f"select(): index {index} out of range for tensor of size {list(x.sizes)} at dimension {dim}")
    return _view(x, x.sizes[:dim] + x.sizes[dim + 1 :], x.strides[:dim] + x.strides[dim + 1 :], x.offset + place * x.strides[dim])


@row("unsqueeze.default")
def unsqueeze(x, dim):
    dim = wrap_dim(dim, x.ndim + 1)
    stride = x.sizes[dim] * x.strides[dim] if dim < x.ndim else 1
    return _view(x, (*x.sizes[:dim], 1, *x.sizes[dim:]), (*x.strides[:dim], stride, *x.strides[dim:]))


@row("squeeze.default")
def squeeze(x):
    kept = [d for d in range(x.ndim) if not _is(x.sizes[d], 1)]
    return _view(x, [x.sizes[d] for d in kept], [x.strides[d] for d in kept])


@row("squeeze.dim", "squeeze.dims")
def squeeze_dims(x, dims):
    wanted = {wrap_dim(d, x.ndim) for d in (dims if isinstance(dims, (list, tuple)) else (dims,))}
    kept = [d for d in range(x.ndim) if d not in wanted or not _is(x.sizes[d], 1)]
    return _view(x, [x.sizes[d] for d in kept], [x.strides[d] for d in kept])


@row("split.Tensor", "unsafe_split.Tensor")
def split(x, size, dim=0):
    dim = wrap_dim(dim, x.ndim)
    whole = x.sizes[dim]
    if isinstance(whole, Expr) or isinstance(size, Expr):
        count = floordiv(whole + size - 1, size)
        table = active.table()
        count = count if count.__class__ is int else table.fix(count)
    else:
        count = max((whole + size - 1) // size, 1) if size else 1
    lengths = [size] * (count - 1) + [whole - size * (count - 1)]
    return split_with_sizes(x, lengths, dim)


@row("split_with_sizes.default", "unsafe_split_with_sizes.default")
def split_with_sizes(x, sizes, dim=0):
    dim = wrap_dim(dim, x.ndim)
    total: Size = 0
    out = []
    for size in sizes:
        new = (*x.sizes[:dim], size, *x.sizes[dim + 1 :])
        out.append(_view(x, new, x.strides, x.offset + total * x.strides[dim]))
        total = total + size
    if not active.equal(total, x.sizes[dim]):
        raise RuntimeError(
            f"split_with_sizes expects split_sizes to sum exactly to {x.sizes[dim]}, but got split_sizes={list(sizes)}"
        )
    return out


@row("unbind.int")
def unbind(x, dim=0):
    dim = wrap_dim(dim, x.ndim)
    count = x.sizes[dim]
    if count.__class__ is not int:
        count = active.table().fix(count)
    return [select(x, dim, i) for i in range(count)]


@row("as_strided.default")
def as_strided(x, sizes, strides, storage_offset=None):
    if len(sizes) != len(strides):
        raise RuntimeError(f"mismatch in length of strides {list(strides)} and shape {list(sizes)}")
    for what, values in (("strides", strides), ("sizes", sizes), ("offsets", (storage_offset,))):
        if any(v.__class__ is int and v < 0 for v in values):
            raise RuntimeError(f"as_strided: negative {what} are not supported, got {list(values)}")
    return _view(x, sizes, strides, x.offset if storage_offset is None else storage_offset)


@row("diagonal.default")
def diagonal(x, offset=0, dim1=0, dim2=1):
    a, b = wrap_dim(dim1, x.ndim), wrap_dim(dim2, x.ndim)
    if a == b:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    length = minimum(x.sizes[a], x.sizes[b] - offset) if offset >= 0 else minimum(x.sizes[a] + offset, x.sizes[b])
    length = maximum(length, 0)
    start = offset * x.strides[b] if offset >= 0 else -offset * x.strides[a]
    kept = [d for d in range(x.ndim) if d not in (a, b)]
    empty = length.__class__ is int and length == 0
    return _view(
        x,
        [*(x.sizes[d] for d in kept), length],
        [*(x.strides[d] for d in kept), x.strides[a] + x.strides[b]],
        x.offset + (0 if empty else start),
    )


@row("diag_embed.default")
def diag_embed(x, offset=0, dim1=-2, dim2=-1):
    a, b = wrap_dim(dim1, x.ndim + 1), wrap_dim(dim2, x.ndim + 1)
    if a == b:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    length = x.sizes[-1] + abs(offset)
    rest = iter(x.sizes[:-1])
    return fresh(x, tuple(length if d in (a, b) else next(rest) for d in range(x.ndim + 1)))


@row("unfold.default")
def unfold(x, dim, size, step):
    dim = wrap_dim(dim, x.ndim)
    most = x.sizes[dim] if x.ndim else 1
    if size.__class__ is int and size < 0:
        raise RuntimeError(f"size is {size} but must be >= 0")
    if _exceeds(size, most):
        raise RuntimeError(f"maximum size for tensor at dimension {dim} is {most} but size is {size}")
    if step.__class__ is int and step <= 0:
        raise RuntimeError(f"step is {step} but must be > 0")
    if not x.ndim:
        return _view(x, (size,), (1,))
    count = floordiv(x.sizes[dim] - size, step) + 1
    sizes, strides = list(x.sizes), list(x.strides)
    sizes[dim], strides[dim] = count, x.strides[dim] * step
    return _view(x, [*sizes, size], [*strides, x.strides[dim]])


COPIED = (
    "permute.default transpose.int t.default expand.default slice.Tensor select.int unsqueeze.default squeeze.default squeeze.dim "
    "squeeze.dims as_strided.default diagonal.default unfold.default detach.default alias.default"
)
COPIED_LISTS = "split.Tensor split_with_sizes.default unbind.int"


def _register_copies():
    """`permute_copy` and its like: the view's sizes in new memory."""
    for name in (*COPIED.split(), *COPIED_LISTS.split()):
        view_row = ATEN_META.get(overload(name))
        copied = name.replace(".", "_copy.")
        if name in COPIED_LISTS:
            row(copied)(lambda *args, _row=view_row, **options: [fresh(v, v.sizes) for v in _row(*args, **options)])
        else:
            row(copied)(lambda x, *args, _row=view_row, **options: fresh(x, _row(x, *args, **options).sizes))


@row("view_copy.default")
def view_copy(x, sizes):
    return fresh(x, view(x.replace(strides=contiguous(x.sizes)), sizes).sizes)


@row("narrow_copy.default")
def narrow_copy(x, dim, start, length):
    if dim >= x.ndim > 0:  # its kernel's own check, before the one that all views share
        raise RuntimeError(f"narrow_copy(): Expected dim < {x.ndim}, but got {dim}")
    return NotImplemented


@row("view.dtype")
def view_dtype(x, dtype):
    if dtype.itemsize != x.dtype.itemsize:
        raise NotImplementedError
    return x.replace(dtype=dtype)


_register_copies()
