/* A library of ROCm that programs load by name: LIBRARY is its name, LIBRARY_VERSION its version. */
#include <stdio.h>

#define JOIN2(name, what) name##_##what
#define JOIN(name, what) JOIN2(name, what)

int JOIN(LIBRARY, get_version)(char* text, unsigned size) {
    return snprintf(text, size, "%s", LIBRARY_VERSION) < (int)size ? 0 : 1;
}
