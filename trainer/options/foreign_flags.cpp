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
     "context-length cutoff-len eval-sequence-len max-packed-sequence-len encoder-seq-length decoder-seq-length -t",
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
    {"learning-rate-decay-frac final-learning-rate-frac cosine-min-lr-ratio -q", "--min-lr",
     "A rate, not a fraction: the fraction x --lr."},
    {"eta-min", "--min-lr", ""},
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
    {"-sl -sg loss-spike-threshold loss-watchdog-*", "--clip-grad",
     "No step is left out for an unusual loss or norm; gradients are clipped."},
    {"optim optimizer-type optimizer-name optim-args optim-target-modules adafactor torch-adam adam-w-mode sgd-momentum "
     "fused-adam use-adam-mini use-muon use-galore galore-* use-apollo apollo-* use-badam badam-* qgalore-* dion-* adam-epsilon2 "
     "adam-beta3 torchdistx-path",
     "--optimizer --state", "adamw is the one there is; --state compact stores its moments in 2 bytes each."},
    {"start-weight-decay end-weight-decay weight-decay-incr-style wd -c", "--weight-decay",
     "One value, on parameters of two or more dimensions."},
    {"embedding-lr embedding-lr-scale lr-groups lr-div-factor lr-quadratic-warmup cosine-constant-lr-ratio jagged-restart-*",
     "--lr --lr-decay-style", "One rate for all weights, warmed up linearly, then by --lr-decay-style."},
    {"label-smoothing-factor neftune-noise-alpha noisy-embedding-alpha attention-dropout hidden-dropout dropout", "",
     "Training is without dropout and noise, by plain cross-entropy: leave it out."},

    // Precision.
    {"bf16 bfloat16 bf-16", "--dtype", "--dtype bf16 is the default, with fp32 master weights: there is nothing to give."},
    {"fp16 fp16-opt-level fp16-backend half-precision-backend fp16-full-eval float16 half amp", "--dtype",
     "--dtype fp16, on --device cuda, with a loss scale; bf16 (the default) and fp32 need none."},
    {"fp32 float32 pure-bf16 no-mixed-precision mixed-precision torch-dtype compute-dtype precision params-dtype bf16-full-eval "
     "upcast-layernorm upcast-lmhead-output fp32-norms fp32-norm-classes",
     "--dtype", "bf16 (the default) or fp32, for training and evaluation alike."},
    {"tf32 allow-tf32 enable-tf32 tensorcores -f", "--dtype", "bf16 (the default) or fp32, which is whole."},
    {"-w keep-fp32-master bf16-master-weights-and-grads bf16-optimizer-states main-params-dtype exp-avg-dtype "
     "exp-avg-sq-dtype main-grads-dtype use-precision-aware-optimizer",
     "--state", "exact keeps fp32 master weights and moments in 12 bytes a parameter, compact takes 8."},
    {"fp8 fp8-* load-in-8bit load-in-4bit quantization quantization-* double-quantization quantize-moe-experts qat use-qlora "
     "quant-config gptq gptq-* qlora-sharded-model-loading bnb-config-kwargs model-quantization-config "
     "model-quantization-config-kwargs",
     "--dtype --state", "bf16 or fp32; weights are not quantised. --state compact takes 8 bytes a parameter."},
    {"grad-scaling static-loss-scale", "--loss-scale", "Of --dtype fp16: a power of two, or dynamic."},
    {"initial-scale-power", "--initial-loss-scale", "The scale itself, not its power: 65536 for 16."},

    // Memory.
    {"gradient-checkpointing gradient-checkpointing-kwargs recompute-activations recompute-granularity recompute-method "
     "recompute-num-layers recompute-modules activation-checkpointing checkpoint-activations cpu-checkpointing "
     "partition-activations activation-checkpointing-kwargs selective-checkpointing disable-gradient-checkpointing "
     "use-reentrant-gc use-unsloth-gc activation-offloading -r",
     "--activation-tier",
     "The planner chooses for each unit whether its activations are kept, computed again or moved; recompute forces that."},
    {"cpu-offload offload offload-optimizer offload-param offload-optimizer-device offload-param-device cpu-offload-param "
     "cpu-offloading cpu-offloading-num-layers optimizer-cpu-offload optimizer-offload-fraction offload-state-dict "
     "layer-offloading lora-on-cpu relora-cpu-offload device-map",
     "--device-memory --nvme --parameter-tier --optimizer-tier", kFindsItsPlace},
    {"nvme-path offload-folder swap-folder swap-dir offload-optimizer-nvme-path offload-param-nvme-path", "--nvme",
     "A directory on a drive; repeat it to stripe over several."},
    {"max-memory gpu-memory gpu-memory-limit memory-limit", "--device-memory --nvme",
     "A size: bytes, or with KiB, MiB, GiB or TiB."},
    {"aio pin-memory buffer-count buffer-size max-in-cpu sub-group-size reduce-bucket-size allgather-bucket-size overlap-comm "
     "contiguous-gradients reduce-scatter allgather-partitions round-robin-gradients stage3-prefetch-bucket-size "
     "stage3-param-persistence-threshold stage3-model-persistence-threshold stage3-max-live-parameters "
     "stage3-max-reuse-distance stage3-gather-16bit-weights-on-model-save overlap-grad-reduce overlap-param-gather "
     "ddp-bucket-size ddp-bucket-cap-mb ddp-broadcast-buffers ddp-find-unused-parameters ddp-static-graph pipeline-read "
     "pipeline-write empty-cache torch-empty-cache-steps gc-steps gc-collect-steps "
     "accumulate-allreduce-grads-in-fp32 communication-data-type prescale-gradients gradient-accumulation-dtype",
     "", "The plan sizes buffers and places every byte itself (spillway plan shows it); gradients are summed in fp32."},

    // Ranks.
    {"zero-optimization zero fsdp fsdp-* use-distributed-optimizer dp-shard-size "
     "data-parallel-sharding-strategy use-torch-fsdp2 use-megatron-fsdp -z",
     "--zero-stage", "auto or 0 to 3, over --ranks."},
    {"stage", "--zero-stage",
     "As DeepSpeed has it: auto or 0 to 3, over --ranks. LLaMA-Factory's stage is left out: rows say what is trained."},
    {"zero-hpz-partition-size dp-replicate-size", "--zero-group-size", "Ranks that share one copy."},
    {"deepspeed deepspeed-config-file", "--deepspeed-config",
     "It reads DeepSpeed's JSON; flags fill what that leaves to \"auto\"."},
    {"deepspeed-transformer-kernel", "", kNothingToTune},
    {"tensor-model-parallel-size pipeline-model-parallel-size context-parallel-size expert-model-parallel-size "
     "expert-tensor-parallel-size expert-parallel-size num-layers-per-virtual-pipeline-stage sequence-parallel "
     "tensor-parallel-size "
     "pipeline-parallel-size tp-size pp-size tp pp autotp-size sequence-parallel-degree parallelism-config use-mca "
     "use-megatron-bridge megatron-bridge-args use-hyper-parallel hyper-parallel-*",
     "--device-memory --nvme --ranks", kOneDevice},
    {"num-gpus num-nodes nnodes nproc-per-node num-processes world-size rank local-rank master-addr master-port hostfile "
     "rdzv-endpoint rdzv-backend node-rank gpus-per-node ddp use-ray ray-* resources-per-worker accelerator-config dist-config "
     "num-machines machine-rank same-network compute-environment distributed-type main-training-function -pn -pr -pg",
     "--ranks",
     "--ranks N starts N ranks on this host, as threads of one process. torchrun, mpirun and srun start them as processes, on "
     "several hosts, too: their own flags stand before the program, and --ranks is left out."},
    {"distributed-backend ddp-backend dist-backend nccl-init-method -pm -ps -pf", "--collectives",
     "Processes that a launcher starts talk over tcp, by mpi or by nccl; threads need nothing. auto (the default) chooses."},
    {"distributed-timeout-minutes ddp-timeout", "--rendezvous-timeout", "How long ranks wait for each other, in seconds."},

    // Data.
    {"train-file train-data train-data-path train-data-file data-path data-dir dataset dataset-name dataset-path dataset-dir "
     "train-dataset train-bin input-bin mock-data dataset-config-name datasets pretraining-dataset -i",
     "--data", kInFiles},
    {"validation-file valid-data-path val-data validation-data test-file test-data-path eval-dataset eval-file test-datasets "
     "input-val-bin val-bin -j",
     "--eval-data", kInFiles},
    {"split validation-split-percentage val-split val-size val-set-size test-size", "--eval-split",
     "A share (0.05) or a number (200) of the rows of --data, held back by --seed."},
    {"dataset-text-field text-column messages-column prompt-column response-column field-messages", "--data-columns",
     "Our key, then the name that it has: text=body, or messages=chat,role=from,content=value."},
    {"tokenizer-name tokenizer-name-or-path tokenizer-path tokenizer-type tokenizer-model vocab-file merge-file", "--tokenizer",
     "A tokenizer.json, a directory that has one, or bytes; the model's own where it is left out."},
    {"dataloader-drop-last", "--drop-last", ""},
    {"shuffle no-shuffle shuffle-dataset shuffle-merged-datasets shuffle-before-merging-datasets disable-shuffling "
     "dataloader-type "
     "group-by-length train-sampling-strategy length-column-name curriculum-sampling",
     "--data-order", "shuffled (by --seed) or sequential."},
    {"excess-length-strategy", "--truncate --split-rows", "Rows that are too long are refused, cut, or with --packing go on."},
    {"min-sample-len max-prompt-len dataset-exact-deduplication dataset-shard-num dataset-shard-idx mix-strategy "
     "interleave-probs use-pose pose-*",
     "--data", "All rows are taken, each as it is, once an epoch: choose and mix them in the files."},
    {"dataloader-num-workers dataloader-prefetch-factor dataloader-pin-memory num-workers preprocessing-num-workers streaming "
     "remove-unused-columns keep-linebreaks overwrite-cache num-dataset-workers streaming-multipack-buffer-size "
     "dataloader-persistent-workers dataloader-multiprocessing-context dataloader-in-order preprocessing-batch-size "
     "preprocess-iterable dataset-prepared-path dataset-processes dataset-num-proc dataset-keep-in-memory skip-prepare-dataset "
     "num-dataset-shards-to-save push-dataset-to-hub tokenized-path data-shared-file-system total-num-tokens "
     "total-supervised-tokens ignore-data-skip",
     "", "Files are read where they are needed, beside the training: leave it out."},
    {"max-train-samples max-samples overfit-single-batch -a", "--train-iters --data-order",
     "Training takes --train-iters x --global-batch-size sequences; with --data-order sequential the first ones of the data."},
    {"max-eval-samples eval-iters val-max-steps val-max-batches eval-on-each-dataset prediction-loss-only eval-do-* eval-use-* "
     "include-for-metrics batch-eval-metrics do-bench-eval bench-dataset bench-split do-causal-lm-eval eval-causal-lm-metrics "
     "compute-accuracy eval-table-size -m",
     "--eval-data", "An evaluation passes over all of it once: give fewer data."},
    {"completion-only-loss assistant-only-loss train-on-inputs train-on-prompt mask-prompt mask-history only-target",
     "--train-on", "assistant (the default), last or all; labels of -100 in rows of input_ids leave positions out, too."},
    {"reset-position-ids reset-attention-mask eod-mask-loss neat-packing sample-packing sample-packing-* eval-sample-packing "
     "pack-sequences pad-to-sequence-len pad-to-multiple-of multipack-* batch-flattening pretrain-multipack-* "
     "pretraining-sample-concatenation",
     "--packing",
     "Rows of JSONL lie together as documents that do not see each other; text is cut into windows across documents."},

    // Model.
    {"model-name-or-path model-name pretrained-model-name-or-path model-path base-model model-id config-name init-from "
     "load-from-hf -e",
     "--model", "A Hugging Face directory, a config.json, or a name of the catalogue (a shape; weights are drawn from --seed)."},
    {"num-layers n-layer hidden-size n-embd num-attention-heads n-head ffn-hidden-size max-position-embeddings num-query-groups "
     "group-query-attention kv-channels vocab-size padded-vocab-size model-type config-overrides normalization swiglu "
     "rotary-base position-embedding-type disable-bias-linear untie-embeddings-and-output-weights num-experts "
     "init-method-std make-vocab-size-divisible-by rope-scaling overrides-of-model-config model-config model-kwargs "
     "overrides-of-model-kwargs type-of-model base-model-config cls-model-config",
     "--model", kShapeOfTheModel},
    {"train-from-scratch", "--init", "random draws the weights from --seed."},
    {"moe-aux-loss-coeff moe-aux-loss-coef aux-loss-coef", "--router-aux-loss-coef",
     "Of all layers together, as Hugging Face has it."},
    {"moe-z-loss-coeff", "--router-z-loss-coef", "The mean over all rows of all layers."},
    {"moe-router-load-balancing-type moe-router-topk moe-grouped-gemm moe-token-dispatcher-type moe-permute-fusion "
     "moe-expert-capacity-factor moe-pad-expert-input-to-capacity output-router-logits",
     "--model", "config.json says how a mixture routes its rows; no row is ever dropped."},
    {"lora-r", "--lora-rank", ""},
    {"use-peft finetuning-type peft-type", "--lora-rank --lora-alpha --lora-targets",
     "--lora-rank N trains adapters on a frozen model; --adapter DIR goes on with one."},
    {"lora-target-modules target-modules lora-target lora-target-linear lora-target-parameters", "--lora-targets",
     "Names of layers or last parts of them, as q_proj v_proj; all-linear (the default) is every linear layer but the head."},
    {"lora-model-dir adapter-name-or-path adapter-folder create-new-adapter", "--adapter",
     "A directory as PEFT saves it; without it --lora-rank N begins a new one."},
    {"use-dora use-rslora pissa-* oft-* module-dropout loftq-* loraplus-* lora-modules-to-save additional-target "
     "lora-fan-in-fan-out lora-rank-pattern lora-alpha-pattern peft peft-* merge-lora merge-method block-diag-attn",
     "--lora-rank --lora-alpha --lora-dropout --lora-targets",
     "Adapters are plain LoRA of one rank on linear layers; export takes --merge."},
    {"freeze-trainable-layers freeze-trainable-modules freeze-extra-modules freeze-language-model unfrozen-parameters lisa-* "
     "use-llama-pro relora relora-* reinit-weights mixture-of-depths",
     "--lora-rank", "Either all weights are trained, or adapters (--lora-rank N) on a frozen model."},
    {"template chat-template chat-template-jinja chat-template-kwargs eot-tokens default-system default-system-message "
     "tool-format enable-thinking preserve-thinking role-boundaries roles-to-train train-on-eos",
     "--tokenizer", "Conversations go through the chat template of the tokenizer's directory."},
    {"special-tokens tokens added-tokens-overrides add-tokens add-special-tokens resize-vocab resize-token-embeddings-to-32x "
     "new-special-tokens-config init-special-tokens mean-resizing-embeddings shrink-embeddings embeddings-skip-upcast "
     "split-special-tokens fix-untrained-tokens tokenizer-use-fast tokenizer-legacy use-fast-tokenizer tokenizer-config "
     "tokenizer-use-mistral-common tokenizer-save-jinja-files",
     "--tokenizer", "Tokens are those of its tokenizer.json; a model's vocabulary stays as it is."},
    {"image-* video-* audio-* media-dir crop-to-patches use-audio-in-video freeze-vision-tower freeze-multi-modal-projector "
     "freeze-mm-modules processor-type processor-kwargs",
     "", "Of a model with more than text, the text half is trained and the rest is left alone: leave it out."},
    {"rl rl-* trl ebft dpo-* orpo-* simpo-* cpo-* kto-* rpo-* ppo-* pref-* ref-model ref-model-* reward-model reward-model-* "
     "process-reward-model center-rewards-coefficient precompute-ref-log-probs ld-alpha num-labels",
     "", "Training is on the next token; it has no preferences and no rewards."},
    {"use-dft-loss use-asft-loss asft-alpha use-eaft use-eaft-loss eaft-alpha eaft-k average-tokens-across-devices "
     "ignore-pad-token-for-loss",
     "", "The loss is the mean cross-entropy of all positions that have loss in a step, over all ranks: leave it out."},
    {"torch-compile torch-compile-* torchdynamo compile flash use-flash-attn flash-* attn-implementation use-liger-kernel "
     "liger-* transformer-impl use-mcore-models no-gradient-accumulation-fusion jit-mode-eval use-ipex -ge manual-gc "
     "xformers-attention sdp-attention sdpa-varlen flex-* sage-attention eager-attention s2-attention shift-attn ring-attn-func "
     "heads-k-stride large-head-attention fused-attn-kernel gemma4-hybrid-attn-impl experts-implementation lora-mlp-kernel "
     "lora-qkv-kernel lora-o-kernel lora-embedding-kernel chunked-cross-entropy chunked-cross-entropy-num-chunks tiled-mlp "
     "tiled-mlp-* use-unsloth enable-liger-kernel use-kernels use-v1-kernels use-onebitllms scaling-softmax scaling-softmax-* "
     "plugins use-kt kt-* llama4-linearized-experts use-cache deepcompile trainer-cls cut-cross-entropy use-scattermoe "
     "use-sonicmoe kernel-config model-class",
     "", kNothingToTune},
    {"strict debug axolotl-config-path is-falcon-derived-model is-llama-derived-model is-mistral-derived-model "
     "is-qwen-derived-model is-preprocess print-param-status label-names",
     "", kNothingToTune},
    {"trust-remote-code low-cpu-mem-usage use-auth-token hf-use-auth-token token cache-dir hub-* hf-hub-token ms-hub-token "
     "om-hub-token model-revision revision-of-model experimental-skip-move-to-device",
     "", "Nothing is downloaded and no code of a model is run: --model takes a directory that is here."},

    // The run directory.
    {"output-dir out-dir save-dir save-path output-path checkpoint-dir checkpoint-path run-name -o", "--save",
     "The run directory: run.json, plan.json, log.jsonl, checkpoints. spillway export makes a Hugging Face directory of it."},
    {"save-steps save-every save-freq save-strategy saves-per-epoch save-first-step dynamic-checkpoint checkpoint-interval "
     "checkpointing-steps -n",
     "--save-interval", "In steps; 0: at the end only."},
    {"save-total-limit keep-checkpoints max-checkpoints save-retain-interval save-top-k -nk -nm", "--keep-last",
     "How many of the newest are kept; 0: all."},
    {"resume-from-checkpoint resume-from resume load-checkpoint resume-path auto-resume "
     "auto-resume-from-checkpoints restore-callback-states-from-checkpoint -y",
     "--load", "The run directory, as --save made it; training goes on with its last state, bit for bit."},
    {"overwrite-output-dir finetune no-load-optim no-load-rng", "--save --load",
     "A new run takes a directory of its own by --save; --load goes on with a run. To begin with a run's weights alone, "
     "spillway export it and give that directory to --model."},
    {"save-safetensors save-only-model push-to-hub no-save-optim ckpt-format save-on-each-node enable-jit-checkpoint export-*",
     "--save", "Checkpoints have all that a run needs to go on; spillway export writes the weights as safetensors."},
    {"load-best-model-at-end metric-for-best-model greater-is-better", "--keep-best",
     "It keeps the checkpoint of the lowest eval_loss, which eval, generate and export take with --step best."},
    {"early-stopping early-stopping-steps", "--early-stopping-patience", "It counts evaluations in a row without gain."},
    {"exit-interval exit-duration-in-mins", "--train-iters", "Ctrl-C saves first; --load goes on."},

    // Output: evaluation, logs, curves.
    {"eval-steps eval-every eval-freq evals-per-epoch val-loss-every val-check-interval eval-strategy evaluation-strategy "
     "eval-delay eval-on-start do-eval -v",
     "--eval-interval", "In steps, with --eval-data."},
    {"logging-steps log-every log-steps logging-strategy logging-first-step print-freq steps-per-print wall-clock-breakdown",
     "--log-interval", "In steps; log.jsonl has every step."},
    {"logging-dir tensorboard-dir tensorboard-log-dir use-tensorboard report-to wandb wandb-* use-wandb csv-monitor "
     "tensorboard-log-interval use-mlflow mlflow-* hf-mlflow-log-artifacts use-comet comet-* use-trackio trackio-* use-swanlab "
     "swanlab-* use-otel-metrics otel-metrics-* plot-loss project",
     "--tensorboard --csv", "Event files for TensorBoard, a table of all that log.jsonl has."},
    {"sample-every generate-every -s", "--sample-interval", "In steps, with --sample-prompt TEXT."},
    {"-g", "--sample-tokens", ""},
    {"do-sample temperature top-p top-k num-beams max-new-tokens repetition-penalty length-penalty skip-special-tokens "
     "generate-samples num-generation-samples generation-* eval-max-new-tokens eval-num-beams predict-with-generate "
     "sample-backend infer-backend infer-dtype use-kv-cache vllm vllm-* sglang-* gradio-*",
     "--sample-interval --sample-prompt --sample-tokens",
     "Samples during training are greedy; spillway generate draws from a run or a model."},
    {"enable-torch-profiler profiler-* profile-modules", "",
     "log.jsonl has the times and bytes of every step, and spillway report draws them: leave it out."},
    {"do-train do-predict", "", "Commands do that: spillway train, spillway eval, spillway generate."},
    {"disable-tqdm log-level log-level-replica log-on-each-node log-throughput logging-nan-inf-filter skip-memory-metrics -lg "
     "include-num-input-tokens-seen include-tokens-per-second include-tkps include-effective-tokens-per-second",
     "--log-interval", "A terminal gets one live line, a file plain ones; log.jsonl has loss, speed and memory of every step."},
    {"random-seed data-seed manual-seed", "--seed", "One seed, of drawn weights, data order and rounding."},
    {"full-determinism deterministic deterministic-mode cudnn-deterministic", "",
     "Every run is deterministic, whatever the plan: leave it out."},
    {"no-cuda use-cpu use-mps-device gpu gpus accelerator", "--device", ""},
};

constexpr ForeignValues kValues[] = {
    {"adapter", "lora qlora llama-adapter", "--lora-rank",
     "--lora-rank N trains new adapters; --adapter goes on with one of a directory."},
    {"optimizer",
     "adamw_torch adamw_torch_fused adamw_torch_4bit adamw_torch_8bit adamw_hf adamw_apex_fused adamw_anyprecision "
     "adamw_bnb_8bit "
     "adamw_8bit paged_adamw paged_adamw_32bit paged_adamw_8bit ademamix_8bit adafactor sgd lion_8bit muon rmsprop",
     "--optimizer adamw", "adamw is the one there is, in fp32 (--state exact) or 8 bytes a parameter (--state compact)."},
};

// Returns true if one of the words, separated by blanks, is "beginning*" of this name.
bool has_beginning_of(std::string_view words, std::string_view name) {
  while (!words.empty()) {
    const std::size_t end = std::min(words.find(' '), words.size());
    const std::string_view word = words.substr(0, end);
    words.remove_prefix(std::min(end + 1, words.size()));
    if (word.ends_with('*') && name.starts_with(word.substr(0, word.size() - 1))) return true;
  }
  return false;
}

}  // namespace

std::span<const ForeignFlags> foreign_flags() { return kTable; }

std::span<const ForeignValues> foreign_values() { return kValues; }

const ForeignFlags* find_foreign_flag(std::string_view name) {
  const std::string dashed = with_dashes(name);
  for (const auto is_there : {has_word, has_beginning_of}) {
    const auto* found = std::ranges::find_if(kTable, [&](const ForeignFlags& row) { return is_there(row.names, dashed); });
    if (found != std::end(kTable)) return found;
  }
  return nullptr;
}

const ForeignValues* find_foreign_value(std::string_view name, std::string_view value) {
  const auto* found = std::ranges::find_if(
      kValues, [&](const ForeignValues& row) { return row.name == name && !value.empty() && has_word(row.values, value); });
  return found == std::end(kValues) ? nullptr : found;
}

}  // namespace spillway
