#!/bin/sh
# What hipcc starts clang through: has it name what it compiles by its place in the source tree.
#
# Of itself clang hashes the path of a source and all options into the name of a symbol (-fuse-cuid=hash), so
# that the same sources in another folder become other bytes. -fuse-cuid=none gives all sources one name, and
# two of them do not link. $ROCM_WHEELS_SOURCE is the root of the tree.
compile='' input='' output='' previous=''
for word; do
    case $previous in
    -o) output=$word ;;
    -MF | -MT | -MQ | -include | -I | -isystem | -iquote | -x | -Xclang) ;;
    *)
        case $word in
        -c) compile=1 ;;
        -cuid=* | -fuse-cuid=*) exec "$@" ;;
        -*) ;;
        *.hip | *.cu | *.cpp | *.cc | *.cxx | *.c) input=$word ;;
        esac
        ;;
    esac
    previous=$word
done
[ -n "$compile" ] && [ -n "$input" ] || exec "$@"
place="${input#"$ROCM_WHEELS_SOURCE"/} ${output#"$ROCM_WHEELS_SOURCE"/}"
digest=$(printf %s "$place" | sha256sum) || exit 1
exec "$@" "-cuid=$(printf %.16s "$digest")"
