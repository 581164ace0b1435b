// A model that keeps the keys and values of what it has read: tokens in, the logits of the last one out. In core or out of it, as
// the budgets say.
// Not here: which token comes next (sampler.h), text (generation.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "memory/types.h"
#include "trainer/options/options.h"

namespace spillway {

struct CachedModelRequest {
  const RunOptions& options;         // model, checkpoint, precision, memory; must outlive the model
  std::optional<std::int64_t> step;  // of --load; the newest where not given
  std::int64_t context = 0;          // positions that can be read in all
  std::int64_t longest_prompt = 0;   // what begin() is given at most
  std::int64_t most_rows = 512;      // of a prompt that are computed at a time
};

class CachedModel {
 public:
  // InputError, BudgetError, IoError. All memory is reserved and all weights are in their place when it returns.
  explicit CachedModel(const CachedModelRequest& request);
  ~CachedModel();
  CachedModel(const CachedModel&) = delete;
  CachedModel& operator=(const CachedModel&) = delete;

  // The logits [V] of the last of the tokens, valid until the next call. begin forgets all that was read before.
  std::span<const float> begin(std::span<const std::int32_t> prompt);
  std::span<const float> next(std::int32_t token);

  std::int64_t position() const noexcept;  // tokens read
  const std::string& name() const noexcept;
  // Bytes of weights that a token reads, of them from NVMe, and bytes of the device's memory that are in use.
  struct Traffic {
    Bytes weights = 0, nvme = 0, device = 0;
  };
  Traffic traffic() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace spillway
