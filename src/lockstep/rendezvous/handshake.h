// Two processes of a run prove to each other that both know the run's token, without sending it.
//
//   client                                        server
//   hello: the client's nonce              ->
//                                          <-     challenge: the server's nonce and proof
//   proof: the claim, the client's proof   ->
//
// A proof is an HMAC-SHA256 under a key made of the token and the run's name. It covers the role,
// the version of the protocol and both nonces, and the client's also covers what it claims (rank,
// world size). The nonces are new each time, so a recorded handshake cannot be used later. The role
// is covered, so a proof of one side cannot be sent back to it as the proof of the other side.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep::rendezvous {

inline constexpr std::size_t kNonceBytes = 32;

// Unpredictable bytes. Throws CommError if the system cannot produce them.
std::string random_bytes(std::size_t count);

// 64 random hexadecimal digits.
std::string random_token();

// A token for one purpose. It cannot be used to compute `token` or the token of another purpose.
std::string derive_token(std::string_view token, std::string_view purpose);

// The random bytes that each side sent in one handshake.
struct Nonces {
  std::string client = {};
  std::string server = {};
};

// Makes and checks the proofs of one run.
class Handshake {
 public:
  // `run` is the run's name. It tells apart runs that share a token. It is no secret and may be "".
  Handshake(std::string_view token, std::string_view run);

  std::string server_proof(const Nonces& nonces) const;
  std::string client_proof(const Nonces& nonces, std::string_view claim) const;

  // Takes the same time wherever the two proofs differ, so that the time reveals nothing.
  static bool matches(std::string_view expected, std::string_view shown);

 private:
  std::string key_;
};

}  // namespace lockstep::rendezvous
