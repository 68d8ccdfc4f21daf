"""accelerate: repeated blocks compiled alone, as ACCELERATE_DYNAMO_* of its launcher ask for, under autocast, and taken apart again."""

import json
import os

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils.other import has_compiled_regions, is_compiled_module
from transformers import GPT2Config, GPT2LMHeadModel

asked = {
    "BACKEND": "INDUCTOR",
    "MODE": "default",
    "USE_FULLGRAPH": "True",
    "USE_DYNAMIC": "False",
    "USE_REGIONAL_COMPILATION": "True",
}
os.environ.update({f"ACCELERATE_DYNAMO_{name}": value for name, value in asked.items()})
without_dropout = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}


def train(accelerator):
    torch.manual_seed(0)
    net = GPT2LMHeadModel(GPT2Config(n_layer=3, n_embd=32, n_head=2, vocab_size=70, use_cache=False, **without_dropout))
    model, optimizer = accelerator.prepare(net, torch.optim.AdamW(net.parameters(), lr=1e-2))
    losses = []
    for _ in range(4):
        ids = torch.randint(70, (2, 9))
        with accelerator.autocast():
            loss = model(input_ids=ids, labels=ids).loss
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return net, model, losses


accelerator = Accelerator(cpu=True)
net, model, losses = train(accelerator)
plain = accelerator.unwrap_model(model, keep_torch_compile=False)
ids = torch.randint(70, (2, 9))
facts = {
    "the blocks are compiled": all(is_compiled_module(block) for block in model.transformer.h),
    "the model's own blocks are not": not has_compiled_regions(net),
    "unwrap_model(keep_torch_compile=False) gives the module": plain is net,
    "unwrap_model(keep_torch_compile=True) gives what was compiled": accelerator.unwrap_model(model) is model,
    "both are one model": torch.allclose(plain(ids).logits, model(ids).logits, atol=1e-5),
}
AcceleratorState._reset_state(reset_partial_state=True)
_, _, halves = train(Accelerator(cpu=True, mixed_precision="bf16"))
values = {"losses": losses, "keys": sorted(accelerator.get_state_dict(plain))}
print(json.dumps({"values": values, "coarse": {"losses": halves}, "facts": facts}))
