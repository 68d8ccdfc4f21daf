"""torch's own state inside a compiled function: inference mode, generators, layouts; as plain Python has it, in the graph or over a break."""

import contextlib
import subprocess
import sys

import pytest
import torch
import tracework
from training import BACKENDS, same


def inference(x):
    with torch.inference_mode():
        made = x * 2
        facts = [torch.is_inference_mode_enabled(), torch.is_grad_enabled(), made.is_inference(), x.is_inference()]
        with torch.inference_mode(False):
            other = x * 3
            facts += [torch.is_inference_mode_enabled(), torch.is_grad_enabled(), other.is_inference()]
    with torch.no_grad(), torch.inference_mode(False):
        facts.append(torch.is_grad_enabled())
    return made, other, facts, torch.is_inference_mode_enabled()


@pytest.mark.parametrize("backend", BACKENDS)
def test_inference_mode(backend):
    x = torch.arange(3.0, requires_grad=True)
    same(list(tracework.compile(inference, backend=backend, fullgraph=True)(x)), list(inference(x)))


def test_inference_mode_that_began_outside():
    compiled = tracework.compile(inference, backend="eager")
    with torch.inference_mode():
        x = torch.arange(3.0)
        same(list(compiled(x)), list(inference(x)))


def with_generator(x, generator):
    own = torch.Generator().manual_seed(5)
    return torch.rand(3, generator=generator) + x, torch.randn(3, generator=generator), torch.randint(9, (3,), generator=own)


def test_generators():
    x = torch.ones(3)
    compiled = tracework.compile(with_generator, backend="eager")
    for seed in (4, 4, 5):
        found, expected = (fn(x, torch.Generator().manual_seed(seed)) for fn in (compiled, with_generator))
        same(list(found), list(expected))


def sparse(matrix, x):
    return torch.sparse.mm(matrix, x + 1) * 2


def test_sparse_tensors_are_left_to_plain_python():
    matrix, x = torch.eye(3).to_sparse(), torch.ones(3, 2)
    same(tracework.compile(sparse, backend="eager")(matrix, x), sparse(matrix, x))


def another_dtype(x):
    before = torch.ones(2) * x[0]
    torch.set_default_dtype(torch.float64)
    made = torch.ones(3), torch.zeros_like(x), torch.tensor([1.5]), torch.arange(0, 1, 0.25), torch.Tensor([2]), x * 2
    made[0].add_(1)
    other = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    return before, made, torch.ones(3) + x, other == torch.float64


def left_as_it_is(x):
    y = torch.ones(3)
    torch.set_default_dtype(torch.float64)
    return y * x, torch.ones(3), torch.rand(2).dtype


def another_device(x):
    torch.set_default_device("meta")
    made = torch.ones(2, 3), torch.empty_like(x)
    where = torch.get_default_device().type, torch.device("cpu")
    torch.set_default_device(None)
    return made[0].shape, made[0].device, made[1].zero_() == 0, torch.ones(3) + x, where


def broken_between(x):
    torch.set_default_dtype(torch.float64)
    y = torch.ones(3) * x.sum().item()
    return y, torch.ones(2)


def promoted(x):
    torch.set_default_dtype(torch.float64)
    return x.long() / 2, torch.ones(2)


@pytest.fixture
def defaults():
    yield
    torch.set_default_dtype(torch.float32)
    torch.set_default_device(None)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fn", [another_dtype, left_as_it_is, another_device, broken_between, promoted], ids=lambda f: f.__name__)
def test_default_dtype_and_device(fn, backend, defaults):
    def run(function):
        torch.set_default_dtype(torch.float32)
        torch.manual_seed(0)
        return [*function(torch.arange(3.0)), torch.get_default_dtype(), torch.get_default_device().type]

    compiled = tracework.compile(fn, backend=backend, fullgraph=fn not in (broken_between, promoted))
    for _ in range(2):
        same(run(compiled), run(fn))


def test_defaults_are_put_back_when_the_frame_runs_again(defaults):
    def fn(x):
        torch.set_default_dtype(torch.float64)
        if (x < 0).any():
            raise ValueError(str(torch.ones(1).dtype))
        return torch.ones(2) + x

    compiled = tracework.compile(fn, backend="eager")
    for x, y in ((torch.ones(2), -torch.ones(2)),):
        torch.set_default_dtype(torch.float32)
        assert compiled(x).dtype is torch.float64
        torch.set_default_dtype(torch.float32)
        with pytest.raises(ValueError, match=r"torch\.float64"):
            compiled(y)


def deterministic(x, index):
    torch.use_deterministic_algorithms(True, warn_only=True)
    y = torch.zeros(3).index_add(0, index, x * 2)
    asked = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(False)
    return y.sin() + x, asked


def deterministic_left_on(x, index):
    torch.use_deterministic_algorithms(True)
    return x * 2, torch.are_deterministic_algorithms_enabled()


def flags(x, index):
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.set_float32_matmul_precision("high")
    y = x * 2
    torch.set_float32_matmul_precision("highest")
    return y.sin(), torch.get_float32_matmul_precision()


def kernel_settings():
    return (
        *(torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()),
        *(torch.backends.cuda.matmul.allow_tf32, torch.get_float32_matmul_precision()),
    )


@pytest.fixture
def settings_put_back():
    yield
    torch.use_deterministic_algorithms(False)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.set_float32_matmul_precision("highest")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fn", [deterministic, deterministic_left_on, flags])
def test_settings_of_kernels_inside(fn, backend, settings_put_back):
    compiled = tracework.compile(fn, backend=backend, fullgraph=True)
    found, start = [], kernel_settings()
    for each in (fn, compiled, compiled):
        x, index = torch.arange(3.0, requires_grad=True), torch.tensor([0, 1, 0])
        y, asked = each(x, index)
        found.append([y.detach(), torch.autograd.grad(y.sum(), x)[0], asked, kernel_settings()])
        torch.use_deterministic_algorithms(False)
        torch.backends.cuda.matmul.allow_tf32 = False
        assert kernel_settings() == start
    same(found[1], found[0])
    same(found[2], found[0])


@torch.library.custom_op("tracework_tests::setting_now", mutates_args=())
def setting_now(x: torch.Tensor) -> torch.Tensor:
    return x + torch.are_deterministic_algorithms_enabled()


setting_now.register_fake(torch.empty_like)


def asks_kernels(x, index):
    a = setting_now(x)
    torch.use_deterministic_algorithms(True)
    b = setting_now(x)
    torch.use_deterministic_algorithms(False)
    return torch.stack([a, b, setting_now(x)]) * 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_kernels_run_under_the_setting_of_their_place(backend, settings_put_back):
    x = torch.zeros(2)
    same(tracework.compile(asks_kernels, backend=backend, fullgraph=True)(x, None), asks_kernels(x, None))


def in_a_block_of_a_device(x):
    with torch.device("meta"):
        layer = torch.nn.Linear(2, 2)
        made = (
            torch.ones(2),
            torch.zeros_like(x),
            torch.tensor([1.5]),
            torch.randn(2, device="cpu"),
            torch.empty((2,), device=None),
        )
        where = torch.get_default_device().type
    return layer.weight, made, where, torch.ones(2)


def broken_in_a_block_of_a_device(x):
    with torch.device("meta"):
        a = torch.ones(2)
        torch._dynamo.graph_break()
        b = torch.ones(2)
    return a, b, torch.ones(2)


def nested_blocks_of_devices(x):
    with torch.device("meta"):
        with torch.device("cpu"):
            a = torch.ones(2)
        b = torch.ones(2)
    return a, b, torch.ones(3)


def left_by_an_error(x):
    try:
        with torch.device("meta"):
            a = torch.ones(2)
            raise ValueError
    except ValueError:
        return a, torch.ones(3) + x


BLOCKS_OF_DEVICES = [in_a_block_of_a_device, broken_in_a_block_of_a_device, nested_blocks_of_devices]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fn", [*BLOCKS_OF_DEVICES, left_by_an_error])
def test_blocks_of_devices(fn, backend):
    def kinds(found):
        return [
            (t.device.type, tuple(t.shape)) if isinstance(t, torch.Tensor) else t for t in torch.utils._pytree.tree_leaves(found)
        ]

    compiled = tracework.compile(fn, backend=backend, fullgraph=fn is in_a_block_of_a_device)
    around = (None, "meta", "cpu") if fn in BLOCKS_OF_DEVICES[1:] else (None,)
    for device in around:
        with torch.device(device) if device else contextlib.nullcontext():
            torch.manual_seed(0)
            expected, state = kinds(fn(torch.ones(3, device="cpu"))), torch.get_rng_state()
            torch.manual_seed(0)
            assert kinds(compiled(torch.ones(3, device="cpu"))) == expected
            assert torch.equal(torch.get_rng_state(), state)
        assert torch.ones(1).device.type == "cpu"


def seeded(x):
    torch.manual_seed(3)
    a = torch.rand(2)
    state = torch.get_rng_state()
    b = torch.rand(2)
    torch.set_rng_state(state)
    return (a + x[:2]).sin(), b, torch.rand(2) * 2, state


@torch.random.fork_rng(devices=[])
def forked(x):
    return torch.rand(2) + x[:2]


def forked_inside(x):
    a = torch.rand(2)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(4)
        b = torch.rand(2)
    with torch.random.fork_rng():
        c = torch.rand(2)
    return a, b, c, torch.rand(2) + x[:2]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fn", [seeded, forked, forked_inside])
def test_state_of_random_numbers_inside(fn, backend):
    compiled = tracework.compile(fn, backend=backend, fullgraph=fn is seeded)
    found = []
    for each in (fn, compiled, compiled):
        torch.manual_seed(7)
        x = torch.arange(3.0, requires_grad=True)
        given = each(x)
        given = list(given) if isinstance(given, tuple) else [given]
        gradients = torch.autograd.grad(sum(t.sum() for t in given if t.requires_grad), x)
        found.append([*given, *gradients, torch.get_rng_state(), torch.initial_seed()])
    same(found[1], found[0])
    same(found[2], found[0])


def results_of_a_generator(x):
    @torch.no_grad()
    def twice():
        yield x * 2
        yield x * 3

    return [*twice(), x * 4]


def test_a_generator_under_a_manager():
    x = torch.ones(3, requires_grad=True)
    found, expected = tracework.compile(results_of_a_generator, backend="eager")(x), results_of_a_generator(x)
    same(found, expected)
    assert [t.requires_grad for t in found] == [t.requires_grad for t in expected] == [False, False, True]


def uninitialized(x):
    torch.use_deterministic_algorithms(True)
    made = torch.empty(2), torch.empty_like(x, dtype=torch.int32), x.new_empty(3), torch.empty(2, dtype=torch.bool)
    torch.use_deterministic_algorithms(False)
    return made, x * 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_uninitialized_memory_is_filled_where_algorithms_are_deterministic(backend, settings_put_back):
    x = torch.arange(3.0)
    compiled = tracework.compile(uninitialized, backend=backend, fullgraph=True)
    torch.testing.assert_close(compiled(x), uninitialized(x), equal_nan=True)


def test_the_first_compilation_is_under_a_default_device_that_is_not_there():
    """The packages that it imports make tensors of their own."""
    program = (
        "import torch, tracework\n"
        "torch.set_default_device('cuda:99')\n"
        "print(tracework.compile(lambda x: x * 2)(torch.ones(2, device='cpu')).tolist())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, "[2.0, 2.0]\n"), done.stderr
