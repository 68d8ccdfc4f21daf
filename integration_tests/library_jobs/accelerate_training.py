"""accelerate: prepare() with TraceworkPlugin, accumulated and clipped gradients, save_state(), and unwrap_model() of what it compiled."""

import json
import tempfile

import torch
from accelerate import Accelerator
from accelerate.utils.other import is_compiled_module
from tracework.accelerate import TraceworkPlugin

torch.manual_seed(0)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2, dynamo_plugin=TraceworkPlugin(mode="default", dynamic=False))
net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 2))
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
loader = torch.utils.data.DataLoader([(torch.randn(8), i % 2) for i in range(32)], batch_size=8)
model, optimizer, loader, schedule = accelerator.prepare(net, optimizer, loader, schedule)


def epoch():
    losses = []
    for x, y in loader:
        with accelerator.accumulate(model):
            loss = torch.nn.functional.cross_entropy(model(x), y)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        losses.append(loss.item())
    return losses


losses = [epoch()]
with tempfile.TemporaryDirectory() as folder:
    accelerator.save_state(folder)
    losses += [epoch()]
    accelerator.load_state(folder)
    again = epoch()
    accelerator.save_model(model, folder)
plain = accelerator.unwrap_model(model, keep_torch_compile=False)
kept = accelerator.unwrap_model(model, keep_torch_compile=True)
x = torch.randn(8, 8)
facts = {
    "prepare() compiles": is_compiled_module(model),
    "unwrap_model(keep_torch_compile=False) gives the module": plain is net and not is_compiled_module(plain),
    "unwrap_model(keep_torch_compile=True) gives what was compiled": kept is model and is_compiled_module(kept),
    "both are one model": torch.allclose(plain(x), kept(x), atol=1e-6),
    "a state that is loaded goes on as before": torch.allclose(torch.tensor(again), torch.tensor(losses[1])),
}
print(json.dumps({"values": {"losses": losses, "keys": sorted(accelerator.get_state_dict(model))}, "facts": facts}))
