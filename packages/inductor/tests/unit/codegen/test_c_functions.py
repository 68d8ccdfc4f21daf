"""torch's C functions take what its operators' schemas say, in their order: read from the headers that are installed with torch."""

import re
from pathlib import Path

import pytest
import torch
from tracework_inductor import _torch
from tracework_inductor.codegen.wrapper.lines import _PRODUCTS, _SCALED, NATIVE

HEADERS = Path(torch.__file__).parent / "include/torch/csrc/inductor/aoti_torch/generated"
TENSOR, INTEGER = "AtenTensorHandle", {"int64_t", "int32_t"}
TYPES = {
    "tensor": [TENSOR],
    "tensor?": [TENSOR + "*"],
    "int": ["integer"],
    "float": ["double"],
    "float?": ["double*"],
    "ints": ["const int64_t*", "integer"],
    "ints?": ["const int64_t**", "integer"],
    "bools": ["const int32_t*", "integer"],
}
RESULTS = {"tensor": TENSOR + "*", "int": "int64_t*"}


def declared(device):
    """Function -> types of its parameters; integers of both widths go the same way."""
    found = {}
    for name, parameters in re.findall(rf"aoti_torch_{device}_(\w+)\((.*?)\);", (HEADERS / f"c_shim_{device}.h").read_text()):
        types = [p.rpartition(" ")[0].strip() for p in parameters.split(",") if p.strip()]
        found[name] = ["integer" if t in INTEGER else t for t in types]
    return found


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_arguments_of_library_calls(device):
    functions, seen = declared(device), []
    for name in sorted(NATIVE):
        packet = getattr(torch.ops.aten, name.partition("::")[2])
        overload = packet.default
        function = name.partition("::")[2]
        if function not in functions:
            continue
        kinds = [kind for _, kind, _ in _torch.declared_arguments(overload)]
        wanted = [text for kind in kinds for text in TYPES.get(kind, [f"nothing for {kind!r}"])]
        wanted += [RESULTS[kind] for kind in _torch.declared_results(overload)]
        assert functions[function] == wanted, name
        seen.append(function)
    assert {"convolution", "topk"} <= set(seen) and len(seen) >= (4 if device == "cpu" else 8)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("target", _PRODUCTS)
def test_arguments_of_products(target, device):
    operands = 3 if target in ("torch.mm", "torch.bmm") else 4
    wanted = [TENSOR] * operands + ["double"] * (2 * (target in _SCALED))
    assert declared(device)[_PRODUCTS[target]] == wanted
