"""Every function and method of torch has a policy; torch_policy.txt holds the counts and every name that is no node of the graph, and
by reason every name that breaks it.

Written again by: python packages/capture/tests/unit/values/test_torch_policy.py
"""

import binascii
import importlib
import types
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from tracework_capture.errors import BREAK_REASONS
from tracework_capture.values.policy import rule_of, rule_of_method
from tracework_capture.values.protocol.calls import Policy

TABLE = Path(__file__).with_name("torch_policy.txt")
NAMESPACES = (
    *("torch", "torch.nn.functional", "torch.special", "torch.linalg", "torch.fft", "torch.func", "torch.random", "torch.amp"),
    *("torch.autograd", "torch.autograd.functional", "torch.autograd.forward_ad", "torch.autograd.graph", "torch.nn.attention"),
    *("torch.compiler", "torch.utils.checkpoint", "torch.nn.utils"),
)


def is_of_torch(obj):
    """Whether it is something to call that torch made, and no name that one of its modules imported from elsewhere."""
    module = getattr(obj, "__module__", None) or "torch"
    return callable(obj) and not isinstance(obj, types.ModuleType) and module.partition(".")[0] == "torch"


def functions(space):
    """Name -> function or class."""
    module = importlib.import_module(space)
    return {n: f for n in sorted(dir(module)) if is_of_torch(f := getattr(module, n, None))}


def policies():
    """Namespace -> name -> policy."""
    found = {space: {n: rule_of(f).policy for n, f in functions(space).items()} for space in NAMESPACES}
    methods = [n for n in sorted(dir(torch.Tensor)) if callable(getattr(torch.Tensor, n, None))]
    return found | {"torch.Tensor": {n: rule_of_method(torch.Tensor, n).policy for n in methods}}


def reasons(space, names):
    """Reason -> names that break for it."""
    found = {}
    for name in (n for n, p in names.items() if p is Policy.BREAK):
        is_method = space == "torch.Tensor"
        rule = rule_of_method(torch.Tensor, name) if is_method else rule_of(getattr(importlib.import_module(space), name))
        found.setdefault(rule.reason, []).append(name)
    return found


def render():
    """The text of the table."""
    lines = [f"torch {torch.__version__.partition('+')[0]}"]
    for space, names in policies().items():
        lines += ["", f"{space}: {len(names)}"]
        for policy in Policy:
            chosen = [n for n, p in names.items() if p == policy]
            shown = "" if policy in (Policy.NODE, Policy.BREAK) else ": " + " ".join(chosen)
            lines += [f"  {len(chosen)} {policy.value}{shown}"] if chosen else []
        for reason, chosen in sorted(reasons(space, names).items()):
            lines.append(f"    {len(chosen)} {reason}: {' '.join(chosen)}")
    return "\n".join(lines) + "\n"


def test_every_function_and_method_has_a_policy():
    for names in policies().values():
        assert names and set(names.values()) <= set(Policy)


def test_every_break_has_a_reason():
    for space, names in policies().items():
        assert set(reasons(space, names)) <= set(BREAK_REASONS)


def test_the_table_is_current():
    if TABLE.read_text().partition("\n")[0] != render().partition("\n")[0]:
        pytest.skip("the table is of another torch")
    assert render() == TABLE.read_text()


@pytest.mark.parametrize(
    ("fn", "policy"),
    [
        (torch.add, Policy.MODELLED),
        (torch.sin, Policy.NODE),
        (torch.linalg.cond, Policy.NODE),
        (torch.nn.functional.relu, Policy.NODE),
        (torch.is_grad_enabled, Policy.EVALUATED),
        (torch.set_flush_denormal, Policy.BREAK),
        (torch.cond, Policy.MODELLED),
        (torch.pca_lowrank, Policy.TRACED),
        (np.sinc, Policy.TRACED),
        (np.array2string, Policy.BREAK),
        (np.packbits, Policy.BREAK),
        (binascii.crc32, Policy.EVALUATED),
        (zlib.crc32, Policy.BREAK),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_some_policies(fn, policy):
    assert rule_of(fn).policy is policy


if __name__ == "__main__":
    TABLE.write_text(render())
