"""Functions of torch that need more than a node of their own: one graph, eager's values, gradients and layouts."""

import pytest
import torch
import torch.nn.functional as F
import tracework
import tracework_capture
from training import BACKENDS, check

ISTFT_CASES = [
    {"n_fft": 16},
    {"n_fft": 16, "hop_length": 3, "length": 50},
    {"n_fft": 9, "hop_length": 2, "win_length": 8, "window": torch.hamming_window(8), "normalized": True},
    {"n_fft": 16, "window": torch.hann_window(16), "onesided": False},
    {"n_fft": 16, "window": torch.ones(16), "center": False},
    {"n_fft": 9, "window": torch.hann_window(9), "onesided": False, "return_complex": True, "center": True},
]


def spectrum(options, shape):
    torch.manual_seed(0)
    known = ("n_fft", "hop_length", "win_length", "window", "normalized", "onesided")
    return torch.stft(torch.randn(shape), return_complex=True, **{k: v for k, v in options.items() if k in known})


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("options", ISTFT_CASES, ids=str)
def test_istft(options, backend):
    for shape in (64, (2, 64)):
        given = spectrum(options, shape).requires_grad_()
        check(lambda x: torch.view_as_real(y) if (y := torch.istft(x, **options)).is_complex() else y, given, backend=backend)
        check(lambda x: x.istft(**options).abs(), given, backend=backend)


@pytest.mark.parametrize(
    "options",
    [
        {"n_fft": 16, "window": torch.zeros(16)},
        {"n_fft": 16, "hop_length": 17},
        {"n_fft": 15},
        {"n_fft": 16, "window": torch.ones(3)},
    ],
    ids=str,
)
def test_what_istft_refuses(options):
    given = spectrum({"n_fft": 16}, 64)
    with pytest.raises(RuntimeError) as expected:
        torch.istft(given, **options)
    with pytest.raises(RuntimeError) as found:
        tracework.compile(lambda x: torch.istft(x, **options), backend="eager")(given)
    assert str(found.value) == str(expected.value)


def test_mode():
    check(lambda x: x.mode(1).values + torch.mode(x, 0).values[:2], torch.tensor([[1.0, 2.0, 1.0], [3.0, 3.0, 2.0]]))


@pytest.mark.parametrize("distance", [torch.nn.PairwiseDistance(), lambda a, b: (a - b).norm(dim=-1), None])
def test_triplet_margin_with_distance_loss(distance):
    given = [torch.randn(4, 5, requires_grad=True) for _ in range(3)]
    check(lambda *x: F.triplet_margin_with_distance_loss(*x, distance_function=distance, swap=True), *given)


def test_an_object_as_an_argument_breaks():
    reads_it = torch.nn.PairwiseDistance()
    with pytest.raises(tracework_capture.Unsupported, match="not_a_graph_argument"):
        tracework.compile(lambda x: torch.add(x, reads_it), backend="eager", fullgraph=True)(torch.ones(2))
