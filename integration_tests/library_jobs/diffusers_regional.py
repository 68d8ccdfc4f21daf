"""diffusers: regional compilation of a transformer, a whole UNet compiled in place, and a pipeline with a compiled part."""

import json

import torch
from diffusers import DDIMPipeline, DDIMScheduler, FluxTransformer2DModel, UNet2DModel

torch.manual_seed(0)
flux = FluxTransformer2DModel(
    patch_size=1, in_channels=4, num_layers=2, num_single_layers=2, attention_head_dim=16, num_attention_heads=2,
    joint_attention_dim=32, pooled_projection_dim=32, axes_dims_rope=[4, 4, 8],
).eval()  # fmt: skip
given = {
    "hidden_states": torch.randn(1, 16, 4),
    "encoder_hidden_states": torch.randn(1, 6, 32),
    "pooled_projections": torch.randn(1, 32),
    "timestep": torch.tensor([0.5]),
    "img_ids": torch.randn(16, 3),
    "txt_ids": torch.randn(6, 3),
}
flux.compile_repeated_blocks(fullgraph=True)
with torch.no_grad():
    blocks = flux(**given).sample
unet = UNet2DModel(
    sample_size=16, block_out_channels=(16, 32), layers_per_block=1, norm_num_groups=8,
    down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"),
)  # fmt: skip
unet.compile()
pipeline = DDIMPipeline(unet, DDIMScheduler())
pipeline.set_progress_bar_config(disable=True)
image = pipeline(generator=torch.Generator().manual_seed(3), num_inference_steps=3, output_type="np").images
pipeline.unet = torch.compile(pipeline.unet)
again = pipeline(generator=torch.Generator().manual_seed(3), num_inference_steps=3, output_type="np").images
values = {"blocks": blocks.tolist(), "image": image.tolist(), "again": again.tolist()}
print(json.dumps({"values": values, "facts": {}}))
