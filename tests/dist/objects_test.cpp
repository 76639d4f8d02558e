#include "lockstep/dist/objects.h"

#include <span>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/dist/workers.h"

namespace lockstep::dist {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Score {
  double loss = 0;
  std::int64_t samples = 0;
};

// Has a state, as metrics and callbacks have.
class Counter {
 public:
  Counter() = default;
  explicit Counter(int value) : value_(value) {}
  int value() const { return value_; }
  StateDict state() const { return {{"value", value_}}; }
  void load_state(const StateDict& state) { value_ = state.get<int>("value"); }

 private:
  int value_ = 0;
};

// Has a format of its own.
struct Name {
  std::string text;
};

}  // namespace

template <>
struct ObjectFormat<Name> {
  static std::string to_bytes(const Name& object) { return "name " + object.text; }
  static Name from_bytes(std::string bytes) {
    if (!bytes.starts_with("name ")) throw Error("expected a name, got '{}'", bytes);
    return {bytes.substr(5)};
  }
};

namespace {

static_assert(SendableObject<int> && SendableObject<Score> && SendableObject<std::vector<Score>>);
static_assert(SendableObject<std::vector<std::string>> && SendableObject<std::vector<bool>> &&
              SendableObject<std::vector<std::vector<Counter>>> &&
              SendableObject<std::map<std::string, std::vector<Name>>>);
static_assert(!SendableObject<Model> && !SendableObject<std::vector<Model>>);
// These would be sent without the data that they point to.
static_assert(!SendableObject<const char*> && !SendableObject<std::string_view> &&
              !SendableObject<std::span<int>> && !SendableObject<std::vector<std::string_view>> &&
              !SendableObject<std::map<std::string, const char*>>);

class Objects : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Backends, Objects, ::testing::Values("shm", "gloo"));

TEST_P(Objects, GatherToAllRanks) {
  run_workers({.count = 3, .backend = GetParam()}, [](int rank, int) {
    EXPECT_THAT(all_gather_object(10 * rank), ElementsAre(0, 10, 20));
    EXPECT_THAT(all_gather_object(std::string(static_cast<std::size_t>(rank), 'x')),
                ElementsAre("", "x", "xx"));
    const auto scores = all_gather_object(Score{.loss = 0.5 * rank, .samples = rank});
    EXPECT_EQ(scores[2].loss, 1.0);
    EXPECT_EQ(scores[1].samples, 1);
    const auto lists = all_gather_object(std::vector<int>(static_cast<std::size_t>(rank), rank));
    EXPECT_THAT(lists, ElementsAre(ElementsAre(), ElementsAre(1), ElementsAre(2, 2)));
    EXPECT_EQ(all_gather_object(Counter(rank + 5))[2].value(), 7);
    EXPECT_EQ(all_gather_object(Name{rank == 1 ? "one" : "other"})[1].text, "one");
  });
}

TEST_P(Objects, VectorsAndMapsOfThem) {
  run_workers({.count = 2, .backend = GetParam()}, [](int rank, int) {
    using Texts = std::vector<std::string>;
    const auto texts =
        all_gather_object(rank == 0 ? Texts{"", "a b", std::string("c\0", 2)} : Texts{});
    EXPECT_THAT(texts, ElementsAre(Texts{"", "a b", std::string("c\0", 2)}, Texts{}));
    EXPECT_THAT(all_gather_object(std::vector<bool>{true, rank == 1})[0], ElementsAre(true, false));
    const std::vector<std::vector<Counter>> nested{{Counter(rank)}, {}, {Counter(2), Counter(3)}};
    const auto counters = all_gather_object(nested)[1];
    ASSERT_EQ(counters.size(), 3U);
    EXPECT_EQ(counters[0][0].value(), 1);
    EXPECT_EQ(counters[1].size(), 0U);
    EXPECT_EQ(counters[2][1].value(), 3);
    const std::map<std::string, Texts> by_name{{"", {"x"}}, {"mine", {std::to_string(rank)}}};
    EXPECT_EQ(all_gather_object(by_name)[rank], by_name);
  });
}

TEST_P(Objects, GatherToOneRank) {
  run_workers({.count = 3, .backend = GetParam()}, [](int rank, int) {
    EXPECT_EQ(gather_object(rank).size(), rank == 0 ? 3U : 0U);
    const auto states = gather_object(
        StateDict{{"rank", rank}, {"weights", torch::full({rank + 1}, rank, torch::kFloat32)}}, 2);
    ASSERT_EQ(states.size(), rank == 2 ? 3U : 0U);
    if (rank != 2) return;
    EXPECT_EQ(states[1].get<int>("rank"), 1);
    EXPECT_TRUE(states[1].get<torch::Tensor>("weights").equal(torch::full({2}, 1.0F)));
  });
}

TEST_P(Objects, Broadcast) {
  run_workers({.count = 2, .backend = GetParam()}, [](int rank, int) {
    EXPECT_EQ(broadcast_object(rank == 0 ? std::string("a\0b", 3) : std::string()),
              std::string("a\0b", 3));
    EXPECT_EQ(broadcast_object(rank + 3, 1), 4);
    const StateDict state = broadcast_object(rank == 0 ? StateDict{{"lr", 0.5}} : StateDict());
    EXPECT_EQ(state.get<double>("lr"), 0.5);
  });
}

TEST(Object, AloneAreReturnedUnchanged) {
  EXPECT_THAT(gather_object(std::string("mine")), ElementsAre("mine"));
  EXPECT_THAT(all_gather_object(std::vector<double>{1, 2}), ElementsAre(ElementsAre(1, 2)));
  EXPECT_EQ(broadcast_object(Counter(4)).value(), 4);
}

TEST(Object, AnErrorNamesTheRank) {
  run_workers({.count = 2}, [](int rank, int) {
    // The ranks use different types.
    const std::string error = error_of<CommError>([&] {
      if (rank == 0) {
        all_gather_object(std::int64_t(7));
      } else {
        all_gather_object(std::string("seven"));
      }
    });
    if (rank == 0) {
      EXPECT_THAT(error, AllOf(HasSubstr("rank 1"), HasSubstr("expected 8 bytes, got 5")));
    }
    const std::string not_a_list = error_of<CommError>([&] {
      if (rank == 0) {
        all_gather_object(std::vector<std::string>{"a"});
      } else {
        all_gather_object(std::string("seven"));
      }
    });
    if (rank == 0) {
      EXPECT_THAT(not_a_list, AllOf(HasSubstr("rank 1"), HasSubstr("a list of objects")));
    }
  });
}

}  // namespace
}  // namespace lockstep::dist
