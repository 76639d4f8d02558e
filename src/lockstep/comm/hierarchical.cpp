#include "lockstep/comm/hierarchical.h"

#include <cstring>

#include "lockstep/base/error.h"

namespace lockstep::comm {
namespace {

// Several texts as one, each after its length.
std::string joined(const std::vector<std::string>& texts) {
  std::string all;
  for (const auto& text : texts) {
    const std::uint64_t length = text.size();
    all.append(reinterpret_cast<const char*>(&length), sizeof length).append(text);
  }
  return all;
}

std::vector<std::string> split_up(const std::string& all) {
  std::vector<std::string> texts;
  for (std::size_t at = 0; at < all.size();) {
    std::uint64_t length = 0;
    std::memcpy(&length, all.data() + at, sizeof length);
    texts.push_back(all.substr(at + sizeof length, length));
    at += sizeof length + length;
  }
  return texts;
}

}  // namespace

Hierarchical::Hierarchical(const HierarchicalOptions& options, std::unique_ptr<Communicator> local,
                           std::unique_ptr<Communicator> leaders)
    : Communicator(options.topology),
      name_(options.name),
      hosts_(options.hosts),
      host_(place_of(rank()).host),
      local_(std::move(local)),
      leaders_(std::move(leaders)) {}

Hierarchical::HostRank Hierarchical::place_of(int rank) const {
  for (std::size_t host = 0; host < hosts_.size(); ++host) {
    for (std::size_t local = 0; local < hosts_[host].size(); ++local) {
      if (hosts_[host][local] == rank) {
        return {.host = static_cast<int>(host), .local = static_cast<int>(local)};
      }
    }
  }
  throw CommError("rank {} is on no host", rank);
}

template <typename Action>
auto Hierarchical::passing_on(const Action& action) {
  try {
    return action();
  } catch (const std::exception& error) {
    abort(error.what(), process::failure_kind(error));
    throw;
  }
}

void Hierarchical::do_abort(std::string_view reason, process::FailureKind kind) noexcept {
  local_->abort(reason, kind);
  if (leaders_ != nullptr) leaders_->abort(reason, kind);
}

std::optional<process::RankFailure> Hierarchical::failure() const {
  const auto inside = local_->failure();
  return inside || leaders_ == nullptr ? inside : leaders_->failure();
}

void Hierarchical::check() {
  local_->check();
  if (leaders_ != nullptr) leaders_->check();
}

void Hierarchical::set_progress(std::int64_t epoch, std::int64_t batch) {
  local_->set_progress(epoch, batch);
  if (leaders_ != nullptr) leaders_->set_progress(epoch, batch);
}

void Hierarchical::set_alone(bool alone) {
  local_->set_alone(alone);
  if (leaders_ != nullptr) leaders_->set_alone(alone);
}

std::vector<std::uint64_t> Hierarchical::do_vote(std::uint64_t word) {
  return exchange_words("", word);
}

std::vector<std::uint64_t> Hierarchical::do_announce(std::uint64_t tag) {
  return exchange_words("collective on GPUs", tag);
}

// For both levels a gather is a gather, whatever it is for. So the texts say it; a vote's is empty.
std::vector<std::uint64_t> Hierarchical::exchange_words(std::string_view what, std::uint64_t word) {
  std::string mine(reinterpret_cast<const char*>(&word), sizeof word);
  const auto all = do_gather(mine.append(what), std::nullopt);
  std::vector<std::uint64_t> words;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::string_view text = all[i];
    if (text.size() < sizeof word || text.substr(sizeof word) != what) {
      throw CommError(
          "rank {} called '{}', rank {} called something else: all ranks must do the same", rank(),
          what.empty() ? "vote" : what, i);
    }
    std::memcpy(&words.emplace_back(), text.data(), sizeof word);
  }
  return words;
}

void Hierarchical::do_broadcast(std::byte* data, const Elements& elements, int root) {
  const HostRank from = place_of(root);
  passing_on([&] {
    // The data goes to the leader of the root's host, then to all leaders, then to all ranks.
    if (host_ == from.host && from.local != 0) local_->do_broadcast(data, elements, from.local);
    if (leaders_ != nullptr) leaders_->do_broadcast(data, elements, from.host);
    local_->do_broadcast(data, elements, 0);
  });
}

std::vector<std::string> Hierarchical::do_gather(std::string_view mine, std::optional<int> root) {
  const std::string everything = passing_on([&] {
    const auto of_host = local_->do_gather(mine, 0);
    std::string all;
    if (leaders_ != nullptr) all = joined(leaders_->do_gather(joined(of_host), std::nullopt));
    if (!root || place_of(*root).host == host_) all = local_->broadcast_bytes(all, 0);
    return all;
  });
  std::vector<std::string> all(static_cast<std::size_t>(size()));
  if (root && *root != rank()) return all;
  const auto by_host = split_up(everything);
  for (std::size_t host = 0; host < by_host.size(); ++host) {
    auto texts = split_up(by_host[host]);
    for (std::size_t local = 0; local < texts.size(); ++local) {
      all[static_cast<std::size_t>(hosts_[host][local])] = std::move(texts[local]);
    }
  }
  return all;
}

// First each host adds up the nodes of its ranks as far as the order allows, then the leaders add
// up what is left.
const Hierarchical::Plans& Hierarchical::plans(const ReductionPlan& plan) {
  if (const auto known = plans_.find(plan.leaves); known != plans_.end()) return known->second;
  std::vector<ReductionPlan> inside;
  std::vector<std::vector<TreeNode>> left;
  for (const auto& ranks : hosts_) {
    std::vector<std::vector<TreeNode>> nodes;
    for (const int rank : ranks) nodes.push_back(plan.nodes[static_cast<std::size_t>(rank)]);
    inside.emplace_back(std::move(nodes), plan.leaves);
    left.push_back(inside.back().tree.outputs());
  }
  Plans made{.inside = std::move(inside[static_cast<std::size_t>(host_)]),
             .between = ReductionPlan(std::move(left), plan.leaves)};
  return plans_.emplace(plan.leaves, std::move(made)).first->second;
}

void Hierarchical::do_reduce(const Reduction& reduction, std::span<std::byte* const> outputs) {
  const auto& [inside, between] = plans(reduction.plan);
  const std::size_t bytes = reduction.elements.bytes();
  std::vector<std::string> room(inside.tree.outputs().size(), std::string(bytes, '\0'));
  std::vector<std::byte*> sums;
  for (auto& text : room) sums.push_back(reinterpret_cast<std::byte*>(text.data()));
  const std::vector<const void*> left(sums.begin(), sums.end());
  passing_on([&] {
    local_->do_reduce({.plan = inside,
                       .data = reduction.data,
                       .elements = reduction.elements,
                       .op = reduction.op,
                       .gradients = reduction.gradients},
                      sums);
    if (leaders_ != nullptr) {
      leaders_->do_reduce({.plan = between,
                           .data = left,
                           .elements = reduction.elements,
                           .op = reduction.op,
                           .gradients = reduction.gradients},
                          outputs);
    }
    for (std::byte* output : outputs) local_->do_broadcast(output, reduction.elements, 0);
  });
}

}  // namespace lockstep::comm
