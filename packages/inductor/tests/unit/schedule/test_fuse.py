"""Groups of loops that become one kernel: what both sums of a row are computed from is walked once."""

import pytest
import torch
from prim_programs import build
from tracework_inductor import InductorOptions, lower, schedule
from tracework_inductor.codegen.cpp import CppRenderer
from tracework_primops import prims

ROWS, COLUMNS = 64, 128


def norm_backward(g, x, w):
    scaled, size = prims.mul(g, w), x.sizes[1]
    first = prims.div(prims.sum(prims.mul(scaled, x), (1,), True), size)
    second = prims.div(prims.sum(scaled, (1,), True), size)
    return prims.sub(prims.sub(scaled, second), prims.mul(x, first))


def layer_norm_backward(g, x, w):
    """In the order in which the decomposition makes it: normalised rows are a group before scaled ones are."""
    normal = prims.mul(prims.sub(x, 1.0), 2.0)
    return norm_backward(g, normal, w), prims.sum(prims.mul(g, normal), (0,), False)


def through_a_product(g, x, w):
    """The second group of loops needs a product that needs the first."""
    scaled = prims.mul(g, w)
    total = prims.sum(scaled, (1,), True)
    product = prims.mm(prims.sub(scaled, total), prims.permute(x, (1, 0)))
    return prims.add(prims.sum(product, (1,), True), total)


# name -> a program, and how many loop kernels it is
PROGRAMS = {
    "gradient of rows": (norm_backward, 1),
    "gradients of rows and of columns": (layer_norm_backward, 2),
    "a product between": (through_a_product, 2),
}


@pytest.mark.parametrize(("program", "kernels"), PROGRAMS.values(), ids=PROGRAMS)
def test_what_is_computed_for_the_same_points_is_one_kernel(program, kernels):
    inputs = [torch.empty(sizes) for sizes in ((ROWS, COLUMNS), (ROWS, COLUMNS), (COLUMNS,))]
    options = InductorOptions()
    plan = schedule(lower(build(program, inputs), options), options, CppRenderer().capabilities)
    assert sum(hasattr(kernel, "passes") for kernel in plan.kernels) == kernels
