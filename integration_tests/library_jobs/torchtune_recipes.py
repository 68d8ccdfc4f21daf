"""torchtune: pieces of its recipes: full training with checkpointed layers, distillation with its compiled losses, generation with a cache."""

import json

import torch
from torchtune.generation import generate
from torchtune.models.llama3 import llama3
from torchtune.modules import TransformerSelfAttentionLayer
from torchtune.modules.loss import CEWithChunkedOutputLoss, ForwardKLWithChunkedOutputLoss
from torchtune.training import compile_loss, compile_model, get_cosine_schedule_with_warmup, set_activation_checkpointing

torch.manual_seed(0)


def decoder():
    return llama3(vocab_size=80, num_layers=2, num_heads=4, num_kv_heads=2, embed_dim=32, max_seq_len=64, intermediate_dim=64)


student, teacher = decoder(), decoder().eval()
set_activation_checkpointing(student, auto_wrap_policy={TransformerSelfAttentionLayer})
compile_model(student, verbose=False)
compile_model(teacher, verbose=False)
loss_of, apart_of = CEWithChunkedOutputLoss(num_output_chunks=2), ForwardKLWithChunkedOutputLoss(num_output_chunks=2)
student.set_num_output_chunks(2)
teacher.set_num_output_chunks(2)
loss_of, apart_of = compile_loss(loss_of, verbose=False), compile_loss(apart_of, verbose=False)
optimizer = torch.optim.AdamW(student.parameters(), lr=1e-2, fused=True)
schedule = get_cosine_schedule_with_warmup(optimizer, num_warmup_steps=1, num_training_steps=4)
losses = []
for _ in range(3):
    for tokens in torch.randint(80, (2, 2, 17)):  # accumulated
        labels = torch.where(tokens < 8, loss_of.ignore_index, tokens)[:, 1:]
        logits = student(tokens[:, :-1])
        with torch.no_grad():
            wanted = teacher(tokens[:, :-1])
        loss = 0.5 * loss_of(logits, labels) + 0.5 * apart_of(logits, wanted, labels)
        (loss / 2).backward()
        losses.append(loss.item())
    torch.nn.utils.clip_grad_norm_(student.parameters(), 1.0)
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()

model = decoder().eval()
model.load_state_dict(student.state_dict())
prompt = torch.randint(80, (2, 5))
with torch.no_grad():
    expected, _ = generate(model, prompt, max_generated_tokens=8, top_k=1)
    model.setup_caches(batch_size=2, dtype=torch.float32, decoder_max_seq_len=16)
    compile_model(model, verbose=False)
    found, logits = generate(model, prompt, max_generated_tokens=8, top_k=1)
facts = {"a cache changes nothing": torch.equal(found, expected)}
print(json.dumps({"values": {"losses": losses, "tokens": found.tolist(), "keys": sorted(student.state_dict())}, "facts": facts}))
