#include "lockstep/rendezvous/rendezvous.h"

#include <utility>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/rendezvous/rendezvous_join.h"
#include "lockstep/rendezvous/rendezvous_link.h"

namespace lockstep::rendezvous {
namespace {

using namespace std::chrono_literals;

// How long a rank that leaves or fails waits for the server's answer. The server may be gone.
constexpr auto kLastAnswerTimeout = 1s;
// If the server has been silent for kSilenceLimit already, a failing rank waits only
// kShortLastAnswerTimeout.
constexpr auto kSilenceLimit = 500ms;
constexpr auto kShortLastAnswerTimeout = 100ms;

std::string name(const RendezvousOptions& options) {
  return "rendezvous at " + to_string(Endpoint{.address = options.address, .port = options.port});
}

// Throws if the request does not fit into a payload together with its id and the fields' lengths.
void require_room(std::string_view key, std::size_t size) {
  constexpr std::size_t kOverheadBytes = 32;
  if (size <= kLargestPayload - kOverheadBytes) return;
  throw CommError("rendezvous: key '{}' with its value has {}, expected at most {}",
                  key.substr(0, 80), format_bytes(static_cast<double>(size)),
                  format_bytes(kLargestPayload));
}

}  // namespace

Rendezvous::Rendezvous(RendezvousOptions options)
    : options_(std::move(options)),
      name_(name(options_)),
      link_(std::make_unique<RendezvousLink>(
          join_rendezvous(options_),
          RendezvousLinkOptions{.name = name_, .world_size = options_.world_size})) {}

Rendezvous::~Rendezvous() {
  leave();
}

std::string Rendezvous::ask(FrameKind kind, std::string_view key, const FieldWriter& fields) {
  require_room(key, fields.payload().size());
  const auto answer =
      link_->ask({.kind = kind, .fields = fields, .deadline = deadline_in(options_.timeout)});
  if (answer) return *answer;
  throw CommError("{}: rank {} asked for key '{}': no answer in {}", name_, options_.rank, key,
                  format_duration(options_.timeout));
}

void Rendezvous::set(std::string_view key, std::string_view value) {
  ask(FrameKind::kSet, key, FieldWriter().text(key).text(value));
}

std::string Rendezvous::get(std::string_view key, const Limit& limit) {
  require_room(key, key.size());
  if (!failure()) {
    const auto answer = link_->ask({.kind = FrameKind::kAwait,
                                    .fields = FieldWriter().text(key),
                                    .deadline = limit.until,
                                    .until_failure = true});
    if (answer) {
      FieldReader fields(*answer);
      fields.integer();
      return fields.text();
    }
  }
  const auto failed = failure();
  if (!failed) {
    throw CommError("{}: rank {} waited for key '{}': it was not set in {}", name_, options_.rank,
                    key, format_duration(limit.timeout));
  }
  // A value that was set before the failure can still be read.
  if (auto value = try_get(key)) return *std::move(value);
  throw CommError("{}: rank {} stopped waiting for key '{}': {}", name_, options_.rank, key,
                  to_string(*failed));
}

std::optional<std::string> Rendezvous::try_get(std::string_view key) {
  const std::string answer = ask(FrameKind::kGet, key, FieldWriter().text(key));
  FieldReader fields(answer);
  if (fields.integer() == 0) return std::nullopt;
  return fields.text();
}

void Rendezvous::wait(std::span<const std::string> keys, std::chrono::milliseconds timeout) {
  const Limit limit{.until = deadline_in(timeout), .timeout = timeout};
  for (const std::string& key : keys) get(key, limit);
}

bool Rendezvous::check(std::span<const std::string> keys) {
  for (const std::string& key : keys) {
    if (!try_get(key)) return false;
  }
  return true;
}

std::int64_t Rendezvous::add(std::string_view key, std::int64_t delta) {
  const std::string answer = ask(FrameKind::kAdd, key, FieldWriter().text(key).integer(delta));
  return FieldReader(answer).integer();
}

bool Rendezvous::erase(std::string_view key) {
  const std::string answer = ask(FrameKind::kErase, key, FieldWriter().text(key));
  return FieldReader(answer).integer() != 0;
}

std::int64_t Rendezvous::num_keys() {
  const std::string answer = ask(FrameKind::kCount, "");
  return FieldReader(answer).integer();
}

void Rendezvous::set_status(std::string status) {
  if (status.size() > kLongestStatus) status.resize(kLongestStatus);
  link_->set_status(std::move(status));
}

void Rendezvous::set_waits_for(std::string ranks) {
  if (ranks.size() > kLongestStatus) ranks.resize(kLongestStatus);
  link_->set_waits_for(std::move(ranks));
}

const std::string& Rendezvous::local_address() const {
  return link_->local_address();
}

std::vector<Rendezvous::Peer> Rendezvous::peers() const {
  return link_->peers();
}

std::optional<Rendezvous::Failure> Rendezvous::failure() const {
  return link_->failure();
}

void Rendezvous::fail(const std::string& reason) {
  const std::lock_guard lock(ending_);
  if (std::exchange(ended_, true)) return;
  const std::string cut = reason.substr(0, kLongestReason);
  const bool silent = link_->peers()[0].silent > kSilenceLimit;
  try {
    link_->ask({.kind = FrameKind::kFail,
                .fields = FieldWriter().text(cut),
                .deadline = deadline_in(silent ? kShortLastAnswerTimeout : kLastAnswerTimeout)});
  } catch (const CommError&) {
    // The server cannot be reached. The reason is at least kept in this process.
  }
  link_->set_failure_if_none({.rank = options_.rank, .reason = cut});
}

void Rendezvous::leave() {
  const std::lock_guard lock(ending_);
  if (!std::exchange(ended_, true)) {
    link_->expect_end();
    try {
      link_->ask({.kind = FrameKind::kLeave, .deadline = deadline_in(kLastAnswerTimeout)});
    } catch (const CommError&) {
      // The server has ended already, so this rank need not tell it.
    }
  }
  link_->close(fmt::format("rank {} has left", options_.rank));
}

}  // namespace lockstep::rendezvous
