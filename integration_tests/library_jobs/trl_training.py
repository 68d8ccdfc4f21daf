"""trl: supervised fine-tuning with torch_compile=True."""

import json
import tempfile

import torch
from datasets import Dataset
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

torch.manual_seed(0)
words = "[PAD] [UNK] [EOS] a cat sat on the mat and dogs ran far from it".split()
tokenizer = Tokenizer(WordLevel({word: n for n, word in enumerate(words)}, unk_token="[UNK]"))
tokenizer.pre_tokenizer = Whitespace()
processing = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", eos_token="[EOS]")
config = LlamaConfig(
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=2,
    vocab_size=len(words),
    eos_token_id=2,
    pad_token_id=0,
)
data = Dataset.from_dict({"text": ["a cat sat on the mat", "the dogs ran far from it and sat", "it ran", "the mat"] * 3})
with tempfile.TemporaryDirectory() as folder:
    arguments = SFTConfig(
        folder, torch_compile=True, use_cpu=True, bf16=False, per_device_train_batch_size=4, num_train_epochs=2, report_to=[],
        save_strategy="no", disable_tqdm=True, gradient_checkpointing=False,
    )  # fmt: skip
    trainer = SFTTrainer(LlamaForCausalLM(config), arguments, train_dataset=data, processing_class=processing)
    loss = trainer.train().training_loss
    logs = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
print(json.dumps({"values": {"loss": loss, "logs": logs}, "facts": {}}))
