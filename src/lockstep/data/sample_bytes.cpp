#include "lockstep/data/sample_bytes.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace lockstep::data {
namespace {

bool is_plain(const torch::Tensor& tensor) {
  return tensor.defined() && tensor.device().is_cpu() && tensor.layout() == torch::kStrided &&
         !tensor.is_quantized();
}

std::size_t aligned(std::size_t at) {
  return (at + kSampleAlignment - 1) / kSampleAlignment * kSampleAlignment;
}

// Writes values one after the other, or only counts their bytes.
class SampleWriter {
 public:
  explicit SampleWriter(std::byte* to) : to_(to) {}

  void sample(const Batch& sample) {
    number(std::distance(sample.begin(), sample.end()));
    for (const auto& [key, value] : sample) {
      text(key);
      tensor(value);
    }
    number(static_cast<std::int64_t>(sample.lists().size()));
    for (const auto& [key, list] : sample.lists()) {
      text(key);
      number(static_cast<std::int64_t>(list.size()));
      for (const torch::Tensor& value : list) tensor(value);
    }
    number(static_cast<std::int64_t>(sample.nested_batches().size()));
    for (const auto& [key, nested] : sample.nested_batches()) {
      text(key);
      this->sample(nested);
    }
  }

  std::size_t written() const { return at_; }

 private:
  void bytes(const void* from, std::size_t size) {
    if (to_ != nullptr && size > 0) std::memcpy(to_ + at_, from, size);
    at_ += size;
  }
  void number(std::int64_t value) { bytes(&value, sizeof value); }
  void text(const std::string& value) {
    number(static_cast<std::int64_t>(value.size()));
    bytes(value.data(), value.size());
  }
  void tensor(const torch::Tensor& value) {
    number(static_cast<std::int64_t>(value.scalar_type()));
    number(value.dim());
    for (const std::int64_t size : value.sizes()) number(size);
    at_ = aligned(at_);
    const auto size = static_cast<std::size_t>(value.numel()) * value.element_size();
    if (to_ == nullptr) {
      at_ += size;
    } else {
      // A conjugated or negated view has the bytes of the original and a note.
      bytes(value.contiguous().resolve_conj().resolve_neg().data_ptr(), size);
    }
  }

  std::byte* to_;
  std::size_t at_ = 0;
};

class SampleReader {
 public:
  SampleReader(const std::byte* from, SampleMemory memory) : from_(from), memory_(memory) {}

  Batch sample() {
    Batch sample;
    for (std::int64_t left = number(); left > 0; --left) {
      const std::string key = text();
      sample.set(key, tensor());
    }
    for (std::int64_t left = number(); left > 0; --left) {
      const std::string key = text();
      Batch::List list;
      for (std::int64_t tensors = number(); tensors > 0; --tensors) list.push_back(tensor());
      sample.set(key, std::move(list));
    }
    for (std::int64_t left = number(); left > 0; --left) {
      const std::string key = text();
      sample.set(key, this->sample());
    }
    return sample;
  }

 private:
  std::int64_t number() {
    std::int64_t value = 0;
    std::memcpy(&value, from_ + at_, sizeof value);
    at_ += sizeof value;
    return value;
  }
  std::string text() {
    const auto size = static_cast<std::size_t>(number());
    std::string value(reinterpret_cast<const char*>(from_ + at_), size);
    at_ += size;
    return value;
  }
  torch::Tensor tensor() {
    const auto type = static_cast<torch::ScalarType>(number());
    std::vector<std::int64_t> shape(static_cast<std::size_t>(number()));
    for (std::int64_t& size : shape) size = number();
    at_ = aligned(at_);
    // from_blob() has no version for memory that is only read.
    auto* const data = const_cast<std::byte*>(from_ + at_);
    const torch::Tensor view = torch::from_blob(data, shape, torch::dtype(type));
    at_ += view.nbytes();
    return memory_ == SampleMemory::kView ? view : view.clone();
  }

  const std::byte* from_;
  SampleMemory memory_;
  std::size_t at_ = 0;
};

}  // namespace

bool has_plain_bytes(const Batch& sample) {
  return std::all_of(sample.begin(), sample.end(),
                     [](const auto& entry) { return is_plain(entry.second); }) &&
         std::ranges::all_of(
             sample.lists(),
             [](const auto& entry) { return std::ranges::all_of(entry.second, is_plain); }) &&
         std::ranges::all_of(sample.nested_batches(),
                             [](const auto& entry) { return has_plain_bytes(entry.second); });
}

std::size_t sample_bytes(const Batch& sample) {
  SampleWriter counter(nullptr);
  counter.sample(sample);
  return counter.written();
}

void write_sample(const Batch& sample, std::byte* to) {
  SampleWriter(to).sample(sample);
}

Batch read_sample(const std::byte* from, SampleMemory memory) {
  return SampleReader(from, memory).sample();
}

}  // namespace lockstep::data
