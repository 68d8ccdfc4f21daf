"""transformers: the Trainer with torch_compile=True, and what it saves."""

import json
import tempfile

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

torch.manual_seed(0)
sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64, "vocab_size": 90}
model = BertForSequenceClassification(BertConfig(**sizes, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))
data = [{"input_ids": torch.randint(90, (12,)), "labels": i % 2} for i in range(24)]
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder,
        torch_compile=True,
        use_cpu=True,
        per_device_train_batch_size=8,
        num_train_epochs=2,
        report_to=[],
        save_strategy="no",
    )
    trainer = Trainer(model, arguments, train_dataset=data, eval_dataset=data)
    loss = trainer.train().training_loss
    scores = trainer.predict(data).predictions
    trainer.save_model(folder)
    again = BertForSequenceClassification.from_pretrained(folder)
    keys = sorted(again.state_dict()) == sorted(model.state_dict())
print(json.dumps({"values": {"loss": loss, "scores": scores.tolist()}, "facts": {"what is saved loads": keys}}))
