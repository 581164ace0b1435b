#!/usr/bin/env python3
"""In core, bf16: tokens a second of a mixture of experts, beside a dense model with as many active parameters and beside
PyTorch's on the same mixture.

    tools/bench/experts.py [--batch 4x512] [--steps N] [--rounds N] [--python PYTHON]

The mixture has Mixtral's layers: 8 experts of width 1,024, two a token; the dense model is a Mistral with an MLP of
2,048. Both have 8 layers of 512 and random weights. PyTorch runs as in pytorch.py (transformers, fused AdamW, weights
and moments in bf16). All take turns; medians of all measured steps are compared.
Needs torch and transformers in PYTHON (this interpreter by default).
"""

import json
import sys

import common
import pytorch

AIMS = {"dense": 0.7, "pytorch": 1.3}
SIZES = {"vocab_size": 8192, "hidden_size": 512, "num_hidden_layers": 8, "num_attention_heads": 8,
         "num_key_value_heads": 8, "max_position_embeddings": 4096, "sliding_window": None,
         "tie_word_embeddings": False, "hidden_act": "silu", "rms_norm_eps": 1e-5}
MODELS = {
    "mixture": {"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "num_local_experts": 8,
                "num_experts_per_tok": 2, "intermediate_size": 1024, **SIZES},
    "dense": {"model_type": "mistral", "architectures": ["MistralForCausalLM"], "intermediate_size": 2048, **SIZES},
}


def compare(arguments, directory):
    _, batch, sequence = common.shape(f"mixture:{arguments.batch}")
    data = directory / "tokens.jsonl"
    common.write_tokens(data, MODELS["mixture"], sequence, 8 * batch)
    files = {}
    for name, config in MODELS.items():
        (directory / name).mkdir()
        files[name] = directory / name / "config.json"
        files[name].write_text(json.dumps(config))
    runs = {name: common.Run() for name in ("mixture", "dense", "pytorch")}
    for _ in range(arguments.rounds):
        for name, file in files.items():
            flags = common.spillway_flags(file, data, batch, batch, sequence, "--clip-grad", 0, "--dtype", "bf16")
            runs[name].join(common.train(arguments.spillway, flags, directory, arguments.steps, arguments.warm_up,
                                         arguments.timeout, arguments.threads))
        shape = f"{files['mixture']}:{arguments.batch}"
        runs["pytorch"].join(pytorch.train_pytorch(arguments, shape, data, directory))
    return {"tokens_per_s": {name: batch * sequence / run.median_s() for name, run in runs.items()},
            "ratios": {name: runs[name].median_s() / runs["mixture"].median_s() for name in AIMS},
            "of_cpu_seconds": {name: runs[name].median_cpu_s() / runs["mixture"].median_cpu_s() for name in AIMS}}


def main():
    parser = common.parser_of(__doc__)
    common.add_comparison_flags(parser, shapes=[])
    parser.add_argument("--batch", default="4x512", help="sequences x tokens of a step (4x512)")
    arguments = parser.parse_args()
    common.check_program(arguments)
    with common.temporary_directory(arguments.directory) as directory:
        result = compare(arguments, directory)
    rows = [("the mixture beside", "its tokens/s", "theirs", "ratio", "of CPU seconds", "aim")]
    for name, aim in AIMS.items():
        rows.append((name, f"{result['tokens_per_s']['mixture']:.0f}", f"{result['tokens_per_s'][name]:.0f}",
                     f"{result['ratios'][name]:.2f}", f"{result['of_cpu_seconds'][name]:.2f}",
                     f"{aim} {common.verdict(result['ratios'][name], aim)}"))
    common.print_table(rows)
    common.save_result("experts", result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
