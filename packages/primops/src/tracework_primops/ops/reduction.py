"""Reductions over `dims` (a tuple of non-negative ints; all dims are listed, () reduces nothing)."""

from ..op import Kind, Tag, declarer

op = declarer("reduction", Kind.REDUCTION)
B = Tag.BOOL_RESULT

op(
    "sum(x:T, dims, keepdim=False, dtype=None)",
    "sum; result and accumulation in `dtype` (None: x's), float16 and bfloat16 accumulate in float32",
)
op("prod(x:T, dims, keepdim=False, dtype=None)", "product")
op("amax(x:T, dims, keepdim=False)", "largest; NaN wins")
op("amin(x:T, dims, keepdim=False)", "smallest; NaN wins")
op("any(x:T, dims, keepdim=False)", "some element is not 0", B)
op("all(x:T, dims, keepdim=False)", "no element is 0", B)
op("argmax(x:T, dim, keepdim=False)", "index of the largest along one dim, int64; first one of equals; NaN wins")
op("argmin(x:T, dim, keepdim=False)", "index of the smallest along one dim, int64; first one of equals; NaN wins")
op("var_mean(x:T, dims, correction=1, keepdim=False) -> 2", "variance and mean in one pass; accumulation as in sum")
op("xor_sum(x:T, dims, keepdim=False)", "exclusive or of all elements")
op("logsumexp(x:T, dims, keepdim=False)", "log(sum(exp(x))) without overflow", Tag.TRANSCENDENTAL)
op("norm(x:T, ord, dims, keepdim=False)", "vector norm of order ord (a number, inf included)", Tag.TRANSCENDENTAL)
op("count_nonzero(x:T, dims)", "number of elements that are not 0, int64")
op("median(x:T, dim, keepdim=False) -> 2", "lower median along one dim, and its index", kind=Kind.LIBRARY)
op("nanmedian(x:T, dim, keepdim=False) -> 2", "lower median of what is not NaN, and its index", kind=Kind.LIBRARY)
op("mode(x:T, dim, keepdim=False) -> 2", "most frequent value along one dim, and an index", kind=Kind.LIBRARY)
op("kthvalue(x:T, k, dim, keepdim=False) -> 2", "k-th smallest along one dim, and its index", kind=Kind.LIBRARY)
op("histc(x:T, bins, min, max)", "histogram with equal bins", kind=Kind.LIBRARY)
