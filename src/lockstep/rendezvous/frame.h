// The messages that are sent: frames of a magic number, a version, a kind, a length and a payload
// of fields. A stream of anything else is recognised by its first bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/base/error.h"

namespace lockstep::rendezvous {

enum class FrameKind : std::uint16_t {
  // The handshake of handshake.h.
  kHello = 1,   // the client's nonce
  kChallenge,   // the server's nonce and proof
  kProof,       // what the client claims (rank, world size, process) and its proof
  kWelcome,     // the server's answer to a proof: the rank has joined
  kTurnedAway,  // the server's answer if the rank cannot join: a reason
  kComeLater,   // the server's answer if the rank will be free soon: try again

  kBeat,     // "still alive": a status and the ranks this one waits for; answered with kRoster
  kRoster,   // what the server knows of all ranks; also sent when a rank joins, leaves or fails
  kSet,      // a request id, a key, a value. Requests are answered with kAnswer or kRefusal
  kAnswer,   // the request's id and the result
  kRefusal,  // the request's id and a reason
  kGet,      // id, key
  kAwait,    // id, key: answered once the key is set
  kCancel,   // id of a kAwait; not answered
  kAdd,      // id, key, delta
  kErase,    // id, key
  kCount,    // id
  kFail,     // id, reason
  kLeave,    // id

  // Between the launchers of a run whose number of nodes may change (launcher/node_messages.h).
  kJoin,         // a node wants to take part: its description
  kPrepare,      // to a node: its part in the next generation
  kAgree,        // from a node: the number of the generation that it was prepared for
  kBegin,        // to a node: the number of the generation whose ranks it starts now
  kStop,         // to a node: the number of the generation whose ranks it stops, and why
  kEnded,        // from a node: how its ranks of a generation ended
  kRegroup,      // to a node: too few nodes are here; look at all endpoints again
  kOver,         // to a node: the run is over: an exit code and a text
  kHeartbeat,    // from both sides: "still alive"
  kOthersEnded,  // to a node: the generation in which the ranks of all other nodes have ended well
};

// The other side has another version of this protocol.
struct OtherVersion : CommError {
  OtherVersion(std::uint64_t theirs, std::uint64_t ours)
      : CommError("the other side has version {} of the protocol, this one has version {}", theirs,
                  ours) {}
};

struct Frame {
  FrameKind kind = FrameKind::kHello;
  std::string payload = {};
};

inline constexpr std::size_t kFrameHeaderSize = 12;
inline constexpr std::size_t kLargestPayload = 64 << 20;
// The limit for a peer that has not yet proved that it knows the token.
inline constexpr std::size_t kLargestHello = 4096;

// Throws CommError if the payload is larger than kLargestPayload.
std::string encode_frame(FrameKind kind, std::string_view payload);

// Cuts a stream of bytes into frames.
class FrameReader {
 public:
  void append(std::string_view bytes) { bytes_.append(bytes); }

  // The next frame, or nothing until all its bytes were appended. Throws CommError if the stream
  // does not consist of frames or a payload is larger than `largest`. Nothing can be read after
  // that.
  std::optional<Frame> next(std::size_t largest = kLargestPayload);

 private:
  std::string bytes_;
  std::size_t done_ = 0;  // bytes of frames that were returned; erased when no whole frame is left
};

// Writes the fields of a payload one after another: integers of 8 bytes, texts with their length.
class FieldWriter {
 public:
  FieldWriter& integer(std::int64_t value);
  FieldWriter& text(std::string_view value);
  const std::string& payload() const { return payload_; }

 private:
  std::string payload_;
};

// Reads what FieldWriter wrote. Throws CommError if the payload is too short for the field.
class FieldReader {
 public:
  explicit FieldReader(std::string_view payload) : rest_(payload) {}
  std::int64_t integer();
  std::string text();

 private:
  std::string_view take(std::size_t size);
  std::string_view rest_;
};

}  // namespace lockstep::rendezvous
