// What a step of a mixture of experts has besides its loss, over all micro-batches of all ranks.
#pragma once

#include "memory/plan/control_words.h"
#include "memory/plan/unit.h"

namespace spillway {

struct MixtureOutcome {
  double lm_loss = 0;                   // of the tokens alone
  double balance_loss = 0, z_loss = 0;  // means over the micro-batches, before their coefficients
  ExpertLoad load;                      // the most and the least of any micro-batch, and the mean entropy

  // What the losses of the routers add to that of the tokens.
  double added(const RouterLosses& coefficients) const {
    return (coefficients.balance > 0 ? coefficients.balance * balance_loss : 0) +
           (coefficients.z > 0 ? coefficients.z * z_loss : 0);
  }
};

}  // namespace spillway
