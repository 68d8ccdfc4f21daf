"""A fixed sample of decoding.py: generation with caches gives eager's tokens, with one graph a step."""

import decoding
import pytest

STEPS = 24
WHOLE_STACK = [decoding.Case(model) for model in decoding.MODELS]
CASES = [case for case in decoding.cases(list(decoding.MODELS)) if case.way == "greedy" and case not in WHOLE_STACK]
OTHERS = [
    decoding.Case(*case)
    for case in (("llama", "sampled"), ("gemma3", "beams"), ("t5", "beams"), ("llama", "assisted", "dynamic"))
]


@pytest.mark.parametrize("case", [*CASES, *OTHERS], ids=lambda case: f"{case.model}-{case.way}-{case.cache}-{case.compiled_by}")
def test_one_graph_a_step(case):
    outcome = decoding.generated(case, STEPS)
    assert decoding.is_right(case, outcome), outcome.row(case)


@pytest.mark.parametrize("case", WHOLE_STACK, ids=lambda case: case.model)
def test_tokens_of_the_whole_stack(case):
    outcome = decoding.generated(case, STEPS, "inductor")
    assert decoding.is_right(case, outcome), outcome.row(case)
