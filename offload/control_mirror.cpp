#include "offload/control_mirror.h"

namespace spillway {
namespace {

Bytes words_bytes(int micro_batches) { return micro_batches * kMicroBatchWordsBytes; }

}  // namespace

ControlMirror::ControlMirror(const Plan& plan, std::int64_t squares, int runs, Runtime& runtime, Stream& stream,
                             std::byte* device)
    : plan_(plan),
      stream_(stream),
      device_(device),
      places_([&] {
        Places places;
        const Bytes words = round_up(words_bytes(plan.choices.micro_batches), 64);
        places.losses = words;
        places.norm = 2 * words;
        places.squares = places.norm + 64;
        places.all = places.squares + round_up(squares * static_cast<Bytes>(sizeof(double)), 64);
        return places;
      }()),
      memory_(runtime.allocate(Tier::host, runs * places_.all, "control words")) {}

std::span<MicroBatchWords> ControlMirror::words_to_send(int run) const {
  return {reinterpret_cast<MicroBatchWords*>(at(run, places_.sent)), static_cast<std::size_t>(plan_.choices.micro_batches)};
}

void ControlMirror::send_words(int run, int micro_batches) {
  stream_.copy_async(resident(plan_.loss_buffer), at(run, places_.sent), words_bytes(micro_batches));
}

void ControlMirror::fetch_losses(int run, int micro_batches) {
  stream_.copy_async(at(run, places_.losses), resident(plan_.loss_buffer), words_bytes(micro_batches));
}

void ControlMirror::fetch_square(int run, std::int64_t word) {
  const Bytes begin = word * static_cast<Bytes>(sizeof(double));
  stream_.copy_async(at(run, places_.squares + begin), resident(plan_.norm_buffer) + begin, sizeof(double));
}

void ControlMirror::fetch_norm(int run) {
  stream_.copy_async(at(run, places_.norm), resident(plan_.factor_buffer), 2 * sizeof(double));
}

std::span<const MicroBatchWords> ControlMirror::losses(int run) const {
  return {reinterpret_cast<const MicroBatchWords*>(at(run, places_.losses)),
          static_cast<std::size_t>(plan_.choices.micro_batches)};
}

double ControlMirror::square(int run, std::int64_t word) const {
  return reinterpret_cast<const double*>(at(run, places_.squares))[word];
}

const double* ControlMirror::norm_and_factor(int run) const { return reinterpret_cast<const double*>(at(run, places_.norm)); }

}  // namespace spillway
