"""TORCH_LOG_ROWS: the names of TORCH_LOGS, and which artifacts of TRACEWORK_LOGS show the same here."""

from __future__ import annotations

from collections.abc import Mapping

from .torch_names import HONOURED, IGNORED, Row, row_for, table_of

SHOWN_BY = {
    "graph": "graph graph_code graph_code_verbose graph_sizes pre_grad_graphs export",
    "breaks": "graph_breaks side_effects trace_call trace_source",
    "breaks,recompiles": "dynamo",
    "recompiles": "recompiles recompiles_verbose",
    "guards": "guards verbose_guards",
    "bytecode": "bytecode trace_bytecode",
    "aot": "aot aot_graphs aot_graphs_effects aot_joint_graph",
    "prims": "post_grad_graphs",
    "plan": "schedule fusion ir_pre_fusion ir_post_fusion compute_dependencies loop_ordering loop_tiling",
    "sizes": "dynamic sym_node trace_shape_events",
    "output_code": "output_code kernel_code",
    "output_code,fallbacks": "inductor",
    "fallbacks": "perf_hints not_implemented",
    "cudagraphs": "cudagraphs cudagraph_static_inputs",
    "cache": "cache caching",
    "autotuning": "autotuning autotuning_inputs benchmarking",
}
TORCHS_OWN = (
    "annotation async_compile auto_chunker autograd c10d compiled_autograd compiled_autograd_verbose custom_format_test_artifact ddp ddp_graphs"
    " distributed dtensor fake_tensor flex_gemm fsdp graph_region_expansion hierarchical_compile incremental inductor_metrics native_dsl"
    " native_dsl_compile node_runtime_estimation onnx onnx_diagnostics overlap overlap_scheduling partitioned_scatter pp torch"
)
TORCH_LOG_ROWS: Mapping[str, Row] = table_of(
    [
        *(Row(name, HONOURED, artifacts) for artifacts, names in SHOWN_BY.items() for name in names.split()),
        *(
            Row(name, IGNORED, reason="it is a part of torch, which prints it itself, or one that is not here")
            for name in TORCHS_OWN.split()
        ),
    ]
)


def artifacts_of(text: str) -> list[str]:
    """The artifacts that a value of TORCH_LOGS asks for; torch reads the value, too, and says what it does not know."""
    wanted: list[str] = []
    for word in text.split(","):
        name = word.strip()
        row = row_for(TORCH_LOG_ROWS, name.removeprefix("+"))
        if row is not None and row.answer == HONOURED:
            wanted += row.target.split(",")
    return list(dict.fromkeys(wanted))
