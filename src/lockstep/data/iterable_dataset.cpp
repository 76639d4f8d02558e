#include "lockstep/data/iterable_dataset.h"

#include <algorithm>
#include <exception>
#include <numeric>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include <c10/util/Type.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "lockstep/base/error.h"
#include "lockstep/data/batch_pool.h"
#include "lockstep/data/sample_error.h"

namespace lockstep::data {
namespace {

std::string name_of_class(const IterableDataset& stream) {
  return fmt::format("stream {}", c10::demangle(typeid(stream).name()));
}

std::string title_of(const IterableDataset& stream, const ShardIndex& shard) {
  return fmt::format("{}, shard {} of {}", name_of_class(stream), shard.index, shard.count);
}

std::unique_ptr<SampleSource> opened(const IterableDataset& stream, const StreamPart& part) {
  const auto title = [&] { return title_of(stream, part.shard); };
  auto source = naming(title, [&] { return stream.open(part); });
  if (!source) throw DataError("{}: open() gave a null pointer, expected a source", title());
  return source;
}

class ShareOfSource : public SampleSource {
 public:
  ShareOfSource(std::unique_ptr<SampleSource> source, const ShardIndex& shard)
      : source_(std::move(source)), stride_(shard.count), before_(shard.index) {}

  std::optional<Batch> next() override {
    const std::int64_t wanted = std::exchange(before_, stride_ - 1);
    if (source_->skip(wanted) < wanted) return std::nullopt;
    return source_->next();
  }

  std::int64_t skip(std::int64_t count) override {
    if (count < 1) return 0;
    const std::int64_t first = std::exchange(before_, stride_ - 1);
    const std::int64_t wanted = first + (count - 1) * stride_ + 1;
    const std::int64_t skipped = source_->skip(wanted);
    if (skipped == wanted) return count;
    return skipped > first ? (skipped - first - 1) / stride_ + 1 : 0;
  }

 private:
  std::unique_ptr<SampleSource> source_;
  std::int64_t stride_;
  std::int64_t before_;  // samples of others before the next one of this shard
};

// The samples of one shard in an epoch, counted from 0.
class ShardOfStream {
 public:
  ShardOfStream(std::shared_ptr<const IterableDataset> stream, StreamPart part)
      : stream_(std::move(stream)), part_(part), ends_(stream_->samples().has_value()) {
    open();
  }

  const ShardIndex& shard() const { return part_.shard; }
  std::string title() const { return title_of(*stream_, part_.shard); }

  // Leaves out the samples up to `index`.
  void go_to(std::int64_t index) {
    while (next_ < index) {
      const std::int64_t wanted = index - next_;
      const std::int64_t skipped = named([&] { return source_->skip(wanted); });
      if (skipped < 0 || skipped > wanted) {
        throw DataError("{}: skip({}) of the source returned {}, expected 0 to {}", title(), wanted,
                        skipped, wanted);
      }
      next_ += skipped;
      in_pass_ += skipped;
      if (next_ < index) start_again();
    }
  }

  Batch read() {
    for (;;) {
      std::optional<Batch> sample = named([&] { return source_->next(); });
      if (sample) {
        ++next_;
        ++in_pass_;
        return std::move(*sample);
      }
      start_again();
    }
  }

 private:
  void open() {
    source_ = opened(*stream_, part_);
    in_pass_ = 0;
  }

  void start_again() {
    if (ends_) {
      throw DataError(
          "{}: it ended after {} samples, but samples() of the stream says {} for all shards, and "
          "each must have an equal part",
          title(), next_, *stream_->samples());
    }
    if (in_pass_ == 0) throw DataError("{}: it has no samples", title());
    ++part_.pass;
    open();
  }

  template <typename Read>
  std::invoke_result_t<Read&> named(Read&& read) const {
    return naming([this] { return fmt::format("{}, sample {}", title(), next_); }, read);
  }

  std::shared_ptr<const IterableDataset> stream_;
  StreamPart part_;
  bool ends_;  // after a known number of samples
  std::unique_ptr<SampleSource> source_;
  std::int64_t next_ = 0;     // sample of the epoch
  std::int64_t in_pass_ = 0;  // samples since the stream was opened
};

class StreamBatches : public BatchSource {
 public:
  explicit StreamBatches(StreamReading reading)
      : reading_(std::move(reading)),
        batch_(reading_.first_batch),
        // As many as BatchStream keeps of batches that a data set gathers.
        pool_(static_cast<std::size_t>(reading_.prefetch) + 3) {
    if (!reading_.collate) {
      reading_.collate = stack().followed_by(reading_.collate.after());
    }
  }

  std::optional<Batch> next() override {
    if (error_) std::rethrow_exception(error_);
    try {
      return make();
    } catch (...) {
      // The source is now somewhere in the middle of a batch, so there is no next one.
      error_ = std::current_exception();
      throw;
    }
  }

 private:
  std::optional<Batch> make() {
    const torch::NoGradGuard no_grad;
    if (shards_.empty()) open_shards();
    while (batch_ < reading_.batches && !shards_.empty()) {
      ShardOfStream& shard = shards_[at_];
      const SampleSlice slice =
          slice_of_stream(reading_.stream->samples(), shard.shard(),
                          {.first = batch_ * reading_.batch_size, .count = reading_.batch_size});
      if (++at_ == shards_.size()) {
        at_ = 0;
        batch_ += reading_.step;
      }
      if (slice.count > 0) return read(shard, slice);
    }
    return std::nullopt;
  }

  // Not in the constructor: a thread that prefetches uses the sources that it opened.
  void open_shards() {
    for (std::int64_t i = 0; i < reading_.count; ++i) {
      shards_.emplace_back(reading_.stream, StreamPart{.key = reading_.key,
                                                       .shard = {.index = reading_.first_shard + i,
                                                                 .count = reading_.shards}});
    }
  }

  Batch read(ShardOfStream& shard, const SampleSlice& slice) {
    shard.go_to(slice.first);
    std::vector<std::int64_t> numbers(static_cast<std::size_t>(slice.count));
    std::iota(numbers.begin(), numbers.end(), slice.first);
    Samples samples{.samples = {}, .indices = numbers, .reuse = pool_.take()};
    for (std::int64_t i = 0; i < slice.count; ++i) samples.samples.push_back(shard.read());
    Batch batch =
        naming([&] { return shard.title(); },
               [&] {
                 return reading_.collate.finish(reading_.collate(std::move(samples)), reading_.key,
                                                number_of(slice.first, shard.shard()));
               });
    pool_.lend(batch);
    return batch;
  }

  // Of a sample of a shard among those of all shards, so that no two parts of a batch are changed
  // by the same random numbers.
  static std::int64_t number_of(std::int64_t sample, const ShardIndex& shard) {
    return sample * shard.count + shard.index;
  }

  StreamReading reading_;
  std::vector<ShardOfStream> shards_;
  std::size_t at_ = 0;  // of the shard that is next
  std::int64_t batch_;
  BatchPool pool_;
  std::exception_ptr error_;
};

}  // namespace

std::int64_t SampleSource::skip(std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    if (!next()) return i;
  }
  return count;
}

std::int64_t IterableDataset::size() const {
  if (const auto known = samples()) return *known;
  throw ConfigError(
      "{}: its number of samples is not known; override samples() of the stream, or use the stream "
      "only in a loader with max_batches, or for training by steps",
      name_of_class(*this));
}

Batch IterableDataset::sample(std::int64_t index) const {
  std::optional<Batch> sample;
  if (index >= 0) {
    const auto source = opened(*this, {});
    if (source->skip(index) == index) sample = source->next();
  }
  if (!sample) throw DataError("{}: there is no sample {}", name_of_class(*this), index);
  return std::move(*sample);
}

std::unique_ptr<SampleSource> share_of(std::unique_ptr<SampleSource> source,
                                       const ShardIndex& shard) {
  if (!source) throw ConfigError("share_of: expected a source, got a null pointer");
  return std::make_unique<ShareOfSource>(std::move(source), shard);
}

SampleSlice slice_of_stream(std::optional<std::int64_t> samples, const ShardIndex& shard,
                            const SampleSlice& full) {
  if (!samples) return full;
  const std::int64_t mine = *samples / shard.count + (shard.index < *samples % shard.count ? 1 : 0);
  return {.first = full.first, .count = std::clamp<std::int64_t>(mine - full.first, 0, full.count)};
}

BatchStream read_stream(StreamReading reading) {
  const std::int64_t prefetch = reading.prefetch;
  return BatchStream(std::make_unique<StreamBatches>(std::move(reading)), prefetch);
}

}  // namespace lockstep::data
