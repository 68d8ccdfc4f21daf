"""TORCH_OPTIONS: every option of torch.compile's compiler, of every release that is supported, and what becomes of it here.

What can only change speed, memory or what is printed is honoured, or ignored with one warning that lists all such names. What changes
values, promises something, calls the user's code or writes files is honoured or refused. FROM_TORCH.md is the table to read.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from .errors import InvalidArgument
from .torch_names import HONOURED, IGNORED, REFUSED, Row, asks, row_for, rows_of, table_of, torch_names
from .user_line import levels_inside

Translation = Callable[[Any], dict[str, Any]]


def _as(own: str) -> Translation:
    return lambda value: {own: value}


def _if_true(**chosen: Any) -> Translation:
    """What is chosen where the value is true; false leaves our defaults."""
    return lambda value: dict(chosen) if value else {}


def _jobs(value: Any) -> dict[str, Any]:
    return {"jobs": 1 if type(value) is int and value == 0 else value}


def _cxx(value: Any) -> dict[str, Any]:
    """torch gives a compiler, or a tuple of those to try, in which None is one of its own."""
    named = [value] if isinstance(value, str) else [path for path in value or () if path]
    return {"cxx": named[0]} if named else {}


HONOURED_OPTIONS: Mapping[str, tuple[Translation, str, str]] = {
    "max_autotune": (
        _as("max_autotune"),
        "max_autotune",
        "block sizes of our kernels are timed; products and convolutions are the library's",
    ),
    "max_autotune_gemm": (_if_true(max_autotune=True), "max_autotune", "there is one search for all kernels"),
    "max_autotune_pointwise": (_if_true(max_autotune=True), "max_autotune", "there is one search for all kernels"),
    "triton.cudagraphs": (_as("cudagraphs"), "cudagraphs", ""),
    "triton.cudagraph_or_error": (_as("cudagraph_or_error"), "cudagraph_or_error", ""),
    "triton.cudagraph_capture_sizes": (_as("cudagraph_capture_sizes"), "cudagraph_capture_sizes", ""),
    "cudagraph_policy": (
        _as("cudagraph_policy"),
        "cudagraph_policy",
        "a function of a loaded graph, not an object of torch's class",
    ),
    "graph_partition": (_as("graph_partition"), "graph_partition", ""),
    "fallback_random": (_as("fallback_random"), "fallback_random", "here it is the default: random numbers are eager's"),
    "align_random_eager": (_if_true(fallback_random=True), "fallback_random", "random numbers are eager's by default"),
    "fx_graph_cache": (_as("cache"), "cache", "one cache serves all stages"),
    "force_disable_caches": (_if_true(cache=False), "cache", ""),
    "cpp.cxx": (_cxx, "cxx", "the first compiler that is named"),
    "numerics": (_as("numerics"), "numerics", "the words are the same"),
    "emulate_precision_casts": (_if_true(numerics="strict_pointwise"), "numerics", '"strict_pointwise"'),
    "emulate_precision_casts_on_saved_tensors": (_if_true(numerics="strict_pointwise"), "numerics", '"strict_pointwise"'),
    "eager_numerics.division_rounding": (_if_true(numerics="strict_pointwise"), "numerics", '"strict_pointwise"'),
    "eager_numerics.disable_ftz": (_if_true(numerics="strict_pointwise"), "numerics", '"strict_pointwise"'),
    "eager_numerics.use_pytorch_libdevice": (_if_true(numerics="strict_pointwise"), "numerics", '"strict_pointwise"'),
    "strict_signed_zero": (_if_true(numerics="strict_reduction"), "numerics", '"strict_reduction"'),
    "assert_indirect_indexing": (_as("index_checks"), "index_checks", ""),
    "debug_index_asserts": (_if_true(index_checks=True), "index_checks", "kernels check indices by default"),
    "compile_threads": (_jobs, "jobs", "0, which is the compiling process itself for torch, is 1"),
    "verbose_progress": (_if_true(progress=True), "progress", ""),
    "disable_progress": (lambda value: {"progress": not value}, "progress", ""),
    "trace.enabled": (_if_true(debug=True), "debug", "a folder with each stage's text"),
    "debug": (_if_true(debug=True), "debug", "a folder with each stage's text"),
    "trace.debug_dir": (lambda value: {"dump_dir": value} if value else {}, "dump_dir", ""),
    "trace.graph_diagram": (_as("diagram"), "diagram", "the graph after fusion, as SVG and as text for Graphviz"),
    "trace.graph_diagram_format": (lambda value: {}, "diagram", "SVG and DOT are written whatever is given"),
    "fallback_by_default": (_as("fallback_by_default"), "fallback_by_default", "as in mode lite"),
    "pre_grad_custom_pass": (_as("pre_grad_custom_pass"), "pre_grad_custom_pass", "gets the captured graph"),
    "joint_custom_pre_pass": (_as("joint_custom_pre_pass"), "joint_custom_pre_pass", "gets the joint functional graph"),
    "joint_custom_post_pass": (_as("joint_custom_post_pass"), "joint_custom_post_pass", "gets the joint functional graph"),
    "post_grad_custom_pre_pass": (_as("post_grad_custom_pre_pass"), "post_grad_custom_pre_pass", "gets each functional graph"),
    "post_grad_custom_post_pass": (_as("post_grad_custom_post_pass"), "post_grad_custom_post_pass", "gets each functional graph"),
}
"""torch's option -> what it gives of our options, their name, and what to know. Cache keys are of the graphs that custom passes leave."""

IGNORED_OPTIONS = {
    "what is fused is decided by our scheduler": (
        "epilogue_fusion epilogue_fusion_first epilogue_fusion_user_defined_triton_kernel epilogue_fusion_with_atomic_add prologue_fusion"
        " aggressive_fusion group_fusion batch_fusion permute_fusion benchmark_fusion benchmark_epilogue_fusion max_fusion_size"
        " benchmark_template_fusion max_epilogue_benchmarked_choices max_template_fusion_benchmarked_choices"
        " max_fusion_buffer_group_pairwise_attempts max_fusion_unique_io_buffers score_fusion_memory_threshold"
        " fusion_memory_timeline_peak_memory_increase_gb fusion_memory_timeline_peak_memory_pct_threshold combo_kernels"
        " combo_kernel_allow_mixed_sizes combo_kernel_autotune_grouping combo_kernel_compile_time_autotune"
        " combo_kernel_foreach_dynamic_shapes combo_kernel_max_distance combo_kernel_max_num_args combo_kernel_max_num_nodes"
        " combo_kernel_peak_memory_increase_gb combo_kernel_peak_memory_pct_threshold combo_kernel_per_subkernel_blocks"
        " combo_kernels_autotune combo_kernels_pointwise_only benchmark_combo_kernel loop_ordering_after_fusion"
        " loop_reindexing_after_fusion loop_index_inversion_in_fusion pick_loop_orders online_softmax b2b_gemm_pass bmm_shared_a"
        " force_fuse_int_mm_with_mul force_pointwise_cat max_pointwise_cat_inputs max_complex_pointwise_cat_inputs"
        " expand_dimension_for_pointwise_nodes min_overlap_ratio size_threshold_for_succ_based_strategy var_std_reduction_dedup"
        " small_memory_access_threshold realize_acc_reads_size_threshold realize_acc_reads_threshold realize_cpu_acc_reads_threshold"
        " realize_cpu_opcount_threshold realize_opcount_threshold realize_opusers_threshold realize_reads_threshold"
        " delay_realize_cheap_outputs _realize_acc_reads_threshold_default _realize_opcount_threshold_default"
        " unroll_reductions_threshold split_reductions min_num_split constant_and_index_propagation compute_all_bounds"
    ),
    "graphs are rewritten by our own passes": (
        "pattern_matcher split_cat_fx_passes efficient_conv_bn_eval_fx_passes enable_linear_binary_folding decompose_mem_bound_mm"
        " joint_graph_constant_folding use_joint_graph_passes use_pre_grad_passes use_post_grad_passes use_dce dce selective_decompose"
        " add_pre_grad_passes remove_pre_grad_passes pre_grad_fusion_options post_grad_fusion_options pre_grad_pass_timing"
        " disabled_passes reorder_for_locality reorder_for_locality_in_training optimize_scatter_upon_const_tensor"
        " partitioned_scatter_* _partitioned_scatter_default is_predispatch enable_auto_functionalized_v2 auto_chunker.*"
        " use_mixed_mm mixed_mm_choice keep_addmm_fused_for_half_dtypes fallback_embedding_bag_byte_unpack cache_sdpa_constraint"
        " static_weight_shapes triton_kernel_default_layout_constraint unbacked_symint_fallback _use_fp64_for_unbacked_floats"
    ),
    "layouts and padding are chosen by our scheduler; results have eager's strides": (
        "shape_padding force_shape_pad comprehensive_padding inplace_padding can_inplace_pad_graph_input disable_padding_cpu pad_outputs"
        " pad_channels_last pad_dynamic_shapes padding_alignment_bytes padding_stride_threshold layout_optimization layout_opt_default"
        " force_layout_optimization conv_1x1_as_mm keep_output_stride strict_output_strides warn_mix_layout"
        " max_autotune_allow_flexible_layouts assume_aligned_inputs assume_unaligned_fallback_output assume_32bit_indexing"
    ),
    "memory is planned by our scheduler": (
        "allow_buffer_reuse inplace_buffers memory_planning memory_pool reorder_for_peak_memory reorder_for_peak_memory_debug"
        " freezing freezing_discard_parameters always_keep_tensor_constants bw_outputs_user_visible"
    ),
    "there is one search, which max_autotune turns on; its candidates, place and time cannot be chosen": (
        "max_autotune_gemm_backends max_autotune_gemm_search_space max_autotune_conv_backends max_autotune_conv_bwd_input_backends"
        " max_autotune_conv_bwd_weight_backends max_autotune_flex_search_space max_autotune_prune_choices_based_on_shared_mem"
        " max_autotune_report_choices_stats max_autotune_subproc_* _conv_default_backends coordinate_descent_* autotune_in_subproc"
        " autotune_multi_device autotune_fallback_to_aten autotune_num_choices_displayed autotune_cudagraph_benchmarking"
        " autotune_cudagraph_benchmarking_iters autotune_lookup_table distributed_max_autotune_gemm pipeline_max_autotune_gemm"
        " incremental_autotune inductor_default_autotune_rep inductor_default_autotune_warmup precompilation_timeout_seconds"
        " search_autotune_cache multi_kernel_hints lookup_table.* autoheuristic_* dynamic_scale_rblock external_matmul"
        " use_experimental_benchmarker use_torch_profiler_benchmarker enable_caching_generated_triton_templates"
        " runtime_estimations_mms_benchmark estimate_op_runtime apply_gumbel_max_trick use_rand4x"
    ),
    "the cache is on disk, checked entry by entry; cache_shared names a place that machines share": (
        "fx_graph_remote_cache autotune_local_cache autotune_remote_cache bundled_autotune_remote_cache remote_gemm_autotune_cache"
        " bundle_triton_into_fx_graph_cache non_blocking_remote_cache_write global_cache_dir unsafe_marked_cacheable_functions"
        " unsafe_skip_cache_dynamic_shape_guards _cache_config_* _save_config_ignore file_lock_timeout"
    ),
    "kernels are built by our own workers": (
        "compile_worker_* worker_* torchinductor_worker_logpath quiesce_async_compile_pool quiesce_async_compile_time"
        " cpp_cache_precompile_headers keep_static_cubin_raw"
    ),
    "the host program and the launcher are our own": (
        "cpp_wrapper cpp_wrapper_build_separate fx_wrapper use_static_cuda_launcher use_static_triton_launcher"
        " strict_static_cuda_launcher strict_static_triton_launcher static_launch_user_defined_triton_kernels use_fast_triton_launcher"
        " use_launch_metadata_schema triton_disable_device_detection custom_should_partition_ops"
        " cudagraph_unsafe_unbacked_ops"
    ),
    "checks of sizes, types and strides are made before a kernel reads, whatever is given": (
        "size_asserts scalar_asserts alignment_asserts alignment_asserts_inputs do_not_emit_runtime_assertions"
        " unsafe_skip_scalar_range_asserts unsafe_ignore_unsupported_triton_autotune_args"
    ),
    "it gives up accuracy for speed, or keeps what is kept here in any case": "use_fast_math force_same_precision",
    "it names kernels, prints or measures; TRACEWORK_LOGS has our own artifacts": (
        "annotate_training benchmark_harness benchmark_kernel comment_origin debug_fusion debug_ir_traceback developer_warnings"
        " kernel_name_max_ops log_tlparse profile_bandwidth profile_bandwidth_regex profile_bandwidth_with_do_bench_using_profiling"
        " _profile_var profiler_mark_wrapper_call is_nightly_or_source write_are_deterministic_algorithms_enabled"
    ),
    "the folder of trace.enabled has every stage": (
        "trace.compile_profile trace.debug_log trace.dot_graph_shape trace.draw_orig_fx_graph trace.fx_graph trace.fx_graph_transformed"
        " trace.info_log trace.ir_post_fusion trace.ir_pre_fusion trace.log_autotuning_results trace.log_url_for_graph_xform"
        " trace.orig_fx_graph_diagram_format trace.output_code trace.provenance_tracking_*"
    ),
    "collectives are not reordered or bucketed": (
        "_collective.* _fuse_ddp_* _micro_pipeline_tp aten_distributed_optimizations.* bucket_* collective_benchmark_* inter_node_bw"
        " intra_node_bw cpu_gpu_bw decompose_shard_dim_alltoall dedup_reduce_scatters reorder_for_compute_comm_overlap"
        " reorder_for_compute_comm_overlap_passes reorder_prefetch_limit"
    ),
    "kernels for the CPU are our own C++": "cpp.* cpu_backend",
    "kernels for GPUs are our own Triton": "triton.* cuda_backend",
    "it steers kernels of another language or library": (
        "cuda.* cutlass.* nvgemm_* cutedsl_enable_autotuning flydsl_enable_autotuning tpu_backend"
    ),
    "it steers a device that is not supported": "halide.* rocm.* xpu.* xpu_backend mtia.*",
}
"""Reason -> names that are taken and do nothing."""

REFUSED_OPTIONS = {
    "nothing here promises it. torch.use_deterministic_algorithms(True) is honoured": "deterministic batch_invariant",
    "kernels do not look for NaN. Use torch.autograd.set_detect_anomaly(True), or look at what the function gives": (
        "nan_asserts runtime_triton_nan_asserts"
    ),
    "no library is made that runs without Python. Use torch.export and torch._inductor.aoti_compile_and_package": (
        "use_aoti aot_inductor.* aot_inductor_mode.* enable_autograd_for_aot"
    ),
    "it is for tests of torch's own compiler. Leave it out": "test_configs.* *_TESTING_ONLY _raise_error_for_testing",
    "it would call your code on objects of torch's own compiler, which do not exist here. A backend of your own, or"
    " post_grad_custom_post_pass, sees graphs": (
        "_pre_fusion_custom_pass _post_fusion_custom_pass custom_partitioner_fn inductor_choices_class"
        " generate_intermediate_hooks run_jit_post_compile_hook"
    ),
    "modes of torch do not see compiled regions as operators. Use backend='aot_eager' below such a mode": "wrap_inductor_compiled_regions",
    "it would write files that nothing here writes. Use options={'debug': True}, a folder with each stage's text": (
        "save_args trace.save_real_tensors trace.upload_tar triton.debug_dump_kernel_inputs triton.proton_* enabled_metric_tables"
        " profile_bandwidth_output"
    ),
    "passes are not compared with what they replace. Use numerics='strict', or tests of your own": "fx_passes_numeric_check",
    "an operator without a lowering calls the eager kernel, which TRACEWORK_LOGS=fallbacks shows": "implicit_fallbacks",
    "kernels for the CPU are C++. Use backend='aot_eager'": "disable_cpp_codegen",
}
"""Reason, and what to use instead -> names that are an error where a value asks for something."""

TORCH_OPTIONS: Mapping[str, Row] = table_of(
    [
        *(Row(name, HONOURED, target, reason) for name, (_, target, reason) in HONOURED_OPTIONS.items()),
        *rows_of(IGNORED, IGNORED_OPTIONS),
        *rows_of(REFUSED, REFUSED_OPTIONS),
    ]
)
EXTRA = ("use_aoti",)
"""Options of torch.compile that are not in its compiler's list."""


def is_torchs(name: str) -> bool:
    """Whether a release of torch that is supported has an option of this name."""
    return name in torch_names("option") or name in EXTRA


def translated(name: str, value: Any) -> dict[str, Any] | None:
    """What one of torch's options asks for in ours; None where it is ignored. Raises InvalidArgument where it is refused."""
    if name in HONOURED_OPTIONS:
        return HONOURED_OPTIONS[name][0](value)
    row = row_for(TORCH_OPTIONS, name)
    assert row is not None, name
    if row.answer == REFUSED:
        known = torch_names("option").get(name)
        if not (bool(value) if known is None else asks(known, value)):
            return {}
        raise InvalidArgument(f"torch's option {name!r} is not honoured here: {row.reason}.")
    if any(map(callable, _items(value))):
        raise InvalidArgument(
            f"torch's option {name!r} would call your code, which nothing here does: {row.reason}. Leave it out."
        )
    return None


def _items(value: Any) -> Iterable[Any]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, (list, tuple, set)) else (value,)


_told: set[str] = set()


def say_ignored(names: Iterable[str]) -> None:
    """One warning, at the program's line, for all options that have not been told before."""
    new = sorted(set(names) - _told)
    if new:
        _told.update(new)
        what = "options {} have" if len(new) > 1 else "option {} has"
        text = f"torch's {what.format(', '.join(new))} no effect here; `python -m tracework.from_torch` says why."
        warnings.warn(text, stacklevel=levels_inside())
