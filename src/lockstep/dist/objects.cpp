#include "lockstep/dist/objects.h"

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
