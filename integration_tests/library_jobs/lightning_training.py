"""lightning: a compiled LightningModule given to the Trainer, and Fabric, which compiles again what it sets up."""

import json
import logging
import warnings

import torch

net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
early = torch.compile(net)  # before lightning is imported, which wraps torch.compile
import lightning  # noqa: E402
from torch._dynamo import OptimizedModule  # noqa: E402

warnings.filterwarnings("ignore", module="lightning")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Regression(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
        self.losses = []

    def training_step(self, batch, number):
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.layers(x), y)
        self.losses.append(loss.detach())
        return loss

    def predict_step(self, batch, number):
        return self.layers(batch[0])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


lightning.seed_everything(0, verbose=False)
data = torch.utils.data.DataLoader([(torch.randn(8), torch.randn(1)) for _ in range(24)], batch_size=8)
quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
trainer = lightning.Trainer(accelerator="cpu", max_epochs=2, **quiet)
model = Regression()
compiled = torch.compile(model)
trainer.fit(compiled, data)
predictions = torch.cat(trainer.predict(compiled, data))

fabric = lightning.Fabric(accelerator="cpu", devices=1)
for parameter in net.parameters():
    torch.nn.init.constant_(parameter, 0.1)
fitted, optimizer = fabric.setup(torch.compile(net), torch.optim.SGD(net.parameters(), lr=0.1))
steps = []
for x, y in fabric.setup_dataloaders(data):
    loss = torch.nn.functional.mse_loss(fitted(x), y)
    optimizer.zero_grad()
    fabric.backward(loss)
    optimizer.step()
    steps.append(loss.item())
with torch.no_grad():
    late = early(torch.ones(2, 8)).tolist()
values = {"losses": torch.stack(model.losses).tolist(), "predictions": predictions.tolist(), "fabric": steps, "late": late}
facts = {
    "the Trainer compiles its steps": model._compiler_ctx is not None,
    "Fabric compiles": isinstance(fitted._forward_module, OptimizedModule),
}
print(json.dumps({"values": values | {"keys": sorted(model.state_dict())}, "facts": facts}))
