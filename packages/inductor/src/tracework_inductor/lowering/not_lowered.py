"""NOT_LOWERED: prim -> why no loop computes it; every prim is here or in LOWERINGS.

A reason that several prims share is one, with a name. What a rule refuses because of its arguments is said by the rule.
"""

from collections.abc import Mapping

SERIES = (
    "a number takes the library 2 to 71 ns on one core of a CPU, its way through memory under 0.2: there is nothing to fuse for"
)
CONVERGES = "it is a series that is summed until it converges, after another number of steps for each element"
DEGREE = "it is a recurrence of as many steps as the degree says, which is data"
EUCLID = "Euclid's algorithm takes another number of steps for each pair of elements"
COMPLEX = "passes/complex_parts.py has made it of real parts; what is left is of a dtype that loops do not load, complex32"
SIZES = "how large its result is depends on values, and memory and grid of a kernel are known before it runs"
DRAWS = "its numbers are eager's, which the library's kernels draw from the generator in an order of their own"
TRIANGLE = "the row of a place is the root of a quadratic equation, and the result is small: the library walks along the rows"
GRID = "where it reads is data that all channels share: the library computes place and weights once for all of them, a loop would for each"

NOT_LOWERED: Mapping[str, str] = {
    # pointwise
    "erfinv": "of the CPU's math libraries only the one that torch links has it as vectors; libm, which C++ kernels call, has none",
    "erfcx": SERIES,
    "digamma": SERIES,
    "i0": SERIES,
    "i0e": SERIES,
    "i1": SERIES,
    "i1e": SERIES,
    "bessel_j0": SERIES,
    "bessel_j1": SERIES,
    "bessel_y0": SERIES,
    "bessel_y1": SERIES,
    "modified_bessel_k0": SERIES,
    "modified_bessel_k1": SERIES,
    "scaled_modified_bessel_k0": SERIES,
    "scaled_modified_bessel_k1": SERIES,
    "spherical_bessel_j0": SERIES,
    "airy_ai": SERIES,
    "ndtri": SERIES,
    "log_ndtr": SERIES,
    "igamma": CONVERGES,
    "igammac": CONVERGES,
    "zeta": CONVERGES,
    "polygamma": CONVERGES,
    "chebyshev_polynomial_t": DEGREE,
    "chebyshev_polynomial_u": DEGREE,
    "chebyshev_polynomial_v": DEGREE,
    "chebyshev_polynomial_w": DEGREE,
    "shifted_chebyshev_polynomial_t": DEGREE,
    "shifted_chebyshev_polynomial_u": DEGREE,
    "shifted_chebyshev_polynomial_v": DEGREE,
    "shifted_chebyshev_polynomial_w": DEGREE,
    "hermite_polynomial_h": DEGREE,
    "hermite_polynomial_he": DEGREE,
    "laguerre_polynomial_l": DEGREE,
    "legendre_polynomial_p": DEGREE,
    "gcd": EUCLID,
    "lcm": EUCLID,
    "imag": COMPLEX,
    "complex": COMPLEX,
    # reduction
    "nanmedian": "the rank of the middle is data: it depends on how many elements of a row are numbers",
    "mode": "it compares the lengths of runs of equal elements in a sorted row, which are data",
    "histc": "its ends may be the extremes of the data, which are to be known before the first element is counted",
    # view
    "view_dtype": "an element of another width is made of several in memory, or is a part of one, and loops load a buffer in one dtype",
    # indexing
    "index_reduce": "a mean divides by how many rows met, and GPUs have no atomic product, nor an extreme that keeps NaN",
    "nonzero": SIZES,
    "masked_select": SIZES,
    "repeat_interleave": SIZES,
    "unique": SIZES,
    "bincount": SIZES,
    # creation
    "tril_indices": TRIANGLE,
    "triu_indices": TRIANGLE,
    # rng
    "rand": DRAWS,
    "randn": DRAWS,
    "randint": DRAWS,
    "randperm": DRAWS,
    "bernoulli": DRAWS,
    "bernoulli_p": DRAWS,
    "uniform": DRAWS,
    "normal": DRAWS,
    "exponential": DRAWS,
    "geometric": DRAWS,
    "cauchy": DRAWS,
    "log_normal": DRAWS,
    "poisson": DRAWS,
    "binomial": DRAWS,
    "multinomial": DRAWS,
    "native_dropout": DRAWS,
    "rrelu_noise": DRAWS,
    # matmul
    "grouped_mm": "the sizes of its products are data, which the library's kernel reads on the device",
    # window
    "max_unpool": "it fills memory with 0 and writes a few elements to places that are data: no loop before or behind it has the same places",
    "upsample_bicubic_backward": "an element has a part in four results along each dimension for each that it grows to: more than loops write out",
    "grid_sample": GRID,
    "grid_sample_backward": GRID,
    # scan
    "associative_scan": "what combines two elements is a function of the program, and scans of kernels combine by a fixed set",
}
