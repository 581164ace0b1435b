#include "memory/plan/program.h"

namespace spillway {

std::string_view name_of(const OpHead& op) {
  switch (op.kind) {
    case OpKind::move:
      if (op.lane == Lane::nvme_read) return "read";
      if (op.lane == Lane::nvme_write) return "write";
      return name_of(op.lane);
    case OpKind::forward: return "forward";
    case OpKind::backward: return "backward";
    case OpKind::loss: return "loss";
    case OpKind::gradient_add: return "gradient_add";
    case OpKind::gradient_finish: return "gradient_finish";
    case OpKind::norm: return "norm";
    case OpKind::update: return "update";
    case OpKind::gather: return "gather";
    case OpKind::reduce: return "reduce";
    case OpKind::commit: return "commit";
  }
  return {};
}

}  // namespace spillway
