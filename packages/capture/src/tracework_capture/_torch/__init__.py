"""The only folder of this package that touches private torch names; each is wrapped under a name of ours, in the module of its family."""

from . import autograd, distributed, functions, modes, modules, operators, settings, tensors, torch_compile

__all__ = ["autograd", "distributed", "functions", "modes", "modules", "operators", "settings", "tensors", "torch_compile"]
