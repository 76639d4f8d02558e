#include "lockstep/comm/shared.h"

#include <algorithm>
#include <cstring>

#include "lockstep/base/error.h"

namespace lockstep::comm {
namespace {

using process::HostGroup;
using process::Operation;

Topology topology_of(const HostGroup& host_group) {
  return {.rank = host_group.rank(),
          .world_size = host_group.size(),
          .local_rank = host_group.rank(),
          .local_size = host_group.size()};
}

// Up to this many bytes, every rank sums everything itself. Beyond that, each rank sums one part
// for all ranks, which is less work but needs one more barrier.
constexpr std::size_t kDirectBytes = 16 * 1024;

// memcpy() must not see the null pointers of tensors without elements.
void copy_bytes(const void* from, void* to, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

// The number by which HostGroup tells reductions of the same size apart.
std::uint32_t kind_of_reduction(const Elements& elements, ReduceOp op) {
  return (static_cast<std::uint32_t>(elements.type) << 8) | static_cast<std::uint32_t>(op);
}

std::uint32_t kind_of_broadcast(const Elements& elements, int root) {
  return (static_cast<std::uint32_t>(elements.type) << 16) | static_cast<std::uint32_t>(root);
}

std::uint32_t kind_of_gather(const std::optional<int>& root) {
  return root ? static_cast<std::uint32_t>(*root) + 1 : 0;
}

std::string describe_kind(const HostGroup& host_group, Operation operation, std::uint32_t kind) {
  switch (operation) {
    case Operation::kAllReduce:
    case Operation::kGradients:
      return describe_reduction(static_cast<torch::ScalarType>(kind >> 8),
                                static_cast<ReduceOp>(kind & 0xff));
    case Operation::kBroadcast:
      return fmt::format("{} from rank {}",
                         c10::toString(static_cast<torch::ScalarType>(kind >> 16)),
                         host_group.name(static_cast<int>(kind & 0xffff)));
    case Operation::kGather:
      return kind == 0 ? "to all ranks"
                       : fmt::format("to rank {}", host_group.name(static_cast<int>(kind) - 1));
    default:
      return "";
  }
}

}  // namespace

Shared::Shared(HostGroup& host_group)
    : Communicator(topology_of(host_group)), host_group_(host_group), slots_(host_group) {
  host_group_.set_describe_kind([&host_group](Operation operation, std::uint32_t kind) {
    return describe_kind(host_group, operation, kind);
  });
}

std::vector<std::uint64_t> Shared::do_vote(std::uint64_t word) {
  return exchange_words(Operation::kVote, word);
}

std::vector<std::uint64_t> Shared::do_announce(std::uint64_t tag) {
  return exchange_words(Operation::kDevices, tag);
}

std::vector<std::uint64_t> Shared::exchange_words(Operation operation, std::uint64_t word) {
  host_group_.meet({.operation = operation, .word = word});
  std::vector<std::uint64_t> words(static_cast<std::size_t>(size()));
  for (int i = 0; i < size(); ++i) words[static_cast<std::size_t>(i)] = host_group_.word(i);
  return words;
}

void Shared::do_barrier() {
  host_group_.meet({.operation = Operation::kBarrier});
}

void Shared::do_synchronize() {
  host_group_.meet({.operation = Operation::kUpdate});
}

std::optional<torch::Tensor> Shared::shared_memory(std::size_t bytes) {
  bytes = std::max<std::size_t>(bytes, 1);
  std::shared_ptr<process::SharedMemory> memory;
  std::string handle;
  if (rank() == 0) {
    memory = std::make_shared<process::SharedMemory>(bytes);
    handle = memory->handle();
  }
  handle = broadcast_bytes(handle, 0);
  if (rank() != 0) {
    memory = std::make_shared<process::SharedMemory>(process::SharedMemory::open(handle));
  }
  barrier();
  memory->close_handle();
  return torch::from_blob(
      memory->data(), {static_cast<std::int64_t>(bytes)}, [memory](void*) {}, torch::kUInt8);
}

void Shared::do_broadcast(std::byte* data, const Elements& elements, int root) {
  const std::size_t bytes = elements.bytes();
  const std::uint32_t kind = kind_of_broadcast(elements, root);
  std::size_t done = 0;
  do {
    const std::size_t count = std::min(MessageSlots::kSlotBytes, bytes - done);
    const int turn = next_turn();
    if (rank() == root) copy_bytes(data + done, slots_.slot(root, turn), count);
    host_group_.meet({.operation = Operation::kBroadcast, .detail = bytes, .kind = kind});
    if (rank() != root) copy_bytes(slots_.slot(root, turn), data + done, count);
    done += count;
  } while (done < bytes);
}

std::vector<std::string> Shared::do_gather(std::string_view mine, std::optional<int> root) {
  const bool receives = !root || *root == rank();
  std::vector<std::string> all(static_cast<std::size_t>(size()));
  std::uint64_t longest = 0;
  const std::uint32_t kind = kind_of_gather(root);
  host_group_.meet({.operation = Operation::kGather, .kind = kind, .word = mine.size()});
  for (int i = 0; i < size(); ++i) {
    const std::uint64_t length = host_group_.word(i);
    longest = std::max(longest, length);
    if (receives) all[static_cast<std::size_t>(i)].resize(length);
  }
  for (std::size_t done = 0; done < longest; done += MessageSlots::kSlotBytes) {
    const int turn = next_turn();
    if (done < mine.size()) {
      std::memcpy(slots_.slot(rank(), turn), mine.data() + done,
                  std::min(MessageSlots::kSlotBytes, mine.size() - done));
    }
    host_group_.meet({.operation = Operation::kGather, .detail = longest, .kind = kind});
    if (!receives) continue;
    for (int i = 0; i < size(); ++i) {
      std::string& text = all[static_cast<std::size_t>(i)];
      if (done >= text.size()) continue;
      std::memcpy(text.data() + done, slots_.slot(i, turn),
                  std::min(MessageSlots::kSlotBytes, text.size() - done));
    }
  }
  return all;
}

void Shared::do_reduce(const Reduction& reduction, std::span<std::byte* const> outputs) {
  const Elements& elements = reduction.elements;
  const std::size_t width = c10::elementSize(elements.type);
  // A slot holds one piece of each node of a rank.
  const std::size_t most = std::max(outputs.size(), reduction.plan.most);
  if (most == 0) return;  // the leaves are on other hosts
  const auto piece = static_cast<std::int64_t>(MessageSlots::kSlotBytes / most / width / 64 * 64);
  const std::size_t piece_bytes = static_cast<std::size_t>(piece) * width;
  const HostGroup::CollectiveCall call{
      .operation = reduction.gradients ? Operation::kGradients : Operation::kAllReduce,
      .detail = elements.bytes(),
      .kind = kind_of_reduction(elements, reduction.op)};

  std::vector<const void*> inputs;
  std::vector<void*> sums(outputs.size());
  std::int64_t done = 0;
  do {
    const std::int64_t count = std::min(piece, elements.count - done);
    const std::size_t bytes = static_cast<std::size_t>(count) * width;
    const std::size_t offset = static_cast<std::size_t>(done) * width;
    const int turn = next_turn();
    const bool direct = size() == 2 || bytes <= kDirectBytes;
    const std::int64_t begin = direct ? 0 : count * rank() / size();
    const std::int64_t end = direct ? count : count * (rank() + 1) / size();
    const std::size_t skip = static_cast<std::size_t>(begin) * width;
    const auto own = [&](std::size_t node) {
      return static_cast<const std::byte*>(reduction.data[node]) + offset;
    };
    for (std::size_t i = 0; i < reduction.data.size(); ++i) {
      copy_bytes(own(i), slots_.slot(rank(), turn) + i * piece_bytes, bytes);
    }
    host_group_.meet(call);
    // This rank reads its own nodes from the caller's arrays: the copy in the slot would take room
    // in the cache.
    inputs.clear();
    for (int r = 0; r < size(); ++r) {
      const std::size_t nodes = reduction.plan.nodes[static_cast<std::size_t>(r)].size();
      for (std::size_t i = 0; i < nodes; ++i) {
        inputs.push_back((r == rank() ? own(i) : slots_.slot(r, turn) + i * piece_bytes) + skip);
      }
    }
    for (std::size_t k = 0; k < outputs.size(); ++k) {
      sums[k] = direct ? outputs[k] + offset : slots_.results(turn) + k * piece_bytes + skip;
    }
    reduction.plan.tree.reduce(inputs, sums, end - begin, elements.type, reduction.op);
    if (!direct) {
      host_group_.meet(call);
      for (std::size_t k = 0; k < outputs.size(); ++k) {
        copy_bytes(slots_.results(turn) + k * piece_bytes, outputs[k] + offset, bytes);
      }
    }
    done += count;
  } while (done < elements.count);
}

}  // namespace lockstep::comm
