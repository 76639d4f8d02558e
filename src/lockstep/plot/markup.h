// Encodes text and bytes for an SVG or HTML page.
#pragma once

#include <string>

namespace lockstep::plot {

// Escapes <, >, & and double quotes for XML and HTML.
std::string escape_markup(const std::string& text);

// Encodes bytes for a data URL.
std::string to_base64(const std::string& bytes);

}  // namespace lockstep::plot
