"""Functions that activations are made of, as Triton text without branches, for what is held in float32.

A warp runs both sides of a branch, and a GPU's library has a branch or picks coefficients in each of these. A form costs some 5 to 17
instructions. exp2, log2 and the quotient are the device's own approximations (errors of 2 ** -22.5, of 2 ** -22 near 1 and of an ulp; results
below the least normal number are 0), used where such an error is small beside the result's rounding. Sums of products are written as `tl.fma`,
so that their rounding does not depend on what a compiler contracts.
"""

from collections.abc import Sequence

__all__ = ["FUNCTIONS", "LIGHT", "polynomial"]

LOG2E = 1.4426950408889634
LN2 = 0.6931471805599453

# Minimax coefficients, highest power first, fitted in float64 by least squares with weights that grow where the error is largest, and
# rounded to float32 one after the other, the rest being fitted anew each time. In brackets: the largest error of the fit.
ERF_NEAR = (-0.000563121634, 0.00491748378, -0.0267112274, 0.112801753, -0.37612325, 0.128379121)
"""erf(x) / x - 1 as a polynomial in x ** 2, for |x| < 1 (4.1e-8 of the result)."""
ERF_FAR = (-0.00165971322, 0.0213203505, -0.127872154, -0.944227874, -1.61212301, -0.00385443494)
"""log2(1 - erf(x)) for x from 1 on (1.6e-8 of erf); falls for ever."""
ERFC = (-2.84661564e-05, 0.000319318089, -0.00112104358, -0.00131129345, 0.0286663342, -0.148644149, -0.918387413, -1.62791026)
"""log2(1 - erf(x)) / x for x from 0 on (3.6e-8 of 1, and 0.006 of 1 - erf(x) where x is up to 4.2); falls for ever."""
TANH_NEAR = (0.0164378919, -0.0526720136, 0.133207291, -0.333329469)
"""(tanh(x) / x - 1) / x ** 2 as a polynomial in x ** 2, for |x| < 0.55 (3.7e-8 of the result)."""
LOG1P_NEAR = (0.140059978, 0.140009016, 0.200107634, 0.333332092)
"""(artanh(s) / s - 1) / s ** 2 as a polynomial in s ** 2, for |s| < 1 / 3 (5.4e-9 of artanh)."""


def polynomial(variable: str, coefficients: Sequence[float]) -> str:
    """Its value by Horner's rule; coefficients: the highest power's first."""
    text = repr(coefficients[0])
    for coefficient in coefficients[1:]:
        text = f"tl.fma({text}, {variable}, {coefficient!r})"
    return text


FUNCTIONS: dict[str, str] = {
    "_erf": f"""
@triton.jit
def _erf(x):
    square = x * x
    near = tl.fma({polynomial("square", ERF_NEAR)}, x, x)
    size = tl.abs(x)
    far = 1.0 - tl.exp2({polynomial("size", ERF_FAR)})
    return tl.where(size < 1.0, near, libdevice.copysign(far, x))
""",
    # Where x is negative, 1 + erf(x) is a small number of which the sum keeps no digits.
    "_one_plus_erf": f"""
@triton.jit
def _one_plus_erf(x):
    size = tl.abs(x)
    rest = tl.exp2({polynomial("size", ERFC)} * size)
    return tl.where(x < 0.0, rest, 2.0 - rest)
""",
    # The sign is the product's: of a half number, a compiler takes it from the 16 bits with more instructions.
    "_tanh": f"""
@triton.jit
def _tanh(x):
    square = x * x
    near = x * {polynomial("square", (*TANH_NEAR, 1.0))}
    exponent = x * {2 * LOG2E!r}
    far = 1.0 - libdevice.fast_dividef(2.0, 1.0 + tl.exp2(tl.abs(exponent)))
    return tl.where(tl.abs(x) < 0.55, near, libdevice.copysign(far, exponent))
""",
    "_one_plus_tanh": f"""
@triton.jit
def _one_plus_tanh(x):
    return libdevice.fast_dividef(2.0, 1.0 + tl.exp2(x * {-2 * LOG2E!r}))
""",
    # The power's rounding, up to 64 ulp of the result where x is -80, is put right to first order: exp(-size) is 2**exponent * exp(-missing).
    # Divisors stay below 2: of those above 2**126 the quick division makes 0, where results are denormal.
    "_sigmoid": f"""
@triton.jit
def _sigmoid(x):
    size = tl.minimum(tl.abs(x), 105.0, propagate_nan=tl.PropagateNan.ALL)
    exponent = size * {-LOG2E!r}
    missing = tl.fma(exponent, {LN2!r}, size)
    power = tl.exp2(exponent) * (1.0 - missing)
    return libdevice.fast_dividef(tl.where(x < 0, power, 1.0), 1.0 + power)
""",
    # The logarithm of a quotient near 1 is an artanh; elsewhere 1 + x is so far from 1 that its logarithm keeps its digits.
    # What rounds to x itself is x: the quick quotient of such numbers may be 0.
    "_log1p": f"""
@triton.jit
def _log1p(x):
    part = libdevice.fast_dividef(x, 2.0 + x)
    square = part * part
    twice = part + part
    near = tl.fma(twice, square * {polynomial("square", LOG1P_NEAR)}, twice)
    far = libdevice.fast_log2f(1.0 + x) * {LN2!r}
    return tl.where(tl.abs(x) < {2.0**-25!r}, x, tl.where((x > -0.5) & (x < 1.0), near, far))
""",
}
"""Name -> definition of a function of what is held in float32."""

LIGHT = frozenset({"erf", "one_plus_erf", "tanh", "one_plus_tanh"})
"""Scalar ops each of which takes few registers: one beside 128 elements of a product in a thread does not make it spill on sm_90."""
