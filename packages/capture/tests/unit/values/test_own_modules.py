"""Which overridden methods of a subclass of a module, of Tensor and of Logger other methods call: as they do in eager.

A table: base class x the method that is overridden x operation. `nox -s containers` runs all of it, the suite a sample."""

import logging
import random
import types

import pytest
import torch
import tracework_capture as capture
from test_own_containers import LOG, OPERATIONS, OVERRIDDEN, WHOLE, operations, own_class, program
from tracework_capture.values.objects.function import class_of_method, methods_called
from tracework_capture.values.protocol.calls import CALLS, Policy
from tracework_capture.values.torch import module

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


ARGUMENTS = {
    "to": [torch.float64],
    "__setattr__": ["b", torch.nn.Buffer(torch.ones(2))],
    "_wrapped_call_impl": [torch.ones(2)],
    "log": [logging.ERROR, "a"],
    **dict.fromkeys(("debug", "info", "warning", "error", "critical"), ["a"]),
    **dict.fromkeys(("uniform", "betavariate", "gammavariate", "vonmisesvariate", "lognormvariate"), [1.0, 2.0]),
    **dict.fromkeys(("expovariate", "paretovariate"), [1.0]),
    **dict.fromkeys(("randint", "weibullvariate"), [1, 2]),
    "randrange": [8],
    "choice": [[1, 2, 3]],
}
"""Arguments of the methods that have rows, where they take some."""


def rows_that_call_methods():
    """(class, method with a row, method that its code calls on the instance)."""
    for row in CALLS.values():
        if row.policy is Policy.MODELLED and isinstance(row.key, types.FunctionType) and row.key is not torch.nn.Module.cuda:
            for name in sorted(methods_called(row.key)):
                yield pytest.param(class_of_method(row.key), row.key.__name__, name, id=f"{row.key.__qualname__}-{name}")


def called(function, base, method, name, shadowed):
    """What the method gives and which methods of the object's own it calls. `shadowed`: in which of two calls it has its own."""
    if base is random.Random:
        around = shadowing = base(0)
    else:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            shadowing = instance(torch.nn.Sequential if base is torch.nn.Module else base)
        around = torch.nn.Sequential(shadowing) if "below" in shadowed else shadowing
    LOG.clear()
    found = []
    for turn in range(2):
        if base is logging.Logger:
            shadowing._cache.clear()  # of what isEnabledFor said
        if turn in shadowed:
            shadowing.__dict__[name] = own_method(shadowing, name)
        found.append(shown(function(torch.ones(2), around, *ARGUMENTS.get(method, []))[1]))
    return found, list(LOG)


def own_method(owner, name):
    def said(*args, **kwargs):
        LOG.append(name)
        return getattr(type(owner), name)(owner, *args, **kwargs)

    return said


@pytest.mark.parametrize(("base", "method", "name"), list(rows_that_call_methods()))
def test_methods_of_an_instances_own_are_called_as_in_eager(fresh, base, method, name):
    listed = "list(found)" if base is torch.nn.Module and method in module.READS else "found"
    namespace: dict = {}
    exec(f"def fn(x, d, *args):\n    x = x + 1\n    found = d.{method}(*args)\n    return x * 2, {listed}", namespace)
    for shadowed in ({0, 1}, {1}, {0, 1, "below"}, {1, "below"}):
        if "below" in shadowed and base is not torch.nn.Module:
            continue
        expected = called(namespace["fn"], base, method, name, shadowed)
        assert called(capture.optimize(lambda gm, inputs: gm.forward)(namespace["fn"]), base, method, name, shadowed) == expected


def test_effects_of_an_own_handle_are_there_at_once(fresh):
    class Own(logging.Logger):
        def handle(self, record):
            LOG.append(record.msg)

    def fn(x):
        logger.warning("a")
        return x + len(LOG)

    logger = Own("own")
    LOG.clear()
    compiled = capture.optimize(lambda gm, inputs: gm.forward)(fn)
    assert compiled(torch.zeros(1)).item() == 1 and compiled(torch.zeros(1)).item() == 2
