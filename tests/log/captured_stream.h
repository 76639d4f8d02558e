// A FILE* whose text a test reads back.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

namespace lockstep {

class CapturedStream {
 public:
  CapturedStream() : file_(::open_memstream(&text_, &size_)) {}
  ~CapturedStream() {
    std::fclose(file_);
    std::free(text_);
  }
  CapturedStream(const CapturedStream&) = delete;
  CapturedStream& operator=(const CapturedStream&) = delete;

  std::FILE* file() { return file_; }

  // Only what was flushed.
  std::string flushed() const { return std::string(text_, size_); }

 private:
  char* text_ = nullptr;
  std::size_t size_ = 0;
  std::FILE* file_;
};

// What a terminal's screen shows after `output`: carriage returns and erasures carried out.
inline std::string screen(const std::string& output) {
  std::string done, line;
  for (std::size_t i = 0; i < output.size(); ++i) {
    if (output[i] == '\r') {
      line.clear();  // what follows always erases the line
    } else if (output.compare(i, 3, "\x1b[K") == 0) {
      i += 2;
    } else if (output[i] == '\n') {
      done += line + '\n';
      line.clear();
    } else {
      line += output[i];
    }
  }
  return done + line;
}

}  // namespace lockstep
