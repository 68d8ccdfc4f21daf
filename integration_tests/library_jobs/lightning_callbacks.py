"""lightning: Trainer.fit of a compiled module with validation, callbacks, accumulated and clipped gradients, a checkpoint resumed, bf16."""

import json
import logging
import tempfile
import warnings

import lightning
import torch
from lightning.pytorch.callbacks import Callback, EarlyStopping, ModelCheckpoint, StochasticWeightAveraging

warnings.filterwarnings("ignore", module="lightning")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
data = torch.Generator().manual_seed(3)
rows = [(torch.randn(8, generator=data), torch.randn(1, generator=data)) for _ in range(40)]


class Regression(lightning.LightningModule):
    def __init__(self, width=16):
        super().__init__()
        self.save_hyperparameters()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(8, width), torch.nn.GELU(), torch.nn.Dropout(0.2), torch.nn.Linear(width, 1)
        )

    def training_step(self, batch, number):
        loss = torch.nn.functional.mse_loss(self.layers(batch[0]), batch[1])
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, number):
        self.log("validation", torch.nn.functional.mse_loss(self.layers(batch[0]), batch[1]))

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        return [optimizer], [torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 6)]


class Losses(Callback):
    def __init__(self):
        self.steps, self.validations = [], []

    @property
    def found(self):
        return {"steps": self.steps, "validations": self.validations}

    def on_train_batch_end(self, trainer, module, outputs, batch, number):
        self.steps.append(outputs["loss"].item())

    def on_validation_epoch_end(self, trainer, module):
        self.validations.append(trainer.callback_metrics["validation"].item())


def fit(folder, epochs, callbacks=(), checkpoint=None, **given):
    lightning.seed_everything(5, verbose=False)
    losses, model = Losses(), Regression()
    trainer = lightning.Trainer(
        accelerator="cpu", max_epochs=epochs, accumulate_grad_batches=2, gradient_clip_val=0.5, callbacks=[losses, *callbacks],
        logger=False, enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0, default_root_dir=folder, **given,
    )  # fmt: skip
    train, validate = (torch.utils.data.DataLoader(rows[part], batch_size=8) for part in (slice(32), slice(32, None)))
    trainer.fit(torch.compile(model), train, validate, ckpt_path=checkpoint, weights_only=False)
    return losses, model


with tempfile.TemporaryDirectory() as folder:
    best = ModelCheckpoint(folder, monitor="validation", save_top_k=-1, save_last=True)
    first, model = fit(folder, 3, [best, EarlyStopping("validation", patience=2)])
    loaded = Regression.load_from_checkpoint(best.last_model_path, weights_only=False)
    same = all(map(torch.equal, loaded.state_dict().values(), model.state_dict().values()))
    resumed, _ = fit(folder, 5, checkpoint=best.last_model_path)
    averaged, _ = fit(folder, 4, [StochasticWeightAveraging(1e-2, swa_epoch_start=1)], enable_checkpointing=False)
    half, _ = fit(folder, 2, precision="bf16-mixed", enable_checkpointing=False)
values = {name: losses.found for name, losses in {"first": first, "resumed": resumed, "averaged": averaged}.items()}
facts = {"what is saved loads": same, "the steps are compiled": model._compiler_ctx is not None}
print(json.dumps({"values": values, "coarse": half.found, "facts": facts}))
