#include "lockstep/http/curl_library.h"

#include <gmock/gmock.h>

#include "lockstep/base/error.h"
#include "tests/data/error_text.h"

namespace lockstep::http {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(CurlLibrary, IsOpenedOnce) {
  const CurlLibrary& curl = curl_library();
  EXPECT_EQ(&curl, &curl_library());
  EXPECT_STREQ(curl.easy_strerror(CURLE_OK), "No error");
}

TEST(CurlLibrary, SaysWhatToInstall) {
  EXPECT_THAT(error_text<Error>([] { open_curl("libcurl-that-is-not-there.so"); }),
              AllOf(HasSubstr("libcurl-that-is-not-there.so"), HasSubstr("libcurl4")));
}

TEST(CurlLibrary, AnotherLibraryIsRefused) {
  EXPECT_THAT(error_text<Error>([] { open_curl("libz.so.1"); }),
              AllOf(HasSubstr("libz.so.1"), HasSubstr("curl_global_init")));
}

}  // namespace
}  // namespace lockstep::http
