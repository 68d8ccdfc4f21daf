"""A process that compiles Triton kernels; started by pool.py as a script, knows nothing of this package.

Requests and answers are frames on stdin and stdout: a u64 length and JSON, then a u64 length and raw bytes.
Request: source, entry, symbol (what the entry is called in the cubin), arguments ([name, type] in order), constants, aligned (names of
arguments divisible by 16), num_warps, num_stages, capability, fp_fusion (products may be contracted into sums), checks (assertions are kept).
Answer: {"ok": true, "symbol", "shared", "num_warps", "params", "scratch", "scratch_alignment"} and the cubin, or {"ok": false, "error"}.
"""

import json
import linecache
import os
import re
import shutil
import struct
import sys
import tempfile
import traceback
from typing import IO, Any

_LENGTH = struct.Struct("<Q")


def read_frame(stream: IO[bytes]) -> bytes | None:
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    return stream.read(_LENGTH.unpack(head)[0])


def write_frames(stream: IO[bytes], header: dict[str, Any], blob: bytes = b"") -> None:
    text = json.dumps(header).encode()
    stream.write(_LENGTH.pack(len(text)) + text + _LENGTH.pack(len(blob)) + blob)
    stream.flush()


def load_module(source: str, number: int) -> dict[str, Any]:
    """The source as a namespace; linecache gives Triton its text."""
    name = f"<tracework triton {number}>"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    namespace: dict[str, Any] = {"__name__": f"tracework_triton_{number}"}
    exec(compile(source, name, "exec"), namespace)
    return namespace


def compile_kernel(request: dict[str, Any], number: int) -> tuple[dict[str, Any], bytes]:
    import triton  # found where main() has looked, with the environment that it leaves
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    symbol = request["symbol"]
    source = request["source"].replace(f"\ndef {request['entry']}(", f"\ndef {symbol}(")
    module = load_module(source, number)
    if "CAPABILITY" in module:  # the text asks for what GPU it is compiled
        module["CAPABILITY"] = triton.language.constexpr(request["capability"])
    function = module[symbol]
    constants = request["constants"]
    signature = dict(request["arguments"]) | {name: "constexpr" for name in constants}
    positions = {name: n for n, name in enumerate(function.arg_names)}
    attributes = {(positions[name],): [["tt.divisibility", 16]] for name in request["aligned"]}
    options: dict[str, Any] = {"num_warps": request["num_warps"], "num_stages": request["num_stages"]}
    options["enable_fp_fusion"] = request["fp_fusion"]
    if request["checks"]:  # without debugging, device_assert is nothing; sanitize_overflow would assert at each integer operation
        options |= {"debug": True, "sanitize_overflow": False}
    built = triton.compile(
        ASTSource(function, signature, constants, attributes),
        target=GPUTarget("cuda", request["capability"], 32),
        options=options,
    )
    metadata = built.metadata
    head = re.search(r"\.entry\s+\w+\s*\((.*?)\)", built.asm["ptx"], re.S)
    params = len(re.findall(r"\.param\b", head.group(1))) if head else 0
    if getattr(metadata, "profile_scratch_size", 0):
        raise RuntimeError("kernel wants memory for a profile")
    facts = {"ok": True, "symbol": metadata.name, "shared": metadata.shared, "num_warps": metadata.num_warps}
    facts |= {"params": params, "scratch": metadata.global_scratch_size, "scratch_alignment": metadata.global_scratch_align}
    return facts, built.asm["cubin"]


def main() -> None:
    sys.path[:] = json.loads(sys.argv[1])
    for name in [name for name in os.environ if name.startswith("TRITON_")]:
        if name != "TRITON_PTXAS_PATH":  # where ptxas is says nothing about the result
            del os.environ[name]
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    folder = tempfile.mkdtemp(prefix="tracework-triton-")
    os.environ["TRITON_CACHE_DIR"] = folder
    try:
        import triton.compiler  # noqa: F401  warm before the first request; it reads the environment

        number = 0
        while (text := read_frame(sys.stdin.buffer)) is not None:
            number += 1
            try:
                write_frames(answers, *compile_kernel(json.loads(text), number))
            except Exception:  # the answer carries it
                write_frames(answers, {"ok": False, "error": traceback.format_exc()})
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
