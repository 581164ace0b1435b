// Control words of the runs under way, for a device whose memory the host does not see. They lie in pinned memory of the host:
// copies on the device's stream send them to the device when a run begins, and bring the device's results back. Each run has
// places of its own, so that nothing of the run before is overwritten while it is still read.
// Not here: who reads them, and when they are there (operations.h).
#pragma once

#include <cstddef>
#include <span>

#include "memory/plan/control_words.h"
#include "memory/plan/plan.h"
#include "memory/runtime/runtime.h"

namespace spillway {

class ControlMirror {
 public:
  // `device`: the first byte of the device's arena. All must outlive this.
  ControlMirror(const Plan& plan, int runs, Runtime& runtime, Stream& stream, std::byte* device);

  // The host fills these words, then sends them: once a run, before its first pass.
  std::span<MicroBatchWords> words_to_send(int run) const;
  void send_words(int run, int micro_batches);

  // These enqueue a copy back; its words are there when the stream has passed it. Losses are those of all ranks' micro-batches.
  // `squares`: sums of squares of so many blocks, from this one on, on the device.
  void fetch_losses(int run, int micro_batches);
  void fetch_squares(int run, int block, const double* squares, std::size_t count);
  void fetch_norm(int run);

  const MicroBatchWords* losses(int run) const;  // [ranks * micro_batches]
  double square(int run, int block) const;
  const double* norm_and_factor(int run) const;  // [2]

 private:
  // Offsets of a run's words, and the bytes of all: words to send, words that come back, the norm and the factor, blocks'
  // squares.
  struct Places {
    Bytes sent = 0, losses = 0, norm = 0, squares = 0, all = 0;
  };
  std::byte* at(int run, Bytes place) const { return memory_.data() + run * places_.all + place; }
  std::byte* resident(int buffer) const { return device_ + plan_.resident[static_cast<std::size_t>(buffer)].offset; }

  const Plan& plan_;
  Stream& stream_;
  std::byte* const device_;
  const Places places_;
  const Allocation memory_;
};

}  // namespace spillway
