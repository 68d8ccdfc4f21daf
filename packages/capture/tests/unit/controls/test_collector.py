"""The garbage collector rests while a frame is compiled, and is afterwards what it was before."""

import gc

import pytest
import torch
from tracework_capture import BackendError, optimize


@pytest.mark.parametrize("enabled", [True, False])
def test_collection_is_paused_while_compiling_and_then_as_before(enabled):
    seen = []

    def backend(gm, inputs):
        seen.append(gc.isenabled())
        return gm.forward

    def failing(gm, inputs):
        raise ValueError("no")

    was = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        optimize(backend)(lambda x: x + 1)(torch.ones(2))
        assert seen == [False] and gc.isenabled() is enabled
        with pytest.raises(BackendError):
            optimize(failing)(lambda x: x + 2)(torch.ones(2))
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if was else gc.disable)()
