import pytest
import torch
from tracework_capture.guards.generators import OwnGenerator

GENERATORS = {"own": (torch.Generator(), True), "the default": (torch.default_generator, False)}


@pytest.mark.parametrize(("generator", "holds"), GENERATORS.values(), ids=GENERATORS)
def test_it_is_one_of_its_own(generator, holds):
    """Functions without a generator draw from the other one, which graphs do in an order of their own."""
    guard = OwnGenerator(torch.device("cpu"))
    assert guard(generator) == holds
    assert OwnGenerator.of(generator, guard.digest())(generator) == holds
    assert not OwnGenerator(torch.device("cuda", 0))(generator)
