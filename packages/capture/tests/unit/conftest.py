"""What the tests of all folders share."""

import pytest
import tracework_capture as capture


@pytest.fixture
def fresh():
    """Nothing is compiled before the test, nor kept after it."""
    capture.reset()
    yield
    capture.reset()
