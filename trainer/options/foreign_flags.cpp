#include "trainer/options/foreign_flags.h"

#include <algorithm>
#include <string>

#include "trainer/words/nearest_name.h"

namespace spillway {
namespace {

constexpr std::string_view kSequencesOfAStep =
    "--global-batch-size counts the sequences of a step: --micro-batch-size x accumulation steps x ranks.";
constexpr std::string_view kInFiles =
    "Files or directories of them: .txt, .jsonl or .json (text, messages or input_ids), .bin (tokens), also as .gz or .zst.";
constexpr std::string_view kOneDevice =
    "A model is not cut over devices here: what does not fit --device-memory moves to --nvme while the device computes. "
    "--ranks N trains with N data-parallel ranks, on CPUs or with a GPU each; --zero-stage says what they shard.";
constexpr std::string_view kFindsItsPlace =
    "The planner moves what does not fit --device-memory to --nvme DIR by itself; --parameter-tier and --optimizer-tier force "
    "where weights and optimizer states rest.";
constexpr std::string_view kShapeOfTheModel =
    "The shape of a model is that of its config.json: --model takes a Hugging Face directory, a config.json, or a name of the "
    "catalogue.";
constexpr std::string_view kNothingToTune = "There is nothing to set: leave it out.";

// If trainers disagree about a name's meaning, the answer says what our flag counts.
constexpr ForeignFlags kTable[] = {
    // Size of a step.
    {"per-device-train-batch-size per-gpu-train-batch-size train-micro-batch-size-per-gpu micro-batch device-batch-size",
     "--micro-batch-size", "It counts the sequences that go through the model at once, on one rank."},
    {"gradient-accumulation-steps grad-accum-steps accumulate-grad-batches gradient-accumulation", "--global-batch-size",
     kSequencesOfAStep},
    {"batch-size batch -b", "--micro-batch-size --global-batch-size",
     "--micro-batch-size counts the sequences that go through the model at once on a rank; --global-batch-size counts those of "
     "a step over all micro-batches: micro x accumulation x ranks."},
    {"train-batch-size global-batch effective-batch-size", "--global-batch-size", kSequencesOfAStep},
    {"total-batch-size total-batch-size-tokens -d", "--global-batch-size",
     "It counts sequences, not tokens: tokens of a step / --seq-length."},
    {"per-device-eval-batch-size per-gpu-eval-batch-size eval-batch-size eval-micro-batch-size eval-accumulation-steps",
     "--micro-batch-size", "Evaluation takes micro-batches of the size that training takes."},
    {"rampup-batch-size auto-find-batch-size", "--micro-batch-size --global-batch-size",
     "All steps have one size; spillway plan says before anything runs whether it fits."},
    {"block-size max-seq-length max-seq-len max-length max-sequence-length sequence-length seq-len sequence-len model-max-length "
     "context-length cutoff-len encoder-seq-length decoder-seq-length -t",
     "--seq-length", "It counts the positions trained of a sequence; text is cut into windows of one token more."},
    {"max-steps max-train-steps num-iterations num-steps num-train-steps total-num-steps max-iters iters steps -x",
     "--train-iters", "It counts optimizer steps, of --global-batch-size sequences each."},
    {"num-train-epochs num-epochs train-epochs", "--epochs", "A fraction of an epoch is allowed, too."},
    {"train-samples", "--train-iters", "Steps, not samples: samples / --global-batch-size."},

    // Learning rate.
    {"learning-rate base-lr max-lr -l", "--lr", "The rate after warm-up."},
    {"lr-scheduler-type lr-scheduler lr-scheduler-kwargs lr-schedule scheduler -k", "--lr-decay-style",
     "constant, linear, cosine or wsd; warm-up is --lr-warmup-iters, the end of the decay --lr-decay-iters, its rate --min-lr."},
    {"warmup-steps warmup-iters num-warmup-steps warmup-num-steps warmup -u", "--lr-warmup-iters", "In steps."},
    {"warmup-ratio warmup-fraction", "--lr-warmup-fraction", ""},
    {"lr-warmup-samples", "--lr-warmup-iters", "In steps: samples / --global-batch-size."},
    {"lr-decay-samples", "--lr-decay-iters", "In steps: samples / --global-batch-size."},
    {"lr-wsd-decay-samples", "--lr-wsd-decay-iters", "In steps: samples / --global-batch-size."},
    {"lr-wsd-decay-style", "--lr-decay-style", "wsd decays linearly, over its last --lr-wsd-decay-iters."},
    {"learning-rate-decay-frac final-learning-rate-frac -q", "--min-lr", "A rate, not a fraction: the fraction x --lr."},
    {"warmup-min-lr warmup-min-ratio", "--lr-warmup-init", "A rate, not a share of --lr."},
    {"warmup-type", "--lr-warmup-style", "log goes with --lr-rule deepspeed."},
    {"warmup-max-lr decay-lr cos-min-ratio", "--lr --min-lr --lr-decay-style",
     "--lr is the rate after warm-up, --min-lr the one at the end of the decay; constant is without decay."},

    // Optimizer.
    {"adam-epsilon epsilon", "--adam-eps", ""},
    {"beta1 betas adam-betas", "--adam-beta1 --adam-beta2", ""},
    {"beta2", "--adam-beta2", ""},
    {"max-grad-norm grad-clip gradient-clipping gradient-clip-val clip-grad-norm max-norm", "--clip-grad",
     "The largest norm of the whole gradient; 0 switches clipping off."},
    {"-sl -sg loss-spike-threshold", "--clip-grad", "No step is left out for an unusual loss or norm; gradients are clipped."},
    {"optim optimizer-type optimizer-name optim-args optim-target-modules adafactor torch-adam adam-w-mode sgd-momentum "
     "fused-adam",
     "--optimizer --state", "adamw is the one there is; --state compact stores its moments in 2 bytes each."},
    {"start-weight-decay end-weight-decay weight-decay-incr-style wd -c", "--weight-decay",
     "One value, on parameters of two or more dimensions."},
    {"label-smoothing-factor neftune-noise-alpha attention-dropout hidden-dropout dropout", "",
     "Training is without dropout and noise, by plain cross-entropy: leave it out."},

    // Precision.
    {"bf16 bfloat16 bf-16", "--dtype", "--dtype bf16 is the default, with fp32 master weights: there is nothing to give."},
    {"fp16 fp16-opt-level fp16-backend half-precision-backend fp16-full-eval half amp", "--dtype",
     "--dtype fp16, on --device cuda, with a loss scale; bf16 (the default) and fp32 need none."},
    {"fp32 no-mixed-precision mixed-precision torch-dtype precision params-dtype bf16-full-eval", "--dtype",
     "bf16 (the default) or fp32, for training and evaluation alike."},
    {"tf32 allow-tf32 enable-tf32 tensorcores -f", "--dtype", "bf16 (the default) or fp32, which is whole."},
    {"-w keep-fp32-master bf16-master-weights-and-grads bf16-optimizer-states main-params-dtype exp-avg-dtype "
     "exp-avg-sq-dtype main-grads-dtype use-precision-aware-optimizer",
     "--state", "exact keeps fp32 master weights and moments in 12 bytes a parameter, compact takes 8."},
    {"fp8 fp8-format load-in-8bit load-in-4bit quantization-config use-qlora", "--dtype --state",
     "bf16 or fp32; weights are not quantised. --state compact takes 8 bytes a parameter."},
    {"grad-scaling static-loss-scale", "--loss-scale", "Of --dtype fp16: a power of two, or dynamic."},
    {"initial-scale-power", "--initial-loss-scale", "The scale itself, not its power: 65536 for 16."},

    // Memory.
    {"gradient-checkpointing gradient-checkpointing-kwargs recompute-activations recompute-granularity recompute-method "
     "recompute-num-layers recompute-modules activation-checkpointing checkpoint-activations cpu-checkpointing "
     "partition-activations -r",
     "--activation-tier",
     "The planner chooses for each unit whether its activations are kept, computed again or moved; recompute forces that."},
    {"cpu-offload offload offload-optimizer offload-param offload-optimizer-device offload-param-device cpu-offload-param "
     "cpu-offloading cpu-offloading-num-layers optimizer-cpu-offload optimizer-offload-fraction offload-state-dict",
     "--device-memory --nvme --parameter-tier --optimizer-tier", kFindsItsPlace},
    {"nvme-path offload-folder swap-folder swap-dir offload-optimizer-nvme-path offload-param-nvme-path", "--nvme",
     "A directory on a drive; repeat it to stripe over several."},
    {"max-memory gpu-memory memory-limit", "--device-memory --nvme", "A size: bytes, or with KiB, MiB, GiB or TiB."},
    {"aio pin-memory buffer-count buffer-size max-in-cpu sub-group-size reduce-bucket-size allgather-bucket-size overlap-comm "
     "contiguous-gradients reduce-scatter allgather-partitions round-robin-gradients stage3-prefetch-bucket-size "
     "stage3-param-persistence-threshold stage3-model-persistence-threshold stage3-max-live-parameters "
     "stage3-max-reuse-distance stage3-gather-16bit-weights-on-model-save overlap-grad-reduce overlap-param-gather "
     "ddp-bucket-size ddp-bucket-cap-mb pipeline-read pipeline-write empty-cache torch-empty-cache-steps "
     "accumulate-allreduce-grads-in-fp32 communication-data-type prescale-gradients gradient-accumulation-dtype",
     "", "The plan sizes buffers and places every byte itself (spillway plan shows it); gradients are summed in fp32."},

    // Ranks.
    {"zero-optimization zero stage fsdp fsdp-config use-distributed-optimizer "
     "data-parallel-sharding-strategy use-torch-fsdp2 use-megatron-fsdp -z",
     "--zero-stage", "auto or 0 to 3, over --ranks."},
    {"zero-hpz-partition-size", "--zero-group-size", "Ranks that share one copy."},
    {"deepspeed deepspeed-config-file", "--deepspeed-config",
     "It reads DeepSpeed's JSON; flags fill what that leaves to \"auto\"."},
    {"deepspeed-transformer-kernel", "", kNothingToTune},
    {"tensor-model-parallel-size pipeline-model-parallel-size context-parallel-size expert-model-parallel-size "
     "expert-tensor-parallel-size expert-parallel-size num-layers-per-virtual-pipeline-stage sequence-parallel "
     "tensor-parallel-size "
     "pipeline-parallel-size tp-size pp-size tp pp autotp-size",
     "--device-memory --nvme --ranks", kOneDevice},
    {"num-gpus num-nodes nnodes nproc-per-node num-processes world-size rank local-rank master-addr master-port hostfile "
     "rdzv-endpoint rdzv-backend node-rank gpus-per-node -pn -pr -pg",
     "--ranks",
     "--ranks N starts N ranks on this host, as threads of one process. torchrun, mpirun and srun start them as processes, on "
     "several hosts, too: their own flags stand before the program, and --ranks is left out."},
    {"distributed-backend ddp-backend dist-backend nccl-init-method -pm -ps -pf", "--collectives",
     "Processes that a launcher starts talk over tcp, by mpi or by nccl; threads need nothing. auto (the default) chooses."},
    {"distributed-timeout-minutes ddp-timeout", "--rendezvous-timeout", "How long ranks wait for each other, in seconds."},

    // Data.
    {"train-file train-data train-data-path train-data-file data-path data-dir dataset dataset-name dataset-path dataset-dir "
     "train-dataset train-bin input-bin mock-data dataset-config-name -i",
     "--data", kInFiles},
    {"validation-file valid-data-path val-data validation-data test-file test-data-path eval-dataset eval-file input-val-bin "
     "val-bin -j",
     "--eval-data", kInFiles},
    {"split validation-split-percentage val-split val-size val-set-size test-size", "--eval-split",
     "A share (0.05) or a number (200) of the rows of --data, held back by --seed."},
    {"dataset-text-field text-column messages-column prompt-column response-column field-messages", "--data-columns",
     "Our key, then the name that it has: text=body, or messages=chat,role=from,content=value."},
    {"tokenizer-name tokenizer-name-or-path tokenizer-path tokenizer-type tokenizer-model vocab-file merge-file", "--tokenizer",
     "A tokenizer.json, a directory that has one, or bytes; the model's own where it is left out."},
    {"dataloader-drop-last", "--drop-last", ""},
    {"shuffle no-shuffle shuffle-dataset dataloader-type group-by-length", "--data-order", "shuffled (by --seed) or sequential."},
    {"dataloader-num-workers dataloader-prefetch-factor dataloader-pin-memory num-workers preprocessing-num-workers streaming "
     "remove-unused-columns keep-linebreaks overwrite-cache num-dataset-workers",
     "", "Files are read where they are needed, beside the training: leave it out."},
    {"max-train-samples overfit-single-batch -a", "--train-iters --data-order",
     "Training takes --train-iters x --global-batch-size sequences; with --data-order sequential the first ones of the data."},
    {"max-eval-samples eval-iters val-max-steps val-max-batches -m", "--eval-data",
     "An evaluation passes over all of it once: give fewer data."},
    {"completion-only-loss assistant-only-loss train-on-inputs train-on-prompt mask-prompt only-target", "--train-on",
     "assistant (the default), last or all; labels of -100 in rows of input_ids leave positions out, too."},
    {"reset-position-ids reset-attention-mask eod-mask-loss neat-packing sample-packing pack-sequences", "--packing",
     "Rows of JSONL lie together as documents that do not see each other; text is cut into windows across documents."},

    // Model.
    {"model-name-or-path model-name pretrained-model-name-or-path model-path base-model model-id config-name init-from "
     "load-from-hf -e",
     "--model", "A Hugging Face directory, a config.json, or a name of the catalogue (a shape; weights are drawn from --seed)."},
    {"num-layers n-layer hidden-size n-embd num-attention-heads n-head ffn-hidden-size max-position-embeddings num-query-groups "
     "group-query-attention kv-channels vocab-size padded-vocab-size model-type config-overrides normalization swiglu "
     "rotary-base position-embedding-type disable-bias-linear untie-embeddings-and-output-weights num-experts "
     "init-method-std make-vocab-size-divisible-by",
     "--model", kShapeOfTheModel},
    {"moe-aux-loss-coeff aux-loss-coef", "--router-aux-loss-coef", "Of all layers together, as Hugging Face has it."},
    {"moe-z-loss-coeff", "--router-z-loss-coef", "The mean over all rows of all layers."},
    {"moe-router-load-balancing-type moe-router-topk moe-grouped-gemm moe-token-dispatcher-type moe-permute-fusion "
     "moe-expert-capacity-factor moe-pad-expert-input-to-capacity output-router-logits",
     "--model", "config.json says how a mixture routes its rows; no row is ever dropped."},
    {"use-peft lora-r lora-target-modules target-modules finetuning-type peft-type", "--lora-rank --lora-alpha --lora-targets",
     "--lora-rank N trains adapters on a frozen model; --adapter DIR goes on with one."},
    {"torch-compile torch-compile-backend torchdynamo compile flash use-flash-attn attn-implementation use-liger-kernel "
     "transformer-impl use-mcore-models no-gradient-accumulation-fusion jit-mode-eval use-ipex -ge manual-gc",
     "", kNothingToTune},
    {"trust-remote-code low-cpu-mem-usage use-auth-token token cache-dir hub-model-id hub-token model-revision", "",
     "Nothing is downloaded and no code of a model is run: --model takes a directory that is here."},

    // The run directory.
    {"output-dir out-dir save-dir save-path output-path checkpoint-dir checkpoint-path run-name -o", "--save",
     "The run directory: run.json, plan.json, log.jsonl, checkpoints. spillway export makes a Hugging Face directory of it."},
    {"save-steps save-every save-freq save-strategy checkpoint-interval checkpointing-steps -n", "--save-interval",
     "In steps; 0: at the end only."},
    {"save-total-limit keep-checkpoints max-checkpoints save-retain-interval save-top-k -nk -nm", "--keep-last",
     "How many of the newest are kept; 0: all."},
    {"resume-from-checkpoint resume-from resume load-checkpoint resume-path auto-resume -y", "--load",
     "The run directory, as --save made it; training goes on with its last state, bit for bit."},
    {"overwrite-output-dir finetune no-load-optim no-load-rng", "--save --load",
     "A new run takes a directory of its own by --save; --load goes on with a run. To begin with a run's weights alone, "
     "spillway export it and give that directory to --model."},
    {"save-safetensors save-only-model push-to-hub no-save-optim ckpt-format save-on-each-node", "--save",
     "Checkpoints have all that a run needs to go on; spillway export writes the weights as safetensors."},
    {"load-best-model-at-end metric-for-best-model greater-is-better", "--keep-best",
     "It keeps the checkpoint of the lowest eval_loss, which eval, generate and export take with --step best."},
    {"early-stopping", "--early-stopping-patience", "It counts evaluations in a row without gain."},
    {"exit-interval exit-duration-in-mins", "--train-iters", "Ctrl-C saves first; --load goes on."},

    // Output: evaluation, logs, curves.
    {"eval-steps eval-every eval-freq val-loss-every val-check-interval eval-strategy evaluation-strategy eval-delay do-eval -v",
     "--eval-interval", "In steps, with --eval-data."},
    {"logging-steps log-every log-steps logging-strategy logging-first-step print-freq steps-per-print wall-clock-breakdown",
     "--log-interval", "In steps; log.jsonl has every step."},
    {"logging-dir tensorboard-dir tensorboard-log-dir report-to wandb-project wandb wandb-name use-wandb csv-monitor "
     "tensorboard-log-interval",
     "--tensorboard --csv", "Event files for TensorBoard, a table of all that log.jsonl has."},
    {"sample-every generate-every -s", "--sample-interval", "In steps, with --sample-prompt TEXT."},
    {"-g", "--sample-tokens", ""},
    {"do-train do-predict", "", "Commands do that: spillway train, spillway eval, spillway generate."},
    {"disable-tqdm log-level log-throughput skip-memory-metrics -lg include-num-input-tokens-seen", "--log-interval",
     "A terminal gets one live line, a file plain ones; log.jsonl has loss, speed and memory of every step."},
    {"random-seed data-seed manual-seed", "--seed", "One seed, of drawn weights, data order and rounding."},
    {"full-determinism deterministic deterministic-mode cudnn-deterministic", "",
     "Every run is deterministic, whatever the plan: leave it out."},
    {"no-cuda use-cpu use-mps-device gpu gpus accelerator", "--device", ""},
};

}  // namespace

std::span<const ForeignFlags> foreign_flags() { return kTable; }

const ForeignFlags* find_foreign_flag(std::string_view name) {
  const std::string dashed = with_dashes(name);
  const auto* found = std::ranges::find_if(kTable, [&](const ForeignFlags& row) { return has_word(row.names, dashed); });
  return found == std::end(kTable) ? nullptr : found;
}

}  // namespace spillway
