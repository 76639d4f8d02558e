// Text and bytes inside of a page.
#pragma once

#include <string>

namespace lockstep::plot {

// With <, >, & and quotes as XML and HTML want them.
std::string escape_markup(const std::string& text);

// Bytes as a browser takes them in an address.
std::string to_base64(const std::string& bytes);

}  // namespace lockstep::plot
