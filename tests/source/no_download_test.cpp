#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/source/download.h"

namespace lockstep::data {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(NoDownload, SaysWhichFileIsMissingAndFromWhereItCanBeFetched) {
  EXPECT_THAT(
      [] {
        download({.urls = {"https://example.org/a.gz"}, .path = "data/a.gz", .advice = "Or ask."});
      },
      ThrowsMessage<DataError>(AllOf(HasSubstr("data/a.gz: is not there"),
                                     HasSubstr("LOCKSTEP_DOWNLOAD=OFF"),
                                     HasSubstr("https://example.org/a.gz"), HasSubstr("Or ask."))));
}

}  // namespace
}  // namespace lockstep::data
