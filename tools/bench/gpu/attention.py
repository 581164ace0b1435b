"""Attention of PyTorch, and of FlashAttention if it is installed, at the shapes that kernels.cu measures. Prints one
JSON object on each line.

Run by tools/gpu_check with an interpreter that has torch. Exit code 77 if there is no torch, or no GPU that it sees.
"""

import json
import statistics
import sys

try:
    import torch
except ImportError:
    sys.exit(77)
try:
    from flash_attn import flash_attn_func
except ImportError:
    flash_attn_func = None

QUERIES = 8192


def seconds(work):
    """The median of twenty runs, after three warm-up runs."""
    times = []
    for i in range(23):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        work()
        end.record()
        torch.cuda.synchronize()
        if i >= 3:
            times.append(begin.elapsed_time(end) * 1e-3)
    return statistics.median(times)


def measure(name, forward, q, k, v, head_dim, heads):
    # The pairs that a causal mask keeps; two products forward and five backward.
    pairs = QUERIES * (QUERIES + 1) / 2
    flops = 2 * pairs * head_dim * heads
    with torch.no_grad():
        took = seconds(lambda: forward(q, k, v))
    print(json.dumps({"kernel": f"{name}_d{head_dim}", "seconds": took, "tflops": round(2 * flops / took * 1e-12, 1)}))
    out = forward(q, k, v)
    gradient = torch.randn_like(out)
    took = seconds(lambda: torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True))
    print(json.dumps({"kernel": f"{name}_backward_d{head_dim}", "seconds": took,
                      "tflops": round(5 * flops / took * 1e-12, 1)}))


def main():
    if not torch.cuda.is_available():
        return 77
    torch.manual_seed(1)
    sdpa = torch.nn.functional.scaled_dot_product_attention
    for head_dim in (64, 128):
        heads, kv_heads = 4096 // head_dim, 1024 // head_dim
        q, k, v = (torch.randn(1, QUERIES, count, head_dim, device="cuda", dtype=torch.bfloat16, requires_grad=True)
                   for count in (heads, kv_heads, kv_heads))
        if flash_attn_func is not None:
            measure("flash_attention", lambda *qkv: flash_attn_func(*qkv, causal=True), q, k, v, head_dim, heads)
        # Here heads come before the sequence, and each head needs keys of its own.
        wide = [x.detach().transpose(1, 2).repeat_interleave(heads // x.shape[2], 1).contiguous().requires_grad_()
                for x in (q, k, v)]
        measure("torch_sdpa", lambda *qkv: sdpa(*qkv, is_causal=True), *wide, head_dim, heads)
    return 0


if __name__ == "__main__":
    sys.exit(main())
