#!/usr/bin/env python3
"""Makes golden cases with Hugging Face transformers and PyTorch, as tests/data/golden/README.md describes them.

usage: golden_case.py CASE DIRECTORY     (fp32 on one thread; needs torch, transformers and safetensors)
"""
import json
import pathlib
import sys

import torch
import transformers
from safetensors.torch import save_file

SHAPE = dict(hidden_size=48, intermediate_size=112, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=128, vocab_size=192, bos_token_id=1, eos_token_id=2, attn_implementation="eager")
CASES = {
    # A window that is shorter than a sequence.
    "mistral_window": lambda: transformers.MistralConfig(**SHAPE, head_dim=16, sliding_window=7,
                                                         tie_word_embeddings=False),
    # Waves on all three sides of Llama 3's rule; every bias that a Llama may have.
    "llama3_rope": lambda: transformers.LlamaConfig(
        **SHAPE, attention_bias=True, mlp_bias=True, tie_word_embeddings=True,
        rope_parameters=dict(rope_type="llama3", rope_theta=500.0, factor=8.0, low_freq_factor=1.0,
                             high_freq_factor=4.0, original_max_position_embeddings=64)),
    # Full and windowed layers in turn, and positions divided by a factor.
    "qwen2_window": lambda: transformers.Qwen2Config(
        **SHAPE, use_sliding_window=True, sliding_window=5, max_window_layers=1, tie_word_embeddings=True,
        rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=4.0)),
}
STEPS, BATCH, SEQUENCE, SEED = 12, 2, 32, 17
LR, BETAS, EPS, DECAY, CLIP = 3e-3, (0.9, 0.95), 1e-8, 0.1, 2.6


def scatter(model):
    """Norm weights around 1, biases that are not 0, attention far from uniform."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.ndim == 1:
                p.copy_((0.0 if name.endswith("bias") else 1.0) + 0.2 * torch.randn_like(p))
            else:
                p.copy_((0.2 if "q_proj" in name or "k_proj" in name else 0.08) * torch.randn_like(p))


def tokens_of(vocabulary):
    """Walks of a random Markov chain with few ways on from each token, so that the loss can fall."""
    ways = torch.randint(0, vocabulary, (vocabulary, 4))
    tokens = torch.empty(STEPS, BATCH, SEQUENCE + 1, dtype=torch.long)
    tokens[..., 0] = torch.randint(0, vocabulary, (STEPS, BATCH))
    for t in range(SEQUENCE):
        way = torch.randint(0, 4, (STEPS, BATCH))
        tokens[..., t + 1] = ways[tokens[..., t], way]
    return tokens


def main():
    case, directory = sys.argv[1], pathlib.Path(sys.argv[2])
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(SEED)
    config = CASES[case]()
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager")
    model.train()
    scatter(model)
    directory.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(directory)
    (directory / "generation_config.json").unlink(missing_ok=True)

    tokens = tokens_of(config.vocab_size)
    targets = tokens[..., 1:].clone()
    targets[:, :, ::9] = -100
    groups = [dict(params=[p for p in model.parameters() if p.ndim >= 2], weight_decay=DECAY),
              dict(params=[p for p in model.parameters() if p.ndim < 2], weight_decay=0.0)]
    optimizer = torch.optim.AdamW(groups, lr=LR, betas=BETAS, eps=EPS)
    golden, losses, norms = {"tokens": tokens.to(torch.int32), "targets": targets.to(torch.int32)}, [], []
    for step in range(STEPS):
        optimizer.zero_grad()
        logits = model(tokens[step, :, :-1], use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets[step].flatten(), ignore_index=-100)
        loss.backward()
        if step == 0:
            golden["logits"] = logits.detach().clone()
            for name, p in model.named_parameters():
                golden["grad." + name] = p.grad.clone()
        losses.append(loss.item())
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP).item())
        optimizer.step()
    save_file({k: v.contiguous() for k, v in golden.items()}, directory / "golden.safetensors")
    numbers = {
        "case": case, "model_type": config.model_type, "steps": STEPS, "batch": BATCH, "seq_len": SEQUENCE,
        "loss0": losses[0], "grad_norm0": norms[0], "losses": losses, "grad_norms": norms,
        "optimizer": {"name": "AdamW", "lr": LR, "betas": BETAS, "eps": EPS, "weight_decay": DECAY}, "clip_norm": CLIP,
        "schedule": {"type": "constant", "lrs": [LR] * STEPS}, "micro_batches": 1, "dtype": "float32",
        "stored_dtype": "float32", "torch": torch.__version__, "transformers": transformers.__version__, "seed": SEED,
        "final_param_norms": {name: p.detach().double().norm().item() for name, p in model.named_parameters()},
    }
    (directory / "golden.json").write_text(json.dumps(numbers, indent=1) + "\n")
    print(f"{case}: loss {losses[0]:.4f} -> {losses[-1]:.4f}, gradient norms {min(norms):.2f} to {max(norms):.2f}")


main()
