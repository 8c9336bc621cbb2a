#!/bin/sh
# What CMake starts the compilers of C and C++ through, where CMAKE_CXX_FLAGS may not say it: files are named
# by their place in the source tree, in `__FILE__` and in debug information.
#
# $ROCM_WHEELS_SOURCE is the root of the tree; a ninja that somebody starts without it compiles all the same.
[ -n "$ROCM_WHEELS_SOURCE" ] || exec "$@"
exec "$@" "-ffile-prefix-map=$ROCM_WHEELS_SOURCE=."
