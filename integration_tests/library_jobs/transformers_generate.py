"""transformers: generation with a static cache and a compiled forward, as its guide has it."""

import json

import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
config = LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, vocab_size=97)
model = LlamaForCausalLM(config).eval()
model.generation_config.cache_implementation = "static"
model.forward = torch.compile(model.forward, mode="reduce-overhead", fullgraph=True)
ids = torch.randint(3, 97, (2, 7))
tokens = [model.generate(ids, max_new_tokens=12, min_new_tokens=12, do_sample=sample).tolist() for sample in (False, True)]
print(json.dumps({"values": {"tokens": tokens}, "facts": {}}))
