// Text as a data set of windows, for models that predict the next token.
//
//   auto train = ls::data::text_dataset({.path = "book.txt", .window = 128});
//
// Tokens are the bytes of the text, 0 to 255, or words of a vocabulary:
//
//   ls::data::build_vocabulary({.texts = {"book.txt"}, .output = "words.txt", .size = 10'000});
//   auto words = ls::data::text_dataset({.path = "book.txt", .vocabulary = "words.txt"});
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/dataset.h"

namespace lockstep::data {

// Stands for words that are not in the vocabulary, if it is in the vocabulary itself.
inline constexpr const char* kUnknownToken = "<unk>";

struct TextDatasetOptions {
  std::filesystem::path path = {};                // of the text
  std::vector<std::filesystem::path> paths = {};  // of several texts, instead of `path`
  // A file with one token per line: line 1 is token 0. The text is split at spaces, tabs and line
  // breaks, and each part has to be a token. Default: tokens are bytes.
  std::filesystem::path vocabulary = {};
  std::int64_t window = 64;                 // tokens of a sample
  std::optional<std::int64_t> stride = {};  // tokens from one sample to the next; default: window
};

// Sample i has "features", int64 [window], the tokens from i * stride on, and "targets", int64
// [window], the token that follows each of them. No window reaches from one text into the next. The
// last tokens of a text that do not fill a window are not used.
//
// Bytes are read from the mapped files when they are needed, so texts may be larger than the
// memory. Words are split once: their tokens take four bytes each. Throws ConfigError for options
// that are not valid, and DataError, which names file and line, if a text has a word that is not in
// a vocabulary without <unk>, if the vocabulary has an empty line or a token twice, or if no text
// is as long as a window and one token.
DatasetPtr text_dataset(const TextDatasetOptions& options);

struct VocabularyOptions {
  std::vector<std::filesystem::path> texts = {};
  std::filesystem::path output = {};  // the file that is written; empty: none
  std::int64_t size = 10'000;         // the most tokens, <unk> included
  std::int64_t least = 1;             // words that come less often are left out
};

// The words of texts, the most frequent first, and equally frequent ones in the order of their
// bytes. <unk> comes before all of them.
std::vector<std::string> build_vocabulary(const VocabularyOptions& options);

}  // namespace lockstep::data
