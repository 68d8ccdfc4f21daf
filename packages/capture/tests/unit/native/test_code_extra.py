"""What hangs off code objects: ours is kept apart from that of other extensions."""

import ctypes
import gc

import torch
from tracework_capture import optimize

RELEASE = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)


def request_index(release):
    request = (
        getattr(ctypes.pythonapi, "PyUnstable_Eval_RequestCodeExtraIndex", None) or ctypes.pythonapi._PyEval_RequestCodeExtraIndex
    )
    request.argtypes, request.restype = (RELEASE,), ctypes.c_ssize_t
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(release))  # the index stays to the process's end
    return request(release)


def test_release_functions_of_others_are_not_called_for_captured_code():
    calls = []
    release = RELEASE(calls.append)
    request_index(release)
    made = {}
    exec("def f(x):\n    y = x + 1\n    print(end='')\n    return y * 2", made)
    compiled = optimize(lambda gm, inputs: gm.forward)(made["f"])
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 4.0))
    del compiled, made
    gc.collect()
    assert calls == []
