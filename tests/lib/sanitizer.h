/* SPDX-License-Identifier: MIT */
/* Which sanitizer a test was built with, as gcc or clang tells it: 0 or 1. */
#ifndef DMASYNC_TESTS_SANITIZER_H
#define DMASYNC_TESTS_SANITIZER_H

#ifndef __has_feature /* gcc */
#define __has_feature(feature) 0
#endif

#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
#define UNDER_ASAN 1
#else
#define UNDER_ASAN 0
#endif

#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
#define UNDER_TSAN 1
#else
#define UNDER_TSAN 0
#endif

#endif
