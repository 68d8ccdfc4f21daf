"""Matrix products: library calls by default. Attention kernels stay ATen externs."""

from ..op import Kind, Tag, declarer

op = declarer("matmul", Kind.LIBRARY, Tag.COMPUTE)

op("mm(a:T, b:T)", "(m,k) x (k,n)")
op("addmm(bias:T, a:T, b:T, beta=1, alpha=1)", "beta*bias + alpha*(a@b)")
op("bmm(a:T, b:T)", "(n,m,k) x (n,k,p)")
op("baddbmm(bias:T, a:T, b:T, beta=1, alpha=1)", "beta*bias + alpha*bmm(a, b)")
op("mv(a:T, x:T)", "(m,k) x (k)")
op("dot(a:T, b:T)", "sum of products of two vectors")
op("vdot(a:T, b:T)", "dot with the first operand conjugated")
op(
    "scaled_mm(a:T, b:T, scale_a:T, scale_b:T, bias:O=None, scale_result:O=None, out_dtype=None, use_fast_accum=False)",
    "float8 product with scales",
)
op("grouped_mm(a:T, b:T, offs:O=None, bias:O=None, out_dtype=None)", "one product per group of rows")
op("int_mm(a:T, b:T)", "int8 product accumulated in int32")
op(
    "attention(q:T, k:T, v:T, captured:L, blocks:L, sizes, score, keep, scale, extents, zeroed=True) -> 3",
    "softmax of changed and masked scores, times v; binary logarithms of the sums of exponentials over that of the highest score, and that; "
    "attention.py says what the texts score and keep are; zeroed: a row that sees nothing is 0, not NaN",
)
op(
    "attention_backward(grad:T, q:T, k:T, v:T, logs:T, highest:T, delta:T, captured:L, blocks:L, sizes, score, slope, keep, scale, extents) -> 3",
    "gradients of q, k and v; delta: what is taken from the gradient of each weight of a row",
)
op(
    "attention_sums(grad:T, q:T, k:T, v:T, logs:T, highest:T, delta:T, captured:L, blocks:L, sizes, score, factor, keep, scale, extents, along)",
    "gradients of the changed scores times a factor, a body, summed up for each query, each key or each distance of the two",
)
