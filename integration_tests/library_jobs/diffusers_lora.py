"""diffusers: LoRAs of a transformer with compiled blocks: two loaded, switched, weighted, off, fused, and swapped in place."""

import json
import tempfile

import torch
import torch._dynamo
from diffusers import FluxTransformer2DModel
from peft import LoraConfig

given = {
    "hidden_states": torch.linspace(-1, 1, 64).view(1, 16, 4),
    "encoder_hidden_states": torch.linspace(-2, 2, 192).view(1, 6, 32),
    "pooled_projections": torch.linspace(-1, 1, 32).view(1, 32),
    "timestep": torch.tensor([0.5]),
    "img_ids": torch.arange(48.0).view(16, 3),
    "txt_ids": torch.zeros(6, 3),
}


weights = {"prefix": None, "weight_name": "pytorch_lora_weights.safetensors"}


def transformer():
    torch.manual_seed(0)
    return FluxTransformer2DModel(
        patch_size=1, in_channels=4, num_layers=2, num_single_layers=2, attention_head_dim=16, num_attention_heads=2,
        joint_attention_dim=32, pooled_projection_dim=32, axes_dims_rope=[4, 4, 8],
    ).eval()  # fmt: skip


def config(rank):
    return LoraConfig(r=rank, lora_alpha=rank, target_modules=["to_q", "to_v"], init_lora_weights=False)


@torch.no_grad()
def sample(model):
    return model(**given).sample


with tempfile.TemporaryDirectory() as folder:
    for number, rank in enumerate((4, 8)):
        made = transformer()
        torch.manual_seed(10 + number)
        made.add_adapter(config(rank))
        made.save_lora_adapter(f"{folder}/{number}")
    model = transformer()
    model.compile_repeated_blocks(fullgraph=True)
    values = {"plain": sample(model).tolist()}
    for number in range(2):
        model.load_lora_adapter(f"{folder}/{number}", **weights, adapter_name=f"lora{number}")
        values[f"lora{number}"] = sample(model).tolist()
    model.set_adapters(["lora0", "lora1"], weights=[0.7, 0.2])
    values["both"] = sample(model).tolist()
    model.set_adapters("lora0")
    values["first again"] = sample(model).tolist()
    model.disable_lora()
    values["off"] = sample(model).tolist()
    model.enable_lora()
    model.fuse_lora(lora_scale=0.5, adapter_names=["lora0"])
    values["fused"] = sample(model).tolist()

    swapped = transformer()
    swapped.enable_lora_hotswap(target_rank=8)
    swapped.load_lora_adapter(f"{folder}/0", **weights, adapter_name="one")
    swapped.compile_repeated_blocks(fullgraph=True)
    before = sample(swapped)
    swapped.load_lora_adapter(f"{folder}/1", **weights, adapter_name="one", hotswap=True)
    with torch._dynamo.config.patch(error_on_recompile=True):
        after = sample(swapped)
    values |= {"before a swap": before.tolist(), "after it": after.tolist()}
near = torch.allclose(torch.tensor(values["before a swap"]), torch.tensor(values["first again"]), atol=1e-5)
print(json.dumps({"values": values, "facts": {"one that is padded for a swap is the same": near}}))
