#include "lockstep/image/image_folder.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/text.h"
#include "lockstep/base/warn.h"
#include "lockstep/data/describe.h"
#include "lockstep/data/gather.h"
#include "lockstep/data/sample_stack.h"
#include "lockstep/image/image_list.h"
#include "lockstep/transform/resample.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;

// Throws DataError without the path, or Error if the system and not the file is the reason.
[[noreturn]] void fail_to_read(const char* what) {
  const int code = errno;
  const std::string reason = std::system_category().message(code);
  if (code == EMFILE || code == ENFILE || code == ENOMEM) throw Error("{}: {}", what, reason);
  throw DataError("{}: {}", what, reason);
}

struct RegularFile {
  FileDescriptor descriptor;
  std::int64_t size = 0;
};

// Only a regular file has a size and an end. A named pipe would wait for a writer when it is opened
// and again when it is read, so it is opened without waiting and refused.
RegularFile open_image(const fs::path& path) {
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) fail_to_read("cannot open the file");
  struct stat status = {};
  if (::fstat(file.get(), &status) != 0) fail_to_read("cannot read the file");
  if (!S_ISREG(status.st_mode)) {
    throw DataError("expected a regular file, got a folder, a pipe or a device");
  }
  return {.descriptor = std::move(file), .size = status.st_size};
}

// The content of a file, in memory that its thread uses again for the next file. Only one object
// may exist in a thread at a time.
class FileContent {
 public:
  // Throws DataError without the path, or Error if the system and not the file is the reason.
  FileContent(const fs::path& path, const DecodeOptions& options) {
    const RegularFile file = open_image(path);
    // No format needs more than 8 bytes for a pixel; the rest is for metadata.
    constexpr std::int64_t kMetadata = 1 << 28;
    if (file.size / 8 > options.most_pixels + kMetadata / 8) {
      throw DataError("the file has {}, which is too much for an image of {} pixels",
                      format_bytes(static_cast<double>(file.size)), options.most_pixels);
    }
    size_ = static_cast<std::size_t>(file.size);
    if (memory().size < size_) {
      memory() = {};  // before the new memory is taken
      memory() = {.bytes = std::make_unique_for_overwrite<std::uint8_t[]>(size_), .size = size_};
    }
    read(file.descriptor);
  }
  // A loader may have many threads, and each of them meets the largest file sooner or later.
  ~FileContent() {
    constexpr std::size_t kMostKept = 16 << 20;
    if (memory().size > kMostKept) memory() = {};
  }
  FileContent(const FileContent&) = delete;
  FileContent& operator=(const FileContent&) = delete;

  ImageBytes bytes() const { return {memory().bytes.get(), size_}; }

 private:
  struct Memory {
    std::unique_ptr<std::uint8_t[]> bytes;
    std::size_t size = 0;
  };
  static Memory& memory() {
    thread_local Memory of_thread;
    return of_thread;
  }

  void read(const FileDescriptor& file) {
    for (std::size_t at = 0; at < size_;) {
      const ssize_t count =
          ::pread(file.get(), memory().bytes.get() + at, size_ - at, static_cast<off_t>(at));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) fail_to_read("cannot read the file");
      if (count == 0) throw DataError("the file became shorter while it was read");
      at += static_cast<std::size_t>(count);
    }
  }

  std::size_t size_ = 0;
};

ImageList list_images(const ImageFolderOptions& options) {
  if (options.csv && options.without_targets) {
    throw ConfigError("without_targets: expected a root whose images are all used, got a csv");
  }
  if (options.csv) {
    return list_image_table(
        {.csv = *options.csv,
         .root = options.root,
         .classes = options.train_classes.empty() ? options.classes : options.train_classes});
  }
  if (options.root.empty()) {
    throw ConfigError("root: expected a folder with one folder per class, or a csv, got none");
  }
  const auto list = options.without_targets ? list_unlabelled : list_class_folders;
  return list({.root = options.root,
               .extensions = options.extensions,
               .classes = options.classes,
               .train_classes = options.train_classes,
               .allow_empty = options.allow_empty});
}

}  // namespace

ImageFolder::ImageFolder(ImageFolderOptions options) : options_(std::move(options)) {
  if (options_.most_pixels < 1) {
    throw ConfigError("most_pixels: expected a positive number, got {}", options_.most_pixels);
  }
  decoding_ = {.channels = options_.channels,
               .floats = options_.floats,
               .orient = options_.orient,
               .most_pixels = options_.most_pixels,
               .exact = options_.exact};
  if (!options_.transform && !options_.floats) options_.transform = ToTensor();
  std::vector<TransformPtr> steps = flat_steps(options_.transform);
  if (!steps.empty() &&
      dynamic_cast<const WindowTransform*>(steps.front().operator->()) != nullptr) {
    first_ = steps.front();
    steps.erase(steps.begin());
  }
  if (!steps.empty()) steps_ = SampleChain(Compose(std::move(steps)));

  ImageList list = list_images(options_);
  classes_ = std::move(list.classes);
  for (ListedImage& image : list.images) {
    paths_.push_back(std::move(image.path));
    targets_.push_back(image.target);
  }
  if (options_.on_error == OnImageError::kSkip) skip_broken_images();
}

// Checked here and not when a batch is made: so the number of samples and batches is known from the
// start, and no batch is smaller than others.
void ImageFolder::skip_broken_images() {
  constexpr std::size_t kMany = 20'000;
  if (paths_.size() > kMany) {
    warn(fmt::format("ImageFolder: on_error: skip decodes all {} images once, to find broken ones",
                     with_thousands(size())));
  }
  std::vector<std::string> reasons(paths_.size());
  std::atomic<std::size_t> next = 0;
  std::mutex failing;
  std::string failure;  // a reason that is not the image's, such as a lack of memory
  const auto check = [&] {
    for (std::size_t i = next++; i < paths_.size(); i = next++) {
      try {
        check_image(FileContent(paths_[i], decoding_).bytes(), decoding_);
      } catch (const DataError& error) {
        reasons[i] = message_of(error);
      } catch (const std::exception& error) {
        const std::scoped_lock lock(failing);
        failure = reading_failed({.path = paths_[i]}, error);
        next = paths_.size();
      }
    }
  };
  std::vector<std::jthread> threads(std::max(1U, std::thread::hardware_concurrency()) - 1);
  for (std::jthread& thread : threads) thread = std::jthread(check);
  check();
  threads.clear();
  if (!failure.empty()) throw Error("ImageFolder: {}", failure);

  std::size_t kept = 0;
  for (std::size_t i = 0; i < reasons.size(); ++i) {
    if (!reasons[i].empty()) {
      skipped_.push_back({.path = paths_[i], .reason = reasons[i]});
      continue;
    }
    if (kept != i) paths_[kept] = std::move(paths_[i]);
    targets_[kept++] = targets_[i];
  }
  paths_.resize(kept);
  targets_.resize(kept);
  if (skipped_.empty()) return;
  const std::string first =
      fmt::format("{}: {}", skipped_.front().path.string(), skipped_.front().reason);
  if (paths_.empty()) {
    throw DataError("ImageFolder: none of {} images can be read; the first is {}", skipped_.size(),
                    first);
  }
  warn(fmt::format("ImageFolder: {}; the first of them is {}", describe(), first));
}

torch::Tensor ImageFolder::read(std::int64_t index, Draw& draw) const {
  const fs::path& path = paths_[static_cast<std::size_t>(index)];
  return reading<DataError>({.path = path}, [&] {
    // The content of the file is not needed by the other steps.
    const torch::Tensor image = [&] {
      const FileContent file(path, decoding_);
      if (!first_) return decode(file.bytes(), decoding_);
      const auto& transform = static_cast<const WindowTransform&>(*first_.operator->());
      return decode(file.bytes(), decoding_,
                    [&](const ImageSize& size) { return transform.window(size, draw); });
    }();
    return steps_.apply_to_sample(image, draw);
  });
}

Batch ImageFolder::sample(SampleContext& context) const {
  check_indices({&context.index, 1}, size());
  Draw draw{.random = context.random};
  const Batch none;
  SampleStack stack(steps_, {.key = "features", .count = 1, .reuse = none});
  stack.add(read(context.index, draw));
  if (options_.without_targets) return {{"features", stack.finish().squeeze(0)}};
  const torch::Tensor target =
      torch::full({1}, targets_[static_cast<std::size_t>(context.index)], torch::kInt64);
  return {{"features", stack.finish().squeeze(0)},
          {"targets", options_.target_transform.apply(target).squeeze(0)}};
}

Batch ImageFolder::gather_in_epoch(std::span<const std::int64_t> indices, const EpochKey& key,
                                   Batch reuse) const {
  check_indices(indices, size());
  if (indices.empty()) return {};
  const auto count = static_cast<std::int64_t>(indices.size());
  torch::Tensor targets = reuse_or_allocate(reuse, "targets", {count}, torch::kInt64);
  auto* const target = targets.data_ptr<std::int64_t>();
  SampleStack stack(steps_, {.key = "features", .count = indices.size(), .reuse = reuse});
  torch::Tensor first;
  for (std::size_t k = 0; k < indices.size(); ++k) {
    Draw draw{.random = SampleRandom(key, indices[k])};
    const torch::Tensor sample = read(indices[k], draw);
    if (k == 0) first = sample;
    if (sample.sizes() != first.sizes() || sample.scalar_type() != first.scalar_type()) {
      const auto path = [&](std::int64_t index) {
        return paths_[static_cast<std::size_t>(index)].string();
      };
      throw DataError(
          "the images of a batch must have one size, but {} is {} and {} is {}; add Resize or "
          "RandomResizedCrop to the transform",
          path(indices[0]), data::describe(first), path(indices[k]), data::describe(sample));
    }
    stack.add(sample);
    target[k] = targets_[static_cast<std::size_t>(indices[k])];
  }
  if (options_.without_targets) return {{"features", stack.finish()}};
  return {{"features", stack.finish()}, {"targets", options_.target_transform.apply(targets)}};
}

bool ImageFolder::is_random() const {
  const bool window =
      first_ && static_cast<const WindowTransform&>(*first_.operator->()).is_random();
  return window || steps_.is_random();
}

torch::Tensor ImageFolder::column(std::string_view key) const {
  if (key != "targets" || options_.without_targets) return {};
  return options_.target_transform.apply(torch::tensor(targets_, torch::kInt64));
}

std::string ImageFolder::name_of(std::int64_t index) const {
  const std::string name = Dataset::name_of(index);
  if (index < 0 || index >= size()) return name;
  return fmt::format("{} ({})", name, paths_[static_cast<std::size_t>(index)].string());
}

std::string ImageFolder::describe() const {
  const fs::path& place = options_.csv ? *options_.csv : options_.root;
  std::string text = fmt::format("{} images of {} classes in {}", with_thousands(size()),
                                 classes_.size(), place.string());
  const auto skipped = static_cast<std::int64_t>(skipped_.size());
  if (skipped > 0) text += fmt::format(", {} skipped", with_thousands(skipped));
  return text;
}

std::shared_ptr<const ImageFolder> image_folder(ImageFolderOptions options) {
  return std::make_shared<const ImageFolder>(std::move(options));
}

}  // namespace lockstep::data
