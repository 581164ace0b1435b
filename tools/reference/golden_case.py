#!/usr/bin/env python3
"""Makes golden cases with Hugging Face transformers and PyTorch, as tests/data/golden/README.md describes them.

usage: golden_case.py CASE DIRECTORY          makes one of the cases listed below, from its seed
       golden_case.py --again DIRECTORY...    computes any existing case again, from its weights, tokens and settings,
                                              and says how far the results are from those in its files
       golden_case.py --rewrite DIRECTORY...  the same, and writes the new results

fp32 on one thread; needs torch, transformers and safetensors. Exit code 1 if --again finds more than TOLERANCES.
"""
import json
import pathlib
import sys

import torch
import transformers
from safetensors.torch import load_file, save_file

SHAPE = dict(hidden_size=48, intermediate_size=112, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=128, vocab_size=192, bos_token_id=1, eos_token_id=2, attn_implementation="eager")
CASES = {
    # A window shorter than a sequence.
    "mistral_window": lambda: transformers.MistralConfig(**SHAPE, head_dim=16, sliding_window=7,
                                                         tie_word_embeddings=False),
    # Frequencies in all three ranges of Llama 3's rule; every bias that a Llama may have.
    "llama3_rope": lambda: transformers.LlamaConfig(
        **SHAPE, attention_bias=True, mlp_bias=True, tie_word_embeddings=True,
        rope_parameters=dict(rope_type="llama3", rope_theta=500.0, factor=8.0, low_freq_factor=1.0,
                             high_freq_factor=4.0, original_max_position_embeddings=64)),
    # Full and windowed layers in turn, and positions divided by a factor.
    "qwen2_window": lambda: transformers.Qwen2Config(
        **SHAPE, use_sliding_window=True, sliding_window=5, max_window_layers=1, tie_word_embeddings=True,
        rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=4.0)),
    # Norms of heads, stored around 0, and a separate rotation for layers with a window.
    "gemma3": lambda: transformers.Gemma3TextConfig(
        **SHAPE, head_dim=20, query_pre_attn_scalar=24, sliding_window=7,
        layer_types=["sliding_attention", "full_attention"],
        rope_parameters=dict(sliding_attention=dict(rope_type="default", rope_theta=50.0),
                             full_attention=dict(rope_type="linear", rope_theta=500.0, factor=2.0))),
    # Experts in tensors of three dimensions, and the factors of Granite.
    "granitemoe": lambda: transformers.GraniteMoeConfig(
        **(SHAPE | dict(intermediate_size=40)), num_local_experts=6, num_experts_per_tok=2, embedding_multiplier=12.0,
        attention_multiplier=0.15, residual_multiplier=0.22, logits_scaling=3.0, output_router_logits=True,
        router_aux_loss_coef=0.02, pad_token_id=None, tie_word_embeddings=True),
    # Sinks, windows in turn with full attention, biases everywhere, yarn, and experts whose gates and ups alternate.
    "gpt_oss": lambda: transformers.GptOssConfig(
        **(SHAPE | dict(intermediate_size=40, num_hidden_layers=3)), head_dim=16, num_local_experts=6,
        num_experts_per_tok=2, sliding_window=7, output_router_logits=True, router_aux_loss_coef=0.02,
        pad_token_id=None, tie_word_embeddings=False,
        rope_parameters=dict(rope_type="yarn", rope_theta=500.0, factor=4.0, beta_fast=8.0, beta_slow=1.0,
                             truncate=False, original_max_position_embeddings=16)),
    # A shared expert besides the others, whose weights are their probabilities.
    "qwen2_moe": lambda: transformers.Qwen2MoeConfig(
        **SHAPE, moe_intermediate_size=40, shared_expert_intermediate_size=72, num_experts=6, num_experts_per_tok=2,
        norm_topk_prob=False, output_router_logits=True, router_aux_loss_coef=0.02, tie_word_embeddings=False),
    # A dense layer between two with experts, whose weights are divided by their sum, and the balance loss.
    "qwen3_moe": lambda: transformers.Qwen3MoeConfig(
        **(SHAPE | dict(num_hidden_layers=3)), head_dim=16, moe_intermediate_size=40, num_experts=6,
        num_experts_per_tok=2, norm_topk_prob=True, mlp_only_layers=[1], output_router_logits=True,
        router_aux_loss_coef=0.02, tie_word_embeddings=False),
    # Heads of which three quarters turn, projections that are one tensor each, and sequences longer than those of the
    # frequencies' short factors.
    "phi3_longrope": lambda: transformers.Phi3Config(
        **SHAPE, tie_word_embeddings=True, original_max_position_embeddings=16, sliding_window=None, pad_token_id=None,
        rope_parameters=dict(rope_type="longrope", rope_theta=10000.0, partial_rotary_factor=2 / 3,
                             short_factor=[1.0, 1.1, 1.3, 1.6], long_factor=[1.0, 1.5, 3.0, 6.0])),
    # Phi-4-mini: three quarters of each head turn by the short factors, and cosines and sines are times a factor.
    "phi4_mini": lambda: transformers.Phi3Config(
        **(SHAPE | dict(hidden_size=64)), tie_word_embeddings=True, original_max_position_embeddings=48,
        sliding_window=262144, pad_token_id=None,
        rope_parameters=dict(rope_type="longrope", rope_theta=10000.0, partial_rotary_factor=0.75,
                             short_factor=[1.0, 1.1, 1.2, 1.4, 1.7, 2.0],
                             long_factor=[1.0, 2.0, 4.0, 8.0, 16.0, 32.0])),
    # A window and a rotation of its own in one layer, scaled frequencies in the other; norms of all of q and all of k.
    "olmo3": lambda: transformers.Olmo3Config(
        **SHAPE, sliding_window=7, layer_types=["sliding_attention", "full_attention"], pad_token_id=5,
        rope_parameters=dict(sliding_attention=dict(rope_type="default", rope_theta=50.0),
                             full_attention=dict(rope_type="yarn", rope_theta=500.0, factor=4.0, beta_fast=4.0,
                                                 beta_slow=0.5, original_max_position_embeddings=16))),
    # Neighbours turn together, in two fifths of each head.
    "glm4": lambda: transformers.Glm4Config(**SHAPE, head_dim=20, pad_token_id=None, partial_rotary_factor=0.4),
    # Neighbours turn together, in all of each head; every bias.
    "ernie4_5": lambda: transformers.Ernie4_5Config(**SHAPE, head_dim=16, use_bias=True, pad_token_id=None),
    # Biases of queries, keys and values, and a head_dim of its own.
    "seed_oss": lambda: transformers.SeedOssConfig(
        **SHAPE, head_dim=16, attention_bias=True, attention_out_bias=True, attention_dropout=0.0, residual_dropout=0.0,
        pad_token_id=None, tie_word_embeddings=False),
    # Norms stored around 0, no norm behind a block.
    "gemma": lambda: transformers.GemmaConfig(**SHAPE, head_dim=20),
    # The caps and windows of Gemma 2 without its norms behind blocks.
    "vaultgemma": lambda: transformers.VaultGemmaConfig(
        **SHAPE, head_dim=20, query_pre_attn_scalar=24, sliding_window=7, attn_logit_softcapping=5.0,
        final_logit_softcapping=4.0),
    # A window in one layer, none in the other.
    "ministral": lambda: transformers.MinistralConfig(
        **SHAPE, head_dim=16, sliding_window=6, layer_types=["full_attention", "sliding_attention"],
        tie_word_embeddings=False),
}
STEPS, BATCH, SEQUENCE, SEED = 12, 2, 32, 17
SETTINGS = {"optimizer": {"name": "AdamW", "lr": 3e-3, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1},
            "clip_norm": 2.6, "schedule": {"type": "constant", "lrs": [3e-3] * STEPS}}
# Allowed differences between versions of the libraries, relative; for logits absolute.
TOLERANCES = {"losses": 2e-4, "grad_norms": 1e-3, "logits": 1e-4, "gradients": 1e-4, "final_param_norms": 1e-3}


def scatter(model):
    """Sets norm weights around 1 (around 0 for Gemma, which adds 1), biases other than 0, and attention far from
    uniform."""
    ones = 0.0 if "gemma" in model.config.model_type else 1.0
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.ndim == 1:
                p.copy_((0.0 if name.endswith("bias") else ones) + 0.2 * torch.randn_like(p))
            else:
                large = 0.3 if model.config.model_type == "gpt_oss" and "gate_up" in name else 0.08  # some are clamped
                p.copy_((0.2 if "q_proj" in name or "k_proj" in name else large) * torch.randn_like(p))


def tokens_of(vocabulary):
    """Walks of a random Markov chain in which each token has few successors, so that the loss can fall."""
    ways = torch.randint(0, vocabulary, (vocabulary, 4))
    tokens = torch.empty(STEPS, BATCH, SEQUENCE + 1, dtype=torch.long)
    tokens[..., 0] = torch.randint(0, vocabulary, (STEPS, BATCH))
    for t in range(SEQUENCE):
        way = torch.randint(0, 4, (STEPS, BATCH))
        tokens[..., t + 1] = ways[tokens[..., t], way]
    return tokens


def by_file_names(model, tensors):
    """Experts, which the model has stacked, under the names that files have."""
    is_mixtral = model.config.model_type == "mixtral"
    gate, up, down = ("w1", "w3", "w2") if is_mixtral else ("gate_proj", "up_proj", "down_proj")
    named = {}
    for name, tensor in tensors.items():
        if is_mixtral:
            name = name.replace(".mlp.", ".block_sparse_moe.")
        if model.config.model_type == "granitemoe":  # files have them stacked, too, under other names
            for ours, file in (("experts.gate_up_proj", "input_linear.weight"),
                               ("experts.down_proj", "output_linear.weight"), ("router.weight", "router.layer.weight")):
                name = name.replace("block_sparse_moe." + ours, "block_sparse_moe." + file)
        stem, dot, last = name.rpartition(".experts.")
        if not dot or model.config.model_type == "gpt_oss":
            named[name] = tensor
            continue
        for index, of_one in enumerate(tensor):
            parts = {down: of_one}
            if last == "gate_up_proj":
                parts = dict(zip((gate, up), of_one.chunk(2), strict=True))
            for part, values in parts.items():
                named[f"{stem}.experts.{index}.{part}.weight"] = values
    return named


def trained(model, tokens, targets, settings):
    """Trains the model. Returns tensors of the first step (logits, gradients) and numbers of all steps."""
    adam, parameters = settings["optimizer"], list(model.parameters())
    groups = [dict(params=[p for p in parameters if p.ndim >= 2], weight_decay=adam["weight_decay"]),
              dict(params=[p for p in parameters if p.ndim < 2], weight_decay=0.0)]
    optimizer = torch.optim.AdamW(groups, lr=adam["lr"], betas=tuple(adam["betas"]), eps=adam["eps"])
    tensors, losses, norms, balance_losses = {}, [], [], []
    coefficient = getattr(model.config, "router_aux_loss_coef", 0)
    for step, lr in enumerate(settings["schedule"]["lrs"]):
        for group in optimizer.param_groups:
            group["lr"] = lr
        optimizer.zero_grad()
        output = model(tokens[step, :, :-1], use_cache=False)
        logits = output.logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets[step].flatten(), ignore_index=-100)
        if getattr(output, "aux_loss", None) is not None:
            balance_losses.append(output.aux_loss.item())
            loss = loss + coefficient * output.aux_loss
        loss.backward()
        if step == 0:
            tensors["logits"] = logits.detach().clone()
            gradients = by_file_names(model, {name: p.grad for name, p in model.named_parameters()})
            tensors.update({"grad." + name: gradient.clone() for name, gradient in gradients.items()})
        losses.append(loss.item())
        norms.append(torch.nn.utils.clip_grad_norm_(parameters, settings["clip_norm"]).item())
        optimizer.step()
    numbers = {"loss0": losses[0], "grad_norm0": norms[0], "losses": losses, "grad_norms": norms,
               "final_param_norms": {name: p.detach().double().norm().item()
                                     for name, p in by_file_names(model, dict(model.named_parameters())).items()}}
    if balance_losses:
        numbers.update(aux_losses=balance_losses, router_aux_loss_coef=coefficient)
    return tensors, numbers


def versions():
    return {"torch": torch.__version__, "transformers": transformers.__version__}


def write(directory, tensors, numbers):
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, directory / "golden.safetensors")
    (directory / "golden.json").write_text(json.dumps(numbers, indent=1) + "\n")


def make(case, directory):
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
    tensors, numbers = trained(model, tokens, targets, SETTINGS)
    inputs = {"tokens": tokens.to(torch.int32), "targets": targets.to(torch.int32)}
    write(directory, {**inputs, **tensors},
          {"case": case, "model_type": config.model_type, "steps": STEPS, "batch": BATCH, "seq_len": SEQUENCE,
           **numbers, **SETTINGS, "micro_batches": 1, "dtype": "float32", "stored_dtype": "float32", "seed": SEED,
           **versions()})
    losses, norms = numbers["losses"], numbers["grad_norms"]
    print(f"{case}: loss {losses[0]:.4f} -> {losses[-1]:.4f}, gradient norms {min(norms):.2f} to {max(norms):.2f}")


def deviations(tensors, stored, found, known):
    """Distances of the new results from those in the files, by the names of TOLERANCES."""
    def most(name):
        return max(abs(a / b - 1) for a, b in zip(found[name], known[name], strict=True))

    gradients = [name for name in stored if name.startswith("grad.")]
    norms = known["final_param_norms"]
    return {"losses": most("losses"), "grad_norms": most("grad_norms"),
            "logits": (tensors["logits"] - stored["logits"]).abs().max().item(),
            "gradients": max(((tensors[name] - stored[name]).norm() / stored[name].norm()).item()
                             for name in gradients if stored[name].norm() > 1e-6),
            # The gradients of keys' biases are little but rounding, which Adam scales up.
            "final_param_norms": max(abs(value / norms[name] - 1) for name, value in found["final_param_norms"].items()
                                     if not name.endswith(("c_attn.bias", "k_proj.bias")))}


def make_again(directory, rewrite):
    """Computes the case again; returns true if the results agree with those in its files."""
    known, stored = json.loads((directory / "golden.json").read_text()), load_file(directory / "golden.safetensors")
    model = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32,
                                                              attn_implementation="eager")
    model.train()
    tokens = stored["tokens"].long()
    targets = stored["targets"].long() if "targets" in stored else tokens[..., 1:]
    tensors, numbers = trained(model, tokens, targets, known)
    apart = deviations(tensors, stored, numbers, known)
    agrees = all(value <= TOLERANCES[name] for name, value in apart.items())
    print(f"{directory.name}: " + ", ".join(f"{name} {value:.1e}" for name, value in apart.items())
          + ("" if agrees else ": MORE THAN ALLOWED"))
    if rewrite:
        write(directory, {**stored, **tensors}, {**known, **numbers, **versions()})
    return agrees


def main():
    words = sys.argv[1:]
    if len(words) < 2 or (not words[0].startswith("--") and (words[0] not in CASES or len(words) != 2)):
        sys.exit(f"{__doc__}\nCases: {', '.join(CASES)}")
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    if words[0] in CASES:
        make(words[0], pathlib.Path(words[1]))
    elif words[0] in ("--again", "--rewrite"):
        agree = [make_again(pathlib.Path(directory), words[0] == "--rewrite") for directory in words[1:]]
        sys.exit(0 if all(agree) else 1)
    else:
        sys.exit(f"{words[0]}: --again or --rewrite")


main()
