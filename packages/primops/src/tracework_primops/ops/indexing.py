"""Gather, scatter, pad and concatenate."""

from ..op import Kind, Tag, declarer

op = declarer("indexing", Kind.INDEXING)
S, D, C = Tag.SCATTER, Tag.DATA_DEPENDENT, Tag.CHECKS

op("cat(xs:L, dim)", "joined along dim; all have one dtype and equal other sizes")
op("pad(x:T, low_high_pairs, value)", "constant padding: ((low, high), ...) per dim; negative numbers crop")
op("gather(x:T, dim, index:T)", "x at index along dim, other positions are the index's own; 0 <= index < size", C)
op("index_select(x:T, dim, index:T)", "rows index (1-d) along dim; 0 <= index < size", C)
op(
    "index(x:T, indices:L, wrap=True)",
    "advanced indexing: one integer tensor or None per leading dim; negative indices count from the end if wrap, else are out of range",
    C,
)
op(
    "index_put(x:T, indices:L, values:T, accumulate=False, wrap=True)",
    "x with values written at indices, which are as those of index; added when accumulate",
    S,
    C,
)
op("scatter(x:T, dim, index:T, src:V)", "x with src written at index along dim; 0 <= index < size", S, C)
op("scatter_add(x:T, dim, index:T, src:T)", "x with src added at index along dim; 0 <= index < size", S, C)
op(
    "scatter_reduce(x:T, dim, index:T, src:T, reduce, include_self=True)",
    "sum, prod, mean, amax or amin at index along dim; 0 <= index < size",
    S,
    C,
)
op("index_add(x:T, dim, index:T, src:T, alpha=1)", "x with alpha*src added to rows index; 0 <= index < size", S, C)
op(
    "index_copy(x:T, dim, index:T, src:T, wrap=False)",
    "x with rows index replaced by src; negative indices count from the end if wrap, else are out of range",
    S,
    C,
)
op(
    "index_reduce(x:T, dim, index:T, src:T, reduce, include_self=True)",
    "prod, mean, amax or amin into rows index; 0 <= index < size",
    S,
    C,
    kind=Kind.LIBRARY,
)
op("slice_scatter(x:T, src:T, dim, start, end, step=1)", "x with the slice replaced by src")
op("select_scatter(x:T, src:T, dim, index)", "x with one index of dim replaced by src")
op("diagonal_scatter(x:T, src:T, offset=0, dim1=0, dim2=1)", "x with the diagonal replaced by src")
op(
    "as_strided_scatter(x:T, src:T, sizes, strides, offset)",
    "x with src written through an as_strided view",
    S,
    kind=Kind.LIBRARY,
)
op("masked_scatter(x:T, mask:T, src:T)", "x with src's leading elements where mask is true", S, kind=Kind.LIBRARY)
op("take(x:T, index:T)", "x flattened, at index; negative indices count from the end", C)
op(
    "put(x:T, index:T, src:T, accumulate=False)",
    "x flattened, with src written at index, which is as that of take",
    S,
    C,
    kind=Kind.LIBRARY,
)
op("roll(x:T, shifts, dims)", "rotated along dims")
op("tril(x:T, diagonal=0)", "0 above the diagonal of the last two dims")
op("triu(x:T, diagonal=0)", "0 below the diagonal of the last two dims")
op(
    "searchsorted(sorted:T, values:V, right=False, out_int32=False, sorter:O=None)",
    "insertion points into the last dim",
    kind=Kind.LIBRARY,
)
op("bucketize(x:V, boundaries:T, right=False, out_int32=False)", "insertion points into one row of boundaries")
op("nonzero(x:T)", "coordinates of the elements that are not 0", D, kind=Kind.LIBRARY)
op("masked_select(x:T, mask:T)", "elements where mask is true", D, kind=Kind.LIBRARY)
op("repeat_interleave(repeats:T, output_size=None)", "index i repeated repeats[i] times", D, kind=Kind.LIBRARY)
op("unique(x:T, sorted=True, return_inverse=False, return_counts=False) -> 3", "distinct elements", D, kind=Kind.LIBRARY)
op("bincount(x:T, weights:O=None, minlength=0)", "number of occurrences of each integer", D, kind=Kind.LIBRARY)
