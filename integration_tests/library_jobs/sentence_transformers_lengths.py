"""sentence-transformers: compile() and many lengths: encoding, a cross-encoder trained and ranking, one with prompts and a cut vector."""

import json
import tempfile

import torch
from datasets import Dataset
from sentence_transformers import CrossEncoder, CrossEncoderTrainer, CrossEncoderTrainingArguments, SentenceTransformer, models
from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from transformers import BertConfig, BertForSequenceClassification, BertModel, PreTrainedTokenizerFast

torch.manual_seed(0)
words = "[PAD] [UNK] [CLS] [SEP] a cat sat on the mat and dogs ran far from it".split()
tokenizer = Tokenizer(WordLevel({word: n for n, word in enumerate(words)}, unk_token="[UNK]"))
tokenizer.pre_tokenizer = Whitespace()
marks = [("[CLS]", 2), ("[SEP]", 3)]
tokenizer.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=marks)
config = BertConfig(
    hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, vocab_size=len(words), num_labels=1,
    hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
)  # fmt: skip
texts = [" ".join((words[4:] * 2)[n : n + length]) for n, length in enumerate((1, 3, 8, 2, 12, 5, 9, 4, 11, 6))]
with tempfile.TemporaryDirectory() as folder:
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]"
    ).save_pretrained(folder)
    BertModel(config).save_pretrained(folder)
    part = models.Transformer(folder, max_seq_length=24)
    model = SentenceTransformer(
        modules=[part, models.Pooling(32), models.Normalize()], device="cpu", prompts={"query": "the cat"}
    )
    model.compile(dynamic=True)
    vectors = model.encode(texts, batch_size=3, show_progress_bar=False)
    cut = model.encode(texts[:3], prompt_name="query", truncate_dim=8, show_progress_bar=False)
    alike = model.similarity(vectors, vectors)
    BertForSequenceClassification(config).save_pretrained(folder)
    ranker = CrossEncoder(folder, num_labels=1, max_length=24, device="cpu")
    pairs = Dataset.from_dict({"query": texts[:8], "text": texts[::-1][:8], "label": [0.0, 1.0] * 4})
    arguments = CrossEncoderTrainingArguments(
        folder, torch_compile=True, use_cpu=True, per_device_train_batch_size=4, num_train_epochs=2, report_to=[], save_strategy="no",
        disable_tqdm=True,
    )  # fmt: skip
    loss = CrossEncoderTrainer(ranker, arguments, train_dataset=pairs, loss=BinaryCrossEntropyLoss(ranker)).train().training_loss
    ranker.compile(dynamic=True)
    ranked = [[entry["corpus_id"], float(entry["score"])] for entry in ranker.rank(texts[0], texts[1:], batch_size=3)]
values = {"vectors": vectors.tolist(), "cut": cut.tolist(), "alike": alike.tolist(), "loss": loss, "ranked": ranked}
print(json.dumps({"values": values, "facts": {}}))
