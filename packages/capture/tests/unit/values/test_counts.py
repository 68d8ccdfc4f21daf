"""What modules count in buffers and compute with: averages over all steps, divisions by counts, errors at a count of zero."""

import copy

import pytest
import torch
import torch.nn.functional as F
from harness import assert_same
from tracework_capture import optimize


class Averaged(torch.nn.Module):
    """Normalized by averages over all batches so far."""

    def __init__(self, **options):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(3, momentum=None, **options)

    def forward(self, x):
        return self.norm(x * 2).sin()


class Share(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.tensor(0))

    def forward(self, x):
        self.count += 1
        self.count.mul_(2)
        return x * (6 / float(self.count)) + 1 / (float(self.count) * 2)


class Momentum(torch.nn.Module):
    """A momentum that is read out of a tensor, and batches that are not normalized by themselves."""

    def __init__(self, training):
        super().__init__()
        self.register_buffer("share", torch.tensor(0.25))
        self.register_buffer("mean", torch.ones(3))
        self.register_buffer("var", torch.ones(3))
        self.train(training)

    def forward(self, x):
        return F.batch_norm(x, self.mean, self.var, training=self.training, momentum=self.share.item())


KINDS = [Averaged, lambda: Averaged(affine=False), lambda: Averaged(dtype=torch.float64), Share]
KINDS += [lambda: Momentum(True), lambda: Momentum(False)]


@pytest.mark.parametrize("kind", KINDS)
def test_steps(kind):
    plain, graphs = kind(), []
    module = copy.deepcopy(plain)

    def backend(gm, example_inputs):
        graphs.append(gm)
        return gm.forward

    fast = optimize(backend, fullgraph=True)(lambda x: module(x))
    dtype = next((t.dtype for t in plain.buffers() if t.ndim), torch.float32)
    versions = [[t._version for t in m.buffers()] for m in (plain, module)]
    for step in range(4):
        x = (torch.arange(12, dtype=dtype).reshape(4, 3) * (step + 1)).requires_grad_()
        assert_same(fast(x).detach(), plain(x).detach())
        assert_same(dict(module.state_dict()), dict(plain.state_dict()))
        assert_same(*(torch.autograd.grad(run(x).sin().sum(), x)[0] for run in (fast, plain)))
    counted = [[t._version - n for t, n in zip(m.buffers(), before)] for m, before in zip((plain, module), versions)]
    assert counted[0] == counted[1]
    plain.eval(), module.eval()
    assert_same(fast(x).detach(), plain(x).detach())
    assert len(graphs) <= 2  # one for training, one for evaluation


@pytest.mark.parametrize("first", [True, False])
def test_a_count_of_zero_raises(first):
    module = Averaged()
    fast = optimize(lambda gm, inputs: gm.forward)(lambda x: module(x))
    if not first:
        fast(torch.ones(4, 3))
    module.norm.num_batches_tracked.fill_(-1)
    with pytest.raises(ZeroDivisionError):
        fast(torch.ones(4, 3))
    assert module.norm.num_batches_tracked == 0
