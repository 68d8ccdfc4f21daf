"""Decoders as people write them, without a library: values as eager's, one graph a step, and how many graphs are compiled."""

import decoding
import pytest
import torch
import torch.nn.functional as F
import tracework
from torch import nn
from tracework_runtime import GraphedFn
from tracework_runtime.cudagraph import choose, record

from packages.runtime.tests.slow_engine import SlowEngine

WORDS, WIDTH, HEADS, PLACES = 40, 16, 2, 32
pytestmark = pytest.mark.filterwarnings("error::tracework.UncompiledWarning")


class Attention(nn.Module):
    """With caches that are buffers, written at a tensor of places."""

    def __init__(self):
        super().__init__()
        self.inner, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(1, HEADS, PLACES, WIDTH // HEADS))

    def forward(self, x, mask, places):
        q, k, v = (part.view(1, -1, HEADS, WIDTH // HEADS).transpose(1, 2) for part in self.inner(x).chunk(3, -1))
        self.keys[:, :, places] = k
        self.values[:, :, places] = v
        found = F.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=mask)
        return x + self.out(found.transpose(1, 2).flatten(2))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.out = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS)
        self.layers = nn.ModuleList(Attention() for _ in range(2))
        self.register_buffer("mask", torch.ones(PLACES, PLACES, dtype=torch.bool).tril())

    def forward(self, tokens, places):
        x, mask = self.words(tokens) + torch.sin(places[:, None].float()), self.mask[None, None, places]
        for layer in self.layers:
            x = layer(x, mask, places)
        return self.out(x)


def drawn(logits, temperature, top_k):
    """A token among the best ones, by the exponential trick."""
    logits = logits[:, -1] / temperature
    odds = torch.where(logits < torch.topk(logits, top_k)[0][:, -1:], -float("inf"), logits).softmax(-1)
    return (odds / torch.empty_like(odds).exponential_(1)).argmax(-1, keepdim=True)


def buffers_and_draws(compiled):
    """gpt-fast's shape: prompt and step compiled apart, sizes of prompts and temperatures that change."""
    torch.manual_seed(0)
    model = Decoder().eval()
    prompt = compiled(lambda tokens, places, *how: drawn(model(tokens, places), *how), dynamic=True)
    step = compiled(lambda tokens, places, *how: drawn(model(tokens, places), *how))
    found = []
    for length, temperature in ((5, 0.8), (7, 0.8), (6, 1.1), (8, 0.9)):
        token, place = prompt(torch.arange(length)[None], torch.arange(length), temperature, 5), torch.tensor([length])
        for _ in range(8):
            token, place = step(token, place, temperature, 5), place + 1
            found.append(token)
    return found


def paged(compiled):
    """A cache of blocks, and batches of texts that come and go in sizes of 1, 2, 4 and 8."""
    torch.manual_seed(0)
    words, inner, out = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WORDS)

    def step(tokens, places, keys, values, slots, tables):
        q, k, v = inner(words(tokens) + torch.cos(places[:, None].float())).chunk(3, -1)
        keys.view(-1, WIDTH).index_copy_(0, slots, k)
        values.view(-1, WIDTH)[slots] = v
        known = torch.arange(tables.shape[1] * 4) <= places[:, None]
        scores = torch.einsum("bd,bnd->bn", q, keys[tables].flatten(1, 2)).masked_fill(~known, -float("inf"))
        return out(torch.einsum("bn,bnd->bd", scores.softmax(-1), values[tables].flatten(1, 2))).argmax(-1)

    call, found = compiled(step), []
    keys, values = torch.zeros(2, 33, 4, WIDTH)
    texts = {}
    for turn in range(24):
        if turn % 2 == 0:
            texts[turn] = [turn, 0, 6 + turn % 5]  # token, place, the last place
        rows = list(texts.items())[:8]
        size = next(n for n in (1, 2, 4, 8) if n >= len(rows))
        rows += [(32, [0, 0, 99])] * (size - len(rows))
        tables = torch.stack([torch.arange(4) + (text * 4 % 32 if text < 32 else 29) for text, _ in rows])
        tokens, places = (torch.tensor([row[n] for _, row in rows]) for n in (0, 1))
        slots = tables[torch.arange(size), places // 4] * 4 + places % 4
        following = call(tokens, places, keys, values, slots, tables)
        found.append(following.clone())
        for (text, row), token in zip(rows, following.tolist()):
            row[:2] = token, row[1] + 1
            if row[1] > row[2]:
                texts.pop(text, None)
    return found


def padded(compiled):
    """Padding on the left: places are counted by the mask, of which a step takes as many as it has tokens."""
    torch.manual_seed(0)
    words, inner, out = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WORDS)

    def step(tokens, mask, keys, values, start):
        places = (mask.cumsum(-1) - 1).masked_fill(mask == 0, 1)[:, -tokens.shape[1] :]
        q, k, v = inner(words(tokens) + torch.cos(places[..., None].float())).chunk(3, -1)
        end = start + tokens.shape[1]
        keys[:, start:end] = k
        values[:, start:end] = v
        seen = torch.ones(tokens.shape[1], end, dtype=torch.bool).tril(end - tokens.shape[1])[None] & mask[:, None].bool()
        found = F.scaled_dot_product_attention(q, keys[:, :end], values[:, :end], attn_mask=seen)
        return out(found[:, -1]).argmax(-1, keepdim=True)

    call, found = compiled(step), []
    for texts in (2, 3, 4):
        length = 4 + texts
        mask = torch.ones(texts, length, dtype=torch.long)
        mask[0, :3] = 0
        keys, values = torch.zeros(2, texts, PLACES, WIDTH)
        token = call(torch.arange(texts * length).view(texts, length), mask, keys, values, 0)
        for place in range(length, length + 6):
            mask = F.pad(mask, (0, 1), value=1)
            token = call(token, mask, keys, values, place)
            found.append(token)
    return found


def columns(compiled):
    """A step that is given a column of the tokens of all texts, in the manner of Meta's Llama."""
    torch.manual_seed(0)
    words, cell, out = nn.Embedding(WORDS, WIDTH), nn.GRUCell(WIDTH, WIDTH), nn.Linear(WIDTH, WORDS)

    def step(tokens, state):
        state.copy_(cell(words(tokens[:, 0]), state))
        return out(state).argmax(-1)

    call, tokens, state = compiled(step), torch.arange(PLACES).repeat(3, 1), torch.zeros(3, WIDTH)
    for place in range(PLACES - 1):
        tokens[:, place + 1] = call(tokens[:, place : place + 1], state)
    return [tokens]


PROGRAMS = {buffers_and_draws: 4, paged: 3, padded: 4, columns: 1}
"""Program -> graphs: what changes is compiled once as it is and once open, and a size of 1 apart."""


def run(program, compiled):
    torch.manual_seed(1)
    with torch.no_grad():
        return program(compiled)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_tokens_and_graphs(program):
    tracework.reset()
    with decoding.counted("inductor") as counts:
        found = run(program, lambda function, **options: counts.step(tracework.compile(function, fullgraph=True, **options)))
    torch.testing.assert_close(found, run(program, lambda function, **options: function))
    assert set(counts.steps) == {1} and counts.made <= PROGRAMS[program]


def test_columns_of_a_batch_are_recorded(monkeypatch):
    monkeypatch.setattr(record, "ENGINE", SlowEngine())
    monkeypatch.setattr(choose, "refusals", lambda artifact: ())
    made, make = [], GraphedFn.__init__
    monkeypatch.setattr(GraphedFn, "__init__", lambda fn, *given, **named: (make(fn, *given, **named), made.append(fn))[0])
    tracework.reset()
    found = run(columns, lambda function: tracework.compile(function, options={"cudagraphs": True}))
    torch.testing.assert_close(found, run(columns, lambda function: function))
    assert sum(fn.replays for fn in made) == PLACES - 1 - 2
