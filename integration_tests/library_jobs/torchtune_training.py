"""torchtune: a LoRA of a small Llama, layers and loss compiled by its own helpers."""

import json

import torch
from torchtune.models.llama3 import lora_llama3
from torchtune.modules.loss import CEWithChunkedOutputLoss
from torchtune.modules.peft import get_adapter_params, set_trainable_params
from torchtune.training import compile_loss, compile_model

torch.manual_seed(0)
model = lora_llama3(
    lora_attn_modules=["q_proj", "v_proj"], vocab_size=80, num_layers=2, num_heads=4, num_kv_heads=2, embed_dim=32,
    max_seq_len=64, intermediate_dim=64, lora_rank=4, lora_alpha=8,
)  # fmt: skip
adapters = get_adapter_params(model)
set_trainable_params(model, adapters)
compile_model(model, verbose=False)
loss_of = CEWithChunkedOutputLoss(num_output_chunks=2)
model.set_num_output_chunks(2)
loss_of = compile_loss(loss_of, verbose=False)
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
losses = []
for _ in range(4):
    tokens = torch.randint(80, (2, 17))
    loss = loss_of(model(tokens[:, :-1]), tokens[:, 1:])
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
print(json.dumps({"values": {"losses": losses, "keys": sorted(model.state_dict())}, "facts": {}}))
