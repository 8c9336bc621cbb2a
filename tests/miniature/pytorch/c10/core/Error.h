#pragma once

namespace c10 {
[[noreturn]] void fail(const char* file, int line, const char* message);
}

#define C10_CHECK(condition, message) \
    ((condition) ? (void)0 : ::c10::fail(__FILE__, __LINE__, message))
