"""The eleven families of ops; every folder about ops has one file per family under the same name."""

FAMILIES: dict[str, str] = {
    "pointwise": "one output element from the elements at the same place of the operands",
    "reduction": "sums, extrema and statistics along dimensions",
    "view": "the same elements seen through other sizes",
    "indexing": "reads and writes at computed places",
    "creation": "tensors from sizes and constants",
    "rng": "random numbers, in eager's order from eager's generators",
    "matmul": "matrix products and attention",
    "conv": "convolutions and recurrent kernels",
    "window": "pooling, resampling, patches",
    "scan": "running results and sorting",
    "memory": "copies, layouts and devices",
}
