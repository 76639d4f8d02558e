#include "lockstep/dist/objects.h"

#include <cstdint>
#include <cstring>

#include "lockstep/checkpoint/pickle.h"
#include "lockstep/dist/group.h"

namespace lockstep::dist {

std::string ObjectFormat<StateDict>::to_bytes(const StateDict& object) {
  return checkpoint::to_pickle(object);
}

StateDict ObjectFormat<StateDict>::from_bytes(std::string bytes) {
  return checkpoint::from_pickle(std::move(bytes));
}

namespace detail {

std::string pack(const std::vector<std::string>& texts) {
  std::string bytes;
  for (const std::string& text : texts) {
    const std::uint64_t size = text.size();
    bytes.append(reinterpret_cast<const char*>(&size), sizeof size);
    bytes += text;
  }
  return bytes;
}

std::vector<std::string> unpack(const std::string& bytes) {
  std::vector<std::string> texts;
  std::size_t at = 0;
  while (at < bytes.size()) {
    std::uint64_t size = 0;
    const std::size_t left = bytes.size() - at;
    if (left >= sizeof size) std::memcpy(&size, bytes.data() + at, sizeof size);
    if (left < sizeof size || size > left - sizeof size) {
      throw CommError("expected a list of objects, got {} bytes that are none", bytes.size());
    }
    texts.push_back(bytes.substr(at + sizeof size, size));
    at += sizeof size + size;
  }
  return texts;
}

std::vector<std::string> gather_bytes(const std::string& bytes, int root) {
  return group().gather_bytes(bytes, root);
}

std::vector<std::string> all_gather_bytes(const std::string& bytes) {
  return group().all_gather_bytes(bytes);
}

std::string broadcast_bytes(const std::string& bytes, int root) {
  return group().broadcast_bytes(bytes, root);
}

}  // namespace detail
}  // namespace lockstep::dist
