// SPDX-License-Identifier: GPL-3.0-or-later
// What a conversation holds, bit by bit, as its file shows it.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

#include "engine/run/conversation_file.h"
#include "granary/engine.h"
#include "tests/gguf/gguf_builder.h"

namespace granary::test {

inline std::string read_bytes(const std::string& path) {
    std::ifstream stream(path, std::ios::binary);
    EXPECT_TRUE(stream) << path;
    return std::string(std::istreambuf_iterator<char>(stream), {});
}

struct Saved {
    FileHeader header;
    std::string spans, tokens, messages, list;
    std::string state;  // the newest
    std::string kv;
    size_t kv_at = 0, states_at = 0;  // in the file

    static Saved parse(const std::string& bytes) {
        Saved saved;
        size_t at = sizeof saved.header;
        if (bytes.size() < at) {
            ADD_FAILURE() << bytes.size();
            return saved;
        }
        std::memcpy(&saved.header, bytes.data(), at);
        const FileHeader& header = saved.header;
        const auto take = [&](uint64_t size) {
            at += size;
            return bytes.substr(at - size, size);
        };
        saved.spans = take(header.spans * sizeof(FileSpan));
        saved.tokens = take(header.tokens * sizeof(TokenId));
        saved.messages = take(header.message_bytes);
        saved.list = take(header.checkpoints * sizeof(FileCheckpoint));
        saved.states_at = at;
        for (uint32_t i = 0; i < header.checkpoints; ++i) {
            FileCheckpoint entry;
            std::memcpy(&entry, saved.list.data() + i * sizeof entry, sizeof entry);
            const std::string state = take(header.state_bytes);
            if (i == 0) saved.state = state;
            take(entry.has_logits * header.vocab * sizeof(float));
        }
        saved.kv_at = at;
        saved.kv = take(bytes.size() - sizeof(ContentHash::Digest) - at);
        EXPECT_EQ(at + sizeof(ContentHash::Digest), bytes.size());
        return saved;
    }
};

inline Saved saved(Engine& engine, ConversationId id, const TempDir& folder) {
    const std::string path = folder.file("compared.conversation");
    const auto bytes = engine.save_conversation(id, path, {});
    EXPECT_TRUE(bytes) << bytes.error().message();
    return Saved::parse(read_bytes(path));
}

// Cells, state and the way in which they came about are the same.
inline void expect_same(const Saved& a, const Saved& b) {
    EXPECT_EQ(a.header.cells, b.header.cells);
    EXPECT_EQ(a.tokens == b.tokens, true);
    EXPECT_EQ(a.spans == b.spans, true);
    EXPECT_EQ(a.state == b.state, true);
    EXPECT_EQ(a.kv == b.kv, true);
}

}  // namespace granary::test
