"""One small program for each reason of a graph break that no progress of capture will remove: PROGRAMS, reason id -> function of X.

The golden texts have this file's line numbers: add programs at the end, before the table.
"""

import pickle
import threading
import zlib

import torch
import torch.utils.checkpoint
import tracework_capture as capture

X = torch.arange(3.0)


def data_dependent_branch(x):
    if x.sum() < 0:
        return x + 1
    return x


def tensor_to_python(x):
    return x * x.argmax().item()


def dynamic_output_shape(x):
    return x.nonzero() + 1


def call_unknown(x):
    return x + zlib.crc32(b"ab")


@capture.disable
def disabled(x):
    return x


def call_disabled(x):
    return disabled(x + 1)


def call_skipped(x):
    import inspect

    return x + len(inspect.getmodule(torch).__name__)


def explicit(x):
    y = x + 1
    capture.graph_break("half way")
    return y * 2


def explicit_step(x):
    y = x + 1
    capture.step_unsupported()
    return y * 2


@capture.assume_constant_result
def constant_of(t):
    return 1


def argument_not_real(x):
    return x + constant_of(x + 1)


def fake_failed(x):
    return x @ torch.ones(5, 5)


def exception(x):
    y = x + 1
    raise ValueError(f"no {len(y)}")


def generator(x):
    return (y for y in [x + 1])


def import_(x):
    import this_module_is_not_there

    return x + this_module_is_not_there.one


LOCK = threading.Lock()  # a with block of it has other columns in 3.13


def lock(x):
    LOCK.acquire()
    try:
        return x + 1
    finally:
        LOCK.release()


def packed_sequence(x):
    return torch.nn.utils.rnn.pack_padded_sequence(x.reshape(1, 3, 1) + 1, [3], batch_first=True).data


def serialization(x):
    return x + len(pickle.dumps(["a"]))


COUNTED, W = [], torch.ones(3, requires_grad=True)


def counted(x):
    COUNTED.append(len(x))
    return x.sin()


def checkpoint_effects(x):
    return torch.utils.checkpoint.checkpoint(counted, x + W, use_reentrant=False)


PROGRAMS = {
    "data_dependent_branch": data_dependent_branch,
    "tensor_to_python": tensor_to_python,
    "dynamic_output_shape": dynamic_output_shape,
    "call_unknown": call_unknown,
    "call_disabled": call_disabled,
    "call_skipped": call_skipped,
    "explicit": explicit,
    "explicit_step": explicit_step,
    "argument_not_real": argument_not_real,
    "fake_failed": fake_failed,
    "exception": exception,
    "generator": generator,
    "import": import_,
    "lock": lock,
    "packed_sequence": packed_sequence,
    "serialization": serialization,
    "checkpoint_effects": checkpoint_effects,
}
