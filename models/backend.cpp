#include "models/backend.h"

namespace spillway {
namespace {

std::byte* address_of(const MicroBatchWords* words, ControlWord word) {
  const void* at = nullptr;
  switch (word) {
    case ControlWord::loss_sum: at = &words->loss_sum; break;
    case ControlWord::loss_scale: at = &words->loss_scale; break;
    case ControlWord::position: at = &words->position; break;
    case ControlWord::logits_row: at = &words->logits_row; break;
    case ControlWord::dropout: at = &words->dropout; break;
    case ControlWord::batch_share: at = &words->batch_share; break;
    case ControlWord::balance_loss: at = &words->balance_loss; break;
    case ControlWord::router_z_loss: at = &words->router_z_loss; break;
    case ControlWord::expert_load: at = &words->expert_load; break;
    case ControlWord::router_fault: at = &words->router_fault; break;
    case ControlWord::none: break;
  }
  return static_cast<std::byte*>(const_cast<void*>(at));
}

// Drops const: a kernel's definition says whether it writes there.
std::byte* bytes_of(const void* data) { return static_cast<std::byte*>(const_cast<void*>(data)); }

std::byte* base_of(const PassMemory& memory, const Place& place) {
  const auto index = static_cast<std::size_t>(place.index);
  switch (place.space) {
    case Space::value: return memory.values[index];
    case Space::weight: return bytes_of(memory.weights[index]);
    case Space::gradient: return bytes_of(memory.gradients[index]);
    case Space::workspace: return memory.workspace;
    case Space::constant: return bytes_of(memory.constants);
    case Space::tokens: return bytes_of(memory.tokens);
    case Space::targets: return bytes_of(memory.targets);
    case Space::documents: return bytes_of(memory.documents);
    case Space::word: return address_of(memory.words, static_cast<ControlWord>(place.index));
    case Space::logits: return bytes_of(memory.logits);
    case Space::none: break;
  }
  return nullptr;
}

}  // namespace

std::byte* PassMemory::at(const Place& place) const {
  std::byte* base = base_of(*this, place);
  if (base == nullptr) return nullptr;
  Bytes offset = place.offset;
  if (place.moves_with == ControlWord::position) offset += words->position * place.stride;
  if (place.moves_with == ControlWord::logits_row) offset += words->logits_row * place.stride;
  return base + offset;
}

}  // namespace spillway
