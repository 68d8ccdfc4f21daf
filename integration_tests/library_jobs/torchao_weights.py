"""torchao: int8 weights of a Llama, weights and activations in int8, and a training that is aware of the rounding."""

import json

import torch
from torchao.quantization import Int8DynamicActivationInt8WeightConfig, Int8WeightOnlyConfig, quantize_
from torchao.quantization.qat import IntxFakeQuantizeConfig, QATConfig
from transformers import LlamaConfig, LlamaForCausalLM

config = LlamaConfig(
    hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, vocab_size=97, use_cache=False
)
torch.manual_seed(0)
ids = torch.randint(97, (2, 7))


def model():
    torch.manual_seed(1)
    return LlamaForCausalLM(config).eval()


values, coarse = {}, {"losses": []}
kinds = {"weights": (values, Int8WeightOnlyConfig()), "both": (coarse, Int8DynamicActivationInt8WeightConfig())}
for name, (found, chosen) in kinds.items():
    quantized = model()
    quantize_(quantized, chosen)
    with torch.no_grad():
        found[name] = torch.compile(quantized, mode="max-autotune")(ids).logits.tolist()
aware = model()
quantize_(aware, QATConfig(weight_config=IntxFakeQuantizeConfig(torch.int8, granularity="per_channel"), step="prepare"))
compiled = torch.compile(aware)
optimizer = torch.optim.SGD(aware.parameters(), lr=0.1)
for _ in range(3):
    loss = compiled(ids, labels=ids).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    coarse["losses"].append(loss.item())
print(json.dumps({"values": values, "coarse": coarse, "facts": {}}))
