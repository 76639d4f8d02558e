#include "lockstep/comm/hierarchical.h"

#include <cstring>

#include "lockstep/base/error.h"

namespace lockstep::comm {
namespace {

// Several texts as one.
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
      hosts_(options.hosts),
      host_(place_of(rank()).host),
      local_(std::move(local)),
      leaders_(std::move(leaders)) {}

Hierarchical::Place Hierarchical::place_of(int rank) const {
  for (std::size_t host = 0; host < hosts_.size(); ++host) {
    for (std::size_t local = 0; local < hosts_[host].size(); ++local) {
      if (hosts_[host][local] == rank) {
        return {.host = static_cast<int>(host), .local = static_cast<int>(local)};
      }
    }
  }
  throw CommError("rank {} is on no host", rank);
}

std::string Hierarchical::name() const {
  return leaders_ != nullptr ? local_->name() + "+" + leaders_->name() : local_->name() + "+";
}

void Hierarchical::abort(std::string_view reason) noexcept {
  local_->abort(reason);
  if (leaders_ != nullptr) leaders_->abort(reason);
}

void Hierarchical::check() {
  local_->check();
  if (leaders_ != nullptr) leaders_->check();
}

void Hierarchical::set_progress(std::int64_t epoch, std::int64_t batch) {
  local_->set_progress(epoch, batch);
  if (leaders_ != nullptr) leaders_->set_progress(epoch, batch);
}

std::vector<std::uint64_t> Hierarchical::vote(std::uint64_t word) {
  const std::string mine(reinterpret_cast<const char*>(&word), sizeof word);
  std::vector<std::uint64_t> words;
  for (const auto& text : do_gather(mine, std::nullopt)) {
    std::memcpy(&words.emplace_back(), text.data(), sizeof word);
  }
  return words;
}

void Hierarchical::do_broadcast(std::byte* data, std::size_t bytes, int root) {
  const Place from = place_of(root);
  // To the root's leader, to all leaders, to everybody.
  if (host_ == from.host && from.local != 0) local_->do_broadcast(data, bytes, from.local);
  if (leaders_ != nullptr) leaders_->do_broadcast(data, bytes, from.host);
  local_->do_broadcast(data, bytes, 0);
}

std::vector<std::string> Hierarchical::do_gather(std::string_view mine, std::optional<int> root) {
  const auto of_host = local_->do_gather(mine, 0);
  std::string everything;
  if (leaders_ != nullptr) everything = joined(leaders_->do_gather(joined(of_host), std::nullopt));
  if (!root || place_of(*root).host == host_) everything = local_->broadcast_bytes(everything, 0);
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

void Hierarchical::do_reduce(const Reduction& reduction, std::span<std::byte* const> outputs) {
  // Inside the host, as far as its nodes go together.
  const auto nodes_of_host = [&](std::size_t host) {
    std::vector<std::vector<Node>> nodes;
    for (const int rank : hosts_[host]) {
      nodes.push_back(reduction.nodes[static_cast<std::size_t>(rank)]);
    }
    return nodes;
  };
  Reduction inside = reduction;
  inside.nodes = nodes_of_host(static_cast<std::size_t>(host_));
  const auto sums_count = inside.tree().outputs().size();
  std::vector<std::string> room(sums_count, std::string(reduction.elements.bytes(), '\0'));
  std::vector<std::byte*> sums;
  for (auto& text : room) sums.push_back(reinterpret_cast<std::byte*>(text.data()));
  local_->do_reduce(inside, sums);

  // Between hosts.
  if (leaders_ != nullptr) {
    Reduction between = reduction;
    between.nodes.clear();
    for (std::size_t host = 0; host < hosts_.size(); ++host) {
      Reduction other = reduction;
      other.nodes = nodes_of_host(host);
      between.nodes.push_back(other.tree().outputs());
    }
    between.data.assign(sums.begin(), sums.end());
    leaders_->do_reduce(between, outputs);
  }
  for (std::byte* output : outputs) local_->do_broadcast(output, reduction.elements.bytes(), 0);
}

}  // namespace lockstep::comm
