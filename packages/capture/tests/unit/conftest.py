"""What the tests of all folders share; puts this folder on the path for growth."""

import sys
from pathlib import Path

import pytest
import tracework_capture as capture

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def fresh():
    """Nothing is compiled before the test, nor kept after it."""
    capture.reset()
    yield
    capture.reset()
