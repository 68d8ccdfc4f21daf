"""accelerate: prepare() with a plugin for the compiler, and unwrap_model() with and without what it compiled."""

import json

import torch
from accelerate import Accelerator
from accelerate.utils import TorchDynamoPlugin
from accelerate.utils.other import is_compiled_module

torch.manual_seed(0)
accelerator = Accelerator(cpu=True, dynamo_plugin=TorchDynamoPlugin(backend="inductor", mode="default", dynamic=False))
net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 2))
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
loader = torch.utils.data.DataLoader([(torch.randn(8), i % 2) for i in range(32)], batch_size=8)
model, optimizer, loader = accelerator.prepare(net, optimizer, loader)
losses = []
for _ in range(3):
    for x, y in loader:
        loss = torch.nn.functional.cross_entropy(model(x), y)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
plain = accelerator.unwrap_model(model, keep_torch_compile=False)
kept = accelerator.unwrap_model(model, keep_torch_compile=True)
x = torch.randn(8, 8)
facts = {
    "prepare() compiles": is_compiled_module(model),
    "unwrap_model(keep_torch_compile=False) gives the module": plain is net and not is_compiled_module(plain),
    "unwrap_model(keep_torch_compile=True) gives what was compiled": kept is model and is_compiled_module(kept),
    "both are one model": torch.allclose(plain(x), kept(x), atol=1e-6),
}
print(json.dumps({"values": {"losses": losses, "keys": sorted(accelerator.get_state_dict(plain))}, "facts": facts}))
