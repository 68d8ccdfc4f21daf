"""Functions that are traced by themselves and become one node: arms, loops, transforms, autograd functions."""

from . import (  # noqa: F401
    autograd_function,
    checkpoint,
    cond,
    exported,
    flex_attention,
    leaf,
    loop_numbers,
    loops,
    nonstrict,
    transforms,
    triton_kernel,
)
