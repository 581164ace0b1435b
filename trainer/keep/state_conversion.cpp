#include "trainer/keep/state_conversion.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "files/json_text.h"
#include "memory/base/bfloat16.h"
#include "memory/base/float16.h"
#include "memory/base/types.h"
#include "offload/host_adamw.h"
#include "trainer/options/flag_choices.h"
#include "trainer/options/resolve_options.h"

namespace spillway {
namespace {

constexpr auto kWeight = static_cast<std::size_t>(StateKind::weight), kLow = static_cast<std::size_t>(StateKind::low),
               kMaster = static_cast<std::size_t>(StateKind::master);

template <typename T>
const T* read(const std::byte* array) {
  return reinterpret_cast<const T*>(array);
}
template <typename T>
T* write(std::byte* array) {
  return reinterpret_cast<T*>(array);
}

template <typename From, typename To>
void convert_moment(const std::byte* in, std::byte* out, std::int64_t elements) {
  for (std::int64_t i = 0; i < elements; ++i) write<To>(out)[i] = from_float<To>(to_float(read<From>(in)[i]));
}

}  // namespace

void convert_state(StateForm from, const std::array<const std::byte*, kStateKinds>& in, StateForm to,
                   const std::array<std::byte*, kStateKinds>& out, std::int64_t elements) {
  const auto master = [&](std::int64_t i) {
    if (from == StateForm::fp16) return read<float>(in[kMaster])[i];
    return from == StateForm::fp32 ? read<float>(in[kWeight])[i]
                                   : join_master(read<BFloat16>(in[kWeight])[i], read<std::int16_t>(in[kLow])[i]);
  };
  for (std::int64_t i = 0; i < elements; ++i) {
    if (to == StateForm::fp32) {
      write<float>(out[kWeight])[i] = master(i);
      continue;
    }
    if (to == StateForm::fp16) {
      write<float>(out[kMaster])[i] = master(i);
      write<Float16>(out[kWeight])[i] = finite_float16(master(i));
      continue;
    }
    const SplitMaster split = split_master(master(i));
    write<BFloat16>(out[kWeight])[i] = split.high;
    write<std::int16_t>(out[kLow])[i] = split.low;
  }
  const bool narrow_before = from == StateForm::compact, narrow_after = to == StateForm::compact;
  for (const StateKind kind : {StateKind::m, StateKind::v}) {
    const std::byte* before = in[static_cast<std::size_t>(kind)];
    std::byte* after = out[static_cast<std::size_t>(kind)];
    if (narrow_before && narrow_after) {
      convert_moment<BFloat16, BFloat16>(before, after, elements);
    } else if (narrow_before) {
      convert_moment<BFloat16, float>(before, after, elements);
    } else if (narrow_after) {
      convert_moment<float, BFloat16>(before, after, elements);
    } else {
      convert_moment<float, float>(before, after, elements);
    }
  }
}

namespace {

// Those of the order in which gradients are added.
std::vector<std::string> changes_of_sums(const RunOptions& before, const RunOptions& now) {
  std::vector<std::string> changes;
  if (before.batch.micro_batch_size != now.batch.micro_batch_size) {
    changes.push_back(
        fmt::format("--micro-batch-size {} instead of {}: gradients are summed in other groups, so from here on losses agree "
                    "with those of the run before to "
                    "rounding, not to the bit",
                    now.batch.micro_batch_size, before.batch.micro_batch_size));
  }
  if (before.parallel.ranks != now.parallel.ranks) {
    changes.push_back(
        fmt::format("--ranks {} instead of {}: gradients are summed over another number of ranks, so from here on losses agree "
                    "with those of the run before to rounding, not to the bit",
                    now.parallel.ranks, before.parallel.ranks));
  }
  if (before.parallel.reduce_algorithm != now.parallel.reduce_algorithm && now.parallel.ranks > 1) {
    changes.push_back(fmt::format(
        "--reduce-algorithm {} instead of {}: gradients are added over ranks in another order, so from here on losses "
        "agree with those of the run before to rounding, not to the bit",
        name_of(now.parallel.reduce_algorithm), name_of(before.parallel.reduce_algorithm)));
  }
  return changes;
}

}  // namespace

std::vector<std::string> changes_of_bits(const RunOptions& before, const RunOptions& now) {
  std::vector<std::string> changes = changes_of_sums(before, now);
  if (before.precision.dtype != now.precision.dtype) {
    changes.push_back(
        fmt::format("--dtype {} instead of {}: the state is taken over {}; what is computed from here on is rounded otherwise",
                    name_of(now.precision.dtype), name_of(before.precision.dtype),
                    before.precision.state == StateForm::compact ? "with moments widened" : "to the bit"));
  } else if (before.precision.state != now.precision.state) {
    changes.push_back(
        fmt::format("--state {} instead of {}: weights are taken over to the bit, moments are {}; losses go on close to those of "
                    "the run before",
                    name_of(now.precision.state), name_of(before.precision.state),
                    now.precision.state == StateForm::compact ? "rounded to bf16" : "widened to fp32"));
  }
  if (before.batch.global_batch_size != now.batch.global_batch_size) {
    changes.push_back(
        fmt::format("--global-batch-size {} instead of {}: the data go on where they would be if all steps had been of this size",
                    now.batch.global_batch_size, before.batch.global_batch_size));
  }
  if (before.model.seed != now.model.seed) {
    changes.push_back(
        fmt::format("--seed {} instead of {}: the order of the data is another from here on", now.model.seed, before.model.seed));
  }
  if (before.data.train_on != now.data.train_on) {
    changes.push_back(fmt::format("--train-on {} instead of {}: other tokens have loss from here on", name_of(now.data.train_on),
                                  name_of(before.data.train_on)));
  }
  if (before.data.text_ends != now.data.text_ends) {
    changes.push_back(fmt::format("--text-ends {} instead of {}: rows of text are other tokens from here on",
                                  name_of(now.data.text_ends), name_of(before.data.text_ends)));
  }
  if (before.batch.seq_length != now.batch.seq_length) {
    changes.push_back(fmt::format("--seq-length {} instead of {}: the data are cut anew, and their order is another",
                                  now.batch.seq_length, before.batch.seq_length));
  }
  const auto device = [](const RunOptions& options) {
    if (options.gpu) return options.gpu->name;
    return std::string(options.memory.device == DeviceChoice::cuda ? "a GPU" : "the CPU");
  };
  const bool was_gpu = before.memory.device == DeviceChoice::cuda;
  if (was_gpu != now.gpu.has_value()) {
    changes.push_back(
        fmt::format("on {}, and before on {}: products and attention are added up otherwise, so from here on losses agree with "
                    "those of the run before to rounding, not to the bit",
                    device(now), device(before)));
  }
  if (before.data.drop_last != now.data.drop_last) {
    changes.push_back(
        fmt::format("{} --drop-last, unlike before: the data go on where they would be if all steps had been like this",
                    now.data.drop_last ? "with" : "without"));
  }
  return changes;
}

std::string run_json_text(const RunOptions& options, const std::string& device_identity) {
  nlohmann::json json = to_json(with_absolute_paths(options));
  if (!device_identity.empty()) json["spillway"] = {{"device", device_identity}};
  return json_text(json);
}

std::string device_identity_in(const std::string& run_json) {
  const nlohmann::json json = nlohmann::json::parse(run_json, nullptr, false);
  const auto program = json.find("spillway");
  if (program == json.end() || !program->is_object()) return {};
  const auto device = program->find("device");
  return device == program->end() || !device->is_string() ? std::string() : device->get<std::string>();
}

}  // namespace spillway
