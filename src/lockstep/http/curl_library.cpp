#include "lockstep/http/curl_library.h"

#include <dlfcn.h>

#include "lockstep/base/error.h"

namespace lockstep::http {

CurlLibrary open_curl(const std::string& file) {
  void* const library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw Error("downloads and MLflow need libcurl: {}; install it (Debian's package is libcurl4)",
                ::dlerror());
  }
  const auto find = [&]<typename Function>(Function& function, const char* name) {
    function = reinterpret_cast<Function>(::dlsym(library, name));
    if (function == nullptr) {
      throw Error("{}: expected libcurl, which has a function {}, and it has none", file, name);
    }
  };
  CurlLibrary curl{};
  find(curl.global_init, "curl_global_init");
  find(curl.easy_init, "curl_easy_init");
  find(curl.easy_setopt, "curl_easy_setopt");
  find(curl.easy_getinfo, "curl_easy_getinfo");
  find(curl.easy_perform, "curl_easy_perform");
  find(curl.easy_strerror, "curl_easy_strerror");
  find(curl.easy_reset, "curl_easy_reset");
  find(curl.easy_cleanup, "curl_easy_cleanup");
  find(curl.slist_append, "curl_slist_append");
  find(curl.slist_free_all, "curl_slist_free_all");
  return curl;
}

const CurlLibrary& curl_library() {
  static const CurlLibrary library = [] {
    const CurlLibrary curl = open_curl();
    // Must be called once per process, before other threads use libcurl.
    const CURLcode status = curl.global_init(CURL_GLOBAL_DEFAULT);
    if (status != CURLE_OK) throw Error("libcurl: {}", curl.easy_strerror(status));
    return curl;
  }();
  return library;
}

}  // namespace lockstep::http
