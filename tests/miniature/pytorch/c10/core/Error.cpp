#include <c10/core/Error.h>

#include <cstdio>
#include <stdexcept>

namespace c10 {

void fail(const char* file, int line, const char* message) {
    char text[256];
    std::snprintf(text, sizeof text, "%s (%s:%d)", message, file, line);
    throw std::runtime_error(text);
}

}  // namespace c10
