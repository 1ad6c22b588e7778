// SPDX-License-Identifier: GPL-3.0-or-later
// The engine's edge: what a library throws (no memory, above all) ends here as an Error.
#pragma once

#include <exception>
#include <new>

#include "gpu/error.h"

namespace granary {

// Calls f, which gives a Result. `thrown`, where it is given, says that f did not end by itself.
template <class F>
auto guarded(F&& f, bool* thrown = nullptr) -> decltype(f()) {
    try {
        return f();
    } catch (const std::bad_alloc&) {
        if (thrown) *thrown = true;
        return fail(ErrorKind::out_of_memory, "main memory ran out", {},
                    "Close other programs or choose smaller settings");
    } catch (const std::exception& error) {
        if (thrown) *thrown = true;
        return fail(ErrorKind::internal, "a fault of this program ended the work", error.what());
    }
}

}  // namespace granary
