#include "lockstep/base/text.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace lockstep {
namespace {

const std::vector<std::string> kLoaders = {"train", "valid", "infer"};

TEST(NearestName, FindsTheTypo) {
  EXPECT_EQ(nearest_name("vaild", kLoaders), "valid");
  EXPECT_EQ(nearest_name("Train", kLoaders), "train");
  EXPECT_EQ(nearest_name("trian", kLoaders), "train");
}

TEST(NearestName, FindsWhatWasCutShort) {
  const std::vector<std::string> metrics = {"loss", "accuracy01", "accuracy03"};
  EXPECT_EQ(nearest_name("acc", metrics), "accuracy01");
}

TEST(NearestName, DoesNotGuessWildly) {
  EXPECT_EQ(nearest_name("optimizer", kLoaders), std::nullopt);
  EXPECT_EQ(nearest_name("train", {}), std::nullopt);
  const std::vector<std::string> two_letters = {"lr"};
  EXPECT_EQ(nearest_name("xy", two_letters), std::nullopt);
  EXPECT_EQ(nearest_name("", two_letters), std::nullopt);
  EXPECT_EQ(nearest_name("lx", two_letters), "lr");
}

TEST(Suggest, NamesTheNearestAndAllOthers) {
  EXPECT_EQ(suggest("vaild", kLoaders), "did you mean 'valid'? known: train, valid, infer");
  EXPECT_EQ(suggest("optimizer", kLoaders), "known: train, valid, infer");
  EXPECT_EQ(suggest("train", {}), "there are none");
}

TEST(Suggest, OfManyNamesTheNearestFew) {
  std::vector<std::string> layers;
  for (int i = 0; i < 80; ++i)
    layers.push_back("Layer" + std::string(3, static_cast<char>('a' + i % 26)));
  layers.insert(layers.end(), {"Conv1d", "Conv2d", "Conv3d", "Linear"});
  EXPECT_EQ(suggest("Conv4d", layers), "did you mean 'Conv1d' or 'Conv2d' or 'Conv3d'?");
  EXPECT_EQ(suggest("Conv2D", layers), "did you mean 'Conv2d'?");
  EXPECT_EQ(suggest("Linaer", layers), "did you mean 'Linear'?");
  const std::string none = suggest("Transformer", layers);
  EXPECT_LT(none.size(), 200u);
  EXPECT_TRUE(none.starts_with("known: Layeraaa, ")) << none;
  EXPECT_TRUE(none.ends_with(", … (72 more)")) << none;
}

TEST(Join, SeparatesTheParts) {
  EXPECT_EQ(join(kLoaders, "/"), "train/valid/infer");
  EXPECT_EQ(join({}, "/"), "");
}

TEST(WithThousands, GroupsTheDigits) {
  EXPECT_EQ(with_thousands(0), "0");
  EXPECT_EQ(with_thousands(999), "999");
  EXPECT_EQ(with_thousands(1000), "1,000");
  EXPECT_EQ(with_thousands(1234567), "1,234,567");
  EXPECT_EQ(with_thousands(-999), "-999");
  EXPECT_EQ(with_thousands(-123456), "-123,456");
  EXPECT_EQ(with_thousands(std::numeric_limits<std::int64_t>::min()), "-9,223,372,036,854,775,808");
}

TEST(FormatDuration, ReadsLikeAClock) {
  EXPECT_EQ(format_duration(3.2), "3.2 s");
  EXPECT_EQ(format_duration(59.9), "59.9 s");
  EXPECT_EQ(format_duration(59.97), "1:00");
  EXPECT_EQ(format_duration(75), "1:15");
  EXPECT_EQ(format_duration(3599.7), "1:00:00");
  EXPECT_EQ(format_duration(3725), "1:02:05");
  EXPECT_EQ(format_duration(-1), "?");
  EXPECT_EQ(format_duration(std::nan("")), "?");
}

TEST(FormatBytes, PicksTheUnit) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes(1024.0 * 1024 - 1), "1.0 MiB");
  EXPECT_EQ(format_bytes(3.25 * 1024 * 1024 * 1024), "3.2 GiB");
  EXPECT_EQ(format_bytes(std::pow(1024.0, 5)), "1024.0 TiB");
}

TEST(FormatMetric, ShowsSmallNumbersToo) {
  EXPECT_EQ(format_metric(0.98765), "0.988");
  EXPECT_EQ(format_metric(12), "12.000");
  EXPECT_EQ(format_metric(0), "0.000");
  EXPECT_EQ(format_metric(1.2345e-5), "1.234e-05");
  EXPECT_EQ(format_metric(-1.2345e-5), "-1.234e-05");
  EXPECT_EQ(format_metric(std::nan("")), "nan");
  EXPECT_EQ(format_metric(-std::nan("")), "nan");
}

TEST(MatchesPattern, AsAShellDoes) {
  EXPECT_TRUE(matches_pattern("fc.*", "fc.weight"));
  EXPECT_TRUE(matches_pattern("*.bias", "layer1.0.bias"));
  EXPECT_TRUE(matches_pattern("layer[12].?.bias", "layer1.0.bias"));
  EXPECT_FALSE(matches_pattern("fc.*", "fc2.weight"));
  EXPECT_FALSE(matches_pattern("fc", "fc.weight"));
}

TEST(ToHex, HasSixteenDigits) {
  EXPECT_EQ(to_hex(0), "0000000000000000");
  EXPECT_EQ(to_hex(0xdeadbeef), "00000000deadbeef");
  EXPECT_EQ(to_hex(~0ull), "ffffffffffffffff");
}

TEST(Printable, ShowsWhatWouldSteerATerminal) {
  EXPECT_EQ(printable("\x1b[31mred\x1b[0m"), "\\x1b[31mred\\x1b[0m");
  EXPECT_EQ(printable(std::string("a\0b\r\n\tc\x7f", 8)), "a\\x00b\\r\\n\\tc\\x7f");
  EXPECT_EQ(printable("a\u202eb\u2066c\u2028d\u009be"), "a\\u202eb\\u2066c\\u2028d\\x9be");
}

TEST(Printable, LeavesEveryOtherCharacter) {
  for (const char* const text : {"", "täst/0.weight", "重み", "🙂", "back\\slash \\x1b"}) {
    EXPECT_EQ(printable(text), text);
  }
  EXPECT_EQ(printable_lines("two\n\tlines\r\x1b"), "two\n\tlines\\r\\x1b");
}

TEST(Excerpt, CutsLongTextBetweenCharacters) {
  EXPECT_EQ(excerpt("short\x1b"), "short\\x1b");
  EXPECT_EQ(excerpt(std::string(60, 'x')), std::string(60, 'x'));
  EXPECT_EQ(excerpt(std::string(61, 'x')), std::string(60, 'x') + "…");
  EXPECT_EQ(excerpt("ab重み", 5), "ab重…");
  EXPECT_EQ(excerpt("ab重み", 4), "ab…");
  EXPECT_EQ(excerpt("\x80\x80\x80\x80\x80\x80", 5), "\\x80\\x80…") << "no UTF-8 at all";
}

TEST(Printable, ShowsBytesThatAreNoUtf8) {
  EXPECT_EQ(printable("\xff\xc3"), "\\xff\\xc3");
  EXPECT_EQ(printable("\xc0\xaf"), "\\xc0\\xaf") << "an overlong slash";
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "half of a pair of UTF-16";
  EXPECT_EQ(printable("\xf5\x80\x80\x80"), "\\xf5\\x80\\x80\\x80") << "beyond Unicode";
  EXPECT_TRUE(is_utf8("täst 🙂"));
  EXPECT_FALSE(is_utf8("t\xe4st"));
}

}  // namespace
}  // namespace lockstep
