"""sentence-transformers: encoding with a compiled model, and its trainer with torch_compile=True."""

import json
import tempfile

import torch
from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
    losses,
    models,
)
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

torch.manual_seed(0)
words = "[PAD] [UNK] a cat sat on the mat and dogs ran far from it".split()
tokenizer = Tokenizer(WordLevel({word: n for n, word in enumerate(words)}, unk_token="[UNK]"))
tokenizer.pre_tokenizer = Whitespace()
sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64, "vocab_size": len(words)}
texts = ["a cat sat", "the dogs ran far from it", "it sat on the mat and ran", "cat"]
with tempfile.TemporaryDirectory() as folder:
    BertModel(BertConfig(**sizes, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)).save_pretrained(folder)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]").save_pretrained(folder)
    part = models.Transformer(folder, max_seq_length=16)
    model = SentenceTransformer(modules=[part, models.Pooling(32)], device="cpu")
    data = Dataset.from_dict({"anchor": texts, "positive": texts[::-1]})
    arguments = SentenceTransformerTrainingArguments(
        folder, torch_compile=True, use_cpu=True, per_device_train_batch_size=2, num_train_epochs=2, report_to=[], save_strategy="no",
        disable_tqdm=True,
    )  # fmt: skip
    trainer = SentenceTransformerTrainer(model, arguments, train_dataset=data, loss=losses.MultipleNegativesRankingLoss(model))
    loss = trainer.train().training_loss
compiled = torch.compile(model)
found = compiled.encode(texts, batch_size=2, show_progress_bar=False)
model[0] = torch.compile(model[0])
again = model.encode(texts, batch_size=2, show_progress_bar=False)
print(json.dumps({"values": {"loss": loss, "vectors": found.tolist(), "again": again.tolist()}, "facts": {}}))
