#include "lockstep/source/text_dataset.h"

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/text.h"
#include "lockstep/data/gather.h"
#include "lockstep/source/mapped_file.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;

std::string_view text_of(const MappedFile& file) {
  return {file.bytes().data(), file.bytes().size()};
}

bool is_space(char character) {
  return character == ' ' || (character >= '\t' && character <= '\r');
}

// Calls use(word, line) for each part between spaces. Lines count from 1.
template <typename Use>
void for_each_word_of(std::string_view text, const Use& use) {
  std::int64_t line = 1;
  for (std::size_t at = 0; at < text.size();) {
    if (is_space(text[at])) {
      line += text[at++] == '\n' ? 1 : 0;
      continue;
    }
    std::size_t end = at;
    while (end < text.size() && !is_space(text[end])) ++end;
    use(text.substr(at, end - at), line);
    at = end;
  }
}

class TokenTable {
 public:
  explicit TokenTable(const fs::path& path) : path_(path), file_(path) {
    std::string_view rest = text_of(file_);
    while (!rest.empty()) {
      const std::size_t end = std::min(rest.find('\n'), rest.size());
      add(rest.substr(0, end));
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    if (tokens_.empty())
      throw DataError("{}: expected a token in each line, got none", path.string());
    if (const auto found = tokens_.find(kUnknownToken); found != tokens_.end()) {
      unknown_ = found->second;
    }
  }

  std::int32_t at(std::string_view word, const fs::path& text, std::int64_t line) const {
    if (const auto found = tokens_.find(word); found != tokens_.end()) return found->second;
    if (unknown_) return *unknown_;
    throw DataError(
        "{}: line {}: the word '{}' is not in {}, which has no {} for such words either",
        text.string(), line, excerpt(word), path_.string(), kUnknownToken);
  }

 private:
  void add(std::string_view token) {
    if (token.ends_with('\r')) token.remove_suffix(1);
    const std::size_t line = tokens_.size() + 1;
    const auto fail = [&](std::string_view what) {
      throw DataError(
          "{}: line {}: expected a token without spaces that is not in a line before, {}",
          path_.string(), line, what);
    };
    if (token.empty()) fail("got an empty line");
    if (std::ranges::any_of(token, is_space)) fail("got one with a space");
    if (line > std::numeric_limits<std::int32_t>::max()) fail("got more than 2^31 lines");
    if (!tokens_.emplace(token, static_cast<std::int32_t>(line - 1)).second) {
      fail(fmt::format("got '{}' again", excerpt(token)));
    }
  }

  fs::path path_;
  MappedFile file_;  // has the text of the tokens
  std::unordered_map<std::string_view, std::int32_t> tokens_;
  std::optional<std::int32_t> unknown_;
};

// A text as tokens. Bytes stay in the file; words are in memory.
struct TokenText {
  std::shared_ptr<const MappedFile> bytes;
  std::vector<std::int32_t> words;

  std::int64_t size() const {
    return static_cast<std::int64_t>(bytes != nullptr ? bytes->bytes().size() : words.size());
  }

  void copy(std::int64_t first, std::span<std::int64_t> out) const {
    if (bytes != nullptr) {
      const auto* const from = reinterpret_cast<const std::uint8_t*>(bytes->bytes().data());
      std::copy_n(from + first, out.size(), out.data());
    } else {
      std::copy_n(words.begin() + first, out.size(), out.data());
    }
  }
};

class TextWindows : public Dataset {
 public:
  struct Place {
    fs::path path;
    TokenText text;
    std::int64_t first = 0;  // index of its first window
    std::int64_t count = 0;  // of windows
  };

  TextWindows(std::vector<Place> places, std::int64_t window, std::int64_t stride)
      : places_(std::move(places)), window_(window), stride_(stride) {
    for (Place& place : places_) {
      place.first = size_;
      const std::int64_t left = place.text.size() - window_ - 1;  // one more for the last target
      place.count = left < 0 ? 0 : left / stride_ + 1;
      size_ += place.count;
    }
  }

  std::int64_t size() const override { return size_; }

  Batch sample(std::int64_t index) const override {
    const Batch batch = gather({&index, 1}, {});
    return {{"features", batch["features"][0]}, {"targets", batch["targets"][0]}};
  }

  Batch gather(std::span<const std::int64_t> indices, Batch reuse) const override {
    check_indices(indices, size_);
    const std::array<std::int64_t, 2> shape = {static_cast<std::int64_t>(indices.size()), window_};
    torch::Tensor features = reuse_or_allocate(reuse, "features", shape, torch::kInt64);
    torch::Tensor targets = reuse_or_allocate(reuse, "targets", shape, torch::kInt64);
    auto* input = features.data_ptr<std::int64_t>();
    auto* output = targets.data_ptr<std::int64_t>();
    const auto width = static_cast<std::size_t>(window_);
    for (const std::int64_t index : indices) {
      const Place& place = place_of_window(index);
      const std::int64_t begin = (index - place.first) * stride_;
      place.text.copy(begin, {input, width});
      place.text.copy(begin + 1, {output, width});
      input += window_;
      output += window_;
    }
    return {{"features", features}, {"targets", targets}};
  }

  std::string name_of(std::int64_t index) const override {
    const Place& place = place_of_window(index);
    return fmt::format("sample {}, from token {} of {} on", index, (index - place.first) * stride_,
                       place.path.string());
  }

 private:
  const Place& place_of_window(std::int64_t index) const {
    const auto after = std::ranges::upper_bound(places_, index, {}, &Place::first);
    // Texts without windows have the same `first` as the next one, and come before it.
    return *std::prev(after);
  }

  std::vector<Place> places_;
  std::int64_t window_;
  std::int64_t stride_;
  std::int64_t size_ = 0;
};

std::vector<fs::path> texts_of(const TextDatasetOptions& options) {
  if (options.path.empty() == options.paths.empty()) {
    throw ConfigError("text_dataset: expected path or paths, got {}",
                      options.path.empty() ? "none" : "both");
  }
  return options.paths.empty() ? std::vector{options.path} : options.paths;
}

}  // namespace

DatasetPtr text_dataset(const TextDatasetOptions& options) {
  const auto paths = texts_of(options);
  const Check check("text_dataset");
  const std::int64_t stride = options.stride.value_or(options.window);
  check.count("window", options.window);
  check.count("stride", stride);
  std::optional<TokenTable> table;
  if (!options.vocabulary.empty()) table.emplace(options.vocabulary);
  std::vector<TextWindows::Place> places;
  std::int64_t longest = 0;
  for (const fs::path& path : paths) {
    auto file = std::make_shared<const MappedFile>(path);
    TokenText text;
    if (table) {
      for_each_word_of(text_of(*file), [&](std::string_view word, std::int64_t line) {
        text.words.push_back(table->at(word, path, line));
      });
    } else {
      text.bytes = std::move(file);
    }
    longest = std::max(longest, text.size());
    places.push_back({.path = path, .text = std::move(text)});
  }
  if (longest - 1 < options.window) {
    throw DataError("{} has {} tokens, expected more than the window of {}",
                    paths.size() == 1 ? paths[0].string() + ": it" : "the longest text", longest,
                    options.window);
  }
  return std::make_shared<const TextWindows>(std::move(places), options.window, stride);
}

std::vector<std::string> build_vocabulary(const VocabularyOptions& options) {
  const Check check("build_vocabulary");
  check.count("size", options.size);
  check.count("least", options.least);
  if (options.texts.empty()) throw ConfigError("build_vocabulary: texts: expected files, got none");
  std::unordered_map<std::string, std::int64_t> counts;
  for (const fs::path& path : options.texts) {
    const MappedFile file(path);
    for_each_word_of(text_of(file),
                     [&](std::string_view word, std::int64_t) { ++counts[std::string(word)]; });
  }
  counts.erase(kUnknownToken);
  std::vector<std::pair<std::int64_t, std::string>> words;
  for (auto& [word, count] : counts) {
    if (count >= options.least) words.emplace_back(-count, word);
  }
  std::ranges::sort(words);
  std::vector<std::string> vocabulary = {kUnknownToken};
  for (auto& [count, word] : words) {
    if (std::ssize(vocabulary) == options.size) break;
    vocabulary.push_back(std::move(word));
  }
  if (!options.output.empty()) {
    write_file_atomically(options.output, join(vocabulary, "\n") + "\n");
  }
  return vocabulary;
}

}  // namespace lockstep::data
