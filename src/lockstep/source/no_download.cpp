// download() of a build without curl (LOCKSTEP_DOWNLOAD=OFF).
#include "lockstep/base/error.h"
#include "lockstep/source/download.h"

namespace lockstep::data {

void download(const DownloadOptions& options) {
  std::string urls;
  for (const std::string& url : options.urls) urls += fmt::format("\n  {}", url);
  throw DataError(
      "{}: is not there, and this build of Lockstep cannot download (LOCKSTEP_DOWNLOAD=OFF); put "
      "the "
      "file there yourself{}{}{}{}",
      options.path.string(), urls.empty() ? "" : ", for example from:", urls,
      options.advice.empty() ? "" : "\n", options.advice);
}

}  // namespace lockstep::data
