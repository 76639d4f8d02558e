#include "lockstep/plot/markup.h"

#include <gtest/gtest.h>

namespace lockstep::plot {
namespace {

TEST(Markup, EscapesWhatHasAMeaning) {
  EXPECT_EQ(escape_markup("a < b & \"c\" > d"), "a &lt; b &amp; &quot;c&quot; &gt; d");
}

TEST(Markup, Base64) {
  EXPECT_EQ(to_base64(""), "");
  EXPECT_EQ(to_base64("M"), "TQ==");
  EXPECT_EQ(to_base64("Ma"), "TWE=");
  EXPECT_EQ(to_base64("Man"), "TWFu");
  EXPECT_EQ(to_base64(std::string("\xff\xfe\0\x01", 4)), "//4AAQ==");
}

}  // namespace
}  // namespace lockstep::plot
