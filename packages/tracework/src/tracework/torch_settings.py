"""TORCH_SETTINGS and TORCH_VARIABLES: fields of torch's config modules and torch's environment variables, and what becomes of each here.

What the program sets in torch's modules is read where they are loaded already; they are never imported for it. `Settings` is what holds
now: the environment, then torch's modules, then `tracework.compiler.config`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import torch

from . import _torch
from .errors import InvalidArgument, UnknownName
from .torch_names import COMPUTED, HONOURED, IGNORED, REFUSED, Row, asks, row_for, rows_of, table_of, torch_names
from .torch_options import TORCH_OPTIONS, say_ignored

HONOURED_SETTINGS: Mapping[str, tuple[str, str]] = {
    "disable": ("TRACEWORK_DISABLE", "at the next compile() call"),
    "suppress_errors": ("suppress_errors", ""),
    "recompile_limit": ("compile(recompile_limit=)", ""),
    "cache_size_limit": ("compile(recompile_limit=)", ""),
    "fail_on_recompile_limit_hit": ("RecompileLimitError", ""),
    "fail_on_cache_limit_hit": ("RecompileLimitError", ""),
    "error_on_recompile": ("RecompileError", ""),
    "capture_scalar_outputs": ("unbacked", ""),
    "capture_dynamic_output_shape_ops": ("unbacked", ""),
    "automatic_dynamic_shapes": ("compile(dynamic=False)", "where it is false"),
    "assume_static_by_default": ("compile(dynamic=True)", "where it is false"),
    "dynamic_sources": ("dynamic_sources", ""),
    "dynamic_values": ("dynamic_values", ""),
    "static_sources": ("static_sources", ""),
    "unbacked_sources": ("unbacked_sources", ""),
    "job_id": ("TRACEWORK_JOB_ID", ""),
    "force_disable_caches": ("cache", ""),
    "check_custom_op_aliasing": ("check_operators", 'False is "off"'),
    "error_on_custom_op_aliasing": ("check_operators", 'True is "raise"'),
    "activation_memory_budget": ("memory_budget", ""),
}
"""Field -> what it sets here, and what to know."""

UNLIKE_EAGER = "it asks for results that are not eager's, and here they are: arrays have NumPy's dtypes, recomputed code has its effects again"
"""The reason of fields that libraries set for the whole process, and that few of their programs mean: they are told in a warning."""

IGNORED_SETTINGS = {
    "it does nothing in torch, either, or holds here in any case": (
        "accumulated_cache_size_limit accumulated_recompile_limit skip_code_recursive_on_cache_limit_hit dynamic_shapes"
        " skip_code_recursive_on_recompile_limit_hit minimum_call_count dead_code_elimination report_guard_failures replay_side_effects"
        " traceable_tensor_subclasses specialize_int specialize_float allow_rnn capture_autograd_function capture_func_transforms"
        " capture_sparse_compute enable_faithful_generator_behavior enable_trace_contextlib enable_trace_unittest"
        " enable_trace_load_build_class enable_cpp_framelocals_guard_eval enable_cpp_guard_manager enable_cpp_symbolic_shape_guards"
        " inline_inbuilt_nn_modules trace_numpy trace_autograd_ops graph_break_on_nn_param_ctor nested_graph_breaks optimize_ddp"
        " optimize_ddp_lazy_compile raise_on_ctx_manager_usage raise_on_unsafe_aot_autograd rewrite_assert_with_torch_assert"
        " inline_torch_dispatch_torch_compile enable_aot_compile enable_dynamo_decompositions skip_torchrec issue_3_13_0_warning"
        " constant_fold_autograd_profiler_enabled capture_profiler_record_function allow_empty_graphs dont_skip_tracing"
        " nontraceable_tensor_subclasses error_on_nested_jit_trace error_on_nested_fx_trace force_compile_during_fx_trace"
        " reorderable_logging_functions ignore_logging_functions ignore_logger_methods install_free_tensors"
        " install_free_tensors_for_export prefer_deferred_runtime_asserts_over_guards do_not_emit_runtime_asserts"
        " error_on_dynamo_callback_in_fullgraph_compiled_code allowed_functions_module_string_ignorelist base_dir"
        " skipfiles_inline_module_allowlist _autograd_backward_strict_mode_* computed_lazy_constant_max_nodes"
    ),
    "which sizes and numbers become symbols follows from what changes, and from marks": (
        "allow_unspec_int_on_nn_module automatic_dynamic_shapes_mark_as automatic_dynamic_exclusion_guard"
        " force_nn_module_property_static_shapes force_parameter_static_shapes force_unspec_int_unbacked_size_like_on_torchrec_kjt"
        " allow_ignore_mark_dynamic pgo_extra_read_key pgo_extra_write_key automatic_dynamic_local_pgo automatic_dynamic_remote_pgo"
        " _shapes_spec _dynamic_shapes_spec use_duck_shape backed_size_oblivious unify_view_symbols_bso_meta"
    ),
    "guards are our own, and none is left out": (
        "guard_nn_modules guard_nn_modules_using_dict_tags skip_fsdp_guards skip_fsdp_hooks skip_guards_on_constant_func_defaults"
        " skip_nnmodule_hook_guards skip_no_tensor_aliasing_guards_on_parameters skip_tensor_guards_with_matching_dict_tags"
        " assume_dunder_attributes_remain_unchanged use_lamba_guard_for_object_aliasing use_recursive_dict_tags_for_guards"
        " max_saved_pointers_for_recursive_dict_tags_check _unsafe_skip_fsdp_module_guards invalidate_compile_context_weakrefs"
        " aggressive_guard_free_semantics symbol_guard_limit_before_specialize"
    ),
    "it prints, names or measures; TRACEWORK_LOGS has our own artifacts": (
        "verbose log_file_name log_compilation_metrics log_graph_in_out_metadata record_compile_time_instruction_count"
        " record_runtime_overhead pt2_compile_id_prefix debug_disable_compile_counter _custom_ops_profile generate_pycode"
        " debug_dir_root cprofile dynamo_profiler debug_partitioner torch_compile_graph_format enrich_profiler_metadata"
        " extended_debug_* print_specializations"
    ),
    "equal kernels are compiled once wherever they are": (
        "use_graph_deduplication track_nodes_for_deduplication graph_deduplication_lint inline_invoke_subgraph"
        " inline_single_use_invoke_subgraph enable_invoke_subgraph_regional_compile canonicalize_output_graph_node_order"
    ),
    "it steers how torch's own compiler works inside": (
        "fake_tensor_cache_enabled fake_tensor_cache_crosscheck_enabled fake_tensor_disable_inference_mode use_lazy_graph_module"
        " prepare_freezing run_gc_after_compile gc_gen2_threshold_during_compile wrap_top_frame cudagraph_backend_keep_input_mutation"
        " cudagraph_backend_support_input_mutation force_cudagraph_gc caching_precompile strict_precompile _save_config_ignore"
        " same_two_models_use_fp64 repro_tolerance repro_level repro_forward_only repro_ignore_non_fp cache_key_tag"
        " compiled_autograd_kwargs_override enable_p2p_compilation debug_assert fake_tensor_* generate_fake_kernels_from_real_mismatches"
        " custom_op_default_layout_constraint decompose_custom_triton_ops"
        " disable_guess_zero_tangent_for_mutated_input_subclass enable_complex_wrapper force_non_lazy_backward_lowering"
        " guess_tangent_strides_as_outputs selective_decompose static_weight_shapes unlift_effect_tokens"
        " unsafe_treat_script_objects_as_zero_size view_replay_for_aliased_outputs check_shape_env_recorded_events"
        " meta_nonzero_assume_all_nonzero no_data_dependent_graph_break skip_dtype_check_in_meta_registrations"
        " soft_pending_unbacked_not_found_error translation_validation* validate_shape_env_version_key"
    ),
    "what is kept for a backward is decided by our partitioner, in the bounds of memory_budget": (
        "activation_memory_budget_* activation_offload_* activation_reload_prefetch enable_activation_offloading aggressive_recomputation"
        " ban_recompute_* cse donated_buffer is_non_builtin_to_include max_dist_from_bw memory_budget_pareto_dir recompute_views"
        " remat_using_tags_for_fwd_loss_bwd_graph saved_tensors_hooks_filtering_mode treat_parameters_as_free_to_save"
    ),
    "the cache is on disk, checked entry by entry; cache_shared names a place that machines share": (
        "*_autograd_cache autograd_cache_* bypass_autograd_cache_key _sync_cache_decision_cross_ranks"
    ),
    "collectives are not reordered or bucketed": "unsafe_allow_optimization_of_collectives _sync_decision_cross_ranks",
    "random numbers are eager's": "functionalize_rng_ops graphsafe_rng_functionalization",
    "a backward computes in eager's dtypes": "backward_pass_autocast",
    **{
        UNLIKE_EAGER: (
            "numpy_default_float numpy_default_complex numpy_default_int use_numpy_random_stream"
            " skip_fwd_side_effects_in_bwd_under_checkpoint"
        )
    },
}
REFUSED_SETTINGS = {
    "gradients are compiled with the function, not when they run. Leave it out": "compiled_autograd",
    "operators are not chosen by a tag. Keep one out with tracework.compiler.disallow_in_graph": "only_allow_pt2_compliant_ops",
    "effects of a function are replayed in any case. Use fullgraph=True, or look at TRACEWORK_LOGS=breaks": "side_effect_replay_policy",
    "it is called with torch's own joint graph. Give options={'joint_custom_post_pass': ...}": "joint_custom_pass",
    "it would write files that nothing here writes. Try values of memory_budget": "visualize_memory_budget_pareto",
    "no script that shows a failure again is written. Use TRACEWORK_DUMP, and backend='aot_eager' or 'eager' to find the stage": (
        "repro_after replay_record_enabled"
    ),
    "results are not compared while the program runs. Compare with backend='eager'": "verify_correctness",
    "leaf functions are not checked while the program runs. Compare with backend='eager'": (
        "leaf_function_check_escaped_gradients leaf_function_validate_outputs"
    ),
    "backends and options belong to a compile() call. Give them there": (
        "debug_backend_override debug_inductor_config_override debug_dynamo_config_override"
    ),
    "ranks decide each for itself what they compile; what several need one makes, and the others fetch it": "enable_compiler_collectives compile_on_one_rank",
    "it is for tests of torch's own compiler. Leave it out": (
        "*_TESTING_ONLY _test_disable_functionalization debug_force_graph_break_on_leaf_return debug_force_nested_calls"
    ),
}

TORCH_SETTINGS: Mapping[str, Row] = table_of(
    [
        *(Row(name, HONOURED, target, reason) for name, (target, reason) in HONOURED_SETTINGS.items()),
        *rows_of(IGNORED, IGNORED_SETTINGS),
        *rows_of(REFUSED, REFUSED_SETTINGS),
    ]
)
"""Fields of torch._dynamo.config, torch.compiler.config, torch._functorch.config and torch.fx.experimental._config, which share names."""

HONOURED_VARIABLES: Mapping[str, str] = {
    "TORCHDYNAMO_DISABLE": "TRACEWORK_DISABLE",
    "TORCH_COMPILE_DEBUG_DIR": "the folder above that of TORCH_COMPILE_DEBUG",
    "TORCH_TRACE": "TRACEWORK_TRACE",
    "TORCH_LOGS": "TRACEWORK_LOGS, by the table of names below",
    "TORCHINDUCTOR_LITE_MODE": "fallback_by_default",
    "TORCHINDUCTOR_COMPILE_THREADS": "jobs",
}
"""Variables that set no field of a config module, or none that says so in its source."""

IGNORED_VARIABLES = {
    "it prints or draws; TRACEWORK_LOGS and TRACEWORK_DUMP have our own texts": (
        "TORCH_LOGS_FORMAT TORCH_LOGS_OUT TORCH_LOGS_TRACE_ID_FILTER TORCH_COMPILE_GRAPH_FORMAT TORCHDYNAMO_EXTENDED_*"
        " TORCHDYNAMO_PRINT_MISSING TORCHINDUCTOR_*_LOGGING_FILE TORCHINDUCTOR_WRITE_MISSING_OPS TORCHINDUCTOR_DEBUG_COMPILE"
        " TORCHINDUCTOR_DEBUG_SYMBOL TORCHINDUCTOR_PATTERN_MATCH_* TORCHINDUCTOR_AUTOTUNE_NUM_CHOICES_DISPLAYED"
    ),
    "our cache is beside it: TRACEWORK_CACHE_DIR is its folder": (
        "TORCHINDUCTOR_CACHE_DIR TORCHINDUCTOR_AUTOGRAD_CACHE TORCHINDUCTOR_AUTOGRAD_CACHE_ALLOW_CUSTOM_AUTOGRAD"
        " TORCHINDUCTOR_AUTOGRAD_REMOTE_CACHE TORCHINDUCTOR_AUTOTUNE_REMOTE_CACHE TORCHINDUCTOR_BUNDLED_AUTOTUNE_REMOTE_CACHE"
        " TORCHINDUCTOR_BUNDLE_TRITON_INTO_FX_GRAPH_CACHE TORCHINDUCTOR_FX_GRAPH_REMOTE_CACHE TORCHINDUCTOR_REDIS_*"
        " TORCHINDUCTOR_CACHE_DUMP_FILE_PATH TORCHINDUCTOR_DUMP_MEMOIZER_CACHE TORCHINDUCTOR_ENABLE_CACHING_MODULE"
        " TORCHINDUCTOR_DISABLE_MULTI_KERNEL_CACHE"
    ),
    "it steers how torch's own compiler works inside": (
        "TORCHDYNAMO TORCHDYNAMO_DEBUG_FUNCTION TORCHDYNAMO_NO_DATA_DEPENDENT_GRAPH_BREAK TORCHDYNAMO_TRANSLATION_*"
        " TORCHINDUCTOR_AUTOHEURISTIC_* TORCHINDUCTOR_AUTOTUNE_AT_COMPILE_TIME TORCHINDUCTOR_AUTOTUNE_POOL_INACTIVITY_TIMEOUT"
        " TORCHINDUCTOR_ERROR_ON_CUSTOM_OP_ALIASING TORCHINDUCTOR_FX_COMPILE_MODE TORCHINDUCTOR_NVGEMM_* TORCHINDUCTOR_PROLOGUE_FUSION"
        " TORCHINDUCTOR_TLX_MODE TORCHINDUCTOR_USE_STATIC_CUDA_LAUNCHER TORCHINDUCTOR_WINDOWS_TESTS TORCHINDUCTOR_WORKER_START"
        " TORCHINDUCTOR_XPU_KERNEL_FORMAT TORCH_COMPILE_WORKER_MODE TORCH_INDUCTOR_CPP_WRAPPER TORCH_INDUCTOR_INSTALL_GXX"
        " TORCH_INDUCTOR_PRECOMPILE_HEADERS"
    ),
    "torch's bisecting script sets it for the script that it runs": "TORCH_COMPILE_BACKEND",
}
REFUSED_VARIABLES = {
    "kernels and their arguments are not written to files. Use TRACEWORK_DUMP": (
        "TORCHINDUCTOR_DUMP_LAUNCH_PARAMS TORCHINDUCTOR_DUMP_LAUNCH_TENSORS TORCHINDUCTOR_KERNELS_TO_DUMP"
    ),
}
TORCH_VARIABLES: Mapping[str, Row] = table_of(
    [
        *(Row(name, HONOURED, target) for name, target in HONOURED_VARIABLES.items()),
        *rows_of(IGNORED, IGNORED_VARIABLES),
        *rows_of(REFUSED, REFUSED_VARIABLES),
    ]
)
"""Variables with a row of their own; the others have that of what they set."""


def row_of_variable(name: str) -> Row | None:
    """The row of a variable: its own, else that of the option or field that it sets."""
    row = row_for(TORCH_VARIABLES, name)
    kind, _, setting = torch_names("variable")[name].what.partition(":")
    if row is None and setting:
        row = row_for(TORCH_OPTIONS if kind == "option" else TORCH_SETTINGS, setting)
    return row


MODULES = {
    "dynamo": "torch._dynamo.config",
    "compiler": "torch.compiler.config",
    "functorch": "torch._functorch.config",
    "fx": "torch.fx.experimental._config",
}
INDUCTOR = "torch._inductor.config"


@dataclass(frozen=True)
class Settings:
    """What holds for the process now, by the names of torch's fields; None and empty texts: nobody has said anything.

    options: options of the compiler that the environment or torch's modules set, by torch's names.
    """

    disable: bool = False
    suppress_errors: bool = False
    recompile_limit: int | None = None
    fail_on_recompile_limit_hit: bool = False
    error_on_recompile: bool = False
    capture_scalar_outputs: bool = False
    capture_dynamic_output_shape_ops: bool = False
    automatic_dynamic_shapes: bool = True
    assume_static_by_default: bool = True
    dynamic_sources: str = ""
    dynamic_values: str = ""
    static_sources: str = ""
    unbacked_sources: str = ""
    job_id: str = ""
    force_disable_caches: bool = False
    check_custom_op_aliasing: bool = True
    error_on_custom_op_aliasing: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def check_operators(self) -> str:
        """What the option is by default."""
        if not self.check_custom_op_aliasing:
            return "off"
        return "raise" if self.error_on_custom_op_aliasing else "warn"

    @property
    def dynamic(self) -> bool | None:
        """What `dynamic=None` of compile() means."""
        if not self.assume_static_by_default:
            return True
        return None if self.automatic_dynamic_shapes else False


_FIELDS = frozenset(f.name for f in fields(Settings)) - {"options"}
ALIASES = {"cache_size_limit": "recompile_limit", "fail_on_cache_limit_hit": "fail_on_recompile_limit_hit"}
"""Names that torch keeps of fields that it has renamed."""


def now(of_environment: Mapping[str, Any], options: bool = True) -> Settings:
    """What holds now. of_environment: `Config.torchs`. options: whether those of the compiler are wanted, which takes a millisecond.

    Raises InvalidArgument where something is set that is refused.
    """
    given: dict[str, Any] = {}
    chosen: dict[str, Any] = {}
    for setting, value in of_environment.items():
        kind, _, name = setting.partition(":")
        (chosen if kind == "option" else given)[name] = value
    for kind, module in MODULES.items():
        given |= _checked(_torch.set_by_program(module, torch_names(kind)), f"{module}.")
    given |= config.given
    if options:
        chosen |= _torch.set_by_program(INDUCTOR, torch_names("option"))
        if torch.are_deterministic_algorithms_enabled():
            chosen.pop("deterministic", None)  # torch sets it along with the switch, which is honoured
    values = {ALIASES.get(name, name): value for name, value in given.items()}
    known = {name: value for name, value in values.items() if name in _FIELDS and value is not None}
    chosen |= {name: value for name, value in values.items() if name not in _FIELDS}
    return Settings(**known, options=chosen)


def _checked(given: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Those that are honoured. Raises InvalidArgument for one that is refused; one that asks for other results than eager's is told."""
    honoured = {}
    by_export = torch.compiler.is_exporting()  # which sets some for itself while it runs
    for name, value in given.items():
        row = row_for(TORCH_SETTINGS, name)
        if row is not None and row.answer == REFUSED and not by_export and asks(_known(name), value):
            raise InvalidArgument(f"{prefix}{name} = {value!r} is not honoured here: {row.reason}.")
        if row is not None and row.reason == UNLIKE_EAGER:
            say_ignored([f"{prefix}{name}"])
        if name in HONOURED_SETTINGS:
            honoured[name] = value
    return honoured


def _known(name: str) -> Any:
    found = [names[name] for names in map(torch_names, MODULES) if name in names]
    return next((known for known in found if known.default is not COMPUTED), found[0])


class CompilerConfig:
    """`tracework.compiler.config`: the fields of torch.compiler.config, for this compiler alone.

    What is set holds for the whole process: sizes and limits from the next compilation on, caches and errors from the next compile() call on.
    A field that was not set has torch's value. One that has no meaning here can be set and does nothing; one that is refused raises
    InvalidArgument, and an unknown one UnknownName.
    """

    def __init__(self) -> None:
        object.__setattr__(self, "given", {})

    given: dict[str, Any]

    def __dir__(self) -> list[str]:
        return [*torch_names("compiler"), "patch"]

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in torch_names("compiler"):
            raise UnknownName("field of tracework.compiler.config", name, torch_names("compiler"))
        _checked({name: value}, "tracework.compiler.config.")
        self.given[name] = value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name not in torch_names("compiler"):
            raise AttributeError(f"tracework.compiler.config has no field {name!r}")
        if name in self.given:
            return self.given[name]
        for kind, module in MODULES.items():
            found = _torch.set_by_program(module, [name] if name in torch_names(kind) else [])
            if found:
                return found[name]
        default = _known(name).default
        return _COMPUTED_DEFAULTS.get(name, False) if default is COMPUTED else default

    def __delattr__(self, name: str) -> None:
        self.given.pop(name, None)

    @contextlib.contextmanager
    def patch(self, changes: str | Mapping[str, Any] | None = None, value: Any = None, /, **more: Any) -> Iterator[None]:
        """Sets fields until the end of a `with`, or of the function that it decorates: patch("name", value), patch({...}), patch(name=...)."""
        wanted = {changes: value} if isinstance(changes, str) else dict(changes or {})
        before = dict(self.given)
        try:
            for name, new in {**wanted, **more}.items():
                setattr(self, name, new)
            yield
        finally:
            self.given.clear()
            self.given.update(before)


_COMPUTED_DEFAULTS = {"automatic_dynamic_shapes": True}
config = CompilerConfig()
