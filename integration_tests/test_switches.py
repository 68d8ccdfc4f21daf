"""Switches of torch that choose kernels: what was compiled before, after and between their changes does what eager does then."""

import contextlib
import warnings

import pytest
import torch
import torch.nn.functional as F
import tracework
from tracework.assemble import GraphCompiler
from training import copied

NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
DEVICES = ["cpu", pytest.param("cuda", marks=NO_GPU)]


set_mkldnn = (
    torch._C._set_mkldnn_enabled
)  # the attribute of torch.backends cannot be written once torch's test records are imported


@pytest.fixture(autouse=True)
def switches():
    yield
    torch.use_deterministic_algorithms(False)
    torch.utils.deterministic.fill_uninitialized_memory = True
    torch.set_float32_matmul_precision("highest")
    set_mkldnn(True)


def outcome(fn, inputs):
    """(results and gradients, or the exception; warnings about determinism) of a call."""
    torch.manual_seed(0)
    inputs = copied(inputs)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            found = fn(*inputs)
            results = list(found) if isinstance(found, tuple) else [found]
            sums = [x.float().sum() for x in results if isinstance(x, torch.Tensor) and x.requires_grad]
            if sums:
                sum(sums).backward()
            made = [x.detach() if isinstance(x, torch.Tensor) else x for x in results] + [x.grad for x in inputs]
        except RuntimeError as error:
            made = [f"{type(error).__name__}: {str(error).partition('.')[0]}"]
    return made, sorted({str(w.message).partition(".")[0] for w in said if "deterministic" in str(w.message)})


def agree(found, expected):
    assert found[1] == expected[1]
    for one, other in zip(found[0], expected[0], strict=True):
        if isinstance(other, torch.Tensor):
            assert one.stride() == other.stride()
            torch.testing.assert_close(one, other, equal_nan=True)
        else:
            assert one == other


def check(fn, inputs, switch, settings):
    """Compiled before the switch, after it, and when it is back."""
    for order in ((*settings, settings[0]), settings[::-1]):
        compiled = tracework.compile(fn, recompile_limit=ENTRIES)
        for setting in order:
            switch(setting)
            agree(outcome(compiled, inputs), outcome(fn, inputs))


def deterministic(word):
    torch.use_deterministic_algorithms(word != "off", warn_only=word == "warn")


DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.complex64, torch.int64, torch.int8, torch.uint8, torch.bool]
ENTRIES = 4 * len(DTYPES)
"""A break in a comprehension, which is a part of the frame from CPython 3.12 on, takes an entry for each dtype and setting."""
MAKERS = {
    "empty": lambda x, dtype: torch.empty(3, 2, dtype=dtype, device=x.device),
    "empty, channels last": lambda x, dtype: torch.empty(
        1, 2, 3, 4, dtype=dtype, device=x.device, memory_format=torch.channels_last
    ),
    "empty_like": lambda x, dtype: torch.empty_like(x.t(), dtype=dtype),
    "empty_strided": lambda x, dtype: torch.empty_strided((3, 2), (1, 5), dtype=dtype, device=x.device),
    "empty_permuted": lambda x, dtype: torch.empty_permuted((3, 2), (1, 0), dtype=dtype, device=x.device),
    "new_empty": lambda x, dtype: x.new_empty(3, 2, dtype=dtype),
    "new_empty_strided": lambda x, dtype: x.new_empty_strided((3, 2), (1, 3), dtype=dtype),
    "resize_": lambda x, dtype: torch.zeros(2, device=x.device).resize_(5),
    "read at once": lambda x, dtype: torch.empty_strided((3, 2), (1, 3), dtype=dtype, device=x.device) == 1,
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", MAKERS)
def test_uninitialised_memory_is_filled(name, device):
    """It is compared where it is filled: elsewhere it has any values."""

    def fn(x):
        made = [MAKERS[name](x, dtype) for dtype in DTYPES]
        filled = torch.are_deterministic_algorithms_enabled() and torch.utils.deterministic.fill_uninitialized_memory
        return tuple(made if filled else [m.shape for m in made])

    check(fn, [torch.ones(3, 2, device=device)], deterministic, ("off", "error"))
    deterministic("error")
    compiled, x = tracework.compile(fn, recompile_limit=ENTRIES), torch.ones(3, 2, device=device)
    for wanted in (True, False, True):
        torch.utils.deterministic.fill_uninitialized_memory = wanted
        agree(outcome(compiled, [x]), outcome(fn, [x]))


class PutsInItsBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, index):
        ctx.save_for_backward(index)
        return x * 2

    @staticmethod
    def backward(ctx, g):
        (index,) = ctx.saved_tensors
        return (g * 3).put(index, g.flatten()[:5]), None


def image(x):
    return x.reshape(1, 2, 4, -1)


ALERTING = {
    "put": lambda x, index: x.put(index, x.flatten()[:5]),
    "put, adding": lambda x, index: x.put(index, x.flatten()[:5], accumulate=True),
    "put_": lambda x, index: (x * 1).put_(index, x.flatten()[:5]) + 1,
    "max_unpool1d": lambda x, index: F.max_unpool1d(*F.max_pool1d(x.reshape(1, 1, -1), 2, return_indices=True), 2),
    "max_unpool2d": lambda x, index: F.max_unpool2d(*F.max_pool2d(image(x), 2, return_indices=True), 2),
    "max_unpool3d": lambda x, index: F.max_unpool3d(*F.max_pool3d(x.reshape(1, 2, 2, 2, -1), 2, return_indices=True), 2),
    "put in a backward": lambda x, index: PutsInItsBackward.apply(x, index),
}
ALERTING_ON_GPU = {
    "cumsum": lambda x, index: x.cumsum(0),
    "cumsum of integers": lambda x, index: index.cumsum(0),
    "median": lambda x, index: x.median(0),
    "median of all": lambda x, index: x.median(),
    "kthvalue": lambda x, index: x.kthvalue(2, 0),
    "histc": lambda x, index: x.detach().histc(4, -1, 1),
    "bincount": lambda x, index: index.bincount(x.detach().flatten()[:5], minlength=9),
    "index_add": lambda x, index: x.index_add(0, index, x[:5]),
    "index_copy": lambda x, index: x.index_copy(0, index, x[:5]),
    "index_put": lambda x, index: x.index_put((index,), x[:5] * 2),
    "index_put, adding": lambda x, index: x.index_put((index,), x[:5], accumulate=True),
    "index_reduce": lambda x, index: x.detach().index_reduce(0, index, x.detach()[:5], "prod"),
    "scatter": lambda x, index: x.scatter(0, index[:, None].expand(5, 4), x[:5]),
    "scatter of a number": lambda x, index: x.scatter(0, index[:, None].expand(5, 4), 1.5),
    "scatter_add": lambda x, index: x.scatter_add(0, index[:, None].expand(5, 4), x[:5]),
    **{
        f"scatter_reduce {kind}": lambda x, index, kind=kind: x.detach().scatter_reduce(
            0, index[:, None].expand(5, 4), x.detach()[:5], kind
        )
        for kind in ("sum", "mean", "prod", "amax")
    },
    "gather": lambda x, index: x.gather(0, index[:, None].expand(5, 4)) * 2,
    "index_select": lambda x, index: x.index_select(0, index) * 2,
    "index": lambda x, index: x[index] * 2,
    "repeat_interleave": lambda x, index: x.repeat_interleave(2, 0) * 2,
    "take": lambda x, index: x.take(index) * 2,
    "embedding": lambda x, index: F.embedding(index, x) * 2,
    "embedding, padded": lambda x, index: F.embedding(index, x, padding_idx=1) * 2,
    **{
        f"embedding_bag {mode}": lambda x, index, mode=mode: F.embedding_bag(index[None], x, mode=mode) for mode in ("sum", "max")
    },
    "nll_loss": lambda x, index: F.cross_entropy(x[:5], index % 4),
    "nll_loss2d": lambda x, index: F.nll_loss(image(x), index[:1, None, None].expand(1, 4, 2) % 2),
    **{
        f"interpolate {mode}": lambda x, index, mode=mode: F.interpolate(image(x), scale_factor=2, mode=mode)
        for mode in ("nearest", "bilinear", "bicubic")
    },
    "interpolate linear": lambda x, index: F.interpolate(x[None], scale_factor=2, mode="linear"),
    "interpolate trilinear": lambda x, index: F.interpolate(x.reshape(1, 2, 2, 2, -1), scale_factor=2, mode="trilinear"),
    **{
        f"pad {mode} {dims}": lambda x, index, mode=mode, dims=dims, shape=shape: F.pad(
            x.reshape(shape), (1,) * 2 * dims, mode=mode
        )
        for mode in ("reflect", "replicate")
        for dims, shape in ((1, (1, 2, 16)), (2, (1, 2, 4, 4)), (3, (1, 2, 2, 2, 4)))
    },
    "avg_pool3d": lambda x, index: F.avg_pool3d(x.reshape(1, 2, 2, 2, -1), 2),
    "adaptive_avg_pool2d": lambda x, index: F.adaptive_avg_pool2d(image(x), 3),
    "adaptive_avg_pool3d": lambda x, index: F.adaptive_avg_pool3d(x.reshape(1, 2, 2, 2, -1), 3),
    "adaptive_max_pool2d": lambda x, index: F.adaptive_max_pool2d(image(x), 3),
    "max_pool2d": lambda x, index: F.max_pool2d(image(x), 2, 1),
    "max_pool3d": lambda x, index: F.max_pool3d(x.reshape(1, 2, 2, 2, -1), 2, 1),
    "grid_sample": lambda x, index: F.grid_sample(image(x), x.reshape(1, 4, 4, 2), align_corners=False),
    "ctc_loss": lambda x, index: F.ctc_loss(
        x[:, None].log_softmax(-1), index[None, :2] % 3 + 1, torch.tensor([8]), torch.tensor([2]), zero_infinity=True
    ),
}


def operands(device):
    x = torch.randn(8, 4, generator=torch.Generator().manual_seed(0)).to(device).requires_grad_()
    return [x, torch.tensor([0, 1, 1, 3, 5], device=device)]


@pytest.mark.parametrize(
    ("name", "device"),
    [*((name, "cpu") for name in ALERTING), *(pytest.param(name, "cuda", marks=NO_GPU) for name in ALERTING | ALERTING_ON_GPU)],
)
def test_what_is_not_deterministic_raises_or_warns_as_eager_does(name, device):
    fn, (x, index) = (ALERTING | ALERTING_ON_GPU)[name], operands(device)
    check(fn, [x, index], deterministic, ("off", "error", "warn"))
    check(fn, [x.detach(), index], deterministic, ("warn", "error"))


def filled_inside(x, index):
    torch.use_deterministic_algorithms(True)
    made = torch.empty(3), torch.empty_strided((2, 2), (1, 2))
    torch.use_deterministic_algorithms(False)
    return *made, x + 1


def warns_inside(x, index):
    y = x * 2
    torch.use_deterministic_algorithms(True, warn_only=True)
    y = y.put(index, x.flatten()[:5])
    torch.use_deterministic_algorithms(False)
    return y.sin()


def raises_inside(x, index):
    torch.use_deterministic_algorithms(True)
    try:
        return x.put(index, x.flatten()[:5])
    except RuntimeError as error:
        return str(error).partition(".")[0], torch.are_deterministic_algorithms_enabled()
    finally:
        torch.use_deterministic_algorithms(False)


def by_its_mode(x, index):
    torch.set_deterministic_debug_mode("error")
    asked = torch.are_deterministic_algorithms_enabled(), torch.get_deterministic_debug_mode()
    made = torch.empty(3)
    torch.set_deterministic_debug_mode(0)
    return made, asked


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("fn", [filled_inside, warns_inside, raises_inside, by_its_mode], ids=lambda fn: fn.__name__)
def test_a_switch_inside(fn, backend):
    x, index = operands("cpu")
    compiled = tracework.compile(fn, backend=backend)
    for _ in range(2):
        agree(outcome(compiled, [x.detach(), index]), outcome(fn, [x.detach(), index]))


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_backward_does_what_is_set_when_it_runs(backend):
    compiled = tracework.compile(ALERTING["put in a backward"], backend=backend)
    for before, after in (("off", "error"), ("error", "off"), ("off", "off"), ("off", "error")):
        x, index = operands("cpu")
        deterministic(before)
        y = compiled(x, index)
        deterministic(after)
        with pytest.raises(RuntimeError, match="put_ does not have a determ") if after == "error" else contextlib.nullcontext():
            y.sum().backward()
            torch.testing.assert_close(x.grad.flatten()[[0, 2]], torch.tensor([1.0, 3.0]))


def test_a_backward_is_compiled_once_for_each_setting(monkeypatch):
    compiled, roles = tracework.compile(torch.tanh), []
    compile_one = GraphCompiler._compiled
    monkeypatch.setattr(GraphCompiler, "_compiled", lambda self, gm, spec: roles.append(spec.role) or compile_one(self, gm, spec))
    for word in ("off", "error", "warn", "off", "error"):
        deterministic("off")
        y = compiled(torch.ones(3, requires_grad=True))
        deterministic(word)
        y.sum().backward()
    assert roles == ["forward", "backward", "backward"]


def test_a_gradient_that_has_a_gradient_does_what_is_set_when_it_runs():
    def fn(x, index):
        return PutsInItsBackward.apply(x.sin(), index)

    compiled = tracework.compile(fn)
    for word in ("off", "error", "off"):
        x, index = operands("cpu")
        deterministic("off")
        y = compiled(x, index)
        deterministic(word)
        with pytest.raises(RuntimeError, match="put_ does not have a determ") if word == "error" else contextlib.nullcontext():
            torch.autograd.grad(y.sum(), x, create_graph=True)


def test_a_backward_of_open_sizes_is_compiled_anew_under_another_setting():
    def fn(x, index):
        return PutsInItsBackward.apply(x, index).index_select(0, index)

    compiled = tracework.compile(fn, dynamic=True)
    for rows in (8, 9, 10):
        for word in ("off", "warn", "off"):
            x = torch.randn(rows, 4, requires_grad=True)
            y = compiled(x, torch.tensor([0, 1, 1, 3, 5]))
            deterministic(word)
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                y.sum().backward()
            assert bool(said) == (word == "warn")
            deterministic("off")


LAYERS = {
    "linear": lambda x: F.linear(x.reshape(-1, 256) / 16, x.reshape(-1, 256)[:256]),
    "convolution": lambda x: F.gelu(F.conv2d(x, x.reshape(-1, 8, 3, 64)[:16, ..., :3] / 8, padding=1)),
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x),
}
SETTINGS = {
    "matmul precision": (torch.set_float32_matmul_precision, ("highest", "medium")),
    "oneDNN": (set_mkldnn, (True, False)),
    "flash attention": (torch.backends.cuda.enable_flash_sdp, (True, False)),
}


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("setting", SETTINGS)
def test_precisions_and_libraries(layer, setting):
    x = torch.randn(4, 8, 64, 64, generator=torch.Generator().manual_seed(0))
    try:
        check(LAYERS[layer], [x], *SETTINGS[setting])
    finally:
        torch.backends.cuda.enable_flash_sdp(True)


def test_library_kernels_are_told_by_the_switch_of_the_call():
    """The name of the kernel that oneDNN would have is not in a profile where it is switched off."""
    net = torch.nn.Sequential(torch.nn.Conv2d(8, 16, 3, padding=1), torch.nn.BatchNorm2d(16), torch.nn.GELU()).eval()
    compiled, x = tracework.compile(net), torch.randn(2, 8, 32, 32)
    with torch.no_grad():
        for on in (True, False, True):
            set_mkldnn(on)
            compiled(x)
            with torch.profiler.profile() as profile:
                torch.testing.assert_close(compiled(x), net(x))
            names = {event.key for event in profile.key_averages()}
            assert any("mkldnn" in name for name in names) is on


SAME_BITS = {
    "index_add": lambda x, index: x.new_zeros(7, 64).index_add(0, index, x),
    "index_put": lambda x, index: x.new_zeros(7, 64).index_put((index,), x, accumulate=True),
    "index_put, replacing": lambda x, index: x.new_zeros(7, 64).index_put((index,), x),
    "scatter_add": lambda x, index: x.new_zeros(7, 64).scatter_add(0, index[:, None].expand(-1, 64), x),
    "embedding": lambda x, index: F.embedding(index, x[:7]).sin() * 2,
    "index": lambda x, index: x[:7][index].sin() * 2,
    "sums": lambda x, index: (x.sum(), x.sum(0), x.var(), x.logsumexp(0), x.softmax(0)),
    "normalisations": lambda x, index: (F.layer_norm(x, (64,)), F.batch_norm(x, None, None, training=True)),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", SAME_BITS)
def test_each_run_has_the_same_bits(name, device):
    generator = torch.Generator().manual_seed(0)
    index = torch.randint(7, (1 << 14,), generator=generator).to(device)
    x = torch.randn(1 << 14, 64, generator=generator).to(device).requires_grad_()
    torch.use_deterministic_algorithms(True)
    compiled = tracework.compile(SAME_BITS[name])
    first, *others = [outcome(compiled, [x, index])[0] for _ in range(5)]
    assert isinstance(first[0], torch.Tensor), first
    for other in others:
        assert all(torch.equal(a, b) for a, b in zip(first, other, strict=True) if isinstance(a, torch.Tensor))
