"""peft: two adapters of a compiled model trained in turns, switched, weighted, deleted and swapped in place, and DoRA, VeRA and prompts."""

import json
import tempfile

import torch
import torch._dynamo
from peft import LoraConfig, PeftModel, PromptTuningConfig, VeraConfig, get_peft_model
from peft.utils.hotswap import hotswap_adapter, prepare_model_for_compiled_hotswap
from transformers import LlamaConfig, LlamaForCausalLM

sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64, "vocab_size": 70}
torch.manual_seed(0)
batches = torch.randint(70, (8, 2, 9))
ids = torch.randint(70, (2, 9))


def base():
    torch.manual_seed(1)
    return LlamaForCausalLM(LlamaConfig(**sizes, use_cache=False))


def lora(rank=4, **given):
    return LoraConfig(r=rank, lora_alpha=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM", **given)


def train(model, compiled, batches):
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    losses = []
    for batch in batches:
        loss = compiled(input_ids=batch, labels=batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


@torch.no_grad()
def logits(model):
    return model(input_ids=ids).logits


model = get_peft_model(base(), lora(), adapter_name="first")
model.add_adapter("second", lora(2))
compiled = torch.compile(model)
losses = []
for number, name in enumerate(("first", "second", "first")):
    model.set_adapter(name)
    losses.append(train(model, compiled, batches[2 * number : 2 * number + 2]))
found = {}
for name in ("first", "second"):
    model.set_adapter(name)
    found[name] = logits(compiled)
model.add_weighted_adapter(["first", "second"], [0.5, 0.5], "both", combination_type="cat")
model.set_adapter("both")
found["both"] = logits(compiled)
model.delete_adapter("both")
model.set_adapter("first")
found["first again"] = logits(compiled)

with tempfile.TemporaryDirectory() as folder:
    model.save_pretrained(folder)
    swapped = PeftModel.from_pretrained(base(), f"{folder}/first")
    prepare_model_for_compiled_hotswap(swapped, target_rank=4)
    fast = torch.compile(swapped)
    found["before a swap"] = logits(fast)
    hotswap_adapter(swapped, f"{folder}/second", adapter_name="default")
    with torch._dynamo.config.patch(error_on_recompile=True):
        found["after it"] = logits(fast)

others = [
    lora(use_dora=True),
    VeraConfig(r=8, target_modules=["q_proj"]),
    PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3),
]
for config in others:
    torch.manual_seed(2)
    other = get_peft_model(base(), config)
    losses.append(train(other, torch.compile(other), batches[:3]))
facts = {
    "a deleted adapter changes nothing": torch.allclose(found["first"], found["first again"], atol=1e-6),
    "before a swap": torch.allclose(found["first"], found["before a swap"], atol=1e-5),
    "a swap": torch.allclose(found["second"], found["after it"], atol=1e-5),
}
print(json.dumps({"values": {"losses": losses} | {name: values.tolist() for name, values in found.items()}, "facts": facts}))
