"""transformers: the Trainer with torch_compile_backend and _mode, checkpointed layers, evaluation, and a run resumed from a checkpoint."""

import json
import tempfile
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64, "vocab_size": 90}
torch.manual_seed(0)
rows = torch.randint(90, (24, 12))
data = [{"input_ids": row, "labels": row} for row in rows]


def trainer(folder, **given):
    torch.manual_seed(1)
    arguments = TrainingArguments(
        folder, use_cpu=True, per_device_train_batch_size=4, gradient_accumulation_steps=2, max_grad_norm=1.0, report_to=[],
        learning_rate=1e-2, logging_steps=1, disable_tqdm=True, **given,
    )  # fmt: skip
    model = LlamaForCausalLM(LlamaConfig(**sizes))
    scores = {"compute_metrics": lambda found: {"right": float((found.predictions.argmax(-1) == found.label_ids).mean())}}
    return Trainer(model, arguments, train_dataset=data, eval_dataset=data[:7], **scores)


def losses(trainer):
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


with tempfile.TemporaryDirectory() as folder:
    whole = trainer(
        f"{folder}/whole", torch_compile_backend="inductor", torch_compile_mode="default", max_steps=6, eval_strategy="steps",
        eval_steps=3, save_steps=3, gradient_checkpointing=True,
    )  # fmt: skip
    whole.train()
    evaluated = [entry["eval_loss"] for entry in whole.state.log_history if "eval_loss" in entry]
    scores = whole.predict(data[:5]).predictions
    checkpoints = sorted(path.name for path in Path(f"{folder}/whole").iterdir())
    again = LlamaForCausalLM.from_pretrained(f"{folder}/whole/checkpoint-6")
    keys = sorted(again.state_dict()) == sorted(whole.model.state_dict())
    resumed = trainer(f"{folder}/resumed", torch_compile=True, max_steps=6)
    resumed.train(resume_from_checkpoint=f"{folder}/whole/checkpoint-3")
    half = trainer(f"{folder}/half", torch_compile=True, max_steps=4, bf16=True, save_strategy="no")
    half.train()
ends = [parameter.detach().norm().item() for parameter in resumed.model.parameters()]
values = {"losses": losses(whole), "evaluated": evaluated, "scores": scores.tolist(), "resumed": losses(resumed), "ends": ends}
near = torch.allclose(torch.tensor(losses(resumed)), torch.tensor(losses(whole)), rtol=1e-4)
facts = {"what is saved loads": keys, "a resumed run goes on as the whole one": near}
print(json.dumps({"values": values | {"files": checkpoints}, "coarse": {"losses": losses(half)}, "facts": facts}))
