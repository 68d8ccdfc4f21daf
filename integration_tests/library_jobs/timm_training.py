"""timm: what its train.py does with --torchcompile: compiled model and EMA, a checkpoint, then validation."""

import json

import timm
import timm.optim
import timm.utils
import torch

torch.manual_seed(0)
torch.set_default_dtype(torch.float64)  # steps of batch norm over few elements magnify rounding
model = timm.create_model("resnet10t", num_classes=5)
optimizer = timm.optim.create_optimizer_v2(model, opt="sgd", lr=0.05)
ema = timm.utils.ModelEmaV3(model, decay=0.9)
task = torch.compile(model, backend="inductor")
ema_compiled = torch.compile(ema, backend="inductor")
images, targets = torch.randn(3, 4, 3, 64, 64), torch.randint(5, (3, 4))
losses = []
task.train()
for x, y in zip(images, targets):
    loss = torch.nn.functional.cross_entropy(task(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    ema.update(model)
    losses.append(loss.item())
task.eval()
with torch.no_grad():
    scores, averaged = task(images[0]), ema_compiled(images[0])
state = timm.utils.get_state_dict(task, timm.utils.unwrap_model)
again = timm.create_model("resnet10t", num_classes=5)
again.load_state_dict(state)
print(json.dumps({"values": {"losses": losses, "scores": scores.tolist(), "averaged": averaged.tolist()}, "facts": {}}))
