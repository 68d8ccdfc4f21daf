"""What hides scores, as bodies say it."""

import pytest
import torch
from tracework_inductor.ir.body import Axis
from tracework_inductor.ir.handlers import Recorder
from tracework_inductor.ir.index import symbol
from tracework_inductor.ir.score_masks import ADDED, FILLED, KEPT, number_in_place, read_from_memory, value_alone

H, Q, K = (symbol(name, 0, None) for name in "hqk")
F32 = torch.float32


def body(changed, keep=None):
    """Of functions of (recorder, score)."""
    recorder = Recorder((Axis(H, 4), Axis(Q, 300), Axis(K, 300)))
    score = recorder.local("score", F32)
    recorder.define("changed", changed(recorder, score))
    recorder.define("keep", recorder.constant(True, torch.bool) if keep is None else keep(recorder, score))
    return recorder.finish()


def mask(r, dtype=torch.bool, at=300 * Q + K):
    return r.load("mask", at, dtype)


def causal(r):
    return r.apply("ge", (r.index_expr(Q, torch.int32), r.index_expr(K, torch.int32)))


CASES = {
    "kept": (lambda r, s: s, lambda r, s: mask(r), KEPT),
    "kept of both": (lambda r, s: s, lambda r, s: r.apply("logical_and", (causal(r), mask(r))), KEPT),
    "of positions": (lambda r, s: s, lambda r, s: causal(r), None),
    "of a head": (lambda r, s: s, lambda r, s: mask(r, at=H), None),
    "filled": (lambda r, s: r.apply("where", (mask(r), s, r.constant(-1e9, F32))), None, FILLED),
    "filled by little": (lambda r, s: r.apply("where", (mask(r), s, r.constant(-1.0, F32))), None, None),
    "added": (lambda r, s: r.apply("add", (s, mask(r, F32))), None, ADDED),
    "multiplied": (lambda r, s: r.apply("mul", (s, mask(r, F32))), None, None),
    "of the score": (lambda r, s: s, lambda r, s: r.apply("gt", (s, mask(r, F32))), None),
}


@pytest.mark.parametrize("name", CASES)
def test_masks_in_memory(name):
    changed, keep, kind = CASES[name]
    made = body(changed, keep)
    found = read_from_memory(made, [Q, K])
    assert (found and found.kind) == kind
    if found is not None:
        assert [i.op for i in value_alone(made, found.value).instructions][-1] == "define"


def test_a_number_is_in_the_place_of_scores():
    found = number_in_place(body(lambda r, s: r.apply("where", (causal(r), r.constant(-1e9, F32), s))))
    assert found is not None and found.negated and found.number == -1e9
