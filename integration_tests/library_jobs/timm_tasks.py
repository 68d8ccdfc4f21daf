"""timm: a step of its scripts: mixup, soft targets, EMA, adaptive clipping, a schedule, dropped paths, and its tasks that compile themselves."""

import json

import numpy
import timm
import timm.data
import timm.loss
import timm.optim
import timm.scheduler
import timm.utils
import torch
from timm.task import ClassificationTask, LogitDistillationTask

torch.set_default_dtype(torch.float64)  # mixed images and few of them: rounding would be magnified
small = {"img_size": 32, "patch_size": 8, "embed_dim": 32, "depth": 2, "num_heads": 2, "num_classes": 5}


def train(task, model, steps=4):
    torch.manual_seed(1)
    numpy.random.seed(1)
    images, targets = torch.randn(steps, 4, 3, 32, 32), torch.randint(5, (steps, 4))
    mixup = timm.data.Mixup(mixup_alpha=0.8, cutmix_alpha=1.0, prob=1.0, label_smoothing=0.1, num_classes=5)
    optimizer = timm.optim.create_optimizer_v2(model, opt="lamb", lr=0.01, weight_decay=0.05)
    schedule = timm.scheduler.CosineLRScheduler(optimizer, t_initial=steps, warmup_t=1, warmup_lr_init=1e-4, t_in_epochs=False)
    task.train()
    losses = []
    for number, (x, y) in enumerate(zip(images, targets)):
        x, y = mixup(x, y)
        loss = task(x, y)["loss"]
        optimizer.zero_grad()
        loss.backward()
        timm.utils.dispatch_clip_grad(model.parameters(), 0.02, mode="agc")
        optimizer.step()
        task.update_ema()
        schedule.step_update(number + 1)
        losses.append(loss.item())
    return losses


torch.manual_seed(0)
model = timm.create_model("vit_tiny_patch16_224", drop_path_rate=0.2, **small)
task = ClassificationTask(model, criterion=timm.loss.SoftTargetCrossEntropy(), verbose=False)
task.setup_ema(decay=0.9)
task.compile(backend="inductor", mode="default")
losses = train(task, model)
teacher = timm.create_model("resnet10t", num_classes=5)
student = timm.create_model("vit_tiny_patch16_224", **small)
distilling = LogitDistillationTask(student, teacher, criterion=timm.loss.SoftTargetCrossEntropy(), verbose=False)
distilling.setup_ema(decay=0.9)
distilling.compile()
distilled = train(distilling, student)
task.eval()
with torch.no_grad():
    images = torch.linspace(-1, 1, 4 * 3 * 32 * 32).view(4, 3, 32, 32)
    scores, averaged = model(images).tolist(), task.get_eval_model(ema=True)(images).tolist()
values = {"losses": losses, "distilled": distilled, "scores": scores, "averaged": averaged, "keys": sorted(model.state_dict())}
print(json.dumps({"values": values, "facts": {}}))
