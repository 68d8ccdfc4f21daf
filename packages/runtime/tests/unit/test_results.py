"""What host programs expect of library calls: nothing that a kernel would read wrongly gets through, whatever DLPack says of it."""

import pytest
import torch
from tracework_runtime import ResultMismatch, results
from tracework_runtime.results import expected, restride

CPU = torch.device("cpu")
SIZES, STRIDES = (4, 8), (8, 1)
DTYPES = sorted({d for d in vars(torch).values() if isinstance(d, torch.dtype)}, key=str)


def made(dtype: torch.dtype) -> torch.Tensor:
    try:
        return torch.zeros(SIZES, dtype=torch.uint8).repeat(1, dtype.itemsize).view(dtype)
    except (RuntimeError, NotImplementedError) as error:
        pytest.skip(f"torch makes no such tensors: {error}")


@pytest.fixture(params=["native", "Python"])
def expects(request, monkeypatch):
    """`expected` as it is, and as it is where DLPack does not describe tensors."""
    if request.param == "Python":
        monkeypatch.setattr(results, "_DEVICES", {})
    return expected


@pytest.mark.filterwarnings("ignore:.*experimental", "ignore:.*deprecated")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_result_of_each_dtype_is_given_back_as_it_is_and_no_other_dtype_is(expects, dtype) -> None:
    value = made(dtype)
    assert expects(dtype, CPU, "op", {})(value, SIZES, STRIDES) is value
    for other in DTYPES:
        if other is not dtype:
            with pytest.raises(
                ResultMismatch, match=f"op gave a tensor of dtype {dtype} where the graph was compiled for {other}"
            ):
                expects(other, CPU, "op", {})(value, SIZES, STRIDES)


X = torch.arange(32.0).view(SIZES)
REFUSED = {
    "size": X[:3],
    "dimensions": X[None],
    "empty": X[:0],
    "transposed sizes": X.t(),
    "meta": X.to("meta"),
    "sparse": X.to_sparse(),
    "None": None,
    "a list": [X],
    "a subclass": X.as_subclass(type("Own", (torch.Tensor,), {})),
}


@pytest.mark.parametrize("value", REFUSED.values(), ids=REFUSED)
def test_what_kernels_would_read_wrongly_is_refused(expects, value) -> None:
    with pytest.raises(
        ResultMismatch, match=r"(?s)op gave a tensor of .* where the graph was compiled for .*torch\.compiler\.disable"
    ):
        expects(torch.float32, CPU, "op", {})(value, SIZES, STRIDES)


def test_another_gpu_is_refused(expects) -> None:
    with pytest.raises(ResultMismatch, match="op gave a tensor of device cpu where the graph was compiled for cuda:1"):
        expects(torch.float32, torch.device("cuda", 1), "op", {})(X, SIZES, STRIDES)


def test_a_device_that_the_library_chooses(expects) -> None:
    check = expects(torch.float32, None, "op", {})
    assert check(X, SIZES, STRIDES) is X
    with pytest.raises(ResultMismatch):
        check(X.double(), SIZES, STRIDES)


LAID_OUT_ANEW = {
    "strides": X.t().contiguous().t(),
    "offset": torch.arange(40.0)[8:].view(SIZES),
    "expanded": X[:, :1].expand(SIZES),
    "conjugated": torch.view_as_complex(X.view(4, 4, 2).repeat(1, 2, 1)).conj(),
    "negated": torch.view_as_complex(X.view(4, 4, 2).repeat(1, 2, 1)).conj().imag,
    "zeros without memory": torch._efficientzerotensor(SIZES),
}


@pytest.mark.parametrize("value", LAID_OUT_ANEW.values(), ids=LAID_OUT_ANEW)
@pytest.mark.parametrize("same_strides", [False, True])
def test_values_that_are_not_what_lies_in_memory_are_copied(expects, value, same_strides) -> None:
    strides = value.stride() if same_strides else (1, 4)
    found = expects(value.dtype, CPU, "op", {})(value, SIZES, strides)
    assert found.stride() == strides and found.storage_offset() == 0
    assert found.data_ptr() and not found.is_conj() and not found.is_neg()
    assert torch.equal(found, value) and found._version == 0


def test_strides_over_one_element_do_not_matter(expects) -> None:
    value = torch.randn(1, 8)
    found = expects(torch.float32, CPU, "op", {})(value, (1, 8), (99, 1))
    assert found.stride() == (99, 1) and found.data_ptr() == value.data_ptr() and not found._is_view()


def test_a_workspace_of_a_size_that_only_the_library_knows(expects) -> None:
    assert expects(torch.float32, CPU, "op", {})(torch.empty(7), (0,), (1,)).numel() == 7
    with pytest.raises(ResultMismatch):
        expects(torch.float32, CPU, "op", {})(torch.empty(7), (0, 2), (2, 1))


def test_memory_that_a_library_was_given_to_write_to_has_its_size(expects) -> None:
    check, out = expects(torch.float32, CPU, "aten.mm.out", {}, is_own=True), torch.empty(SIZES)
    assert check(out, SIZES, STRIDES) is out
    with pytest.raises(ResultMismatch, match=r"of size \(9, 8\) where the graph was compiled for \(4, 8\)"):
        check(out.resize_(9, 8), SIZES, STRIDES)


def test_a_copy_with_a_layout_that_repeats_elements() -> None:
    value = torch.arange(3.0).reshape(1, 3).expand(4, 3).contiguous()
    copy = restride(value, (0, 2))
    assert copy.stride() == (0, 2) and torch.equal(copy, value)


def test_a_result_is_laid_out_anew_where_elements_repeat(expects) -> None:
    value = torch.arange(6.0).reshape(3, 2)[:, :1].expand(3, 3)
    found = expects(torch.float32, CPU, "op", {})(value, (3, 3), (1, 0))
    assert found.stride() == (1, 0) and torch.equal(found, value)


def test_a_mismatch_says_where_the_program_calls_the_operator(expects) -> None:
    places: dict[str, tuple[str, ...]] = {}
    check = expects(torch.float32, CPU, "aten::mm", places)
    places["aten::mm"] = ("model.py:3 in f linear", "model.py:9 in g matmul")
    with pytest.raises(
        RuntimeError, match=r"^aten::mm \(model.py:3 in f linear or model.py:9 in g matmul\) gave a tensor of dtype"
    ):
        check(X.double(), SIZES, STRIDES)
