// Runs a test's body with every instruction set that this processor has and kernels are compiled for.
#pragma once

#include "models/cpu/simd_targets.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

namespace spillway {

template <typename Body>
void with_every_target(const Body& body) {
  const auto targets = hwy::SupportedAndGeneratedTargets();
  ASSERT_FALSE(targets.empty());
  for (const auto target : targets) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    body();
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
}

}  // namespace spillway
