#include "lockstep/source/digest.h"

#include <string>

#include <gtest/gtest.h>

namespace lockstep::data {
namespace {

std::string digest_of(Hash hash, const std::string& first, const std::string& second = "") {
  Digest digest(hash);
  digest.update(first);
  digest.update(second);
  return digest.finish();
}

// The examples of FIPS 180-2.
TEST(Digest, KnowsTheExamplesOfSha256) {
  EXPECT_EQ(digest_of(Hash::kSha256, ""),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(digest_of(Hash::kSha256, "abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

// The examples of RFC 1321.
TEST(Digest, KnowsTheExamplesOfMd5) {
  EXPECT_EQ(digest_of(Hash::kMd5, ""), "d41d8cd98f00b204e9800998ecf8427e");
  EXPECT_EQ(digest_of(Hash::kMd5, "abc"), "900150983cd24fb0d6963f7d28e17f72");
}

TEST(Digest, DoesNotDependOnThePieces) {
  EXPECT_EQ(digest_of(Hash::kSha256, "ab", "c"), digest_of(Hash::kSha256, "abc"));
  EXPECT_EQ(digest_of(Hash::kMd5, "ab", "c"), digest_of(Hash::kMd5, "abc"));
}

}  // namespace
}  // namespace lockstep::data
