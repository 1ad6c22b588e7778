// SPDX-License-Identifier: GPL-3.0-or-later
// GRANARY_UNROLL before a loop of constant length: the compiler then keeps arrays of vectors in
// registers, which -O2 alone does not.
#pragma once

#define GRANARY_UNROLL _Pragma("GCC unroll 16")
