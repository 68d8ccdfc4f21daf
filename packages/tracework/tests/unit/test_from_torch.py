"""What is written for torch.compile: each of its names has one row, the rows do what they say, and FROM_TORCH.md is what they say."""

import contextlib
import importlib.util
import logging
import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
import torch._dynamo.config as dynamo
import torch._functorch.config as functorch
import torch._inductor.config as inductor
import tracework
from tracework import _torch, compiler, config, from_torch, options, torch_names, torch_options, torch_settings
from tracework.torch_logs import TORCH_LOG_ROWS, artifacts_of
from tracework.torch_names import HONOURED, IGNORED, REFUSED, row_for

ROOT = Path(__file__).parents[4]
names = torch_names.torch_names
TABLES = {
    "option": torch_options.TORCH_OPTIONS,
    "settings": torch_settings.TORCH_SETTINGS,
    "variable": torch_settings.TORCH_VARIABLES,
    "log": TORCH_LOG_ROWS,
}


def row_of(kind, name):
    return torch_settings.row_of_variable(name) if kind == "variable" else row_for(TABLES[kind], name)


def known(kind):
    if kind != "settings":
        return names(kind)
    return {name: entry for module in torch_settings.MODULES for name, entry in names(module).items()}


def built(mode=None, given=None, environ=None):
    return options.build(mode, given, config.current({"TRACEWORK_CACHE_DIR": "/nowhere"} | (environ or {})))


def changes(made):
    """The options that are not the default."""
    plain = built()
    return {name: getattr(made, name) for name in options.OPTION_NAMES if getattr(made, name) != getattr(plain, name)}


def breaking(x):
    tracework.graph_break()
    return x + 1


@pytest.fixture(autouse=True)
def nothing_told(monkeypatch):
    monkeypatch.setattr(torch_options, "_told", set())


@pytest.fixture
def put():
    """Sets a field of one of torch's config modules until the end of the test."""
    with contextlib.ExitStack() as stack:
        yield lambda module, name, value: stack.enter_context(module.patch({name: value}))


# the tables


@pytest.mark.parametrize("kind", TABLES)
def test_each_name_has_a_row_and_each_row_a_name(kind):
    assert [name for name in known(kind) if row_of(kind, name) is None] == []
    used = {row_of(kind, name).name for name in known(kind)}
    assert set(TABLES[kind]) - used <= set(torch_options.EXTRA)


@pytest.mark.parametrize("kind", TABLES)
def test_each_row_says_what_it_does_or_why_not(kind):
    for row in TABLES[kind].values():
        assert row.answer in (HONOURED, IGNORED, REFUSED)
        assert row.target if row.answer == HONOURED else row.reason, row


def test_what_we_have_under_torchs_name_is_honoured():
    own = [name for name in options.OPTION_NAMES if name in names("option")]
    assert own and {row_of("option", name).answer for name in own} == {HONOURED}


def test_a_name_with_two_rows_is_an_error():
    row = torch_names.Row("x", IGNORED)
    with pytest.raises(tracework.InvalidArgument, match="'x' has two rows"):
        torch_names.table_of([row, row])


def test_every_public_name_of_torch_compiler_of_every_release_is_there():
    for name in names("name"):
        assert name in compiler.__all__ and hasattr(compiler, name), name


def test_the_names_are_those_of_the_installed_torch():
    spec = importlib.util.spec_from_file_location("torch_names_tool", ROOT / "tools" / "torch_names.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    folder = Path(torch.__file__).parent
    release = tool.release_of(folder)
    kept = {
        (kind, name) for kind in torch_names.KINDS for name, n in names(kind).items() if not n.releases or release in n.releases
    }
    assert kept == set(tool.found_in(folder))


def test_the_document_is_what_the_tables_say():
    assert (ROOT / "packages" / "tracework" / "FROM_TORCH.md").read_text() == from_torch.document()


# options

HONOURED_VALUES = {
    "max_autotune": (True, {"max_autotune": True}),
    "max_autotune_gemm": (True, {"max_autotune": True}),
    "max_autotune_pointwise": (True, {"max_autotune": True}),
    "triton.cudagraphs": (True, {"cudagraphs": True}),
    "triton.cudagraph_or_error": (True, {"cudagraph_or_error": True}),
    "triton.cudagraph_capture_sizes": ([4, (8, 2)], {"cudagraph_capture_sizes": (4, (8, 2))}),
    "graph_partition": (False, {"graph_partition": False}),
    "cudagraph_policy": (print, {"cudagraph_policy": print}),
    "fallback_random": (False, {"fallback_random": False}),
    "align_random_eager": (True, {}),
    "fx_graph_cache": (False, {"cache": False}),
    "force_disable_caches": (True, {"cache": False}),
    "cpp.cxx": ((None, "clang++"), {"cxx": "clang++"}),
    "numerics": ("strict", {"numerics": "strict"}),
    "emulate_precision_casts": (True, {"numerics": "strict_pointwise"}),
    "emulate_precision_casts_on_saved_tensors": (True, {"numerics": "strict_pointwise"}),
    "eager_numerics.division_rounding": (True, {"numerics": "strict_pointwise"}),
    "eager_numerics.disable_ftz": (True, {"numerics": "strict_pointwise"}),
    "eager_numerics.use_pytorch_libdevice": (True, {"numerics": "strict_pointwise"}),
    "strict_signed_zero": (True, {"numerics": "strict_reduction"}),
    "assert_indirect_indexing": (False, {"index_checks": False}),
    "debug_index_asserts": (True, {}),
    "compile_threads": (3, {"jobs": 3}),
    "verbose_progress": (True, {"progress": True}),
    "disable_progress": (True, {"progress": False}),
    "trace.enabled": (True, {"debug": True}),
    "debug": (True, {"debug": True}),
    "trace.debug_dir": ("here", {"dump_dir": "here"}),
    "trace.graph_diagram": (True, {"diagram": True}),
    "trace.graph_diagram_format": ("png", {}),
    "fallback_by_default": (True, {"fallback_by_default": True}),
    **{name: (print, {name: print}) for stage in (
        "pre_grad_custom_pass",
        "joint_custom_pre_pass",
        "joint_custom_post_pass",
        "post_grad_custom_pre_pass",
        "post_grad_custom_post_pass",
    ) for name in [stage]},
}  # fmt: skip


@pytest.mark.parametrize("name", torch_options.HONOURED_OPTIONS)
def test_an_honoured_option_sets_ours(name):
    value, expected = HONOURED_VALUES[name]
    found = changes(built(None, {name: value}))
    if found.get("debug") or found.get("diagram"):
        assert Path(found.pop("dump_dir")).parent.name == "tracework_debug"
    assert found == expected


@pytest.mark.parametrize("name", [n for n, (value, _) in HONOURED_VALUES.items() if value is True])
def test_an_option_that_is_off_changes_nothing(name):
    # disable_progress=False asks for it; without a word on CUDA graphs, some are recorded
    assert changes(built(None, {name: False})) in ({}, {"progress": True}, {"cudagraphs": False})


def test_torchs_spelling_with_dashes_is_taken():
    assert built(None, {"max-autotune": True}).max_autotune


def test_options_for_elements_and_for_sums_ask_for_both():
    assert built(None, {"emulate_precision_casts": True, "strict_signed_zero": True}).numerics == "strict"


def test_no_processes_beside_the_compiling_one_are_one_job():
    assert changes(built(None, {"compile_threads": 0})) == {"jobs": 1}


def test_ignored_options_change_nothing_and_are_told_once_together():
    ignored = [name for name in names("option") if row_of("option", name).answer == IGNORED]
    with pytest.warns(UserWarning) as told:
        assert changes(built(None, dict.fromkeys(ignored, 1))) == {}
    (warning,) = told
    assert all(name in str(warning.message) for name in ignored)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        built(None, {"epilogue_fusion": False, "shape_padding": True})


def test_the_warning_is_at_the_line_of_the_program():
    for model in (lambda x: x, torch.nn.Linear(1, 1)):
        torch_options._told.clear()
        with pytest.warns(UserWarning, match="epilogue_fusion has no effect") as told:
            tracework.compile(model, backend="eager", options={"epilogue_fusion": True})
        assert told[0].filename == __file__


REFUSED_NAMES = [name for name in (*names("option"), *torch_options.EXTRA) if row_of("option", name).answer == REFUSED]


@pytest.mark.parametrize("name", REFUSED_NAMES)
def test_a_refused_option_is_an_error_where_it_asks_for_something(name):
    entry = names("option").get(name)
    default = torch_names.COMPUTED if entry is None else entry.default
    asking = not default if isinstance(default, bool) else "something"
    with pytest.raises(tracework.InvalidArgument, match="is not honoured here: .*") as raised:
        built(None, {name: asking})
    assert repr(name) in str(raised.value) and row_of("option", name).reason in str(raised.value)
    assert changes(built(None, {name: False if default is torch_names.COMPUTED else default})) == {}


def test_code_of_the_users_that_would_not_be_called_is_an_error():
    with pytest.raises(tracework.InvalidArgument, match="external_matmul.*would call your code"):
        built(None, {"external_matmul": [torch.mm]})


@pytest.mark.parametrize(("typo", "meant"), [("epilogue_fusoin", "epilogue_fusion"), ("triton.cudagraph", "triton.cudagraphs")])
def test_a_typo_is_told_from_a_name_of_torchs(typo, meant):
    with pytest.raises(tracework.UnknownName, match=f"Did you mean '{meant}'") as raised:
        built(None, {typo: True})
    assert isinstance(raised.value, RuntimeError)  # as torch's


def test_list_options_has_names_that_act():
    assert {"cudagraphs", "triton.cudagraphs", "max_autotune", "trace.enabled"} <= set(tracework.list_options())
    assert "epilogue_fusion" not in tracework.list_options()
    assert tracework.list_mode_options("lite", dynamic=True) == {"fallback_by_default": True}
    assert set(tracework.list_mode_options()) == {
        "default",
        "lite",
        "reduce-overhead",
        "max-autotune",
        "max-autotune-no-cudagraphs",
    }


# the environment

VARIABLES = {
    "TORCHINDUCTOR_MAX_AUTOTUNE": ("1", {"max_autotune": True}),
    "TORCHINDUCTOR_MAX_AUTOTUNE_GEMM": ("1", {"max_autotune": True}),
    "TORCHINDUCTOR_MAX_AUTOTUNE_POINTWISE": ("1", {"max_autotune": True}),
    "TORCHINDUCTOR_CUDAGRAPHS": ("1", {"cudagraphs": True}),
    "TORCHINDUCTOR_CUDAGRAPH_OR_ERROR": ("1", {"cudagraph_or_error": True}),
    "TORCHINDUCTOR_EMULATE_DIVISION_ROUNDING": ("1", {"numerics": "strict_pointwise"}),
    "TORCHINDUCTOR_EMULATE_PRECISION_CASTS": ("1", {"numerics": "strict_pointwise"}),
    "TORCHINDUCTOR_EMULATE_PRECISION_CASTS_ON_SAVED_TENSORS": ("1", {"numerics": "strict_pointwise"}),
    "TORCHINDUCTOR_NUMERICS": ("strict_reduction", {"numerics": "strict_reduction"}),
    "TORCHINDUCTOR_FX_GRAPH_CACHE": ("0", {"cache": False}),
    "TORCHINDUCTOR_FX_GRAPH_CACHE_DEFAULT": ("0", {"cache": False}),
    "TORCHINDUCTOR_FORCE_DISABLE_CACHES": ("1", {"cache": False}),
    "TORCH_COMPILE_FORCE_DISABLE_CACHES": ("1", {"cache": False}),
    "TORCHINDUCTOR_COMPILE_THREADS": ("2", {"jobs": 2}),
    "TORCHINDUCTOR_GRAPH_PARTITION": ("0", {"graph_partition": False}),
    "TORCHINDUCTOR_LITE_MODE": ("1", {"fallback_by_default": True}),
    "TORCHDYNAMO_SUPPRESS_ERRORS": ("1", {"suppress_errors": True}),
    "TORCH_COMPILE_DYNAMIC_SOURCES": ("x", {"dynamic_sources": "x"}),
    "TORCH_COMPILE_DYNAMIC_VALUES": ("7", {"dynamic_values": "7"}),
    "TORCH_COMPILE_STATIC_SOURCES": ("x", {"static_sources": "x"}),
    "TORCH_COMPILE_UNBACKED_SOURCES": ("x", {"unbacked_sources": "x"}),
    "TORCH_COMPILE_DEBUG": ("1", {"debug": True}),
}
FIELDS = {
    "TORCHDYNAMO_DISABLE": ("1", "disable", True),
    "TORCH_COMPILE_DISABLE": ("1", "disable", True),
    "TORCH_COMPILE_JOB_ID": ("me", "job_id", "me"),
    "TORCH_COMPILE_STICKY_PGO_KEY": ("me", "job_id", "me"),
    "TORCH_COMPILE_DEBUG_DIR": ("there", "debug_dir", "there"),
    "TORCH_TRACE": ("here", "trace_dir", "here"),
    "TORCH_LOGS": ("+dynamo,guards", "torch_logs", "+dynamo,guards"),
}
LATE = {
    "TORCHDYNAMO_CAPTURE_SCALAR_OUTPUTS": ("1", "capture_scalar_outputs", True),
    "TORCHDYNAMO_CAPTURE_DYNAMIC_OUTPUT_SHAPE_OPS": ("1", "capture_dynamic_output_shape_ops", True),
    "TORCH_DYNAMO_AUTOMATIC_DYNAMIC_SHAPES": ("0", "automatic_dynamic_shapes", False),
}


def test_every_honoured_variable_is_tried():
    honoured = {name for name in names("variable") if row_of("variable", name).answer == HONOURED}
    assert honoured == {*VARIABLES, *FIELDS, *LATE} & set(names("variable"))


@pytest.mark.parametrize("name", VARIABLES)
def test_an_honoured_variable_sets_an_option(name):
    text, expected = VARIABLES[name]
    found = changes(built(environ={name: text}))
    if found.get("debug"):
        assert Path(found.pop("dump_dir")).parent.name == "tracework_debug"
    assert found == expected
    own = built(None, {option: getattr(built(), option) for option in expected}, {name: text})
    assert "dump_dir" in expected or {option: getattr(own, option) for option in expected} == {
        option: getattr(built(), option) for option in expected
    }  # what compile() is given comes first


@pytest.mark.parametrize("name", FIELDS)
def test_an_honoured_variable_sets_a_field(name):
    text, field, value = FIELDS[name]
    assert getattr(config.current({name: text}), field) == value


@pytest.mark.parametrize("name", LATE)
def test_an_honoured_variable_sets_what_holds(name):
    text, field, value = LATE[name]
    assert getattr(torch_settings.now(config.current({name: text}).torchs), field) is value


@pytest.mark.parametrize("name", [name for name in names("variable") if row_of("variable", name).answer == REFUSED])
def test_a_refused_variable_is_an_error_where_it_is_on(name):
    with pytest.raises(tracework.InvalidArgument, match=f"{name}='1' is not honoured here"):
        built(environ={name: "1"})
    assert changes(built(environ={name: "0"})) == {}


@pytest.mark.parametrize("name", [name for name in names("variable") if row_of("variable", name).answer == IGNORED])
def test_a_variable_that_is_not_needed_changes_nothing(name):
    assert changes(built(environ={name: "1"})) == {}


def test_a_variable_of_torchs_that_does_not_parse_is_named():
    with pytest.raises(tracework.InvalidArgument, match="TORCHINDUCTOR_COMPILE_THREADS='many'"):
        config.current({"TORCHINDUCTOR_COMPILE_THREADS": "many"})


def test_names_of_torch_logs_turn_our_artifacts_on():
    assert artifacts_of("+dynamo,graph_breaks,-inductor,torch.foo,aot") == ["breaks", "recompiles", "aot"]
    from tracework import logs

    assert {a for row in TORCH_LOG_ROWS.values() for a in row.target.split(",") if a} <= set(logs.LOGS)


# torch's own modules


def test_what_the_program_sets_in_dynamos_config_holds(put):
    def now():
        return torch_settings.now({}, options=False)

    assert now() == torch_settings.Settings()
    put(dynamo, "cache_size_limit", 64)
    put(dynamo, "suppress_errors", True)
    put(dynamo, "assume_static_by_default", False)
    assert (now().recompile_limit, now().suppress_errors, now().dynamic) == (64, True, True)
    assert built().suppress_errors
    with compiler.config.patch(recompile_limit=5):
        assert now().recompile_limit == 5 and compiler.config.recompile_limit == 5
    assert compiler.config.recompile_limit == 64


def test_limits_and_errors_are_read_before_each_compilation(put):
    seen = []

    def backend(gm, example_inputs):
        seen.append(gm)
        return gm.forward

    def f(x, kind):
        return x + 1 if kind == "a" else x + 2

    call = tracework.compile(f, backend=backend)
    call(torch.ones(2), "a")
    put(dynamo, "error_on_recompile", True)
    with pytest.raises(RuntimeError, match="error_on_recompile is set"):
        call(torch.ones(2), "b")
    put(dynamo, "error_on_recompile", False)
    put(dynamo, "recompile_limit", 1)
    put(dynamo, "fail_on_recompile_limit_hit", True)
    with pytest.raises(RuntimeError, match="recompile_limit"):
        call(torch.ones(2), "c")
    put(dynamo, "recompile_limit", 8)
    call(torch.ones(2), "c")
    assert len(seen) == 2


def test_numbers_stay_in_the_graph_where_torchs_config_says_so(put):
    graphs = []

    def backend(gm, example_inputs):
        graphs.append(gm)
        return gm.forward

    def f(x):
        return x * x.sum().item()

    call = tracework.compile(f, backend=backend)
    put(dynamo, "capture_scalar_outputs", True)
    assert torch.equal(call(torch.ones(2)), f(torch.ones(2))) and len(graphs) == 1


@pytest.mark.parametrize(
    ("name", "value"), [("only_allow_pt2_compliant_ops", True), ("compiled_autograd", True), ("repro_after", "aot")]
)
def test_a_refused_field_is_an_error(put, name, value):
    put(dynamo, name, value)
    with pytest.raises(tracework.InvalidArgument, match=f"torch._dynamo.config.{name}"):
        tracework.compile(lambda x: x)


def test_what_the_program_sets_in_inductors_config_counts_as_options(put):
    put(inductor, "triton.cudagraphs", True)
    put(inductor, "max_autotune", True)
    put(inductor, "coordinate_descent_tuning", True)
    with pytest.warns(UserWarning, match="coordinate_descent_tuning has no effect"):
        assert built().cudagraphs and built().max_autotune
    assert built(None, {"cudagraphs": False}).cudagraphs is False
    put(inductor, "nan_asserts", True)
    with pytest.raises(tracework.InvalidArgument, match="nan_asserts"):
        built()


def test_what_the_program_sets_for_torchs_autograd_counts_as_an_option(put):
    put(functorch, "activation_memory_budget", 0.5)
    put(functorch, "donated_buffer", False)
    assert built().memory_budget == 0.5
    assert built(None, {"memory_budget": 0.25}).memory_budget == 0.25
    put(functorch, "joint_custom_pass", print)
    with pytest.raises(tracework.InvalidArgument, match="torch._functorch.config.joint_custom_pass"):
        built()


@pytest.mark.parametrize("by_default", [False, True])
def test_a_field_whose_default_depends_on_the_machine_counts_where_it_is_put(put, monkeypatch, by_default):
    """torch's is true where the variable CI is set when it is imported."""
    monkeypatch.setattr(functorch._config["error_on_custom_op_aliasing"], "default", by_default)
    assert built().check_operators == "warn"
    put(functorch, "error_on_custom_op_aliasing", True)
    assert built().check_operators == "raise"
    put(functorch, "error_on_custom_op_aliasing", False)
    assert built().check_operators == "warn"


def test_a_field_that_asks_for_other_results_than_eagers_is_told_once(put):
    put(dynamo, "numpy_default_float", "float32")
    with pytest.warns(UserWarning, match="torch._dynamo.config.numpy_default_float has no effect") as told:
        call = tracework.compile(lambda x: x * torch.from_numpy(np.ones(2)), backend="eager")
        assert call(torch.ones(2)).dtype is torch.float64
    assert len(told) == 1 and told[0].filename == __file__


def test_logs_that_the_program_turns_on_with_torchs_function_are_shown(capsys, monkeypatch):
    from tracework import logs

    monkeypatch.setattr(logs._handler, "stream", sys.stderr)
    torch._logging.set_logs(graph_breaks=True, inductor=logging.WARNING, dynamo=logging.CRITICAL)
    try:
        assert _torch.logs_that_are_on() == ["graph_breaks"]
        before = {name: (logging.getLogger(name).level, logging.getLogger(name).propagate) for name in logs.LOGS["breaks"][0]}
        tracework.compile(breaking, backend="eager")(torch.ones(2))
        assert "graph break in" in capsys.readouterr().err
        torch._logging.set_logs(dynamo=logging.DEBUG)
        assert _torch.logs_that_are_on() == ["dynamo"]
    finally:
        torch._logging.set_logs()
        for name, (level, propagate) in before.items():
            logger = logging.getLogger(name)
            logger.setLevel(level)
            logger.propagate = propagate
            logger.removeHandler(logs._handler)


def test_torchs_compiler_is_not_imported_for_its_settings(tmp_path):
    program = (
        "import sys, torch, tracework\n"
        "tracework.compiler.config.recompile_limit = 3\n"
        "options = {'epilogue_fusion': False, 'triton.cudagraphs': False, 'trace.debug_dir': sys.argv[1]}\n"
        "f = tracework.compile(lambda x: x + 1, options=options)\n"
        "f(torch.ones(2)); f(torch.ones(3, dtype=torch.int64))\n"
        "print([name for name in ('torch._dynamo', 'torch._inductor') if name in sys.modules])\n"
    )
    environment = dict(os.environ, TORCH_LOGS="guards", TORCHINDUCTOR_MAX_AUTOTUNE="0", TRACEWORK_CACHE_DIR=str(tmp_path / "c"))
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "dump")], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]" and "[tracework.products.guards]" in done.stderr


# tracework.compiler.config


def test_our_own_config_has_torchs_fields_and_refuses_others():
    assert set(names("compiler")) <= set(dir(compiler.config))
    for name in names("compiler"):
        getattr(compiler.config, name)
    assert compiler.config.recompile_limit == 8 and compiler.config.automatic_dynamic_shapes is True
    with pytest.raises(tracework.UnknownName, match="Did you mean 'recompile_limit'"):
        compiler.config.recompile_limits = 3
    with pytest.raises(AttributeError, match="no field 'nothing'"):
        compiler.config.nothing  # noqa: B018
    with pytest.raises(tracework.InvalidArgument, match="compile_on_one_rank"):
        compiler.config.compile_on_one_rank = True


def test_our_own_config_holds_for_functions_that_are_compiled_already():
    call = tracework.compile(lambda x, kind: (x + 1, kind), backend="eager")
    call(torch.ones(2), "a")
    with (
        compiler.config.patch(recompile_limit=1, fail_on_recompile_limit_hit=True),
        pytest.raises(RuntimeError, match="recompile_limit"),
    ):
        call(torch.ones(2), "b")
    call(torch.ones(2), "b")


def test_deterministic_algorithms_are_honoured_where_torch_sets_its_option_along():
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.equal(tracework.compile(torch.sin)(torch.ones(2)), torch.ones(2).sin())
    finally:
        torch.use_deterministic_algorithms(before)


# what libraries and scripts set

SET_BY = {
    "unsloth": {
        "option": "epilogue_fusion max_autotune shape_padding trace.enabled triton.cudagraphs debug dce memory_planning"
        " coordinate_descent_tuning trace.graph_diagram compile_threads group_fusion disable_progress verbose_progress triton.multi_kernel"
        " triton.use_block_ptr triton.enable_persistent_tma_matmul triton.autotune_at_compile_time triton.cooperative_reductions"
        " cuda.compile_opt_level cuda.enable_cuda_lto cuda.use_fast_math combo_kernels benchmark_combo_kernel"
        " combo_kernel_foreach_dynamic_shapes memory_pool efficient_conv_bn_eval_fx_passes dynamic_scale_rblock max_autotune_pointwise"
        " max_autotune_gemm max_autotune_gemm_backends autotune_fallback_to_aten autotune_multi_device aggressive_fusion freezing",
        "settings": "accumulated_cache_size_limit suppress_errors do_not_emit_runtime_asserts inline_inbuilt_nn_modules numpy_default_float"
        " recompile_limit cache_size_limit allow_unspec_int_on_nn_module optimize_ddp capture_scalar_outputs"
        " capture_dynamic_output_shape_ops verbose",
        "variable": "TORCHINDUCTOR_FX_GRAPH_CACHE TORCHINDUCTOR_AUTOTUNE_REMOTE_CACHE TORCHINDUCTOR_AUTOGRAD_CACHE TORCHDYNAMO_VERBOSE"
        " TORCHINDUCTOR_FORCE_DISABLE_CACHES TORCHINDUCTOR_COMPILE_THREADS TORCHINDUCTOR_CACHE_DIR TORCH_LOGS",
    },
    "axolotl": {
        "option": "coordinate_descent_tuning max_autotune_gemm_backends",
        "settings": "suppress_errors accumulated_cache_size_limit cache_size_limit recompile_limit capture_scalar_outputs",
        "variable": "TORCH_COMPILE_DEBUG TORCHINDUCTOR_CACHE_DIR",
    },
    "llama-factory": {"settings": "optimize_ddp suppress_errors", "variable": "TORCH_LOGS TORCHDYNAMO_DISABLE"},
    "nanoGPT and modded-nanogpt": {
        "option": "coordinate_descent_tuning max_autotune_gemm_backends reorder_for_compute_comm_overlap triton.cudagraphs",
        "settings": "suppress_errors optimize_ddp cache_size_limit recompile_limit donated_buffer",
        "variable": "TORCHINDUCTOR_COORDINATE_DESCENT_TUNING TORCHINDUCTOR_MAX_AUTOTUNE",
    },
    "torchtitan": {
        "option": "reorder_for_peak_memory reorder_for_compute_comm_overlap _micro_pipeline_tp triton.cudagraphs",
        "settings": "capture_scalar_outputs skip_fwd_side_effects_in_bwd_under_checkpoint recompile_limit cache_size_limit optimize_ddp"
        " inline_inbuilt_nn_modules activation_memory_budget",
        "variable": "TORCH_TRACE TORCH_LOGS TORCHINDUCTOR_CACHE_DIR",
    },
    "gpt-fast": {
        "option": "coordinate_descent_tuning triton.unique_kernel_names fx_graph_cache assert_indirect_indexing epilogue_fusion"
        " triton.cudagraph_trees",
        "settings": "enable_autograd_cache automatic_dynamic_shapes cache_size_limit",
    },
    "diffusers and segment-anything-fast": {
        "option": "conv_1x1_as_mm coordinate_descent_tuning epilogue_fusion coordinate_descent_check_all_directions"
        " force_fuse_int_mm_with_mul use_mixed_mm",
        "settings": "capture_dynamic_output_shape_ops cache_size_limit recompile_limit use_duck_shape",
    },
    "sglang": {
        "option": "coordinate_descent_tuning triton.unique_kernel_names fx_graph_cache",
        "settings": "accumulated_cache_size_limit cache_size_limit",
        "variable": "TORCHINDUCTOR_CACHE_DIR TORCHINDUCTOR_COMPILE_THREADS",
    },
    "torchtune, torchao, accelerate": {
        "option": "max_autotune epilogue_fusion coordinate_descent_tuning force_fuse_int_mm_with_mul use_mixed_mm freezing cpp.enable_concat_linear"
        " cpp_wrapper max_autotune_gemm_backends",
        "settings": "cache_size_limit capture_scalar_outputs inline_inbuilt_nn_modules suppress_errors automatic_dynamic_shapes",
        "variable": "TORCH_COMPILE_BACKEND TORCHINDUCTOR_FREEZING TORCHINDUCTOR_MAX_AUTOTUNE",
    },
}
"""What projects set of torch's compiler for a whole process or give to torch.compile, in releases of theirs since 2024."""


@pytest.mark.parametrize("project", SET_BY)
def test_what_projects_set_is_known_and_stops_nothing(project):
    for kind, given in SET_BY[project].items():
        for name in given.split():
            row = row_of(kind, name)
            assert row is not None and row.answer != REFUSED, (kind, name, row)
