"""Settings of torch: answers about them are guarded, setting what holds is nothing, and what is set inside is set afterwards."""

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from tracework_capture._torch.settings import FLAGS
from tracework_capture.guards.kinds import STATES
from tracework_capture.hook.context import optimize

X = torch.ones(2)


@pytest.fixture(autouse=True)
def flags_that_can_be_written(monkeypatch):
    """torch's own test records, once some other test has imported them, forbid plain writes to flags of torch.backends."""
    monkeypatch.setitem(torch.backends.flags_frozen.__globals__, "__allow_nonbracketed_mutation_flag", True)


def set_flag(name):
    return FLAGS[name][1]


def set_deterministic_warn_only(wanted):
    torch.use_deterministic_algorithms(False, warn_only=wanted)


QUERIES = {
    "cudnn_benchmark": (lambda: torch.backends.cudnn.benchmark, set_flag("cudnn_benchmark")),
    "matmul_tf32": (lambda: torch.backends.cuda.matmul.allow_tf32, set_flag("cublas_allow_tf32")),
    "matmul_precision": (
        lambda: torch.get_float32_matmul_precision() == "high",
        lambda wanted: torch.set_float32_matmul_precision("high" if wanted else "highest"),
    ),
    "flash": (lambda: torch.backends.cuda.flash_sdp_enabled(), torch.backends.cuda.enable_flash_sdp),
    "math": (lambda: torch.backends.cuda.math_sdp_enabled(), torch.backends.cuda.enable_math_sdp),
    "warn_only": (lambda: torch.is_deterministic_algorithms_warn_only_enabled(), set_deterministic_warn_only),
    "autocast dtype": (
        lambda: torch.get_autocast_dtype("cpu") == torch.float16,
        lambda wanted: torch.set_autocast_dtype("cpu", torch.float16 if wanted else torch.bfloat16),
    ),
    "autocast cache": (lambda: torch.is_autocast_cache_enabled(), torch.set_autocast_cache_enabled),
    "any autocast": (lambda: torch._C._is_any_autocast_enabled(), lambda wanted: torch.set_autocast_enabled("cpu", wanted)),
}


def eager(gm, example_inputs):
    return gm.forward


PRECISIONS = {
    "products": (torch.backends.cuda.matmul, torch.get_float32_matmul_precision),
    "convolutions": (torch.backends.cudnn.conv, lambda: torch.backends.cudnn.allow_tf32),
}


@pytest.fixture
def precisions():
    yield
    torch.backends.cuda.matmul.fp32_precision = torch.backends.cudnn.conv.fp32_precision = "none"
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = True


@pytest.mark.parametrize("name", PRECISIONS)
def test_a_question_in_the_older_words_that_torch_does_not_answer_any_more(name, precisions):
    """torch raises where precisions were set in the newer words to what the older have no word for."""
    backend, query = PRECISIONS[name]

    def fn(x):
        return x + 1, query()

    def flags_are_written(x):
        with sdpa_kernel(SDPBackend.MATH):
            return x + 1

    fast, other = optimize(eager)(fn), optimize(eager, fullgraph=True)(flags_are_written)
    assert fast(X)[1] == fn(X)[1]
    backend.fp32_precision = "ieee" if query() is True else "tf32"
    with pytest.raises(RuntimeError, match="mix of the legacy and new APIs"):
        fn(X)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="mix of the legacy and new APIs"):
            fast(X)
        torch.testing.assert_close(other(X), X + 1)


IMAGE, WEIGHT = torch.randn(1, 2, 8, 8), torch.randn(3, 2, 3, 3)
Q = torch.randn(1, 2, 4, 8, generator=torch.Generator().manual_seed(0))
CHOOSING = {
    "attention": (lambda: F.scaled_dot_product_attention(Q, Q, Q), ["sdp_flash", "sdp_math", "math_sdp_reduction"]),
    "convolution": (lambda: F.conv2d(IMAGE, WEIGHT), ["cudnn_enabled", "mkldnn_enabled"]),
    "transposed": (lambda: F.conv_transpose2d(IMAGE, WEIGHT.transpose(0, 1)), ["cublas_allow_fp16_accumulation"]),
    "loss": (
        lambda: F.ctc_loss(Q[0].log_softmax(-1), torch.ones(4, 1, dtype=torch.int64), (2,) * 4, (1,) * 4),
        ["cudnn_enabled"],
    ),
}


@pytest.mark.parametrize("name", CHOOSING)
def test_settings_that_choose_a_kernel_while_tracing_are_guarded(name):
    function, flags = CHOOSING[name]
    graphs = []

    def fn(x):
        return function() + x[0]

    fast = optimize(lambda gm, inputs: graphs.append(gm) or gm.forward, fullgraph=True)(fn)
    fast(X)
    assert len(graphs) == 1
    for n, flag in enumerate(flags):
        read, write = FLAGS[flag]
        before = read()
        try:
            write(not before)
            torch.testing.assert_close(fast(X), fn(X))
            assert len(graphs) == n + 2
        finally:
            write(before)
        fast(X)
        assert len(graphs) == n + 2


def test_other_settings_do_not_matter_to_other_functions():
    graphs = []
    fast = optimize(lambda gm, inputs: graphs.append(gm) or gm.forward, fullgraph=True)(lambda x: x * 2)
    for flag in ("cudnn_enabled", "sdp_flash", "cudnn_benchmark"):
        read, write = FLAGS[flag]
        before = read()
        for wanted in (not before, before):
            write(wanted)
            fast(X)
    assert len(graphs) == 1


@pytest.mark.parametrize("name", QUERIES)
def test_an_answer_holds_as_long_as_the_setting(name):
    query, write = QUERIES[name]

    def fn(x):
        return x * 2 if query() else x * 3

    before, fast = query(), optimize(eager, fullgraph=True)(fn)
    try:
        for wanted in (True, False, True, False):
            write(wanted)
            torch.testing.assert_close(fast(X), X * (2 if wanted else 3))
    finally:
        write(before)


def test_a_process_group_that_comes_and_goes_is_noticed(tmp_path):
    def fn(x):
        return x * 2 if torch.distributed.is_initialized() else x * 3

    fast = optimize(eager, fullgraph=True)(fn)
    torch.testing.assert_close(fast(X), X * 3)
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        torch.testing.assert_close(fast(X), X * 2)
    finally:
        torch.distributed.destroy_process_group()
    torch.testing.assert_close(fast(X), X * 3)


def test_questions_that_libraries_ask():
    import torch._dynamo

    def fn(x):
        if not (torch.compiler.is_compiling() and torch._dynamo.is_compiling()):
            return x * 4
        return x * 2 if torch.onnx.is_in_onnx_export() or torch.jit.is_tracing() or torch.jit.is_scripting() else x * 3

    torch.testing.assert_close(optimize(eager, fullgraph=True)(fn)(X), X * 3)


def test_an_answer_inside_of_a_block_that_changes_it_is_guarded_by_what_held_before():
    def fn(x):
        with torch.autocast("cpu", dtype=torch.float16):
            return x * 2 if torch.get_autocast_dtype("cpu") == torch.float16 else x * 3

    graphs = []
    fast = optimize(lambda gm, inputs: graphs.append(gm) or gm.forward, fullgraph=True)(fn)
    for _ in range(3):
        torch.testing.assert_close(fast(X), X * 2)
    assert len(graphs) == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="the device is there")
def test_a_default_device_that_is_not_there():
    with torch.device("cuda"):
        assert STATES["default_device"]() == (torch.device("cuda"), -1)


WRITES = {
    "default dtype": lambda: torch.set_default_dtype(torch.get_default_dtype()),
    "default device": lambda: torch.set_default_device(None),
    "deterministic": lambda: torch.use_deterministic_algorithms(False),
    "matmul precision": lambda: torch.set_float32_matmul_precision("highest"),
    "threads": lambda: torch.set_num_threads(torch.get_num_threads()),
    "benchmark": lambda: setattr(torch.backends.cudnn, "benchmark", False),
    "tf32": lambda: setattr(torch.backends.cuda.matmul, "allow_tf32", False),
}


@pytest.mark.parametrize("name", WRITES)
def test_a_write_of_what_holds_is_no_break(name):
    write = WRITES[name]

    def fn(x):
        y = x.sin()
        write()
        return y + 1

    torch.testing.assert_close(optimize(eager, fullgraph=True)(fn)(X), X.sin() + 1)


def test_a_write_of_what_held_at_the_start_is_one_when_it_does_not_hold_any_more():
    def fn(x):
        torch.set_float32_matmul_precision("high")
        return x.sin()

    fast = optimize(eager)(fn)
    try:
        for _ in range(3):
            for before in ("highest", "high"):
                torch.set_float32_matmul_precision(before)
                torch.testing.assert_close(fast(X), X.sin())
                assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision("highest")


def in_block(q):
    with sdpa_kernel(SDPBackend.MATH):
        inside = torch.backends.cuda.flash_sdp_enabled()
        y = F.scaled_dot_product_attention(q, q, q)
    return y + F.scaled_dot_product_attention(q, q, q), inside


def with_priority(q):
    with sdpa_kernel([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION], set_priority=True):
        return F.scaled_dot_product_attention(q, q, q), torch._C._get_sdp_priority_order()


def nested(q):
    with sdpa_kernel(SDPBackend.MATH):
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            y = F.scaled_dot_product_attention(q, q, q), torch.backends.cuda.math_sdp_enabled()
        return y, torch.backends.cuda.math_sdp_enabled()


def left_changed(q):
    torch.backends.cuda.enable_flash_sdp(False)
    return F.scaled_dot_product_attention(q, q, q)


def breaks_inside(q):
    with sdpa_kernel(SDPBackend.MATH):
        y = F.scaled_dot_product_attention(q, q, q)
        y = y * y.sum().item()
        return F.scaled_dot_product_attention(q, y, q), torch.backends.cuda.flash_sdp_enabled()


def raises_inside(q):
    try:
        with sdpa_kernel(SDPBackend.MATH):
            return F.scaled_dot_product_attention(q, q[:, :1, :3], q)
    except RuntimeError:
        return q, torch.backends.cuda.flash_sdp_enabled()


@pytest.mark.parametrize("fn", [in_block, with_priority, nested, left_changed, breaks_inside, raises_inside])
def test_kernels_of_attention(fn):
    def run(function):
        state = [read() for name, (read, _) in FLAGS.items() if "sdp" in name]
        try:
            return function(Q), [read() for name, (read, _) in FLAGS.items() if "sdp" in name]
        finally:
            torch.backends.cuda.enable_flash_sdp(True)
            assert state == [read() for name, (read, _) in FLAGS.items() if "sdp" in name]

    expected = run(fn)
    fast = optimize(eager, fullgraph=fn not in (breaks_inside, raises_inside))(fn)
    for _ in range(2):
        torch.testing.assert_close(run(fast), expected)


def test_the_kernels_are_chosen_in_the_graph():
    graphs = []
    optimize(lambda gm, inputs: graphs.append(gm) or gm.forward)(in_block)(Q)
    kinds = [node.target for node in graphs[0].graph.nodes if node.op == "call_function"]
    attention = kinds.index(F.scaled_dot_product_attention)
    assert torch._C._set_sdp_use_flash in kinds[:attention] and torch._C._set_sdp_use_flash in kinds[attention:]
