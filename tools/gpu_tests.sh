#!/bin/sh
# All GPU tests from the source tree, with nothing installed but torch, triton, pytest: sh tools/gpu_tests.sh [pytest options]
cd "$(dirname "$0")/.." || exit 1
exec "${PYTHON:-python3}" tools/run_in_tree.py python -m pytest -q -ra \
    packages/runtime/tests/gpu packages/inductor/tests/gpu packages/runtime/tests/unit integration_tests/test_several_gpus.py \
    integration_tests/test_distributed.py integration_tests/test_patches_on_gpu.py integration_tests/test_graph_parts_on_gpu.py \
    integration_tests/test_unasked_recordings_on_gpu.py integration_tests/test_flex_attention_on_gpu.py integration_tests/test_written_attention.py \
    "$@"
