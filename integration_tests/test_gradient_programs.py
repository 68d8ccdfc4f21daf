"""Random programs that are differentiated: compiled and plain runs agree. `python -m gradient_programs` looks further."""

import random

import pytest
from gradient_programs import check, generate
from gradient_programs.generate import NAMES
from gradient_programs.uses import USES


@pytest.mark.parametrize("seed", range(100))
def test_fixed_sample(seed):
    check(*generate(random.Random(seed)), backend="aot_eager")


WRONG_ONCE = {
    "a second backward where eager alone keeps anything": (
        "    v1 = w1 * 2\n    v2 = v1.tanh()\n    return v1, v2, v2.where(v2 > 0, 0.5), v2.narrow(0, 0, 1)\n"
    ),
    "a write under no_grad to what others are computed from": (
        "    v1 = h2.sin()\n    v2 = v1.mean() * h1\n    with torch.no_grad():\n        v1.add_(1)\n    return v1, v2\n"
    ),
    "the same, of what has turned in place": (
        "    v1 = h2.sin()\n    v1.t_()\n    v2 = v1.mean() * h1\n    with torch.no_grad():\n        v1.add_(1)\n    return v1, v2\n"
    ),
    "a view of what turns in place": (
        "    v1 = h2.sin()\n    v2 = v1.contiguous().clone()\n    v3 = v2.view(-1)\n    v2.t_()\n    return v2, v3, v3.sin()\n"
    ),
    "a view that turns in place under no_grad": (
        "    v1 = h2.sin()\n    v2 = v1.t()\n    with torch.no_grad():\n        v2.unsqueeze_(0)\n    return v1, v2, v2.exp()\n"
    ),
    "what others are computed from turns in place": (
        "    v1 = h1 * h2\n    v2 = v1.clone()\n    v3 = v2 * v1.mean()\n    v1.t_()\n    return v1, v2, v3\n"
    ),
    "what turns in place under no_grad": (
        "    v1 = h1 * h2\n    with torch.no_grad():\n        v1.t_()\n    return v1, v1.detach(), v1.exp()\n"
    ),
    "what turns in place without a history, and a view of what it was": (
        "    v1 = c0.clone()\n    v2 = v1.view(-1)\n    v1.t_()\n    return v1, v2, h1 * v1\n"
    ),
    "a write to the result of a checkpoint": (
        "    v1 = h1 * 2\n    v2 = checkpoint(lambda a: a.sin().exp(), v1, use_reentrant=False)\n    v2.add_(v1)\n    return v1, v2\n"
    ),
    "a write to an input, then again before the backward": "    c0.copy_(h0)\n    return c0.square(), c0.exp()\n",
    "a hook of what a result and another that it is computed from have in common": (
        "    v1 = w1 * h1\n    v2 = v1.sin()\n    v1.register_hook(lambda g: g * 2)\n    return v2, v2 / (1 + v1.square())\n"
    ),
    "an input that is detached in place after its use": "    v0 = w0 / (1 + h0.square())\n    h0.detach_()\n    return v0, h0.sin()\n",
    "a detached write to what has turned in place": (
        "    v1 = h2.sin()\n    v1.t_()\n    v2 = v1.mean() * h1\n    v1.detach().mul_(2)\n    return v1, v2\n"
    ),
    "a hook of an input with a history that two results depend on": (
        "    v0 = h0.reshape(-1).mean() * h1\n    h1.register_hook(lambda g: g * 2)\n    return v0.exp(), v0.diagonal()\n"
    ),
    "a detached write to a leaf": "    v0 = w0.sin() * h0.detach()\n    w0.detach().add_(1)\n    return v0, w0.exp()\n",
    "a detached write to a leaf beside random numbers": (
        "    w0.detach().add_(1)\n    v0 = torch.nn.functional.dropout(w0, 0.5)\n    return v0, v0 * w1\n"
    ),
    "a write with a history to what shows an input behind its back": (
        "    v0 = w0.detach()[:1]\n    v0.mul_(w1.mean())\n    return v0, v0.sin()\n"
    ),
    "a write with a history to a view of an input made under no_grad": (
        "    with torch.no_grad():\n        v0 = w0.detach()\n    v0.mul_(w1.mean())\n    return v0, v0.sin()\n"
    ),
    "a write to an input that is a view": "    v0 = h2.sigmoid()\n    h2.t().mul_(2)\n    h2[0] = 0.5\n    return v0, h2[1:].exp()\n",
    "a view of an input that is a view is written to": "    v0 = h2.narrow(0, 0, 1)\n    v0.mul_(2)\n    return v0, v0.sin()\n",
    "an input that is a view and has views is written to": "    v0 = h2[1:]\n    h2.mul_(2)\n    return v0.sin(), h2.mean() * h1\n",
    "a view of an input that is a view turns in place": "    v0 = h2.narrow(0, 0, 1)\n    v0.t_()\n    return v0, v0.sin()\n",
}


UNCOMPILED_ONCE = {
    "a piece whose inputs have hooks": (
        "    v2 = h1.squeeze()\n    v3 = h0 / (1 + w1.square())\n    v4 = w0.view_as(w0)\n    v5 = Scaled.apply(v2, v3)\n"
        "    v6 = torch.cat([v4, v2])\n    v7 = Scaled.apply(v3, v3)\n    v4.register_hook(lambda g: g * 2)\n    return v4, v5, v7\n"
    ),
}


@pytest.mark.parametrize("body", UNCOMPILED_ONCE.values(), ids=UNCOMPILED_ONCE)
def test_programs_that_ran_uncompiled(body, caplog):
    described = {"use": "gradients", "sizes": "static", "seed": 0}
    check(described, f"def main({', '.join(NAMES)}):\n{body}", backend="aot_eager")
    assert not [record for record in caplog.records if record.name == "tracework.fallbacks"]


@pytest.mark.parametrize("body", WRONG_ONCE.values(), ids=WRONG_ONCE)
@pytest.mark.parametrize("use", USES)
def test_programs_that_were_wrong(body, use):
    described = {"use": use, "sizes": "static", "seed": 0}
    check(described, f"def main({', '.join(NAMES)}):\n{body}", backend="aot_eager")
