"""A fixed sample of the zoo; `nox -s zoo` runs all of it."""

import pytest
from zoo.check import check
from zoo.records import RECORDS

SAMPLE = (
    ("DistilBertForMaskedLM", "training"),
    ("Qwen3MoeForCausalLM", "inference"),
    ("T5ForConditionalGeneration", "inference"),
    ("Gemma3ForConditionalGeneration", "inference"),
    ("SegformerForImageClassification", "inference"),
    ("Wav2Vec2ForCTC", "inference"),
    ("LlamaForCausalLM/generate", "generate"),
)


LEFT_IN_A_CONTEXT = {"Wav2Vec2ForCTC"}
"""Break inside of a generator's with block (masked_select below cudnn.flags): that frame runs plainly, as with torch.compile, and says so."""


@pytest.mark.parametrize(("name", "mode"), SAMPLE)
def test_zoo_equals_eager(name, mode):
    outcome = check(name, RECORDS[name], mode)
    assert outcome.status in ("equal", "within envelope") and bool(outcome.uncompiled) == (name in LEFT_IN_A_CONTEXT), outcome
    assert outcome.other_sizes in ([], [1, 0]) or outcome.breaks, outcome


def test_every_record_says_how_it_is_built_and_called():
    from zoo.build import BUILDERS
    from zoo.check import MODES
    from zoo.inputs import INPUTS

    assert len(RECORDS) >= 200
    for name, record in RECORDS.items():
        assert record.library in BUILDERS and record.inputs in INPUTS and set(record.modes) <= set(MODES), name
