// A model with a cache of keys and values: takes tokens and gives the logits of the last one. Runs in core or out of core, as the
// budgets allow.
// Not here: the choice of the next token (sampler.h), text (generation.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "memory/base/types.h"
#include "trainer/options/options.h"

namespace spillway {

struct CachedModelRequest {
  const RunOptions& options;         // model, checkpoint, precision, memory; must outlive the model
  std::optional<std::int64_t> step;  // step of a checkpoint of --load; empty: the newest
  std::int64_t context = 0;          // most positions that can be read in all
  std::int64_t longest_prompt = 0;   // most tokens that begin() gets
  std::int64_t most_rows = 512;      // most rows of a prompt computed at a time
};

class CachedModel {
 public:
  // Reserves all memory and puts all weights in their places. Throws InputError, BudgetError or IoError.
  explicit CachedModel(const CachedModelRequest& request);
  ~CachedModel();
  CachedModel(const CachedModel&) = delete;
  CachedModel& operator=(const CachedModel&) = delete;

  // Return the logits [V] of the last token, valid until the next call. begin forgets all tokens read before.
  std::span<const float> begin(std::span<const std::int32_t> prompt);
  std::span<const float> next(std::int32_t token);

  std::int64_t position() const noexcept;  // tokens read
  const std::string& name() const noexcept;
  // Bytes of weights read for each token, those of them from NVMe, and bytes of device memory in use.
  struct Traffic {
    Bytes weights = 0, nvme = 0, device = 0;
  };
  Traffic traffic() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace spillway
