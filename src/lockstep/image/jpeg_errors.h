// How libjpeg reports an error to the code that called it. Internal to image/.
#pragma once

#include <csetjmp>
#include <cstddef>
#include <cstdio>

#include <jpeglib.h>

namespace lockstep::data {

struct JpegErrors {
  jpeg_error_mgr errors;  // first, because libjpeg knows only this part
  std::jmp_buf jump;
  char message[JMSG_LENGTH_MAX];
};

// For jpeg_error_mgr::error_exit: keeps the message and jumps out of libjpeg.
[[noreturn]] inline void jpeg_failed(j_common_ptr info) {
  auto* const state = reinterpret_cast<JpegErrors*>(info->err);
  info->err->format_message(info, state->message);
  std::longjmp(state->jump, 1);
}

}  // namespace lockstep::data
