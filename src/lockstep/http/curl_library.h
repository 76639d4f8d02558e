// libcurl, opened at the first request. Nothing links to it, so a program that only trains can be
// linked, and runs, on a machine without it.
#pragma once

#include <string>

#include <curl/curl.h>

namespace lockstep::http {

// The functions of libcurl that are used, under their names without "curl_".
struct CurlLibrary {
  decltype(&curl_global_init) global_init;
  decltype(&curl_easy_init) easy_init;
  decltype(&curl_easy_setopt) easy_setopt;
  decltype(&curl_easy_getinfo) easy_getinfo;
  decltype(&curl_easy_perform) easy_perform;
  decltype(&curl_easy_strerror) easy_strerror;
  decltype(&curl_easy_reset) easy_reset;
  decltype(&curl_easy_cleanup) easy_cleanup;
  decltype(&curl_slist_append) slist_append;
  decltype(&curl_slist_free_all) slist_free_all;
};

// Throws Error, which says what to install, if there is no such library or it lacks a function.
CurlLibrary open_curl(const std::string& file = "libcurl.so.4");

// The library of this process. It is opened and initialised by the first call.
const CurlLibrary& curl_library();

}  // namespace lockstep::http
