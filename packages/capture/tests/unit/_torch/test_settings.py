"""Settings of torch that kernels are chosen by."""

import pytest
import torch
from tracework_capture._torch import settings


@pytest.mark.parametrize("name", [*settings.FLAGS, "default_dtype", "default_device"])
def test_settings_are_written_as_they_are_read(name):
    read, write = settings.SETTINGS[name]
    before = read()
    if not isinstance(before, tuple) and (before is not None or name not in settings.FLAGS):  # those of two parts break graphs
        write(before)
    assert read() == before


def test_only_what_differs_is_written():
    try:
        settings.write_settings({"deterministic": True, "cudnn_allow_tf32": None})
        assert torch.are_deterministic_algorithms_enabled()
    finally:
        settings.write_settings({"deterministic": False})
    assert not settings.deterministic_state()


def test_autocast_is_as_it_was():
    before = settings.autocast_and_nesting()
    torch.autocast("cpu", torch.bfloat16).__enter__()
    assert settings.autocast_and_nesting() != before
    settings.restore_autocast(before)
    assert settings.autocast_and_nesting() == before and not torch.is_autocast_enabled("cpu")
