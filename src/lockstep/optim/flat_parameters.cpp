#include "lockstep/optim/flat_parameters.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <new>
#include <set>
#include <utility>

#include <fmt/ranges.h>
#include <sys/mman.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/compute/parallel.h"
#include "lockstep/optim/kernels.h"

namespace lockstep::optim {
namespace {

using Slice = FlatParameters::Slice;
using Buffer = FlatParameters::Buffer;

// The alignment of a new torch tensor, which some kernels use for faster loops.
constexpr std::int64_t kAlignment = 64;

std::string shape_text(const torch::Tensor& tensor) {
  return fmt::format("[{}]", fmt::join(tensor.sizes(), ", "));
}

void check_parameter(const std::string& name, const torch::Tensor& tensor) {
  if (!tensor.is_leaf()) {
    throw ConfigError("parameter {}: expected a leaf tensor, got the result of a computation",
                      name);
  }
  if (tensor.layout() != torch::kStrided || !tensor.is_floating_point()) {
    throw ConfigError("parameter {}: expected a dense tensor of real numbers, got {} {}", name,
                      c10::str(tensor.layout()), c10::toString(tensor.scalar_type()));
  }
}

bool can_be_trained(const torch::Tensor& tensor) {
  return tensor.is_leaf() && tensor.layout() == torch::kStrided && tensor.is_floating_point();
}

// If two tensors shared memory, they would become two copies with different values.
void refuse_shared_memory(const std::vector<Buffer>& buffers) {
  for (const Buffer& buffer : buffers) {
    std::map<const char*, const Slice*> by_address;
    for (const Slice& slice : buffer.slices) {
      const auto* address = static_cast<const char*>(slice.parameter.data_ptr());
      const auto [place, fresh] = by_address.emplace(address, &slice);
      if (!fresh) {
        throw ConfigError(
            "parameters {} and {} are two tensors in the same memory; to tie weights, register one "
            "tensor under both names",
            place->second->name, slice.name);
      }
    }
    const char* previous_end = nullptr;
    const Slice* previous = nullptr;
    for (const auto& [address, slice] : by_address) {
      if (previous != nullptr && address < previous_end) {
        throw ConfigError("parameters {} and {} overlap in memory; give each its own (clone())",
                          previous->name, slice->name);
      }
      previous = slice;
      previous_end = address + slice->parameter.nbytes();
    }
  }
}

std::vector<std::string> names_of(const NamedTensors& parameters) {
  std::vector<std::string> names;
  std::set<const c10::TensorImpl*> seen;
  for (const auto& [name, tensor] : parameters) {
    if (tensor.defined() && seen.insert(tensor.unsafeGetTensorImpl()).second) names.push_back(name);
  }
  return names;
}

// Each tensor once, under its first name.
NamedTensors distinct(const NamedTensors& parameters) {
  NamedTensors found;
  std::set<const c10::TensorImpl*> seen;
  std::set<std::string> names;
  for (const auto& [name, tensor] : parameters) {
    if (!tensor.defined() || tensor.numel() == 0) continue;
    if (!seen.insert(tensor.unsafeGetTensorImpl()).second) continue;
    if (!names.insert(name).second) {
      throw ConfigError("parameter {}: two different tensors have this name", name);
    }
    found.emplace_back(name, tensor);
  }
  return found;
}

std::vector<Buffer> sort_into_buffers(const NamedTensors& parameters) {
  std::vector<Buffer> buffers;
  std::map<std::pair<torch::ScalarType, std::string>, std::size_t> index;
  for (const auto& [name, tensor] : parameters) {
    check_parameter(name, tensor);
    const auto [place, fresh] =
        index.try_emplace({tensor.scalar_type(), tensor.device().str()}, buffers.size());
    if (fresh) buffers.emplace_back();
    buffers[place->second].slices.push_back(
        {.name = name, .parameter = tensor, .size = tensor.numel()});
  }
  refuse_shared_memory(buffers);
  return buffers;
}

// The bytes in which a dense tensor's elements lie.
std::pair<const char*, const char*> extent(const torch::Tensor& tensor) {
  std::int64_t last = 0;
  for (std::int64_t dim = 0; dim < tensor.dim(); ++dim) {
    last += (tensor.size(dim) - 1) * tensor.stride(dim);
  }
  const auto* begin = static_cast<const char*>(tensor.data_ptr());
  return {begin, begin + (last + 1) * tensor.element_size()};
}

bool shares_memory(const torch::Tensor& tensor, const NamedTensors& all) {
  const auto [begin, end] = extent(tensor);
  return std::ranges::any_of(all, [&, begin = begin, end = end](const auto& item) {
    const torch::Tensor& other = item.second;
    if (other.is_same(tensor) || other.layout() != torch::kStrided) return false;
    const auto [other_begin, other_end] = extent(other);
    return other_begin < end && begin < other_end;
  });
}

struct Sorted {
  std::vector<Buffer> trainable;
  std::vector<Buffer> frozen;
  NamedTensors left_alone;
};

Sorted sorted(const NamedTensors& parameters) {
  const NamedTensors all = distinct(parameters);
  NamedTensors trained;
  NamedTensors frozen;
  Sorted result;
  for (const auto& item : all) {
    if (item.second.requires_grad()) {
      trained.push_back(item);
    } else if (can_be_trained(item.second) && !shares_memory(item.second, all)) {
      frozen.push_back(item);
    } else {
      result.left_alone.push_back(item);
    }
  }
  result.trainable = sort_into_buffers(trained);
  result.frozen = sort_into_buffers(frozen);
  return result;
}

// A tensor like the parameter over the slice's memory in `flat`. Its storage has exactly its size:
// a view of the whole buffer would be saved as the whole buffer, once for each parameter.
torch::Tensor place_in(const torch::Tensor& flat, const Slice& slice, at::IntArrayRef strides) {
  auto* base = static_cast<char*>(flat.data_ptr());
  return torch::from_blob(
      base + slice.offset * flat.element_size(), slice.parameter.sizes(), strides, [flat](void*) {},
      flat.options());
}

std::vector<std::int64_t> dense_strides(const torch::Tensor& tensor) {
  if (tensor.is_non_overlapping_and_dense()) return tensor.strides().vec();
  return torch::empty(tensor.sizes(), torch::device(torch::kMeta)).strides().vec();
}

std::int64_t aligned(std::int64_t elements, std::int64_t element_size) {
  return (elements * element_size + kAlignment - 1) / kAlignment * kAlignment / element_size;
}

// The default of FlatOptions::memory. The kernel clears the pages of a large buffer when they are
// first used, so gradients take no memory before the first batch, while a checkpoint is read.
torch::Tensor own_memory(std::int64_t count, const torch::TensorOptions& like) {
  constexpr std::size_t kLarge = std::size_t{1} << 20;
  const std::size_t bytes = static_cast<std::size_t>(count) * like.dtype().itemsize();
  if (!like.device().is_cpu() || bytes < kLarge) return torch::zeros({count}, like);
  void* const pages =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) throw std::bad_alloc();
  return torch::from_blob(
      pages, {count}, [bytes](void* begin) { ::munmap(begin, bytes); }, like);
}

void move_into(Buffer& buffer, const FlatOptions& how) {
  const torch::TensorOptions options =
      buffer.slices.front().parameter.options().requires_grad(false);
  const std::int64_t element_size = buffer.slices.front().parameter.element_size();
  std::int64_t total = 0;
  for (Slice& slice : buffer.slices) {
    slice.offset = total;
    total += aligned(slice.size, element_size);
  }
  buffer.values = how.memory(total, options);
  for (Slice& slice : buffer.slices) {
    const torch::Tensor value = place_in(buffer.values, slice, dense_strides(slice.parameter));
    if (how.owns_values) value.copy_(slice.parameter);
    slice.parameter.set_data(value);
  }
}

// Makes a buffer trainable: allocates its gradients and binds them to the parameters.
void make_trainable(Buffer& buffer, const FlatOptions& how) {
  const std::int64_t total = buffer.values.numel();
  const std::int64_t marks =
      aligned(static_cast<std::int64_t>(buffer.slices.size()) + 1, buffer.values.element_size());
  for (std::int64_t set = 0; set < how.grad_sets; ++set) {
    buffer.messages.push_back(how.memory(marks + total, buffer.values.options()));
    buffer.grad_sets.push_back(buffer.messages.back().narrow(0, marks, total));
  }
  buffer.grads = buffer.grad_sets.front();
  for (Slice& slice : buffer.slices) {
    for (const torch::Tensor& set : buffer.grad_sets) {
      slice.set_grads.push_back(place_in(set, slice, slice.parameter.strides()));
      slice.versions.push_back(slice.set_grads.back()._version());
    }
    slice.grad = slice.set_grads.front();
    slice.bound = 0;
    slice.parameter.mutable_grad() = slice.grad;
  }
}

void check_place(const Buffer& buffer, const Slice& slice) {
  const auto* expected = static_cast<const char*>(buffer.values.data_ptr()) +
                         slice.offset * buffer.values.element_size();
  const torch::Tensor& parameter = slice.parameter;
  if (parameter.data_ptr() == expected && parameter.numel() == slice.size) return;
  throw Error(
      "parameter {}: its data was replaced (it is now {} {} on {}) while an optimizer holds it; "
      "convert or move a model before training starts, and load weights with copy_()",
      slice.name, c10::toString(parameter.scalar_type()), shape_text(parameter),
      parameter.device().str());
}

// Whether autograd or the user has changed the gradient since the last call.
bool notes_change(Slice& slice) {
  std::uint32_t& seen = slice.versions[slice.bound];
  const std::uint32_t now = slice.grad._version();
  return std::exchange(seen, now) != now;
}

void take_grad(Slice& slice) {
  torch::Tensor& grad = slice.parameter.mutable_grad();
  if (!grad.defined()) {
    slice.grad.zero_();
  } else if (grad.sizes() != slice.grad.sizes()) {
    throw Error("parameter {}: expected a gradient of shape {}, got {}", slice.name,
                shape_text(slice.grad), shape_text(grad));
  } else {
    const torch::Tensor dense = grad.detach();
    slice.grad.copy_(dense.layout() == torch::kStrided ? dense : dense.to_dense());
    slice.used = true;
  }
  notes_change(slice);
  grad = slice.grad;
}

// Compares bits, so that the loop needs no branch and becomes vector instructions.
template <typename T, typename Bits>
bool all_finite_in(const torch::Tensor& flat, const ElementRange& range, Bits exponent) {
  const T* const data = flat.data_ptr<T>() + range.begin;
  std::atomic<bool> finite = true;
  compute::for_ranges({.size = range.size(), .grain = 65536},
                      [&](std::int64_t begin, std::int64_t end) {
                        Bits found = 0;
                        for (std::int64_t i = begin; i < end; ++i) {
                          const Bits own = std::bit_cast<Bits>(data[i]) & exponent;
                          found |= static_cast<Bits>(own == exponent);
                        }
                        if (found != 0) finite = false;
                      });
  return finite;
}

std::int64_t blocks_in(std::int64_t size) {
  return (size + kernels::kSumBlock - 1) / kernels::kSumBlock;
}

// The squared norms of the blocks of a range, which must begin at the start of a block.
template <typename T>
void squared_norms(const torch::Tensor& flat, const ElementRange& range, double* sums) {
  const T* data = flat.data_ptr<T>() + range.begin;
  compute::for_ranges({.size = blocks_in(range.size()), .grain = 16},
                      [&](std::int64_t begin, std::int64_t end) {
                        for (std::int64_t block = begin; block < end; ++block) {
                          const std::int64_t first = block * kernels::kSumBlock;
                          sums[block] = kernels::sum_of_squares(
                              data + first, std::min(kernels::kSumBlock, range.size() - first));
                        }
                      });
}

bool has_kernels(const torch::Tensor& flat) {
  return flat.device().is_cpu() &&
         (flat.scalar_type() == torch::kFloat32 || flat.scalar_type() == torch::kFloat64);
}

// Calls a function with a range of a flat tensor, piece by piece, for operations of LibTorch whose
// intermediate results are as large as their input: they would need more memory than the gradients
// themselves. Where we have kernels, the range is one piece: another order of adding would change
// the bits.
template <typename Use>
void for_pieces(const torch::Tensor& flat, const ElementRange& range, const Use& use) {
  const std::int64_t most = has_kernels(flat) ? range.size() : std::int64_t{1} << 22;
  for (std::int64_t begin = range.begin; begin < range.end; begin += most) {
    use(flat.narrow(0, begin, std::min(most, range.end - begin)));
  }
}

void squared_norms_of(const torch::Tensor& flat, const ElementRange& range, double* sums) {
  if (flat.scalar_type() == torch::kFloat32) {
    squared_norms<float>(flat, range, sums);
  } else {
    squared_norms<double>(flat, range, sums);
  }
}

}  // namespace

ElementRange range_of(const Part& part, std::int64_t size) {
  const std::int64_t blocks = blocks_in(size);
  const auto bound = [&](std::int64_t index) {
    return std::min(size, blocks * index / part.count * kernels::kSumBlock);
  };
  return {.begin = bound(part.index), .end = bound(part.index + 1)};
}

FlatParameters::FlatParameters(const NamedTensors& parameters, FlatOptions options)
    : options_(std::move(options)) {
  Sorted found = sorted(parameters);
  left_alone_ = std::move(found.left_alone);
  names_ = names_of(parameters);
  if (!options_.memory) options_.memory = own_memory;
  // A frozen parameter stays in memory of this process until it is trained: while it requires no
  // gradient, a callback may change it, and each rank makes that change itself. The weights of a
  // target network are an example. In shared memory every rank would change the same numbers.
  const FlatOptions frozen{.memory = own_memory};
  torch::NoGradGuard no_grad;
  for (std::vector<Buffer>* const some : {&found.trainable, &found.frozen}) {
    for (Buffer& buffer : *some) {
      const bool is_trainable = some == &found.trainable;
      move_into(buffer, is_trainable ? options_ : frozen);
      if (is_trainable) make_trainable(buffer, options_);
      for (const Slice& slice : buffer.slices) size_ += slice.size;
      buffers_.push_back(std::move(buffer));
    }
  }
}

bool FlatParameters::make_unfrozen_trainable() {
  for (const auto& [name, tensor] : left_alone_) {
    if (!tensor.requires_grad()) continue;
    check_parameter(name, tensor);
    throw ConfigError(
        "parameter {}: it requires a gradient now, but it shares memory with another parameter and "
        "was not prepared for training when the run started; give it its own memory (clone())",
        name);
  }
  bool any = false;
  torch::NoGradGuard no_grad;
  for (Buffer& buffer : buffers_) {
    if (buffer.is_trainable()) continue;
    const bool unfrozen = std::ranges::any_of(
        buffer.slices, [](const Slice& slice) { return slice.parameter.requires_grad(); });
    if (!unfrozen) continue;
    move_into(buffer, options_);
    make_trainable(buffer, options_);
    any = true;
  }
  return any;
}

void FlatParameters::bind_grads(std::int64_t set) {
  const auto index = static_cast<std::size_t>(set);
  for (Buffer& buffer : buffers_) {
    if (!buffer.is_trainable()) continue;
    for (Slice& slice : buffer.slices) {
      slice.bound = index;
      slice.grad = slice.set_grads[index];
      slice.parameter.mutable_grad() = slice.grad;
    }
  }
}

torch::Tensor FlatParameters::zeros_like_values(std::size_t buffer) const {
  const torch::Tensor& values = buffers_[buffer].values;
  return options_.memory(values.numel(), values.options());
}

void FlatParameters::move_to_own_memory() {
  torch::NoGradGuard no_grad;
  for (Buffer& buffer : buffers_) {
    // A frozen parameter is there already, or where the user has put it.
    if (!buffer.is_trainable()) continue;
    buffer.values = buffer.values.clone();
    for (Slice& slice : buffer.slices) {
      slice.parameter.set_data(place_in(buffer.values, slice, slice.parameter.strides()));
      slice.parameter.mutable_grad().reset();
      slice.grad.reset();
      slice.set_grads.clear();
      slice.versions.clear();
    }
    buffer.grad_sets.clear();
    buffer.messages.clear();
    buffer.grads.reset();
  }
}

void FlatParameters::collect_grads() {
  torch::NoGradGuard no_grad;
  for (Buffer& buffer : buffers_) {
    if (!buffer.is_trainable()) continue;
    for (Slice& slice : buffer.slices) {
      check_place(buffer, slice);
      const torch::Tensor& grad = slice.parameter.grad();
      if (!grad.is_same(slice.grad)) {
        take_grad(slice);
      } else if (notes_change(slice)) {
        slice.used = true;
      }
    }
  }
}

void FlatParameters::note_use(std::size_t buffer) {
  for (Slice& slice : buffers_[buffer].slices) {
    if (slice.parameter.grad().is_same(slice.grad) && notes_change(slice)) slice.used = true;
  }
}

void FlatParameters::write_marks(std::size_t buffer, std::int64_t set) {
  const Buffer& to = buffers_[buffer];
  const torch::Tensor& message = to.messages[static_cast<std::size_t>(set)];
  const auto write = [&](auto* marks) {
    for (const Slice& slice : to.slices) *marks++ = slice.used ? 1 : 0;
    *marks = mark_ ? 1 : 0;
  };
  if (has_kernels(message) && message.scalar_type() == torch::kFloat32) {
    write(message.data_ptr<float>());
  } else if (has_kernels(message)) {
    write(message.data_ptr<double>());
  } else {
    // A copy from ordinary memory would wait for the GPU. LibTorch keeps pinned memory until the
    // copy is done.
    const bool pins = message.is_cuda();
    const torch::Tensor marks = torch::empty({static_cast<std::int64_t>(to.slices.size()) + 1},
                                             torch::dtype(torch::kFloat32).pinned_memory(pins));
    write(marks.data_ptr<float>());
    message.narrow(0, 0, marks.numel()).copy_(marks, /*non_blocking=*/pins);
  }
}

void FlatParameters::read_marks(std::span<const std::int64_t> sets) {
  mark_ = false;
  for (Buffer& buffer : buffers_) {
    if (!buffer.is_trainable()) continue;
    for (Slice& slice : buffer.slices) slice.used = false;
    for (const std::int64_t set : sets) {
      const torch::Tensor& message = buffer.messages[static_cast<std::size_t>(set)];
      const auto read = [&](const auto* marks) {
        for (Slice& slice : buffer.slices) slice.used = *marks++ != 0 || slice.used;
        mark_ = *marks != 0 || mark_;
      };
      if (has_kernels(message) && message.scalar_type() == torch::kFloat32) {
        read(message.data_ptr<float>());
      } else if (has_kernels(message)) {
        read(message.data_ptr<double>());
      } else {
        const auto count = static_cast<std::int64_t>(buffer.slices.size()) + 1;
        const torch::Tensor marks = message.narrow(0, 0, count).to(torch::kCPU, torch::kFloat32);
        read(marks.data_ptr<float>());
      }
    }
  }
}

void FlatParameters::forget_use() {
  for (Buffer& buffer : buffers_) {
    for (Slice& slice : buffer.slices) slice.used = false;
  }
}

void FlatParameters::zero_grad() {
  for (Buffer& buffer : buffers_) {
    if (!buffer.is_trainable()) continue;
    for (const torch::Tensor& set : buffer.grad_sets) set.zero_();
    for (Slice& slice : buffer.slices) {
      // A gradient that was replaced is dropped: only the flat gradient counts.
      slice.parameter.mutable_grad() = slice.grad;
      notes_change(slice);
    }
  }
  forget_use();
}

double FlatParameters::grad_norm() const {
  const bool all = std::ranges::all_of(
      buffers_, [](const Buffer& b) { return !b.is_trainable() || has_kernels(b.grads); });
  if (all) {
    std::vector<double> blocks(static_cast<std::size_t>(num_blocks()));
    block_norms({}, blocks);
    return norm_of_blocks(blocks);
  }
  double total = 0.0;
  for (const Buffer& buffer : buffers_) {
    if (!buffer.is_trainable()) continue;
    total += buffer.grads.to(torch::kFloat64).square().sum().item<double>();
  }
  return std::sqrt(total);
}

torch::Tensor FlatParameters::grad_norm_tensor() const {
  const torch::NoGradGuard no_grad;
  torch::Tensor total;
  for (const Buffer& buffer : buffers_) {
    if (!buffer.is_trainable()) continue;
    // The norm converts its input to double.
    for_pieces(buffer.grads, {.begin = 0, .end = buffer.grads.numel()},
               [&](const torch::Tensor& piece) {
                 const torch::Tensor squares = piece.norm(2, torch::kFloat64).square();
                 total = total.defined() ? total + squares.to(total.device()) : squares;
               });
  }
  return total.defined() ? total.sqrt() : torch::zeros({}, torch::kFloat64);
}

std::int64_t FlatParameters::num_blocks() const {
  std::int64_t total = 0;
  for (const Buffer& buffer : buffers_) total += blocks_in(buffer.values.numel());
  return total;
}

void FlatParameters::block_norms(const Part& part, std::span<double> blocks) const {
  double* first = blocks.data();
  for (const Buffer& buffer : buffers_) {
    // The blocks of a frozen buffer stay as they are: zero.
    const ElementRange range = range_of(part, buffer.values.numel());
    if (buffer.is_trainable() && range.size() > 0) {
      squared_norms_of(buffer.grads, range, first + range.begin / kernels::kSumBlock);
    }
    first += blocks_in(buffer.values.numel());
  }
}

double FlatParameters::norm_of_blocks(std::span<const double> blocks) const {
  double total = 0.0;
  for (const double block : blocks) total += block;
  return std::sqrt(total);
}

bool FlatParameters::all_finite(const Part& part) const {
  for (const Buffer& buffer : buffers_) {
    if (!buffer.is_trainable()) continue;
    const ElementRange range = range_of(part, buffer.grads.numel());
    bool finite = true;
    if (!has_kernels(buffer.grads)) {
      const torch::Tensor all = torch::ones({}, buffer.grads.options().dtype(torch::kBool));
      for_pieces(buffer.grads, range,
                 [&](const torch::Tensor& piece) { all.logical_and_(piece.isfinite().all()); });
      finite = all.item<bool>();
    } else if (buffer.grads.scalar_type() == torch::kFloat32) {
      finite = all_finite_in<float, std::uint32_t>(buffer.grads, range, 0x7f800000U);
    } else {
      finite = all_finite_in<double, std::uint64_t>(buffer.grads, range, 0x7ff0000000000000U);
    }
    if (!finite) return false;
  }
  return true;
}

void FlatParameters::drop_grads(const Part& part) {
  const torch::NoGradGuard no_grad;
  for (Buffer& buffer : buffers_) {
    if (!buffer.is_trainable()) continue;
    const ElementRange range = range_of(part, buffer.grads.numel());
    buffer.grads.narrow(0, range.begin, range.size()).zero_();
    for (Slice& slice : buffer.slices) notes_change(slice);
  }
  forget_use();
}

void FlatParameters::clip_grad_value(double limit, const Part& part) {
  if (!(limit >= 0.0)) {
    throw ConfigError("clip_grad_value: expected a limit that is not negative, got {}", limit);
  }
  for (Buffer& buffer : buffers_) {
    if (!buffer.is_trainable()) continue;
    const ElementRange range = range_of(part, buffer.grads.numel());
    // A limit of scaled gradients may be larger than any number of their type, which clamp_
    // refuses.
    const double most = buffer.grads.scalar_type() == torch::kFloat32
                            ? std::min<double>(limit, std::numeric_limits<float>::max())
                            : limit;
    buffer.grads.narrow(0, range.begin, range.size()).clamp_(-most, most);
  }
}

void FlatParameters::mark_updated() {
  for (Buffer& buffer : buffers_) {
    for (Slice& slice : buffer.slices) slice.parameter.unsafeGetTensorImpl()->bump_version();
  }
}

torch::Tensor slice_view(const FlatParameters::Slice& slice, const torch::Tensor& flat) {
  return flat.as_strided(slice.parameter.sizes(), slice.parameter.strides(),
                         flat.storage_offset() + slice.offset);
}

namespace {

// Keeps a norm that is nearly 0 from making the factor infinite, as in PyTorch.
constexpr double kClipEps = 1e-6;

void check_max_norm(double max_norm) {
  if (max_norm > 0.0) return;
  throw ConfigError("max_norm: expected a positive number, got {}", max_norm);
}

}  // namespace

double clip_scale(const ClipNorm& options) {
  check_max_norm(options.max_norm);
  const double factor = options.max_norm / (options.norm + kClipEps);
  return factor > 1.0 ? 1.0 : factor;  // std::min would make 1 of NaN
}

torch::Tensor clip_factor(const torch::Tensor& norm, double max_norm) {
  check_max_norm(max_norm);
  return (max_norm / (norm + kClipEps)).clamp_max(1.0);
}

}  // namespace lockstep::optim
