"""UNWRITTEN: prims without a row in ONNX_ROWS, and why. They run by eager's kernels between the parts of a graph that engines run."""

from __future__ import annotations

_GROUPS: dict[str, str] = {
    "erfc erfinv erfcx lgamma digamma i0 i0e i1 i1e bessel_j0 bessel_j1 bessel_y0 bessel_y1 modified_bessel_k0 modified_bessel_k1 "
    "scaled_modified_bessel_k0 scaled_modified_bessel_k1 spherical_bessel_j0 airy_ai ndtri log_ndtr igamma igammac zeta polygamma": (
        "ONNX has no such function, and what can be made of those that it has loses digits"
    ),
    "chebyshev_polynomial_t chebyshev_polynomial_u chebyshev_polynomial_v chebyshev_polynomial_w shifted_chebyshev_polynomial_t "
    "shifted_chebyshev_polynomial_u shifted_chebyshev_polynomial_v shifted_chebyshev_polynomial_w hermite_polynomial_h "
    "hermite_polynomial_he laguerre_polynomial_l legendre_polynomial_p": "the number of steps depends on data",
    "complex imag view_as_real view_as_complex": "ONNX's operators take no complex numbers",
    "bitcast view_dtype nextafter frexp": "ONNX has no operator that reads the bits of a number as another dtype",
    "shift_left shift_right": "ONNX shifts unsigned integers only, and torch's are signed",
    "gcd lcm": "the number of steps depends on data",
    "xor_sum": "ONNX has no such reduction",
    "cumprod cummax cummin logcumsumexp": "ONNX has running sums only",
    "associative_scan": "what combines two elements is a graph of its own",
    "attention attention_backward attention_sums": "what is done to scores, and which are kept, are graphs of their own",
    "median nanmedian mode kthvalue histc": "which of equal elements is reported follows eager's algorithm",
    "sort topk": "engines place NaN, and order equal elements, in ways of their own",
    "searchsorted bucketize": "ONNX has no search",
    "index_reduce masked_scatter max_unpool": "writes at places that may collide or depend on a running count, in eager's order",
    "nonzero masked_select repeat_interleave unique bincount": "the size of the result depends on data",
    "rand randn randint randperm bernoulli bernoulli_p uniform normal exponential geometric cauchy log_normal poisson binomial multinomial "
    "native_dropout rrelu_noise": "the values are those that eager draws from its generator",
    "copy_into": "what a graph writes to its inputs is written when its engines have ended",
    "logspace tril_indices triu_indices": "made once, and eager's rounding or count is its own",
    "scaled_mm grouped_mm": "ONNX has no product of float8 matrices with scales, nor of groups of rows",
    "adaptive_max_pool adaptive_max_pool_backward": "ONNX has no such pooling, nor its gradient",
    "upsample_bicubic upsample_bicubic_backward grid_sample grid_sample_backward col2im reflection_pad_backward replication_pad_backward": (
        "engines place samples, and cut at borders, in ways of their own, and have no gradients of it"
    ),
}
UNWRITTEN: dict[str, str] = {name: reason for names, reason in _GROUPS.items() for name in names.split()}
