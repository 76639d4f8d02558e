#include "lockstep/launcher/membership.h"

#include <algorithm>

#include <fmt/format.h>

#include "lockstep/base/text.h"

namespace lockstep::launcher {
namespace {

using rendezvous::FrameKind;

bool has(const std::vector<std::string>& list, const std::string& item) {
  return std::ranges::find(list, item) != list.end();
}

std::string nodes_text(std::size_t count) {
  return count == 1 ? "1 node" : fmt::format("{} nodes", count);
}

}  // namespace

Membership::Membership(MembershipOptions options, Time now)
    : options_(std::move(options)),
      last_arrival_(now),
      gather_until_(now + options_.timeout),
      begin_after_(now) {}

CoordinatorStatus Membership::status() const {
  return {.generation = std::max(begun_.number, current_.number),
          .active = phase_ == RunPhase::kPrepare || phase_ == RunPhase::kRun ||
                    phase_ == RunPhase::kStop};
}

std::string Membership::name_of_node(const std::string& node) const {
  const auto found = present_.find(node);
  return found == present_.end() ? "a node" : "node " + found->second.host;
}

void Membership::joined(const NodeDescription& node, Time now) {
  // It came while the nodes of the run were leaving. It would wait for a run that is over.
  if (phase_ == RunPhase::kOver && !present_.contains(node.id)) {
    return options_.send(node.id, FrameKind::kOver, encode(end_));
  }
  // With one endpoint there is no other run in which this generation could go on.
  const bool works =
      phase_ == RunPhase::kPrepare || phase_ == RunPhase::kRun || phase_ == RunPhase::kStop;
  if (options_.has_successors && works && !is_in_generation(node.id) &&
      node.begun.number > std::max(begun_.number, current_.number)) {
    const std::string text = fmt::format(
        "node {} comes from generation {} of another start of the run, and generation {} runs here "
        "without it: start this node again, so that it joins as a new one",
        node.host, node.begun.number, current_.number);
    return options_.send(node.id, FrameKind::kOver, encode(RunEnd{.code = 1, .text = text}));
  }
  present_[node.id] = node;
  if (!has(arrivals_, node.id)) arrivals_.push_back(node.id);
  last_arrival_ = now;
  // What a node knows of a later generation than this coordinator counts here, too.
  if (node.agreed.number > agreed_.number) agreed_ = node.agreed;
  if (node.begun.number > begun_.number) {
    begun_ = node.begun;
    state_ = node.state;
    coordinator_seen_to_end_ = false;
  }
  if (node.begun.number == begun_.number && node.begun.number > 0) {
    coordinator_seen_to_end_ = coordinator_seen_to_end_ || node.saw_end;
    if (state_.failures.size() <= node.state.failures.size()) state_ = node.state;
  }
  if (phase_ == RunPhase::kOver) return;
  tick(now);
}

void Membership::lost(const std::string& node, const std::string& how, Time now) {
  if (!present_.contains(node)) return;
  const std::string text = fmt::format("{} is lost: {}", name_of_node(node), how);
  present_.erase(node);
  std::erase(arrivals_, node);
  if (phase_ == RunPhase::kOver || !is_in_generation(node)) return;
  if (phase_ == RunPhase::kPrepare) return gather(text, {}, now);
  if (outcomes_.contains(node) && outcomes_[node].well) return;  // its ranks are done
  lost_[node] = text;
  if (phase_ == RunPhase::kRun) stop(text, now);
  tick(now);
}

void Membership::agreed(const std::string& node, int generation) {
  if (phase_ != RunPhase::kPrepare || generation != current_.number) return;
  agreeing_.insert(node);
  if (agreeing_.size() == current_.nodes.size()) begin();
}

void Membership::ended(const std::string& node, const GenerationOutcome& outcome, Time now) {
  if (outcome.generation != current_.number || !is_in_generation(node)) return;
  if (phase_ != RunPhase::kRun && phase_ != RunPhase::kStop) return;
  outcomes_[node] = outcome;
  if (!outcome.well && phase_ == RunPhase::kRun) {
    stop(outcome.failure ? to_string(*outcome.failure) : name_of_node(node) + " stopped its ranks",
         now);
  }
  if (phase_ == RunPhase::kRun) tell_last_node();
  tick(now);
}

// If the ranks of all nodes but one have ended, that node is told: no rank waits for its ranks any
// more, and those that are stopped by a signal would keep the run for ever.
void Membership::tell_last_node() {
  std::vector<std::string> running = current_.nodes;
  std::erase_if(running, [this](const std::string& node) { return outcomes_.contains(node); });
  if (running.size() != 1) return;
  send_all(running, FrameKind::kOthersEnded, encode(StopOrder{.generation = current_.number}));
}

// Those of the generation whose ranks have not ended yet, as far as is known here.
std::vector<std::string> Membership::running_nodes() const {
  std::vector<std::string> running = current_.nodes;
  std::erase_if(running, [this](const std::string& node) {
    return outcomes_.contains(node) || lost_.contains(node);
  });
  return running;
}

bool Membership::is_in_generation(const std::string& node) const {
  return has(current_.nodes, node);
}

int Membership::ranks_of(const std::vector<std::string>& nodes) const {
  int ranks = 0;
  for (const std::string& node : nodes) ranks += present_.at(node).ranks;
  return ranks;
}

// The nodes of the next generation: the coordinator first, then those of the last one in their
// order, then those that came first. Not more ranks than shards, because each rank needs one.
std::vector<std::string> Membership::choose() const {
  std::vector<std::string> wanted = {options_.own};
  wanted.insert(wanted.end(), begun_.nodes.begin(), begun_.nodes.end());
  wanted.insert(wanted.end(), arrivals_.begin(), arrivals_.end());
  std::vector<std::string> chosen;
  int ranks = 0;
  for (const std::string& node : wanted) {
    const auto found = present_.find(node);
    if (found == present_.end() || has(chosen, node)) continue;
    if (static_cast<int>(chosen.size()) == options_.most) break;
    if (state_.shards > 0 && ranks + found->second.ranks > state_.shards) continue;
    ranks += found->second.ranks;
    chosen.push_back(node);
  }
  return chosen;
}

bool Membership::all_here(const Generation& generation) const {
  return std::ranges::all_of(generation.nodes,
                             [&](const auto& node) { return present_.contains(node); });
}

bool Membership::has_quorum(const Generation& generation) const {
  // With one endpoint no other launcher can coordinate, and one that was started again there has
  // another id.
  if (generation.number == 0 || !options_.has_successors) return true;
  const std::size_t all = generation.nodes.size();
  const auto here = static_cast<std::size_t>(std::ranges::count_if(
      generation.nodes, [&](const auto& node) { return present_.contains(node); }));
  if (generation.nodes.front() == options_.own) return 2 * here >= all;
  if (2 * here > all) return true;
  // Of two nodes, the other one may go on only if the coordinator's process has ended for certain.
  return all == 2 && here == 1 && coordinator_seen_to_end_ && begun_.number == generation.number;
}

// Whether a generation of these nodes may begin, now or after a short wait for more nodes.
bool Membership::has_enough(const std::vector<std::string>& nodes) const {
  const int count = static_cast<int>(nodes.size());
  if (nodes.empty() || nodes.front() != options_.own || count < options_.least) return false;
  if (begun_.number == 0 && agreed_.number == 0) {
    return options_.may_found && (!options_.has_successors || 2 * count > options_.most);
  }
  // Also of a generation that may not have begun: another coordinator may have begun it.
  return has_quorum(begun_) && (agreed_.number <= begun_.number || has_quorum(agreed_));
}

bool Membership::may_begin(const std::vector<std::string>& nodes, Time now) {
  if (!has_enough(nodes)) {
    enough_since_.reset();
    return false;
  }
  if (!enough_since_) enough_since_ = now;
  const auto waited = now - *enough_since_;
  if (other_side_may_live() && waited < options_.grace + std::chrono::seconds(1)) return false;
  if (begun_.number == 0) {
    return static_cast<int>(nodes.size()) == options_.most ||
           now - last_arrival_ >= options_.last_call;
  }
  const bool is_successor = begun_.number > 0 && begun_.nodes.front() != options_.own;
  if (!is_successor) return true;
  Generation others = begun_;
  others.nodes.erase(others.nodes.begin());
  return all_here(others) || waited >= options_.regroup;
}

// The newest generation that may have begun.
const Generation& Membership::last_generation() const {
  return agreed_.number > begun_.number ? agreed_ : begun_;
}

// Whether another coordinator may still have ranks, also of a generation that may not have begun.
// With one endpoint the old coordinator has ended, because this one listens at its port.
bool Membership::other_side_may_live() const {
  const Generation& last = last_generation();
  if (!options_.has_successors || last.number == 0) return false;
  if (last.nodes.front() == options_.own) return false;
  return !coordinator_seen_to_end_ || begun_.nodes.front() != last.nodes.front();
}

std::string Membership::too_few(std::size_t count) const {
  const Generation& last = last_generation();
  if (last.number == 0 && static_cast<int>(count) >= options_.least) {
    return fmt::format(
        "{} came in {}; with several endpoints the first start needs more than half of {}, so that "
        "it cannot happen twice",
        nodes_text(count), format_duration(options_.timeout), options_.most);
  }
  if (static_cast<int>(count) < options_.least) {
    return fmt::format("{} came in {}, expected at least {}", nodes_text(count),
                       format_duration(options_.timeout), options_.least);
  }
  return fmt::format(
      "only a part of the {} of the last generation came in {}: the others may go on without this "
      "part, so it ends; "
      "resume from the checkpoint",
      nodes_text(last.nodes.size()), format_duration(options_.timeout));
}

void Membership::tick(Time now) {
  if (phase_ == RunPhase::kGather) {
    if (present_.empty()) {  // an unused coordinator, for example before the first node has joined
      gather_until_ = now + options_.timeout;
      gathering_since_.reset();
      return;
    }
    if (!gathering_since_) gathering_since_ = now;
    const std::vector<std::string> nodes = choose();
    if (now >= begin_after_ && may_begin(nodes, now) && prepare(nodes, now)) return;
    // A wait that must be over before the begin may be longer than the time limit.
    if (now >= gather_until_ && (!has_enough(nodes) || !cannot_meet_.empty())) {
      if (cannot_meet_.empty()) return end({.code = 1, .text = too_few(present_.size())});
      return end(
          {.code = 1,
           .text = fmt::format("node 0 cannot reserve a port for the ranks, tried for {}: {}",
                               format_duration(options_.timeout), cannot_meet_)});
    }
    // The missing nodes may be at another endpoint.
    const bool elsewhere = options_.has_successors && !has_enough(nodes);
    if (elsewhere && now - *gathering_since_ >= options_.regroup) {
      send_all(arrivals_, FrameKind::kRegroup, "");
      gathering_since_ = now;
    }
  } else if (phase_ == RunPhase::kRun) {
    if (choose().size() <= current_.nodes.size()) {
      change_wanted_.reset();
      if (outcomes_.size() == current_.nodes.size()) settle(now);
      return;
    }
    if (!change_wanted_) {
      change_wanted_ = now;
      points_then_ = options_.points();
    }
    if (options_.points() != points_then_ || points_then_ == 0 ||
        now - *change_wanted_ >= options_.point_wait) {
      std::string names;
      for (const std::string& node : choose()) {
        if (is_in_generation(node)) continue;
        if (!names.empty()) names += ", ";
        names += name_of_node(node);
      }
      stop(names + " came", now);
    }
  } else if (phase_ == RunPhase::kStop) {
    const std::vector<std::string> running = running_nodes();
    if (running.empty()) return settle(now);
    // A launcher that cannot end its ranks, for example because one waits for a dead disk, is sent
    // away. Then its connection ends, and the others go on without it.
    if (now - stopping_since_ >= options_.timeout) {
      send_all(running, FrameKind::kRegroup, "");
      stopping_since_ = now;
    }
  }
}

// False if the ranks have no place to meet now: for example, no descriptor is free, or the address
// of the network interface was removed. Then nothing has changed, and a later call may succeed.
bool Membership::prepare(const std::vector<std::string>& nodes, Time now) {
  RanksMeeting meeting;
  try {
    meeting = options_.meeting();
    cannot_meet_.clear();
  } catch (const std::exception& error) {
    cannot_meet_ = error.what();
    return false;
  }
  phase_ = RunPhase::kPrepare;
  current_ = {.number = std::max({begun_.number, agreed_.number, current_.number}) + 1,
              .nodes = nodes};
  agreeing_.clear();
  outcomes_.clear();
  lost_.clear();
  change_wanted_.reset();
  gather_until_ = now + options_.timeout;
  const NodeDescription& own = present_.at(options_.own);
  const int world_size = ranks_of(nodes);
  if (state_.shards == 0) {
    // As many as there are ranks if all nodes come, so the results do not depend on how many come,
    // and when.
    state_.shards = std::max(options_.most * own.ranks, world_size);
    state_.threads = std::max(1, own.cores / own.ranks);
  }
  if (why_.empty() && begun_.number > 0) {
    why_ = fmt::format("the coordinator of generation {} is lost", begun_.number);
    cause_ = AttemptFailure{.attempt = begun_.number - 1, .how = why_};
  }
  GenerationPart part{.generation = current_,
                      .state = state_,
                      .world_size = world_size,
                      .port = meeting.port,
                      .run_id = meeting.run_id,
                      .why = why_,
                      .cause = cause_};
  for (const std::string& node : nodes) {
    options_.send(node, FrameKind::kPrepare, encode(part));
    part.first_rank += present_.at(node).ranks;
    ++part.node_rank;
  }
  return true;
}

void Membership::begin() {
  phase_ = RunPhase::kRun;
  begun_ = agreed_ = current_;
  coordinator_seen_to_end_ = false;
  for (const std::string& node : current_.nodes) {
    present_[node].begun = present_[node].agreed = current_;
  }
  send_all(current_.nodes, FrameKind::kBegin, encode(StopOrder{.generation = current_.number}));
}

void Membership::stop(const std::string& why, Time now) {
  phase_ = RunPhase::kStop;
  why_ = why;
  stopping_since_ = now;
  send_all(running_nodes(), FrameKind::kStop,
           encode(StopOrder{.generation = current_.number, .why = why}));
}

// All nodes of the generation have ended their ranks, or are lost.
void Membership::settle(Time now) {
  const bool well =
      std::ranges::all_of(outcomes_, [](const auto& entry) { return entry.second.well; });
  if (well && !outcomes_.empty()) return end({.code = 0, .text = "all ranks ended well"});
  cause_.reset();
  // The failures of ranks that lost a node with its ranks are consequences. A change of nodes is no
  // failure of the program.
  if (!lost_.empty()) {
    cause_ = AttemptFailure{.attempt = current_.number - 1, .how = why_};
    return gather(std::string(why_), {}, now);
  }
  for (const std::string& node : current_.nodes) {
    const auto found = outcomes_.find(node);
    if (found == outcomes_.end() || !found->second.failure) continue;
    if (!cause_ || found->second.failure->blame > cause_->blame) cause_ = found->second.failure;
  }
  if (!cause_) return gather(why_, {}, now);
  state_.failures.push_back(*cause_);
  const RestartDecision decision = decide_restart(state_.failures, options_.max_restarts);
  if (decision.restart) {
    gather(fmt::format("restart {} of {}: {}", state_.failures.size(), options_.max_restarts,
                       to_string(*cause_)),
           decision.wait, now);
    return;
  }
  std::string text = to_string(*cause_);
  if (options_.max_restarts > 0) {
    text += fmt::format("\nit is not started again: {}", decision.why_not);
    for (std::size_t i = 0; i < state_.failures.size(); ++i) {
      text += fmt::format("\n  failure {}: {}", i + 1, to_string(state_.failures[i]));
    }
  }
  end({.code = cause_->shell_code, .text = text});
}

void Membership::gather(const std::string& why, std::chrono::milliseconds wait, Time now) {
  phase_ = RunPhase::kGather;
  why_ = why;
  begin_after_ = now + wait;
  gather_until_ = now + options_.timeout;
  enough_since_.reset();
  gathering_since_.reset();
  cannot_meet_.clear();
  tick(now);
}

void Membership::end_run(const RunEnd& end) {
  if (phase_ != RunPhase::kOver) this->end(end);
}

void Membership::end(const RunEnd& end) {
  phase_ = RunPhase::kOver;
  end_ = end;
  send_all(arrivals_, FrameKind::kOver, encode(end));
}

void Membership::send_all(const std::vector<std::string>& nodes, FrameKind kind,
                          const std::string& payload) {
  for (const std::string& node : nodes) {
    if (present_.contains(node)) options_.send(node, kind, payload);
  }
}

}  // namespace lockstep::launcher
