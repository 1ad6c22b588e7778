// SPDX-License-Identifier: GPL-3.0-or-later
// Which model a file is, without reading all of it.
#pragma once

#include "engine/content_hash.h"
#include "engine/gguf/file.h"

namespace granary::gguf {

// A hash of metadata, tensor table, size, and 64 pages of weights from all over the file: two
// fine-tunes of a model may agree in everything else. The place on disk and the way in which it
// is split do not count.
ContentHash::Digest identity_of(const File& file);

}  // namespace granary::gguf
