"""The digest kernel: every byte counts, at all lengths around the edges of words and blocks; the keys too."""

import ctypes
import random

import pytest
import tracework_runtime as runtime
from tracework_inductor.codegen import renderer_for
from tracework_inductor.codegen.cpp import few_rows, table
from tracework_inductor.codegen.cpp.cores import attention
from tracework_inductor.codegen.cpp.depthwise import DEPTHWISE_KERNEL
from tracework_inductor.codegen.cpp.digest import DIGEST_KERNEL, KEY_BYTES
from tracework_inductor.codegen.cpp.gemm import GEMM_KERNEL
from tracework_inductor.codegen.renderer import KERNEL_NAME, RenderedKernel
from tracework_inductor.options import InductorOptions
from tracework_runtime.packed import KEY_BYTES as RUNTIME_KEY_BYTES

LENGTHS = [1, 4, 7, 8, 9, 12, 16, 24, 36, 8188, 8192, 8196, 8192 * 3 + 20, 8192 * 70 + 4, 8192 * 513 + 12]


BESIDE = RenderedKernel(f'{few_rows.HEAD}{attention.HEAD}{table.HEAD}extern "C" void {KERNEL_NAME}() {{}}', ())
"""What kernels of products, of attention and of tables have in front of them."""


@pytest.fixture(scope="module")
def digest():
    """The kernel in a file with all others that are not made of loops alone, as a graph of layers and attention has it."""
    kernels = [("content_digest", DIGEST_KERNEL), ("product", GEMM_KERNEL), ("depthwise", DEPTHWISE_KERNEL), ("beside", BESIDE)]
    sources = renderer_for("cpu", InductorOptions()).pack(kernels)
    artifact = runtime.Artifact("digest", "def call(args):\n    return ()\n", tuple(sources), devices=frozenset({"cpu"}))
    kernel = runtime.load(artifact).namespace["content_digest"]

    def run(data: bytearray, keys: bytes) -> bytes:
        memory = (ctypes.c_char * len(data)).from_buffer(data)
        out = ctypes.create_string_buffer(16)
        addresses, lengths = (ctypes.c_void_p * 1)(ctypes.addressof(memory)), (ctypes.c_int64 * 1)(len(data))
        kernel(addresses, lengths, 1, ctypes.create_string_buffer(keys, len(keys)), out)
        return out.raw

    return run


def keys_from(seed: int) -> bytes:
    """Keys without pattern, the same at each run."""
    return random.Random(seed).randbytes(KEY_BYTES)


def test_the_caller_brings_as_many_keys_as_the_kernel_takes() -> None:
    assert KEY_BYTES == RUNTIME_KEY_BYTES


@pytest.mark.parametrize("length", LENGTHS)
def test_every_byte_counts(digest, length: int) -> None:
    keys = keys_from(1)
    data = bytearray(n * 37 & 255 for n in range(length))
    before = digest(data, keys)
    assert digest(bytearray(data), keys) == before
    places = {0, length - 1, length // 2, min(8191, length - 1), min(8192, length - 1)}
    seen = {before}
    for place in sorted(places):
        data[place] ^= 1
        seen.add(digest(data, keys))
        data[place] ^= 1
    assert len(seen) == len(places) + 1
    assert digest(data, keys_from(2)) != before
