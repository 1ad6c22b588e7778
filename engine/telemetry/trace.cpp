// SPDX-License-Identifier: GPL-3.0-or-later
#include "granary/trace.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

namespace granary {
namespace {

using nlohmann::json;

constexpr uint32_t kVersion = 1;
constexpr uint32_t kMostGranules = 1u << 22;
// A frame's line is longer than this; of empty ones a small file could hold millions.
constexpr size_t kLeastLine = 32;
constexpr int kGzip = 15 + 16;  // window bits, with gzip's header

// A granule without how warm it is.
GranuleWord lasting(GranuleWord word) {
    return GranuleWord::make(word.owner(), word.flags(), word.id(), 0, 0);
}

std::string packed(const std::string& text) {
    z_stream stream{};
    if (deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, kGzip, 9, Z_DEFAULT_STRATEGY) != Z_OK)
        return {};
    std::string bytes(deflateBound(&stream, text.size()), '\0');
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
    stream.avail_in = static_cast<uInt>(text.size());
    stream.next_out = reinterpret_cast<Bytef*>(bytes.data());
    stream.avail_out = static_cast<uInt>(bytes.size());
    deflate(&stream, Z_FINISH);
    bytes.resize(stream.total_out);
    deflateEnd(&stream);
    return bytes;
}

Error wrong(const std::string& what) {
    return {ErrorKind::invalid_file, "This is no recording that can be shown", what, {}};
}
Error wrong(size_t line, const std::string& what) {
    return wrong("line " + std::to_string(line) + ": " + what);
}

Result<std::string> unpacked(std::string_view bytes) {
    constexpr size_t kMost = TraceWriter::kMostBytes + (1 << 20);  // with the header
    z_stream stream{};
    if (inflateInit2(&stream, kGzip) != Z_OK)
        return tl::unexpected(wrong("there is no memory to unpack it"));
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
    stream.avail_in = static_cast<uInt>(bytes.size());
    std::string text;
    char buffer[1 << 16];
    int status = Z_OK;
    while (status == Z_OK && text.size() <= kMost) {
        stream.next_out = reinterpret_cast<Bytef*>(buffer);
        stream.avail_out = sizeof buffer;
        status = inflate(&stream, Z_NO_FLUSH);
        text.append(buffer, sizeof buffer - stream.avail_out);
    }
    inflateEnd(&stream);
    if (text.size() > kMost)
        return tl::unexpected(wrong("it is longer than " + format_bytes(kMost)));
    if (status != Z_STREAM_END) return tl::unexpected(wrong("it is not gzipped, or damaged"));
    return text;
}

}  // namespace

TraceWriter::TraceWriter(TraceHeader header) : header_(std::move(header)) {
    last_.words.resize(header_.granules);
    last_.places.resize(header_.granules);
}

Result<void> TraceWriter::add(const MapFrame& frame, const TraceCounts& counts) {
    if (frame.words.size() != header_.granules)
        return fail(
            ErrorKind::internal, "a frame has other granules than its recording",
            std::to_string(frame.words.size()) + " and " + std::to_string(header_.granules));
    json line;
    line["t"] = frame.seconds;
    line["counts"] = {counts.prompt_done, counts.prompt_total, counts.answered, counts.bytes_copied,
                      counts.driver_allocations};
    if (frames_ == 0 || frame.ranges != last_.ranges) {
        json ranges = json::array();
        for (const RangeInfo& range : frame.ranges) ranges.push_back({range.name, range.places});
        line["ranges"] = ranges;
    }
    json set = json::array();
    for (uint32_t id = 0; id < header_.granules; ++id) {
        const GranuleWord word = lasting(frame.words[id]);
        const Place& place = frame.places[id];
        if (word == last_.words[id] && place == last_.places[id]) continue;
        set.push_back({id, word.bits, place.range, place.place});
        last_.words[id] = word;
        last_.places[id] = place;
    }
    line["set"] = set;
    last_.ranges = frame.ranges;
    const std::string text = line.dump() + "\n";
    if (lines_.size() + text.size() > kMostBytes)
        return fail(ErrorKind::refused, "the recording is too long",
                    std::to_string(frames_) + " frames take " + format_bytes(lines_.size()));
    lines_ += text;
    ++frames_;
    return {};
}

std::string TraceWriter::bytes() const {
    json header;
    header["granary_trace"] = kVersion;
    header["model"] = header_.model;
    header["device"] = header_.device;
    header["settings"] = header_.settings;
    header["granule_bytes"] = header_.granule_bytes;
    header["granules"] = header_.granules;
    header["experts_per_layer"] = header_.experts_per_layer;
    return packed(header.dump(-1, ' ', false, json::error_handler_t::replace) + "\n" + lines_);
}

Result<TraceReader> TraceReader::open(std::string_view bytes) {
    auto text = unpacked(bytes);
    if (!text) return tl::unexpected(text.error());
    TraceReader reader;
    std::vector<std::string>& lines = reader.lines_;
    for (size_t at = 0; at < text->size();) {
        const size_t end = std::min(text->find('\n', at), text->size());
        lines.push_back(text->substr(at, end - at));
        at = end + 1;
        if (lines.size() > text->size() / kLeastLine + 1)
            return tl::unexpected(wrong("most of its lines are too short for a frame"));
    }
    if (lines.empty()) return tl::unexpected(wrong(1, "there is none"));
    const json header = json::parse(lines.front(), nullptr, false);
    lines.erase(lines.begin());
    TraceHeader& to = reader.header_;
    try {
        if (const auto version = header.at("granary_trace").get<uint32_t>(); version != kVersion)
            return tl::unexpected(wrong("it has version " + std::to_string(version) +
                                        ", this program reads " + std::to_string(kVersion)));
        header.at("model").get_to(to.model);
        header.at("device").get_to(to.device);
        header.at("settings").get_to(to.settings);
        header.at("granule_bytes").get_to(to.granule_bytes);
        header.at("granules").get_to(to.granules);
        header.at("experts_per_layer").get_to(to.experts_per_layer);
    } catch (const json::exception& error) {
        return tl::unexpected(wrong(1, error.what()));
    }
    if (to.granules > kMostGranules)
        return tl::unexpected(wrong(1, std::to_string(to.granules) + " granules"));
    reader.frame_.words.resize(to.granules);
    reader.frame_.places.resize(to.granules);
    reader.frame_.granule_bytes = to.granule_bytes;
    reader.frame_.experts_per_layer = to.experts_per_layer;
    return reader;
}

bool TraceReader::lies_in_range(uint32_t id) const {
    const Place& place = frame_.places[id];
    return place.range == Place::kNowhere ||
           (place.range < frame_.ranges.size() && place.place < frame_.ranges[place.range].places);
}

Result<bool> TraceReader::next(MapFrame& frame, TraceCounts& counts) {
    if (at_ == lines_.size()) return false;
    const size_t number = at_ + 2;
    try {
        const json line = json::parse(lines_[at_]);
        line.at("t").get_to(frame_.seconds);
        const auto all = line.at("counts").get<std::array<uint64_t, 5>>();
        counts = {all[0], all[1], all[2], all[3], all[4]};
        if (const auto ranges = line.find("ranges"); ranges != line.end()) {
            frame_.ranges.clear();
            for (const json& range : *ranges)
                frame_.ranges.push_back(
                    {range.at(0).get<std::string>(), range.at(1).get<uint32_t>()});
        }
        for (const json& change : line.at("set")) {
            const auto id = change.at(0).get<uint32_t>();
            const GranuleWord word{change.at(1).get<uint64_t>()};
            const Place place{change.at(2).get<uint16_t>(), change.at(3).get<uint32_t>()};
            if (id >= header_.granules || static_cast<int>(word.owner()) >= kOwners)
                return tl::unexpected(wrong(number, "granule " + std::to_string(id)));
            frame_.words[id] = word;
            frame_.places[id] = place;
            if (!lies_in_range(id))
                return tl::unexpected(wrong(number, "granule " + std::to_string(id)));
        }
        // Also those that lie where they did, in ranges that may be other ones.
        for (uint32_t id = 0; line.contains("ranges") && id < header_.granules; ++id)
            if (!lies_in_range(id))
                return tl::unexpected(wrong(number, "granule " + std::to_string(id)));
    } catch (const json::exception& error) {
        return tl::unexpected(wrong(number, error.what()));
    }
    frame_.sequence = ++at_;
    frame_.granules.fill(0);
    for (const GranuleWord& word : frame_.words)
        if (word.in_budget()) ++frame_.granules[static_cast<int>(word.owner())];
    frame = frame_;
    return true;
}

}  // namespace granary
