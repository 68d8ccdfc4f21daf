"""Functions that are traced by themselves and become one node: arms, loops, transforms, autograd functions."""

from . import (  # noqa: F401
    autograd_function,
    checkpoint,
    control_flow,
    flex_attention,
    loop_numbers,
    nonstrict,
    transforms,
    triton_kernel,
)
