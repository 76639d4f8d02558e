// A FILE* whose text a test can read back.
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

  // Returns only what was flushed.
  std::string flushed() const { return std::string(text_, size_); }

 private:
  char* text_ = nullptr;
  std::size_t size_ = 0;
  std::FILE* file_;
};

// What the screen of a terminal shows after `output`, with carriage returns and erasures applied.
inline std::string screen(const std::string& output) {
  std::string done, line;
  for (std::size_t i = 0; i < output.size(); ++i) {
    if (output[i] == '\r') {
      line.clear();  // the next code always erases the line
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
