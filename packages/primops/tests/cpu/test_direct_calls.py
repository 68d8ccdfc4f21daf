"""Calls that op_db does not make: functional batch norm, mixed dtypes, channels last, optimizers, attention's math form."""

import pytest
import torch
from single_op import check
from tracework_primops import FakeMode
from tracework_primops.decomp.attention import MATH_FORMS

aten = torch.ops.aten
BF16, F32 = torch.bfloat16, torch.float32


def _rand(*sizes, dtype=F32, **options):
    return torch.randn(sizes, dtype=dtype, **options)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def assert_prims(func, *args, **kwargs):
    """The call becomes prims only, which give what eager gives."""
    kind, failure = check(func, args, kwargs)
    assert failure is None, failure
    assert kind == "prims"


def _norm_inputs(dtype, weight_dtype, last=False):
    x = _rand(4, 6, 5, 5, dtype=dtype)
    x = x.contiguous(memory_format=torch.channels_last) if last else x
    parameters = [None, None] if weight_dtype is None else [_rand(6, dtype=weight_dtype) for _ in range(2)]
    running = [_rand(6, dtype=weight_dtype or dtype), _rand(6, dtype=weight_dtype or dtype).abs() + 1]
    return x, parameters, running


MIXTURES = [(F32, F32), (F32, None), (BF16, BF16), (BF16, F32), (torch.float64, torch.float64)]


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("dtypes", MIXTURES)
def test_batch_norm_forms(dtypes, last):
    x, (weight, bias), (mean, var) = _norm_inputs(*dtypes, last)
    for training in (True, False):
        assert_prims(aten._native_batch_norm_legit_functional.default, x, weight, bias, mean, var, training, 0.1, 1e-5)
    assert_prims(aten.native_batch_norm.default, x, weight, bias, mean, var, False, 0.1, 1e-5)
    assert_prims(aten.native_batch_norm.default, x, weight, bias, None, None, True, 0.1, 1e-5)
    assert_prims(aten._native_batch_norm_legit.no_stats, x, weight, bias, True, 0.1, 1e-5)
    assert_prims(aten._native_batch_norm_legit_no_training.default, x, weight, bias, mean, var, 0.1, 1e-5)
    assert_prims(aten._batch_norm_no_update.default, x, weight, bias, mean, var, 0.1, 1e-5)
    assert_prims(aten._batch_norm_with_update_functional.default, x, weight, bias, mean, var, 0.1, 1e-5)


@pytest.mark.parametrize("mask", [[True, True, True], [True, False, False], [False, True, True]])
@pytest.mark.parametrize("dtypes", MIXTURES)
def test_batch_norm_backward(dtypes, mask):
    x, (weight, bias), (mean, var) = _norm_inputs(*dtypes)
    for training in (True, False):
        _, save_mean, save_rstd = aten.native_batch_norm(x, weight, bias, mean.clone(), var.clone(), training, 0.1, 1e-5)
        saved = (mean, var, save_mean, save_rstd)
        assert_prims(aten.native_batch_norm_backward.default, torch.randn_like(x), x, weight, *saved, training, 1e-5, mask)


@pytest.mark.parametrize("dtypes", MIXTURES)
def test_layer_group_and_rms_norm(dtypes):
    dtype, weight_dtype = dtypes
    x, (weight, bias), _ = _norm_inputs(dtype, weight_dtype)
    y = x.permute(0, 2, 3, 1).contiguous()
    out, mean, rstd = aten.native_layer_norm(y, [6], weight, bias, 1e-5)
    assert_prims(aten.native_layer_norm.default, y, [6], weight, bias, 1e-5)
    grad = torch.randn_like(y)
    # eager sums the parameters' gradients of half-precision inputs in half precision; ours are nearer to the exact ones
    for mask in [[True, False, False]] + [[True] * 3] * (weight_dtype is not None and dtype is not BF16):
        assert_prims(aten.native_layer_norm_backward.default, grad, y, [6], mean, rstd, weight, bias, mask)
    out, mean, rstd = aten.native_group_norm(x, weight, bias, 4, 6, 25, 3, 1e-5)
    assert_prims(aten.native_group_norm.default, x, weight, bias, 4, 6, 25, 3, 1e-5)
    if dtype is not BF16 and weight_dtype is not None:  # as above
        assert_prims(aten.native_group_norm_backward.default, torch.randn_like(x), x, mean, rstd, weight, 4, 6, 25, 3, [True] * 3)
    if weight_dtype in (dtype, None):
        assert_prims(aten._fused_rms_norm.default, y, [6], weight, None)


@pytest.mark.parametrize("reduction", [0, 1, 2])
@pytest.mark.parametrize("weighted", [False, True])
def test_nll_loss_forward_and_backward(reduction, weighted):
    for sizes in ((5, 7), (7,), (3, 7, 2, 4)):
        x = torch.log_softmax(_rand(*sizes), 1 if len(sizes) > 1 else 0)
        target = torch.randint(0, 7, sizes[:1] + sizes[2:] if len(sizes) > 1 else ())
        if target.ndim:
            target.view(-1)[0] = -100
        weight = torch.rand(7) if weighted else None
        forward, backward = (
            (aten.nll_loss2d_forward, aten.nll_loss2d_backward)
            if len(sizes) == 4
            else (aten.nll_loss_forward, aten.nll_loss_backward)
        )
        assert_prims(forward.default, x, target, weight, reduction, -100)
        out, total = forward(x, target, weight, reduction, -100)
        assert_prims(backward.default, torch.randn_like(out), x, target, weight, reduction, -100, total)


def test_all_targets_ignored_is_nan_as_in_eager():
    assert_prims(aten.nll_loss_forward.default, _rand(3, 4), torch.full((3,), -100), None, 1, -100)


@pytest.mark.parametrize("dtype", [F32, BF16])
def test_activations_at_their_corners(dtype):
    x = torch.tensor([-float("inf"), -7, -3, -1, -0.5, 0.0, 0.5, 1, 3, 6, 7, 30, float("inf"), float("nan")], dtype=dtype)
    grad = torch.linspace(-1, 1, len(x)).to(dtype)
    for name in "relu hardswish hardsigmoid hardtanh leaky_relu elu celu softplus softshrink hardshrink".split():
        assert_prims(getattr(aten, name).default, x)
    for name in "silu_backward hardswish_backward hardsigmoid_backward gelu_backward".split():
        assert_prims(getattr(aten, name).default, grad[1:-2], x[1:-2])
    assert_prims(aten.threshold_backward.default, grad, x, 0)
    assert_prims(aten.hardtanh_backward.default, grad, x, -1, 1)
    assert_prims(aten.softshrink_backward.default, grad, x, 0.5)
    assert_prims(aten.hardshrink_backward.default, grad, x, 0.5)
    assert_prims(aten.softplus_backward.default, grad[:-2], x[:-2], 2, 20)
    for is_result in (True, False):
        assert_prims(aten.elu_backward.default, grad[:-2], 1.5, 1.1, 0.9, is_result, x[:-2])


def _optimizer_state(dtype):
    sizes = [(3, 4), (5,)]
    lists = [[_rand(*s, dtype=dtype) for s in sizes] for _ in range(3)]
    second = [[_rand(*s, dtype=dtype).abs() for s in sizes] for _ in range(2)]
    return *lists, *second, [torch.tensor(3.0), torch.tensor(1.0)]


@pytest.mark.parametrize("op", [aten._fused_adam.default, aten._fused_adamw.default])
@pytest.mark.parametrize("amsgrad", [False, True])
def test_fused_adam(op, amsgrad):
    params, grads, first, second, largest, steps = _optimizer_state(F32)
    options = dict(lr=0.01, beta1=0.9, beta2=0.999, weight_decay=0.1, eps=1e-8, amsgrad=amsgrad, maximize=True)
    largest = largest if amsgrad else []
    assert_prims(op, params, grads, first, second, largest, steps, **options)


@pytest.mark.parametrize("nesterov", [False, True])
def test_fused_sgd(nesterov):
    params, grads, buffers, *_ = _optimizer_state(F32)
    options = dict(weight_decay=0.1, momentum=0.9, lr=0.01, dampening=0.0, nesterov=nesterov, maximize=False, is_first_step=False)
    assert_prims(aten._fused_sgd.default, params, grads, buffers, **options)


def test_list_ops():
    xs, ys, zs = ([_rand(3, 4), _rand(2)] for _ in range(3))
    for name in "exp neg abs sigmoid".split():
        assert_prims(getattr(aten, f"_foreach_{name}").default, xs)
    for name in "add sub mul div maximum".split():
        packet = getattr(aten, f"_foreach_{name}")
        assert_prims(packet.List, xs, ys)
        assert_prims(packet.Scalar, xs, 2.5)
        assert_prims(packet.ScalarList, xs, [2.5, -1.0])
    assert_prims(aten._foreach_add.List, xs, ys, alpha=2)
    assert_prims(aten._foreach_mul.Tensor, xs, torch.tensor(3.0))
    assert_prims(aten._foreach_addcdiv.Scalar, xs, ys, zs, 0.5)
    assert_prims(aten._foreach_addcmul.ScalarList, xs, ys, zs, [0.5, 2])
    assert_prims(aten._foreach_addcdiv.Tensor, xs, ys, zs, torch.tensor([0.5, 2]))
    assert_prims(aten._foreach_lerp.Scalar, xs, ys, 0.3)
    assert_prims(aten._foreach_norm.Scalar, xs, 2)
    assert_prims(aten._foreach_pow.ScalarAndTensor, 2.0, xs)


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"scale": 0.3}])
def test_attention_in_its_math_form(options):
    q, k, v = (_rand(2, 3, 8, 16) for _ in range(3))
    func = aten._scaled_dot_product_flash_attention_for_cpu.default
    assert check(func, (q, k, v), options) == ("extern", None)
    assert check(func, (q, k, v), options, changes=MATH_FORMS) == ("prims", None)


@pytest.mark.parametrize("last", [False, True])
def test_pools_and_convolutions(last):
    x = _rand(2, 4, 9, 8).contiguous(memory_format=torch.channels_last if last else torch.contiguous_format)
    out, indices = aten.max_pool2d_with_indices(x, [3, 3], [2, 2], [1, 1], [1, 1], True)
    assert_prims(aten.max_pool2d_with_indices.default, x, [3, 3], [2, 2], [1, 1], [1, 1], True)
    window = ([3, 3], [2, 2], [1, 1], [1, 1], True)
    assert_prims(aten.max_pool2d_with_indices_backward.default, torch.randn_like(out), x, *window, indices)
    assert_prims(aten.avg_pool2d.default, x, [3], [2], [1], True, False, None)
    assert_prims(aten.avg_pool2d_backward.default, _rand(2, 4, 3, 4), x, [3, 2], [3, 2], [0, 0], False, True, None)
    for size in ([1, 1], [3, 4], [2, 5]):
        pooled = aten._adaptive_avg_pool2d(x, size)
        assert_prims(aten._adaptive_avg_pool2d.default, x, size)
        assert_prims(aten._adaptive_avg_pool2d_backward.default, torch.randn_like(pooled), x)
    w = _rand(6, 2, 3, 3)
    settings = ([2, 1], [1, 1], [1, 1], False, [0, 0], 2)
    y = aten.convolution(x, w, None, *settings)
    assert_prims(aten.convolution.default, x, w, None, *settings)
    assert_prims(aten.convolution_backward.default, torch.randn_like(y), x, w, [6], *settings, [True, True, True])
    assert_prims(aten.convolution_backward.default, torch.randn_like(y), x, w, None, *settings, [True, True, False])


@pytest.mark.parametrize("weight_decay, maximize", [(0.0, False), (0.1, True)])
def test_fused_adagrad(weight_decay, maximize):
    params, grads = ([_rand(3, 4), _rand(5)] for _ in range(2))
    sums, steps = [_rand(3, 4).abs(), _rand(5).abs()], [torch.tensor(3.0), torch.tensor(4.0)]
    options = {"lr": 0.1, "lr_decay": 0.2, "weight_decay": weight_decay, "eps": 1e-8, "maximize": maximize}
    assert_prims(aten._fused_adagrad.default, params, grads, sums, steps, **options)


@pytest.mark.parametrize("infinite", [0.0, 1.0])
def test_fused_optimizers_of_scaled_gradients(infinite):
    """An infinity that was found leaves all as it is, the gradients too."""
    params, grads, sums = ([_rand(3, 4)], [_rand(3, 4)], [_rand(3, 4).abs()])
    scaling = {"grad_scale": torch.tensor([2.0]), "found_inf": torch.tensor([infinite]), "maximize": False, "weight_decay": 0.1}
    adam = {"lr": 0.1, "beta1": 0.9, "beta2": 0.99, "eps": 1e-8, "amsgrad": False}
    steps = [torch.tensor(3.0)]
    assert_prims(aten._fused_adagrad.default, params, grads, sums, steps, lr=0.1, lr_decay=0.2, eps=1e-8, **scaling)
    assert_prims(aten._fused_adam.default, params, grads, [_rand(3, 4)], sums, [], steps, **adam, **scaling)
    sgd = {"momentum": 0.9, "lr": 0.1, "dampening": 0.0, "nesterov": True, "is_first_step": False}
    assert_prims(aten._fused_sgd.default, params, grads, sums, **sgd, **scaling)


QUANTIZED = torch.cat([torch.linspace(-9, 9, 55), torch.tensor([1e9, -1e9, 0.25, -0.25, 0.75])]).view(5, 12)


def test_fake_quantization():
    assert_prims(aten.fake_quantize_per_tensor_affine_cachemask.default, QUANTIZED, 0.1, 3, -20, 40)
    for on in (0, 1):
        given = torch.tensor([0.07]), torch.tensor([-2], dtype=torch.int32), torch.tensor([on])
        assert_prims(aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default, QUANTIZED, *given, -128, 127)
    for axis, zero in ((0, 5), (1, 12)):
        given = torch.rand(zero) + 0.05, torch.arange(zero, dtype=torch.int32)
        assert_prims(aten.fake_quantize_per_channel_affine_cachemask.default, QUANTIZED, *given, axis, 0, 255)


EIGHT_BITS = [getattr(torch, n) for n in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "int8", "uint8")]


@pytest.mark.parametrize("dtype", EIGHT_BITS, ids=str)
@pytest.mark.parametrize("source", [F32, BF16, torch.float16], ids=str)
def test_casts_to_eight_bits_and_back(dtype, source):
    x = _rand(5, 6, dtype=source) * 30
    if dtype.is_floating_point:
        x[0] = torch.tensor([float("nan"), float("inf"), -float("inf"), 500.0, 1e-9, -0.0], dtype=source)
    assert_prims(aten._to_copy.default, x.abs() if dtype is torch.uint8 else x, dtype=dtype)
    assert_prims(aten._to_copy.default, x.to(dtype), dtype=source)


@pytest.mark.parametrize("alpha", [float("inf"), -float("inf"), float("nan"), -1.0, 0.0])
def test_curves_below_zero_with_special_numbers(alpha):
    """At 0 the kernels give 0, whatever the curve is multiplied with."""
    x = torch.tensor([0.0, -0.0, 1.0, -1.0, float("nan"), float("inf"), -float("inf")])
    assert_prims(aten.elu.default, x, alpha)
    if alpha:
        assert_prims(aten.celu.default, x, alpha)


@pytest.mark.parametrize(
    "call", [(aten.celu, 0.0), (aten.softshrink, -1.0), (aten.softshrink, float("inf")), (aten.softshrink, float("nan"))]
)
def test_numbers_that_curves_refuse(call):
    function, number = call
    with pytest.raises(RuntimeError), FakeMode() as mode:
        function.default(mode.from_real(torch.ones(3)), number)


@pytest.mark.parametrize(
    "function", ["angle", "abs", "sgn", "real", "imag", "conj_physical", "isfinite", "isnan", "square", "reciprocal"]
)
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128, F32], ids=str)
def test_strides_of_complex_curves(function, dtype):
    """Some kernels go through a complex result whose real part they copy out, in row-major order."""
    overload = getattr(aten, function).default
    if function == "imag" and not dtype.is_complex:
        pytest.skip("of complex numbers only")
    for x in (_rand(3, 4, dtype=dtype).t(), _rand(2, 3, 4, dtype=dtype).permute(2, 0, 1), _rand(4, 6, dtype=dtype)[:, ::2]):
        with FakeMode() as mode:
            fake = overload(mode.from_real(x))
        expected = overload(x)
        assert (fake.dtype, fake.shape, fake.stride()) == (expected.dtype, expected.shape, expected.stride())
