#include "lockstep/data/cache.h"

#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/data/collate.h"
#include "lockstep/data/gather.h"
#include "lockstep/data/sample_error.h"

namespace lockstep::data {
namespace {

// The state of a slot, or the place of its sample in the memory. The place is published after the
// sample was written.
constexpr std::uint64_t kEmpty = 0;
constexpr std::uint64_t kBeingWritten = 1;
constexpr std::uint64_t kRefused = 2;

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

std::uint64_t aligned_up(std::uint64_t bytes) {
  return (bytes + kSampleAlignment - 1) / kSampleAlignment * kSampleAlignment;
}

std::int64_t checked_capacity(const Dataset& dataset, const CacheOptions& options) {
  if (dataset.is_random()) {
    throw ConfigError(
        "Cached: the samples of the data set have random parts, and a cache would repeat those of "
        "the first epoch. Put the random transforms after the cache: transformed(cached(…), "
        "{{.transform = …}})");
  }
  if (options.memory < 1) {
    throw ConfigError("Cached: memory: expected a positive number of bytes, got {}",
                      options.memory);
  }
  return options.memory;
}

process::SharedMemory reserved(std::uint64_t fixed, std::int64_t capacity) {
  try {
    auto memory = process::SharedMemory::reserve(fixed + static_cast<std::uint64_t>(capacity));
    if (memory.take(0, fixed)) return memory;
  } catch (const CommError& error) {
    throw ConfigError("Cached: memory: {}", error.what());
  }
  throw ConfigError("Cached: not enough memory for a table of {} bytes", fixed);
}

}  // namespace

struct Cached::Header {
  std::atomic<std::uint64_t> bytes;  // of the samples
  std::atomic<std::uint64_t> samples;
  std::atomic<std::uint64_t> refused;
  // On a cache line of their own: every reader counts.
  alignas(64) std::atomic<std::uint64_t> hits;
  std::atomic<std::uint64_t> misses;

  // Where the samples begin.
  static std::uint64_t end(std::int64_t samples) {
    return aligned_up(sizeof(Header) + static_cast<std::uint64_t>(samples) * sizeof(Slot));
  }
};

Cached::Cached(DatasetPtr dataset, const CacheOptions& options)
    : WrapperDataset("Cached", std::move(dataset)),
      capacity_(checked_capacity(inner(), options)),
      memory_(reserved(Header::end(inner().size()), capacity_)) {}

// The memory is zero at first, and so are all numbers in it.
Cached::Header& Cached::header() const {
  return *reinterpret_cast<Header*>(memory_.data());
}

Cached::Slot& Cached::slot(std::int64_t index) const {
  return reinterpret_cast<Slot*>(memory_.data() + sizeof(Header))[index];
}

std::optional<Batch> Cached::find(std::int64_t index, SampleMemory memory) const {
  const std::uint64_t place = slot(index).load(std::memory_order_acquire);
  if (place <= kRefused) {
    header().misses.fetch_add(1, std::memory_order_relaxed);
    return std::nullopt;
  }
  header().hits.fetch_add(1, std::memory_order_relaxed);
  return read_sample(memory_.data() + place, memory);
}

Batch Cached::sample_in_epoch(std::int64_t index, const EpochKey&) const {
  check_indices({&index, 1}, size());
  std::optional<Batch> found = find(index, SampleMemory::kCopy);
  return found ? std::move(*found) : read_and_keep(index);
}

Batch Cached::gather_in_epoch(std::span<const std::int64_t> indices, const EpochKey&,
                              Batch reuse) const {
  check_indices(indices, size());
  Samples samples{.samples = {}, .indices = indices, .reuse = std::move(reuse)};
  samples.samples.reserve(indices.size());
  for (const std::int64_t index : indices) {
    // The stack copies the values out of the cache.
    std::optional<Batch> found = find(index, SampleMemory::kView);
    samples.samples.push_back(found ? std::move(*found) : naming_sample(*this, index, [&] {
      return read_and_keep(index);
    }));
  }
  return stack()(std::move(samples));
}

Batch Cached::read_and_keep(std::int64_t index) const {
  Batch sample = inner().sample(index);
  keep(index, sample);
  return sample;
}

void Cached::keep(std::int64_t index, const Batch& sample) const {
  std::uint64_t state = kEmpty;
  if (!slot(index).compare_exchange_strong(state, kBeingWritten, std::memory_order_relaxed)) return;
  const auto place = has_plain_bytes(sample) ? allocate(sample_bytes(sample)) : std::nullopt;
  if (!place) {
    header().refused.fetch_add(1, std::memory_order_relaxed);
    slot(index).store(kRefused, std::memory_order_relaxed);
    return;
  }
  write_sample(sample, memory_.data() + *place);
  header().samples.fetch_add(1, std::memory_order_relaxed);
  slot(index).store(*place, std::memory_order_release);
}

std::optional<std::uint64_t> Cached::allocate(std::size_t bytes) const {
  const std::uint64_t size = aligned_up(bytes);
  std::uint64_t used = header().bytes.load(std::memory_order_relaxed);
  do {
    if (size > static_cast<std::uint64_t>(capacity_) - used) return std::nullopt;
  } while (!header().bytes.compare_exchange_weak(used, used + size, std::memory_order_relaxed));
  const std::uint64_t place = Header::end(inner().size()) + used;
  // Pages that the host does not have are lost for the cache. Its size is a limit, not a promise.
  return memory_.take(place, size) ? std::optional(place) : std::nullopt;
}

Cached::Counts Cached::counts() const {
  const auto value = [](const std::atomic<std::uint64_t>& number) {
    return static_cast<std::int64_t>(number.load(std::memory_order_relaxed));
  };
  const Header& all = header();
  return {.samples = value(all.samples),
          .bytes = value(all.bytes),
          .refused = value(all.refused),
          .hits = value(all.hits),
          .misses = value(all.misses)};
}

std::string Cached::describe() const {
  const Counts now = counts();
  std::string text = fmt::format("cache: {} of {} samples in {} of {}; {} hits, {} misses",
                                 with_thousands(now.samples), with_thousands(size()),
                                 format_bytes(static_cast<double>(now.bytes)),
                                 format_bytes(static_cast<double>(capacity_)),
                                 with_thousands(now.hits), with_thousands(now.misses));
  if (now.refused > 0) text += fmt::format("; {} did not fit", with_thousands(now.refused));
  return text;
}

std::shared_ptr<const Cached> cached(DatasetPtr dataset, const CacheOptions& options) {
  return std::make_shared<const Cached>(std::move(dataset), options);
}

}  // namespace lockstep::data
