"""Shared set-up of the entry point's tests."""

import pytest
import torch
import tracework


def pytest_addoption(parser):
    parser.addoption("--all-rows", action="store_true", help="tracework: every record of every ONNX row, not a part of them")


@pytest.fixture(autouse=True)
def fresh_state(tmp_path_factory, monkeypatch):
    """Each test starts with nothing compiled, and shares a cache folder of this run only."""
    monkeypatch.setenv("TRACEWORK_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "cache"))
    torch.manual_seed(0)
    tracework.reset()
    yield
    tracework.reset()
    tracework.set_default_backend(None)
