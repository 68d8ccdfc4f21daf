"""REASONS: why an op is a prim although it could be written in elementwise ops, reductions, views, indexing, scans and copies.

Every op of the families matmul, conv and window has a row, and every op of another family that is a library call.
"""

from __future__ import annotations

_GROUPS: dict[str, str] = {
    "mm addmm bmm baddbmm mv dot vdot": "vendor libraries come near the machine's peak, which loops made from a broadcast "
    "product and a sum do not; the epilogue that addmm names is done inside the library",
    "attention attention_backward attention_sums": "written out, all scores lie in memory; a kernel that walks over keys holds a block of them",
    "scaled_mm grouped_mm int_mm": "matrix units for narrow numbers are only reached through the library or a template of their own",
    "convolution convolution_backward": "libraries choose between direct, Winograd, FFT and blocked algorithms by shape; as gathers "
    "and a matmul it would write every patch to memory",
    "max_pool adaptive_max_pool": "value and index are found in one walk over the window; as slices and maxima each window position "
    "would be a pass of its own",
    "max_pool_backward adaptive_max_pool_backward max_unpool": "a scatter whose writes collide only within overlapping windows; a backend "
    "that knows the window turns it into reads",
    "avg_pool adaptive_avg_pool": "windows overlap and are cut at borders; as a sum over slices the number of nodes would grow with the window",
    "avg_pool_backward adaptive_avg_pool_backward": "as the forward: each input element reads the few windows that hold it",
    "upsample_nearest upsample_linear upsample_bicubic": "source positions follow from the output position and a scale that eager rounds in its "
    "own way; gathers from index tensors would load what can be computed",
    "upsample_nearest_backward upsample_linear_backward upsample_bicubic_backward": "the range of outputs that an input feeds follows from "
    "the scale; a scatter would need atomics",
    "grid_sample grid_sample_backward": "four to sixteen gathers at positions computed from data, with borders; the library does them in one walk",
    "im2col col2im": "overlapping windows: im2col alone can be an as_strided view of padded input, col2im cannot be written without a scatter",
    "reflection_pad reflection_pad_backward replication_pad replication_pad_backward": "the border is an index expression of the output position; as "
    "flips, slices and cats it would be up to nine copies",
    "logspace": "eager's rounding differs from a power of a linspace in the last place",
    "tril_indices triu_indices": "a closed form needs square roots, exact only below 2**52; small and made once",
    "index_reduce masked_scatter put as_strided_scatter": "writes at places that may collide or depend on a running count, in eager's order",
    "searchsorted": "a search with a number of steps that depends on the size; no loop is among the prims",
    "nonzero masked_select repeat_interleave unique bincount": "the size of the result depends on data",
    "device_put": "a copy between memories, not a computation",
    "median nanmedian mode kthvalue histc": "selection and counting; which of equal elements is reported follows eager's algorithm",
    "rand randn randint randperm bernoulli bernoulli_p uniform normal exponential geometric cauchy log_normal poisson binomial multinomial": "values must "
    "be those that eager draws from the same generator state",
    "native_dropout rrelu_noise": "the random numbers are drawn inside eager's kernel, in its order",
    "sort topk": "library sorts are stable or not as eager's are, and sorting networks pay only for short rows",
}

REASONS: dict[str, str] = {name: reason for names, reason in _GROUPS.items() for name in names.split()}
