// The flags of what is trained: model, data, batch, optimizer, learning rate, precision.
#include "trainer/options/adapter_config.h"
#include "trainer/options/flag_rows.h"
#include "trainer/options/loss_scale.h"

namespace spillway {
namespace {

constexpr std::initializer_list<StateForm> kStates = {StateForm::exact, StateForm::compact};

json split_json(const EvalSplit& split) { return split.share > 0 ? json(split.share) : json(split.rows); }

void add_model(std::vector<Flag>& table) {
  const FlagRows add(table, "Model");
  add(
      "model", "PATH|NAME", F::text,
      "a Hugging Face directory, a config.json, a name from the built-in catalogue, or ORG/NAME[@REVISION] of Hugging Face's "
      "hub, "
      "if its cache has it; a directory's weights are read, others are drawn from --seed",
      SET { o.model.model = v.text(), o.model.hub.clear(); },
      GET { return text_json(o.model.hub.empty() ? o.model.model : o.model.hub); });
  add(
      "seed", "N", F::integer, "of drawn weights, data order and rounding", SET { o.model.seed = v.unsigned_integer(); },
      GET { return o.model.seed; });
  add(
      "init", names_of<WeightInit>("|"), F::text,
      "weights of a directory: its own, which must be there (checkpoint), or drawn from --seed (random)",
      SET { set_choice(o.model.init, v); }, GET { return choice_json(o.model.init); });
  constexpr double kMostCoefficient = 1e6;
  add(
      "router-aux-loss-coef", "R", F::real,
      "of a mixture of experts: factor of the loss that keeps its experts evenly used; 0: none (default: the model's own, where "
      "its config.json has output_router_logits)",
      SET { o.model.balance_coefficient = v.real(0, Bound::included, kMostCoefficient, Bound::included); },
      GET { return optional_json(o.model.balance_coefficient); });
  add(
      "router-z-loss-coef", "R", F::real, "of a mixture: factor of the mean square of its routers' log-sum-exp (default: none)",
      SET { o.model.router_z_coefficient = v.real(0, Bound::included, kMostCoefficient, Bound::included); },
      GET { return optional_json(o.model.router_z_coefficient); });
}

void add_adapter(std::vector<Flag>& table) {
  const FlagRows add(table, "Adapters (LoRA)");
  add(
      "lora-rank", "N", F::integer, "train adapters of this rank beside linear layers; the model itself is frozen",
      SET { o.adapter.rank = v.integer(1, kMostRank); }, GET { return positive_json(o.adapter.rank); });
  add(
      "lora-alpha", "R", F::real, "what adapters add has the factor alpha / rank (default: the rank)",
      SET { o.adapter.alpha = v.real(0, Bound::excluded, 1e9, Bound::included); },
      GET { return optional_json(o.adapter.alpha); });
  add(
      "lora-dropout", "R", F::real, "chance that adapters do not see an input in training (default: 0, or as --adapter has it)",
      SET { o.adapter.dropout = v.real(0, Bound::included, 1, Bound::excluded); },
      GET { return optional_json(o.adapter.dropout); });
  add(
      "lora-targets", "NAME", F::list,
      "layers that have adapters, by their names or last parts of them, as q_proj v_proj; all-linear: all but the head (default)",
      SET { o.adapter.targets = v.texts(); }, GET { return list_json(o.adapter.targets); });
  add(
      "adapter", "DIR", F::text, "an adapter as PEFT saves it, to go on with or to run", SET { o.adapter.directory = v.text(); },
      GET { return text_json(o.adapter.directory); });
}

void add_data(std::vector<Flag>& table) {
  const FlagRows add(table, "Data");
  add(
      "data", "PATH", F::list,
      "files or directories: .txt, .bin (token files), .jsonl, .ndjson, .json, whose rows have text, messages, conversations, "
      "instruction and output, prompt and completion, or input_ids; each also as .gz or .zst; - for standard input",
      SET { o.data.data = v.texts(); }, GET { return list_json(o.data.data); });
  add(
      "eval-data", "PATH", F::list, "the same, to evaluate on", SET { o.data.eval_data = v.texts(); },
      GET { return list_json(o.data.eval_data); });
  add(
      "eval-split", "R|N", F::real,
      "hold back rows of --data for evaluation, a share or a number of them, by --seed: they are never trained on",
      SET { o.data.eval_split = eval_split_in(v); },
      GET { return o.data.eval_split ? split_json(*o.data.eval_split) : json(nullptr); });
  add(
      "data-columns", "K=V,...", F::text,
      "names that keys have in the files: messages=chat,role=from reads \"chat\" as messages and \"from\" as their role",
      SET { o.data.columns = DataColumns(v); }, GET { return text_json(o.data.columns.text()); });
  add(
      "tokenizer", "PATH|bytes", F::text, "of text; bytes: one token a byte (default: the model's own)",
      SET { o.data.tokenizer = v.text(); }, GET { return text_json(o.data.tokenizer); });
  add(
      "data-format", names_of<DataFormat>("|"), F::text, "of .bin files: auto reads the header of llm.c, u16 is raw",
      SET { set_choice(o.data.format, v); }, GET { return choice_json(o.data.format); });
  add(
      "data-order", names_of<DataOrder>("|"), F::text, "shuffled: by --seed, a new permutation each epoch",
      SET { set_choice(o.data.order, v); }, GET { return choice_json(o.data.order); });
  add(
      "truncate", "", F::boolean, "cut JSONL rows longer than the sequence rather than refuse them",
      SET { o.data.truncate = v.text() == "true"; }, GET { return o.data.truncate; });
  add(
      "packing", "", F::boolean,
      "put JSONL rows together in sequences, as documents that do not see each other, rather than pad each to a sequence",
      SET { o.data.packing = v.text() == "true"; }, GET { return o.data.packing; });
  add(
      "split-rows", "", F::boolean, "with --packing: rows longer than the sequence go on in another, as a new document",
      SET { o.data.split_rows = v.text() == "true"; }, GET { return o.data.split_rows; });
  add(
      "skip-bad-lines", "", F::boolean, "leave out rows of JSONL that are not right, and count them",
      SET { o.data.skip_bad_lines = v.text() == "true"; }, GET { return o.data.skip_bad_lines; });
  add(
      "drop-last", "", F::boolean,
      "leave out the last sequences of an epoch where they do not fill a step (else the next epoch does)",
      SET { o.data.drop_last = v.text() == "true"; }, GET { return o.data.drop_last; });
  add(
      "train-on", names_of<TrainOn>("|"), F::text,
      "what has loss in a conversation: the assistant's turns, the last of them, or every token; of a prompt and its completion, "
      "the completion or every token",
      SET { set_choice(o.data.train_on, v); }, GET { return choice_json(o.data.train_on); });
  add(
      "text-ends", names_of<TextEnds>("|"), F::text,
      "auto, both: rows of text begin with the tokenizer's leading tokens and end with its end token, where it has them",
      SET { set_choice(o.data.text_ends, v); }, GET { return choice_json(o.data.text_ends); });
  add(
      "template-date", "YYYY-MM-DD", F::text,
      "the date that chat templates write (default: today's; a loaded run keeps that of its beginning)",
      SET { o.data.template_date = v.text(); }, GET { return text_json(o.data.template_date); });
}

void add_batch(std::vector<Flag>& table) {
  const FlagRows add(table, "Batch");
  add(
      "micro-batch-size", "N", F::integer, "sequences of a micro-batch on a rank",
      SET { o.batch.micro_batch_size = v.integer(1, kMostSequences); }, GET { return o.batch.micro_batch_size; });
  add(
      "global-batch-size", "N", F::integer, "sequences of a step over all ranks (default: one micro-batch a rank)",
      SET { o.batch.global_batch_size = v.integer(1, kMostSequences); },
      GET { return positive_json(o.batch.global_batch_size); });
  add(
      "seq-length", "N", F::integer, "tokens trained of a sequence (default: the model's longest, at most 1024)",
      SET { o.batch.seq_length = v.integer(1, kMostSequences); }, GET { return positive_json(o.batch.seq_length); });
  add(
      "train-iters", "N", F::integer, "steps", SET { o.batch.train_iters = steps(v, 1); },
      GET { return o.batch.epochs ? json(nullptr) : json(o.batch.train_iters); });
  add(
      "epochs", "R", F::real, "in place of --train-iters: passes over --data, rounded up to whole steps",
      SET { o.batch.epochs = v.real(0, Bound::excluded, kInfinity, Bound::excluded); },
      GET { return optional_json(o.batch.epochs); });
}

void add_optimizer(std::vector<Flag>& table) {
  const FlagRows add(table, "Optimizer");
  add(
      "optimizer", names_of<OptimizerChoice>("|"), F::text, "", SET { set_choice(o.optimizer.optimizer, v); },
      GET { return choice_json(o.optimizer.optimizer); });
  add(
      "weight-decay", "R", F::real, "on parameters of two or more dimensions only",
      SET { o.optimizer.weight_decay = at_least_zero(v); }, GET { return o.optimizer.weight_decay; });
  add("adam-beta1", "R", F::real, "", SET { o.optimizer.adam_beta1 = below_one(v); }, GET { return o.optimizer.adam_beta1; });
  add("adam-beta2", "R", F::real, "", SET { o.optimizer.adam_beta2 = below_one(v); }, GET { return o.optimizer.adam_beta2; });
  add(
      "adam-eps", "R", F::real, "", SET { o.optimizer.adam_eps = v.real(0, Bound::excluded, kInfinity, Bound::excluded); },
      GET { return o.optimizer.adam_eps; });
  add(
      "clip-grad", "R", F::real, "largest norm of the whole gradient; 0: no clipping",
      SET { o.optimizer.clip_grad = at_least_zero(v); }, GET { return o.optimizer.clip_grad; });
  add(
      "expected-clip-rate", "R", F::real,
      "share of steps in which clipping is expected to act; the planner weighs speculation with it",
      SET { o.optimizer.expected_clip_rate = v.real(0, Bound::included, 1, Bound::included); },
      GET { return o.optimizer.expected_clip_rate; });
}

void add_learning_rate(std::vector<Flag>& table) {
  const FlagRows add(table, "Learning rate");
  add("lr", "R", F::real, "after warm-up", SET { o.schedule.lr = at_least_zero(v); }, GET { return o.schedule.lr; });
  add(
      "min-lr", "R", F::real, "at the end of the decay", SET { o.schedule.min_lr = at_least_zero(v); },
      GET { return o.schedule.min_lr; });
  add(
      "lr-warmup-iters", "N", F::integer, "steps of warm-up", SET { o.schedule.lr_warmup_iters = steps(v, 0); },
      GET { return o.schedule.lr_warmup_fraction ? json(nullptr) : json(o.schedule.lr_warmup_iters); });
  add(
      "lr-warmup-fraction", "R", F::real, "in place of --lr-warmup-iters: share of the decay steps, rounded up to whole steps",
      SET { o.schedule.lr_warmup_fraction = v.real(0, Bound::included, 1, Bound::included); },
      GET { return optional_json(o.schedule.lr_warmup_fraction); });
  add(
      "lr-warmup-init", "R", F::real, "the rate that warm-up begins from", SET { o.schedule.lr_warmup_init = at_least_zero(v); },
      GET { return o.schedule.lr_warmup_init; });
  add(
      "lr-warmup-style", names_of<WarmupStyle>("|"), F::text, "log: with --lr-rule deepspeed, whose own default it is",
      SET { set_choice(o.schedule.lr_warmup_style, v); }, GET { return choice_json(o.schedule.lr_warmup_style); });
  add(
      "lr-decay-iters", "N", F::integer, "step at which the decay, warm-up included, has ended (default: --train-iters)",
      SET { o.schedule.lr_decay_iters = steps(v, 1); }, GET { return optional_json(o.schedule.lr_decay_iters); });
  add(
      "lr-decay-style", names_of<DecayStyle>("|"), F::text, "wsd: constant, then linear over the last --lr-wsd-decay-iters",
      SET { set_choice(o.schedule.lr_decay_style, v); }, GET { return choice_json(o.schedule.lr_decay_style); });
  add(
      "lr-wsd-decay-iters", "N", F::integer, "of wsd, its last steps (default: a tenth of the decay steps)",
      SET { o.schedule.lr_wsd_decay_iters = steps(v, 1); }, GET { return optional_json(o.schedule.lr_wsd_decay_iters); });
  add(
      "lr-rule", names_of<LrRule>("|"), F::text,
      "deepspeed: the rates of its WarmupLR (constant), WarmupDecayLR (linear) or WarmupCosineLR (cosine), a step late as there",
      SET { set_choice(o.schedule.lr_rule, v); }, GET { return choice_json(o.schedule.lr_rule); });
}

double loss_scale_in(const FlagValue& value) {
  const double scale = value.real(kLeastLossScale, Bound::included, kMostLossScale, Bound::included);
  if (!is_loss_scale(scale)) value.refuse(value.text(), "a power of two");
  return scale;
}

void add_loss_scale(const FlagRows& add) {
  add(
      "loss-scale", "dynamic|N", F::text,
      "of --dtype fp16, what losses are multiplied by: N in every step, a power of two, or as the policy finds it (default); a "
      "step that overflows applies nothing",
      SET {
        o.precision.loss_scale.fixed.reset();
        if (v.text() != "dynamic") o.precision.loss_scale.fixed = loss_scale_in(v);
      },
      GET { return optional_json(o.precision.loss_scale.fixed); });
  add(
      "loss-scale-policy", names_of<LossScalePolicy>("|"), F::text,
      "how the scale falls and grows: as DeepSpeed's (default), or as PyTorch's GradScaler",
      SET {
        LossScalePolicy policy{};
        set_choice(policy, v);
        o.precision.loss_scale.policy = policy;
      },
      GET {
        const auto& policy = o.precision.loss_scale.policy;
        return policy ? choice_json(*policy) : json(nullptr);
      });
  add(
      "initial-loss-scale", "N", F::real, "the scale of the first step, a power of two (default: 65536)",
      SET { o.precision.loss_scale.initial = loss_scale_in(v); }, GET { return optional_json(o.precision.loss_scale.initial); });
  add(
      "loss-scale-window", "N", F::integer,
      "good steps behind which the scale is doubled (default: DeepSpeed's 1000, PyTorch's 2000)",
      SET { o.precision.loss_scale.window = steps(v, 1); }, GET { return optional_json(o.precision.loss_scale.window); });
  add(
      "hysteresis", "N", F::integer, "DeepSpeed's: the N-th overflow lowers the scale (default: 2)",
      SET { o.precision.loss_scale.hysteresis = steps(v, 1); }, GET { return optional_json(o.precision.loss_scale.hysteresis); });
  add(
      "consecutive-hysteresis", "", F::boolean,
      "DeepSpeed's: only overflows with no good step between them count for --hysteresis",
      SET { o.precision.loss_scale.consecutive_hysteresis = v.text() == "true"; },
      GET { return o.precision.loss_scale.consecutive_hysteresis ? json(true) : json(nullptr); });
  add(
      "min-loss-scale", "N", F::real,
      "DeepSpeed's: the least scale, a power of two; where it would have to be lower, training ends (default: 1)",
      SET { o.precision.loss_scale.least = loss_scale_in(v); }, GET { return optional_json(o.precision.loss_scale.least); });
}

void add_precision(std::vector<Flag>& table) {
  const FlagRows add(table, "Precision");
  add(
      "dtype", names_of<DType>("|"), F::text,
      "of the computation; fp16: on --device cuda alone, with a loss scale, which bf16 and fp32 do not need",
      SET { set_choice(o.precision.dtype, v); }, GET { return choice_json(o.precision.dtype); });
  add(
      "state", names_of<StateForm>("|", kStates), F::text,
      "stored weights and moments: exact 12 bytes a parameter (14 of fp16), compact 8",
      SET { set_choice(o.precision.state, v, kStates); }, GET { return choice_json(o.precision.state); });
  add_loss_scale(add);
}

}  // namespace

void add_training_flags(std::vector<Flag>& table) {
  for (const auto add : {add_model, add_adapter, add_data, add_batch, add_optimizer, add_learning_rate, add_precision})
    add(table);
}

}  // namespace spillway
