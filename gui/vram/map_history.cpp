// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/vram/map_history.h"

#include <algorithm>

namespace granary::gui {

namespace {

constexpr double kLeadIn = 0.15, kLeadOut = 0.35;  // around a prompt
// Loans of one prompt: between two chunks there may be a frame without.
constexpr double kSamePrompt = 0.2;

bool sameShape(const MapFrame& a, const MapFrame& b) {
    return a.words.size() == b.words.size() && a.places.size() == b.places.size() &&
           a.granule_bytes == b.granule_bytes && a.ranges == b.ranges &&
           a.experts_per_layer == b.experts_per_layer;
}

size_t keyBytes(const MapFrame& frame) {
    return sizeof(MapSegment) + frame.words.size() * sizeof(GranuleWord) +
           frame.places.size() * sizeof(Place);
}

}  // namespace

void MapHistory::append(const MapFrame& frame) {
    if (!m_segments.empty() && frame.seconds < m_segments.back()->lastSeconds()) clear();

    const bool loan = frame.granules[static_cast<size_t>(Owner::loan)] > 0;
    if (loan) {
        if (!m_loanOpen && (!m_loan.valid() || frame.seconds - m_loan.to > kSamePrompt))
            m_loan.from = frame.seconds;
        m_loan.to = frame.seconds;
    } else if (m_loanOpen) {
        m_loan.to = frame.seconds;  // the frame that shows it given back
    }
    m_loanOpen = loan;

    const bool key = m_segments.empty() || !sameShape(frame, m_last) ||
                     frame.seconds - m_segments.back()->key.seconds >= kKeyEvery;
    if (key) {
        auto segment = std::make_shared<MapSegment>();
        segment->key = frame;
        segment->bytes = keyBytes(frame);
        m_bytes += segment->bytes;
        m_segments.push_back(std::move(segment));
    } else {
        MapSegment::Step step{frame.seconds, frame.sequence, {}};
        for (size_t i = 0; i < frame.words.size(); ++i) {
            const Place place = i < frame.places.size() ? frame.places[i] : Place{};
            const Place before = i < m_last.places.size() ? m_last.places[i] : Place{};
            if (frame.words[i] == m_last.words[i] && place == before) continue;
            step.deltas.push_back(
                {frame.words[i].bits, static_cast<uint32_t>(i), place.place, place.range});
        }
        step.deltas.shrink_to_fit();
        const size_t bytes = sizeof(step) + step.deltas.size() * sizeof(MapDelta);
        MapSegment& segment = *m_segments.back();
        segment.steps.push_back(std::move(step));
        segment.bytes += bytes;
        m_bytes += bytes;
    }
    m_last = frame;
    forget();
}

void MapHistory::forget() {
    // A segment goes when the one after it covers the whole minute by itself, or for room.
    while (m_segments.size() > 1 &&
           (m_segments[1]->key.seconds <= m_last.seconds - kSeconds || m_bytes > m_limit)) {
        m_bytes -= m_segments.front()->bytes;
        m_segments.pop_front();
    }
    // One segment alone over the limit: begin again from the last frame.
    if (m_bytes > m_limit && !m_segments.front()->steps.empty()) {
        auto segment = std::make_shared<MapSegment>();
        segment->key = m_last;
        segment->bytes = keyBytes(m_last);
        m_bytes = segment->bytes;
        m_segments.clear();
        m_segments.push_back(std::move(segment));
    }
}

void MapHistory::clear() {
    m_segments.clear();
    m_bytes = 0;
    m_last = {};
    m_loan = {};
    m_loanOpen = false;
}

size_t MapHistory::frames() const {
    size_t count = 0;
    for (const auto& segment : m_segments) count += 1 + segment->steps.size();
    return count;
}

MapSpan MapHistory::span() const {
    if (m_segments.empty()) return {};
    const double to = m_segments.back()->lastSeconds();
    return {std::max(m_segments.front()->key.seconds, to - kSeconds), to};
}

MapSpan MapHistory::lastPrompt() const {
    const MapSpan all = span();
    if (m_loan.to <= 0 || m_loan.to < all.from) return {};
    return {std::max(m_loan.from - kLeadIn, all.from), m_loan.to + kLeadOut};
}

bool MapReplay::start(const MapHistory& history, MapSpan span) {
    stop();
    if (history.empty() || !span.valid()) return false;
    for (const auto& segment : history.segments())
        if (segment->key.seconds <= span.to) m_segments.push_back(segment);
    // Everything before the last key frame at or before the beginning is not needed.
    while (m_segments.size() > 1 && m_segments[1]->key.seconds <= span.from) m_segments.pop_front();
    if (m_segments.empty()) return false;
    m_span = span;
    m_position = std::max(span.from, m_segments.front()->key.seconds);
    m_frame = m_segments.front()->key;
    m_segment = 0;
    m_step = 0;
    m_running = true;
    showUpTo(m_position);
    return true;
}

void MapReplay::stop() {
    m_running = false;
    m_segments.clear();
    m_frame = {};
    m_position = 0;
    m_span = {};
}

bool MapReplay::advance(double wallSeconds) {
    if (!m_running) return false;
    m_position += wallSeconds * kSpeed;
    if (m_position > m_span.to - 1e-6) m_position = m_span.to;  // many small steps do add up
    return showUpTo(m_position);
}

bool MapReplay::showUpTo(double seconds) {
    bool changed = false;
    for (;;) {
        const MapSegment& segment = *m_segments[m_segment];
        if (m_step < segment.steps.size()) {
            const MapSegment::Step& step = segment.steps[m_step];
            if (step.seconds > seconds) return changed;
            for (const MapDelta& delta : step.deltas) {
                const GranuleWord before = m_frame.words[delta.granule], after{delta.word};
                const auto was = static_cast<size_t>(before.owner());
                const auto is = static_cast<size_t>(after.owner());
                if (was < kOwners && before.in_budget()) --m_frame.granules[was];
                if (is < kOwners && after.in_budget()) ++m_frame.granules[is];
                m_frame.words[delta.granule] = after;
                if (delta.granule < m_frame.places.size())
                    m_frame.places[delta.granule] = {delta.range, delta.place};
            }
            m_frame.seconds = step.seconds;
            m_frame.sequence = step.sequence;
            ++m_step;
            changed = true;
        } else if (m_segment + 1 < m_segments.size()) {
            const MapFrame& key = m_segments[m_segment + 1]->key;
            if (key.seconds > seconds) return changed;
            m_frame = key;
            ++m_segment;
            m_step = 0;
            changed = true;
        } else {
            return changed;
        }
    }
}

}  // namespace granary::gui
