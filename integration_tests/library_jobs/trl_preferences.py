"""trl: DPO of a LoRA, GRPO with its own generation and a reward, and a reward model, each with torch_compile=True."""

import json
import tempfile

import torch
from datasets import Dataset
from peft import LoraConfig
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import LlamaConfig, LlamaForCausalLM, LlamaForSequenceClassification, PreTrainedTokenizerFast
from trl import DPOConfig, DPOTrainer, GRPOConfig, GRPOTrainer, RewardConfig, RewardTrainer

words = "[PAD] [UNK] [EOS] a cat sat on the mat and dogs ran far from it".split()
tokenizer = Tokenizer(WordLevel({word: n for n, word in enumerate(words)}, unk_token="[UNK]"))
tokenizer.pre_tokenizer = Whitespace()
names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "eos_token": "[EOS]"}
processing = PreTrainedTokenizerFast(tokenizer_object=tokenizer, padding_side="left", **names)
config = LlamaConfig(
    hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, vocab_size=len(words), eos_token_id=2,
    pad_token_id=0, bos_token_id=None, num_labels=1,
)  # fmt: skip
pairs = {
    "prompt": ["a cat", "the dogs ran", "it"],
    "chosen": [" sat on the mat", " far", " sat and ran"],
    "rejected": [" ran", " on a cat", " mat"],
}
data = Dataset.from_dict({name: texts * 3 for name, texts in pairs.items()})
small = {
    "torch_compile": True, "use_cpu": True, "bf16": False, "num_train_epochs": 1, "report_to": [], "save_strategy": "no",
    "disable_tqdm": True, "gradient_checkpointing": False, "logging_steps": 1, "learning_rate": 1e-2,
}  # fmt: skip


def losses(trainer):
    trainer.train()
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def model(kind=LlamaForCausalLM):
    torch.manual_seed(0)
    return kind(config)


values = {}
with tempfile.TemporaryDirectory() as folder:
    lora = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    dpo = DPOConfig(folder, per_device_train_batch_size=3, **small)
    values["dpo"] = losses(DPOTrainer(model(), args=dpo, train_dataset=data, processing_class=processing, peft_config=lora))
    reward = RewardConfig(folder, per_device_train_batch_size=3, **small)
    values["reward"] = losses(
        RewardTrainer(model(LlamaForSequenceClassification), args=reward, train_dataset=data, processing_class=processing)
    )
    grpo = GRPOConfig(folder, per_device_train_batch_size=4, num_generations=4, max_completion_length=6, max_steps=3, **small)
    values["grpo"] = losses(
        GRPOTrainer(
            model(), lambda completions, **_: [float(len(set(text.split()))) for text in completions], args=grpo,
            train_dataset=data.select_columns("prompt"), processing_class=processing,
        )
    )  # fmt: skip
print(json.dumps({"values": values, "facts": {}}))
