"""How Python objects are modelled while a frame is traced, in storeys: each knows the ones below it.

arrays     NumPy's arrays
torch      tensors, modules, settings, regions
objects    functions, classes, instances, exceptions
plain      texts, containers, iterators
number     numbers not known while tracing
protocol   what a value is, and what is done with any two of them
"""

from . import arrays, number, objects, plain, protocol, torch  # noqa: F401
from .protocol.make import make
from .protocol.registry import REGISTRIES

make.check()
for _registry in REGISTRIES:
    _registry.seal()
