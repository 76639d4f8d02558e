#include "lockstep/source/sha256.h"

#include <string>

#include <gtest/gtest.h>

namespace lockstep::data {
namespace {

std::string sha256(const std::string& first, const std::string& second = "") {
  Sha256 digest;
  digest.update(first);
  digest.update(second);
  return digest.finish();
}

// The examples of FIPS 180-2.
TEST(Sha256, KnowsTheStandardsExamples) {
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Sha256, DoesNotDependOnThePieces) {
  EXPECT_EQ(sha256("ab", "c"), sha256("abc"));
}

}  // namespace
}  // namespace lockstep::data
