"""Conditions on masks that the program makes of numbers: their data is known, and so is which way a branch goes."""

import pytest
import torch
import tracework_capture as capture

generate = torch.nn.Transformer.generate_square_subsequent_mask
MASKS = {
    "generated": lambda x: generate(x.shape[1]),
    "generated, of booleans": lambda x: generate(x.shape[1], dtype=torch.bool),
    "ones": lambda x: torch.triu(torch.ones(x.shape[1], x.shape[1], dtype=torch.bool), diagonal=1),
    "filled": lambda x: torch.full((x.shape[1], x.shape[1]), float("-inf")).triu(1),
    "written": lambda x: torch.zeros(x.shape[1], x.shape[1]).masked_fill(
        (torch.triu(torch.ones(x.shape[1], x.shape[1])) == 1).transpose(0, 1) == 0, float("-inf")
    ),
    "not causal": lambda x: torch.full((x.shape[1], x.shape[1]), float("-inf")).triu(2),
    "rows and columns": lambda x: torch.arange(x.shape[1])[:, None] < torch.arange(x.shape[1])[None, :],
}


def encoder():
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
    return torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).double().eval()


def decoder():
    layer = torch.nn.TransformerDecoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
    return torch.nn.TransformerDecoder(layer, 2).double().eval()


def fullgraph(program):
    graphs = []

    def backend(gm, inputs):
        graphs.append(gm)
        return gm.forward

    return capture.optimize(backend, fullgraph=True)(program), graphs


@pytest.mark.parametrize("name", MASKS)
def test_an_encoder_and_a_decoder_with_a_made_mask_are_one_graph(name, fresh):
    make, encode, decode = MASKS[name], encoder(), decoder()

    def program(x):
        mask = make(x)
        mask = mask if mask.dtype == torch.bool else mask.double()
        return decode(x, encode(x, mask=mask), tgt_mask=mask)

    call, graphs = fullgraph(program)
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    for _ in range(2):
        torch.testing.assert_close(call(x), program(x), rtol=1e-12, atol=1e-12)
    assert len(graphs) == 1


QUESTIONS = {
    "all": lambda m: (m == m.t()).all(),
    "any": lambda m: torch.isinf(m).any(),
    "an element": lambda m: m.reshape(-1).eq(float("-inf")).any(),
    "larger": lambda m: (torch.where(m < 0, m, torch.zeros_like(m)) > 0).any(),
}


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("diagonal", (0, 1, 40))
def test_a_branch_on_a_mask_goes_as_in_plain_python(question, diagonal, fresh):
    def program(x):
        mask = torch.full((20, 20), float("-inf")).triu(diagonal)
        return x + 1 if QUESTIONS[question](mask) else x - 1

    call, _ = fullgraph(program)
    assert torch.equal(call(torch.ones(2)), program(torch.ones(2)))


def written(x):
    mask = torch.zeros(20, 20)
    mask[x.long()] = x
    return x + 1 if (mask == 0).all() else x - 1


def written_through_a_view(x):
    mask = torch.zeros(20, 20)
    mask.t()[0].add_(x)
    return x + 1 if (mask == 0).all() else x - 1


def written_past_the_tensor(x):
    mask = torch.zeros(20, 20)
    same = mask == 0
    mask.data[0] = x
    same.numpy()[1] = False
    return (x + 1 if (mask == 0).all() else x - 1), (x + 1 if same.all() else x - 1)


def written_between(x):
    mask = torch.zeros(20, 20)
    before = mask == 0
    mask[0] = x
    filled = mask.masked_fill_(before, 2)
    return (x + 1 if (filled == 2).all() else x - 1), (x + 1 if before.all() else x - 1)


def written_by_numbers(x):
    mask = torch.zeros(20, 20)
    before = mask == 0
    filled = mask.masked_fill_(before, 2)
    return (x + 1 if (filled == 2).all() else x - 1), (x + 1 if (mask == 2).all() else x - 1), filled


def of_an_input(x):
    return x + 1 if (torch.ones(20, 20) * x == 1).all() else x - 1


def random(x):
    return x + 1 if (torch.ones(20, 20).uniform_() == 1).all() else x - 1


PROGRAMS = (
    written,
    written_through_a_view,
    written_past_the_tensor,
    written_between,
    written_by_numbers,
    of_an_input,
    random,
)


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_branch_on_what_is_written_or_depends_on_data(program, fresh):
    call = capture.optimize(lambda gm, _: gm.forward)(program)
    for number in (1.0, 0.0, 2.0):
        torch.manual_seed(0)
        got = call(torch.tensor(number))
        torch.manual_seed(0)
        torch.testing.assert_close(got, program(torch.tensor(number)), rtol=0, atol=0)
