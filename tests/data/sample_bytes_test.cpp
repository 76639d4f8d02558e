#include "lockstep/data/sample_bytes.h"

#include <array>

#include <gmock/gmock.h>

namespace lockstep::data {
namespace {

Batch sample_of_all_kinds() {
  Batch sample{{"image", torch::arange(24, torch::kUInt8).view({2, 4, 3}).transpose(0, 1)},
               {"", torch::tensor(2.5)},
               {"none", torch::zeros({0, 3}, torch::kBool)}};
  sample.set("boxes", Batch::List{torch::ones({2, 4}), torch::zeros({1}, torch::kFloat16)});
  sample.set("meta", Batch{{"id", torch::tensor(std::int64_t{7})}});
  return sample;
}

TEST(SampleBytes, KeepEverything) {
  const Batch sample = sample_of_all_kinds();
  ASSERT_TRUE(has_plain_bytes(sample));
  const torch::Tensor memory =
      torch::full({static_cast<std::int64_t>(sample_bytes(sample)) + 64}, 255, torch::kUInt8);
  auto* const at = reinterpret_cast<std::byte*>(
      (reinterpret_cast<std::uintptr_t>(memory.data_ptr()) + 63) / 64 * 64);
  write_sample(sample, at);
  for (const SampleMemory kind : {SampleMemory::kView, SampleMemory::kCopy}) {
    const Batch read = read_sample(at, kind);
    EXPECT_EQ(read.keys(), sample.keys());
    for (const auto& [key, tensor] : sample) {
      EXPECT_TRUE(torch::equal(read[key], tensor)) << key;
      EXPECT_EQ(read[key].scalar_type(), tensor.scalar_type()) << key;
    }
    ASSERT_EQ(read.list("boxes").size(), 2U);
    EXPECT_TRUE(torch::equal(read.list("boxes")[0], torch::ones({2, 4})));
    EXPECT_EQ(read.list("boxes")[1].scalar_type(), torch::kFloat16);
    EXPECT_EQ(read.nested("meta")["id"].item<std::int64_t>(), 7);
  }
}

TEST(SampleBytes, ACopyDoesNotFollowTheMemory) {
  const Batch sample{{"x", torch::ones({3})}};
  alignas(64) std::array<std::byte, 1024> memory{};
  ASSERT_LE(sample_bytes(sample), memory.size());
  write_sample(sample, memory.data());
  const Batch view = read_sample(memory.data(), SampleMemory::kView);
  const Batch copy = read_sample(memory.data(), SampleMemory::kCopy);
  write_sample({{"x", torch::zeros({3})}}, memory.data());
  EXPECT_TRUE(torch::equal(view["x"], torch::zeros({3})));
  EXPECT_TRUE(torch::equal(copy["x"], torch::ones({3})));
}

// Such views have the bytes of the original.
TEST(SampleBytes, AreThoseOfConjugatedAndNegatedViews) {
  const torch::Tensor numbers = torch::view_as_complex(torch::arange(6.0).view({3, 2}));
  const Batch sample{{"conjugated", numbers.conj()}, {"negated", torch::imag(numbers.conj())}};
  ASSERT_TRUE(sample["conjugated"].is_conj());
  ASSERT_TRUE(sample["negated"].is_neg());
  alignas(64) std::array<std::byte, 1024> memory{};
  ASSERT_LE(sample_bytes(sample), memory.size());
  write_sample(sample, memory.data());
  const Batch read = read_sample(memory.data(), SampleMemory::kCopy);
  EXPECT_TRUE(torch::equal(torch::imag(read["conjugated"]), torch::tensor({-1.0, -3.0, -5.0})));
  EXPECT_TRUE(torch::equal(read["negated"], torch::tensor({-1.0, -3.0, -5.0})));
}

TEST(SampleBytes, AreNotThoseOfSparseTensors) {
  EXPECT_FALSE(has_plain_bytes({{"x", torch::eye(3).to_sparse()}}));
  Batch nested;
  nested.set("inner", Batch{{"x", torch::Tensor()}});
  EXPECT_FALSE(has_plain_bytes(nested));
}

}  // namespace
}  // namespace lockstep::data
