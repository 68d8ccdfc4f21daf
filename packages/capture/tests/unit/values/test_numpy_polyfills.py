"""Polyfills of NumPy's functions, called eagerly: results, dtypes, strides and errors are those of the originals."""

import numpy as np
import pytest
from tracework_capture.polyfills import POLYFILLS, NotComputed

KINDS = "bool int8 uint8 int64 float16 float32 float64 complex64".split()
ORDERS = {
    "c": lambda a: a,
    "f": np.asfortranarray,
    "backwards": lambda a: a[::-1, ::-1],
    "every second": lambda a: np.repeat(np.repeat(a, 2, 0), 2, 1)[::2, ::2],
    "none": lambda a: a[:, :0],
    "three": lambda a: np.stack([a, a + a, a], 1),
    "one": lambda a: a[0],
    "number": lambda a: a[0, 0],
}
CALLS = {
    "ptp": [{}, {"axis": 0}, {"axis": -1, "keepdims": True}, {"axis": (0, 1)}, {"axis": 5}],
    "rot90": [*({"k": k} for k in range(-1, 5)), {"axes": (1, 0)}, {"k": 3, "axes": (-1, 0)}, {"axes": (0, 0)}, {"axes": (0,)}],
    "trace": [{}, {"offset": 1}, {"offset": -1, "axis1": 1, "axis2": 0}, {"dtype": "float64"}, {"axis1": 1}],
    "pad": [
        {"pad_width": 1},
        {"pad_width": 0},
        {"pad_width": (1, 2), "constant_values": 3},
        {"pad_width": ((1, 0), (0, 2))},
        {"pad_width": np.int64(2), "mode": "constant"},
        {"pad_width": -1},
        {"pad_width": (1, 2, 3)},
        {"pad_width": ((1,), (2,))},
        *({"pad_width": 2, "mode": mode} for mode in ("edge", "reflect", "symmetric", "wrap", "nothing", "mean")),
        *({"pad_width": ((11, 0), (3, 17)), "mode": mode} for mode in ("edge", "reflect", "symmetric", "wrap")),
        {"pad_width": 2, "mode": "reflect", "reflect_type": "odd"},
    ],
}


INSIDE = {"normalize_axis_tuple", "_array_converter"}
"""What NumPy's own Python calls, in functions that integration_tests/test_numpy_functions.py calls."""


def test_every_polyfill_of_a_function_is_called():
    functions = {f.__name__ for f, own in POLYFILLS.items() if own.__module__.endswith("numpy_functions") and callable(f)}
    assert functions == CALLS.keys() | INSIDE


def outcome(function, array, given):
    try:
        return "gives", function(array, **given)
    except NotComputed:
        return "is left", None
    except Exception as error:
        return "raises", type(error)


def facts(found):
    if not isinstance(found, np.ndarray):
        return type(found)
    steps = [step for step, size in zip(found.strides, found.shape) if size > 1] if found.size else []
    return found.dtype, found.shape, steps, found.flags.writeable


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CALLS)
def test_a_polyfill_gives_what_the_original_gives(name):
    original = getattr(np, name)
    function, computed = POLYFILLS[original], 0
    for kind in KINDS:
        whole = np.random.default_rng(0).integers(0, 2 if kind == "bool" else 9, (3, 4)).astype(kind)
        for laid in ORDERS.values():
            for given in CALLS[name]:
                how, found = outcome(function, laid(whole), given)
                expected_how, expected = outcome(original, laid(whole), given)
                if how == "is left":
                    continue
                assert how == expected_how, (kind, given, found, expected)
                if how == "raises":
                    assert issubclass(found, expected) or issubclass(expected, found)
                else:
                    assert facts(found) == facts(expected), (kind, given)
                    np.testing.assert_array_equal(found, expected)
                    computed += 1
    assert computed > len(KINDS) * len(CALLS[name])


def test_what_a_polyfill_writes_to():
    array, out = np.arange(12.0).reshape(3, 4), np.empty(())
    assert POLYFILLS[np.ptp](array, out=out) is out and out == np.ptp(array)
    assert POLYFILLS[np.trace](array, out=out) is out and out == np.trace(array)
