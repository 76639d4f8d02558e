// The phases of a step: parts that compute their own loss and update their own networks, one after
// another in every batch. docs/decisions/parts-and-phases.md
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

struct Phase {
  std::string name;                          // handle_batch finds it in state.phase
  std::vector<std::string> optimizers = {};  // that it steps; default: the one of its name
  std::int64_t every = 1;                    // takes place in every n-th train batch only
};

// "discriminator, generator (generator and encoder, every 2)": for checkpoints and messages. Empty
// for a single phase without a name.
std::string describe(const std::vector<Phase>& phases);

// Phases in their order. A name alone is a phase that steps the optimizer of that name:
//
//   .phases = {"discriminator", ls::Phase{.name = "generator", .every = 5}}
class Phases {
 public:
  struct Item {
    Item(const char* name) : phase{.name = name} {}
    Item(std::string name) : phase{.name = std::move(name)} {}
    Item(Phase given) : phase(std::move(given)) {}

    Phase phase;
  };

  Phases() = default;
  Phases(std::initializer_list<Item> items) {
    for (const auto& item : items) add(item);
  }

  void add(Item item) { phases_.push_back(std::move(item.phase)); }
  bool empty() const { return phases_.empty(); }
  std::size_t size() const { return phases_.size(); }
  auto begin() const { return phases_.begin(); }
  auto end() const { return phases_.end(); }

 private:
  std::vector<Phase> phases_;
};

}  // namespace lockstep
