"""peft: LoRA around a compiled and inside of a compiled model, adapters switched, merged and saved."""

import json
import tempfile

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)


def base():
    torch.manual_seed(1)
    return GPT2LMHeadModel(
        GPT2Config(n_layer=2, n_embd=32, n_head=2, vocab_size=70, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    )


model = get_peft_model(base(), LoraConfig(r=4, target_modules=["c_attn"], task_type="CAUSAL_LM", fan_in_fan_out=True))
compiled = torch.compile(model)
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
losses = []
for _ in range(4):
    ids = torch.randint(70, (2, 9))
    loss = compiled(input_ids=ids, labels=ids).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
ids = torch.randint(70, (2, 9))
with torch.no_grad():
    on = compiled(input_ids=ids).logits
    with model.disable_adapter():
        off = compiled(input_ids=ids).logits
    with tempfile.TemporaryDirectory() as folder:
        compiled.save_pretrained(folder)
        loaded = PeftModel.from_pretrained(base(), folder)(input_ids=ids).logits
    merged = torch.compile(model.merge_and_unload())(input_ids=ids).logits
facts = {
    "what is saved loads": torch.allclose(loaded, on, atol=1e-5),
    "merged is the same": torch.allclose(merged, on, atol=1e-5),
    "an adapter is switched off": not torch.allclose(off, on, atol=1e-5),
}
print(json.dumps({"values": {"losses": losses, "on": on.tolist(), "off": off.tolist()}, "facts": facts}))
