"""What is known of other libraries, shown on stand-ins of theirs."""

import sys
import types

import torch
import tracework_capture as capture

CODE = """
class Backend:
    subclasses = []
    def double(self, x):
        return x * 2

found = {}

def get_backend(tensor):
    if type(tensor) not in found:
        for kind in Backend.__subclasses__():
            found[type(tensor)] = kind()
    return found[type(tensor)]

class TorchBackend(Backend):
    pass
"""


def test_the_backend_of_einops_is_found_while_tracing(monkeypatch):
    module = types.ModuleType("einops._backends")
    exec(CODE, module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)

    def program(x):
        return module.get_backend(x + 1).double(x)

    compiled = capture.optimize(lambda graph, example_inputs: graph.forward, fullgraph=True)(program)
    for _ in range(2):
        torch.testing.assert_close(compiled(torch.ones(3)), torch.full((3,), 2.0))
    assert list(module.found) == [torch.Tensor]
