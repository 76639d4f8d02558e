// tests/support/skips.sh runs this test and looks for it in the summary of scripts/test.
#include <gtest/gtest.h>

namespace lockstep {

TEST(SkipRecorder, DISABLED_SkipsItself) {
  GTEST_SKIP() << "as asked,\non one line";
}

}  // namespace lockstep
