#include "offload/control_mirror.h"

#include <iterator>

namespace spillway {
namespace {

Bytes words_bytes(int micro_batches) { return micro_batches * kMicroBatchWordsBytes; }

}  // namespace

ControlMirror::ControlMirror(const Plan& plan, int runs, Runtime& runtime, Stream& stream, std::byte* device)
    : plan_(plan),
      stream_(stream),
      device_(device),
      places_([&] {
        Places places;
        const Bytes words = round_up(words_bytes(plan.choices.micro_batches), 64);
        places.losses = words;
        places.norm = words + round_up(words_bytes(plan.choices.sharding.ranks * plan.choices.micro_batches), 64);
        places.squares = places.norm + 64;
        places.all = places.squares + round_up(std::ssize(plan.blocks) * static_cast<Bytes>(sizeof(double)), 64);
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
  const int ranks = plan_.choices.sharding.ranks;
  const int of = ranks > 1 ? plan_.ranks_loss_buffer : plan_.loss_buffer;
  stream_.copy_async(at(run, places_.losses), resident(of), words_bytes(ranks * micro_batches));
}

void ControlMirror::fetch_squares(int run, int block, const double* squares, std::size_t count) {
  constexpr Bytes each = sizeof(double);
  stream_.copy_async(at(run, places_.squares + block * each), reinterpret_cast<const std::byte*>(squares),
                     static_cast<Bytes>(count) * each);
}

void ControlMirror::fetch_norm(int run) {
  stream_.copy_async(at(run, places_.norm), resident(plan_.factor_buffer), 2 * sizeof(double));
}

const MicroBatchWords* ControlMirror::losses(int run) const {
  return reinterpret_cast<const MicroBatchWords*>(at(run, places_.losses));
}

double ControlMirror::square(int run, int block) const {
  return reinterpret_cast<const double*>(at(run, places_.squares))[block];
}

const double* ControlMirror::norm_and_factor(int run) const { return reinterpret_cast<const double*>(at(run, places_.norm)); }

}  // namespace spillway
