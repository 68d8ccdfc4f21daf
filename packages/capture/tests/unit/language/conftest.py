"""Puts this folder on the path: the cases are modules of their own."""

import gc
import sys
from pathlib import Path

import pytest
import tracework_capture as capture

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "interp"))


@pytest.fixture
def without_the_collector():
    """What dies does so because nothing holds it any more."""
    capture.reset()
    gc.collect()
    gc.disable()
    yield
    gc.enable()
    capture.reset()
