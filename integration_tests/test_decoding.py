"""A fixed sample of decoding.py: generation with caches gives eager's tokens, with one graph a step."""

import decoding
import pytest

STEPS = 24
CASES = [case for case in decoding.cases(list(decoding.MODELS)) if case.way == "greedy"]
OTHERS = [decoding.Case(model, way, "static") for model, way in (("llama", "sampled"), ("t5", "beams"), ("gemma3", "beams"))]


@pytest.mark.parametrize("case", [*CASES, *OTHERS], ids=lambda case: f"{case.model}-{case.way}-{case.cache}-{case.compiled_by}")
def test_one_graph_a_step(case):
    outcome = decoding.generated(case, STEPS)
    assert decoding.is_right(case, outcome), outcome.row(case)


@pytest.mark.parametrize("model", decoding.MODELS)
def test_tokens_of_the_whole_stack(model):
    case = decoding.Case(model)
    outcome = decoding.generated(case, STEPS, "inductor")
    assert decoding.is_right(case, outcome), outcome.row(case)
