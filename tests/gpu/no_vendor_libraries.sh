#!/bin/bash
# no_vendor_libraries.sh PROGRAM...: none of them is linked with a GPU maker's library, whole or in
# pieces. Only the driver may come into the process, and only when it is looked up at run time.
set -euo pipefail
status=0
for program in "$@"; do
    libraries=$(ldd "$program")
    if grep -iE 'lib(cuda|cudart|cublas|nvrtc|nvjitlink|nvidia|amdhip|hip|roc|hsa)[^ ]*\.so' <<<"$libraries"; then
        echo "$program needs the above"
        status=1
    fi
    # Names of the runtimes' own functions, defined (linked in) or undefined (wanted from outside).
    symbols=$({ nm "$program" 2>/dev/null || true; nm -D "$program"; } | awk '{ print $NF }' | sort -u)
    if grep -E '^(__cuda|cuda[A-Z]|cu[A-Z][A-Za-z]+(_v[0-9])?$|cublas|nvrtc|__hip|hip[A-Z]|hsa_)' <<<"$symbols"; then
        echo "$program has the above symbols"
        status=1
    fi
done
exit $status
