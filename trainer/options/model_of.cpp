#include "trainer/options/model_of.h"

#include <fmt/core.h>

#include <filesystem>
#include <string_view>
#include <system_error>

#include "memory/base/error.h"

namespace spillway {

namespace {

// Of a loaded run whose adapters alone are in its state.
std::string directory_of_base(const std::string& model) {
  try {
    return resolve_model(model).directory;
  } catch (const InputError& error) {
    throw InputError(error.what(), "The run has adapters alone: --model PATH says where the model that they are of is now.");
  }
}

ResolvedModel with_own_coefficients(const RunOptions& options, Weights weights) {
  const ModelOptions& asked = options.model;
  // A loaded run has its weights in its own state, so the directory need not have them.
  if (!options.checkpoint.load.empty()) weights = Weights::if_there;
  if (asked.init == WeightInit::random) weights = Weights::drawn;
  if (asked.kept_config.empty()) {
    try {
      return resolve_model(asked.model, weights);
    } catch (const InputError& error) {
      std::error_code ignored;
      if (options.checkpoint.load.empty() || std::filesystem::exists(asked.model, ignored)) throw;
      throw InputError(error.what(), "--model PATH says where the model of the run is now.");
    }
  }
  ResolvedModel model{read_model_config(asked.kept_config), {}};
  if (!options.adapter.kept_config.empty() && asked.init == WeightInit::checkpoint) {
    model.directory = directory_of_base(asked.model);
    return model;
  }
  std::error_code ignored;
  if (asked.init == WeightInit::checkpoint && std::filesystem::is_directory(asked.model, ignored)) model.directory = asked.model;
  return model;
}

}  // namespace

ResolvedModel model_of(const RunOptions& options, Weights weights) {
  ResolvedModel model = with_own_coefficients(options, weights);
  const auto set = [&](const std::optional<double>& asked, std::string_view flag, double& coefficient) {
    if (!asked) return;
    if (model.config.experts == 0)
      throw InputError(fmt::format("--{}: found {}, allowed: for a mixture of experts; {} has none", flag, *asked,
                                   name_of(model.config.family)));
    coefficient = *asked;
  };
  set(options.model.balance_coefficient, "router-aux-loss-coef", model.config.balance_coefficient);
  set(options.model.router_z_coefficient, "router-z-loss-coef", model.config.router_z_coefficient);
  return model;
}

}  // namespace spillway
