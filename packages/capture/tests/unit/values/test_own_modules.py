"""Which overridden methods of a subclass of a module, of Tensor and of Logger other methods call: as they do in eager.

A table: base class x the method that is overridden x operation. `nox -s containers` runs all of it, the suite a sample."""

import logging
import random

import pytest
import torch
import tracework_capture as capture
from test_own_containers import LOG, OPERATIONS, OVERRIDDEN, WHOLE, operations, own_class, program

MODULE = """
d(x) | d.train() | d.eval() | d.requires_grad_(False) | list(d.parameters()) | list(d.named_parameters()) | list(d.buffers()) | d.to(torch.float64)
list(d.named_buffers()) | list(d.children()) | list(d.named_children()) | list(d.modules()) | list(d.named_modules()) | d.state_dict() | d.double()
d.to(torch.float32) | d.cpu() | d.apply(lambda m: None) | d.zero_grad() | d.get_submodule("0") | d.get_parameter("0.weight") | d.training | bool(d)
d.add_module("new", torch.nn.ReLU()) | d.register_buffer("b", x) | d.register_parameter("p", None) | setattr(d, "attribute", 1) | len(d) | d[0]
setattr(d, "sub", torch.nn.ReLU()) | delattr(d, "0") | [m for m in d] | d.append(torch.nn.ReLU()) | d.insert(0, torch.nn.ReLU()) | d.pop(0)
operator.setitem(d, 0, torch.nn.ReLU()) | operator.delitem(d, 0) | d.load_state_dict(e.state_dict()) | d + e | hasattr(d, "zzz")
list(o.parameters()) | list(o.named_modules()) | o(x) | o.to(torch.float32) | o.to(torch.float64) | list(o.modules()) | list(o.buffers()) | o.eval()
"""
TENSOR = """
d + 1 | 1 + d | d * e | e / 2 | -d | d @ e | d == e | d < e | d[0] | d[:2] | len(d) | bool(d.sum() > 0) | [v for v in d] | float(d.sum()) | d.add(1)
d.sum() | d.relu() | d.clone() | d.detach() | d.to(torch.float64) | d.double() | d.reshape(3, 1) | d.unsqueeze(0) | d.t() | d.T | d.shape | d.size()
d.dim() | d.ndim | d.numel() | d.dtype | d.type() | d.is_floating_point() | d.add_(1) | operator.setitem(d, 0, 5.0) | torch.add(d, e) | torch.sum(d)
torch.cat([d, e]) | torch.nn.functional.softmax(d, 0) | torch.where(d > 1, d, e) | d.tolist() | d.split(1) | torch.split(d, 1) | d.norm() | d.max(0)
d.expand(2, 3) | d.masked_fill(d > 1, 0.0) | d.new_zeros(2) | d.copy_(e) | d.type_as(e) | d.stride() | d.flatten() | d**2 | d // 2 | x.sum() * d
operator.iadd(d, 1) | 1 in d | d.unflatten(0, (3, 1)) | torch.ones_like(d) | d.__len__() | d.__reversed__()
"""
LOGGER = 'd.info("a") | d.debug("a") | d.warning("a %s", 1) | d.log(30, "a") | d.isEnabledFor(20) | d.error("x") | d.getEffectiveLevel()'
TABLE = {torch.nn.Sequential: MODULE, torch.Tensor: TENSOR, logging.Logger: LOGGER}
NOT_OVERRIDDEN = frozenset(
    "__init__ __new__ __repr__ __str__ __dir__ __hash__ __format__ __reduce__ __reduce_ex__ __setattr__ __delattr__ __getattr__ "
    "__setstate__ __getstate__ __deepcopy__ makeRecord".split()
)


def overridable(base):
    names = {name for cls in base.__mro__[:-1] for name, static in vars(cls).items() if callable(static)}
    own = {
        name for cls in base.__mro__[:-1] for name, static in vars(cls).items() if isinstance(static, (classmethod, staticmethod))
    }
    return sorted(names - own - NOT_OVERRIDDEN)


def instance(cls):
    if issubclass(cls, torch.nn.Module):
        return cls(torch.nn.Linear(2, 2))
    if issubclass(cls, torch.Tensor):
        return cls([1.0, 2.0, 3.0])
    logger = cls("own", logging.INFO)
    logger.addHandler(logging.NullHandler())
    return logger


def shown(value):
    """Class and contents, past what the class overrides."""
    if isinstance(value, torch.Tensor):
        plain = value.as_subclass(torch.Tensor)
        return type(value).__name__, plain.dtype, plain.tolist()
    if isinstance(value, torch.nn.Module):
        fields = value.__dict__
        return (
            type(value).__name__,
            fields["training"],
            *(shown(fields[table]) for table in ("_modules", "_parameters", "_buffers")),
        )
    if isinstance(value, dict):
        return [(key, shown(item)) for key, item in value.items()]
    if isinstance(value, (list, tuple)):
        return [shown(item) for item in value]
    return type(value).__name__, value if isinstance(value, (bool, int, str)) else ""


def run(function, cls):
    """What the function gives and leaves, and the overridden methods that it calls. `o` is a module around the instance."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        d, e = instance(cls), instance(cls)
    function.__globals__["o"] = torch.nn.Sequential(d) if isinstance(d, torch.nn.Module) else None
    LOG.clear()
    found = function(torch.ones(2), cls, (), d, e)
    calls = list(LOG)
    return [shown(value) for value in found], calls


def rows():
    chosen = random.Random(0)
    for base, text in TABLE.items():
        names, wanted = overridable(base), operations(text)
        for name in ["all", *names] if WHOLE else ["all", *chosen.sample(names, OVERRIDDEN)]:
            tried = (
                wanted
                if WHOLE or name == "all" and base is not torch.Tensor
                else chosen.sample(wanted, min(len(wanted), OPERATIONS))
            )
            yield pytest.param(base, name, tried, id=f"{base.__name__}-{name}")


@pytest.mark.parametrize(("base", "name", "wanted"), list(rows()))
def test_overridden_methods_are_called_as_in_eager(fresh, base, name, wanted):
    cls = own_class(base, *(overridable(base) if name == "all" else [name]))
    wrong = []
    for expression in wanted:
        expected = run(program(expression), cls)
        found = run(capture.optimize(lambda gm, inputs: gm.forward)(program(expression)), cls)
        wrong += [(expression, found, expected)] if found != expected else []
    assert not wrong
