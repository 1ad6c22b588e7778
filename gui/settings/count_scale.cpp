// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/settings/count_scale.h"

#include <QLocale>
#include <algorithm>
#include <cmath>

namespace granary::gui {

namespace {

AutoCount number(uint32_t n) {
    return {AutoCount::Kind::number, n};
}

}  // namespace

CountScale::CountScale(uint32_t least, uint32_t most, bool hasAuto, bool hasNever, uint32_t extra)
    : m_auto(hasAuto), m_never(hasNever) {
    m_stops.push_back(least);
    for (uint64_t power = 1; power < most; power *= 2)
        if (power > least) m_stops.push_back(static_cast<uint32_t>(power));
    if (extra > least && extra < most) m_stops.push_back(extra);
    if (most > least) m_stops.push_back(most);
    std::sort(m_stops.begin(), m_stops.end());
    m_stops.erase(std::unique(m_stops.begin(), m_stops.end()), m_stops.end());
}

CountScale CountScale::longestContext(uint32_t trained) {
    return {512, std::max<uint32_t>(1u << 20, trained), false, false, trained};
}

CountScale CountScale::readingStep() {
    return {64, 16384, true, false};
}

CountScale CountScale::streamAllExperts() {
    return {1, 16384, true, true};
}

int CountScale::maximum() const {
    const int stops = static_cast<int>(m_stops.size()) + (m_auto ? 1 : 0) + (m_never ? 1 : 0);
    return (stops - 1) * kPerStop;
}

int CountScale::position(const AutoCount& value) const {
    const int base = m_auto ? kPerStop : 0;
    if (value.kind == AutoCount::Kind::automatic) return 0;
    if (value.kind == AutoCount::Kind::never) return maximum();
    const uint32_t n = std::clamp(value.number, least(), most());
    const auto above = std::upper_bound(m_stops.begin(), m_stops.end(), n);
    const int index = static_cast<int>(above - m_stops.begin()) - 1;
    if (above == m_stops.end()) return base + index * kPerStop;
    const double low = m_stops[static_cast<size_t>(index)], high = *above;
    const double share = std::log(n / low) / std::log(high / low);
    return base + index * kPerStop +
           std::min(static_cast<int>(std::lround(share * kPerStop)), kPerStop - 1);
}

AutoCount CountScale::value(int position) const {
    if (m_auto && position < kPerStop) return {AutoCount::Kind::automatic, 0};
    if (m_never && position >= maximum()) return {AutoCount::Kind::never, 0};
    const int at = std::max(position - (m_auto ? kPerStop : 0), 0);
    const auto index = std::min(static_cast<size_t>(at / kPerStop), m_stops.size() - 1);
    if (index + 1 == m_stops.size()) return number(m_stops.back());
    const double low = m_stops[index], high = m_stops[index + 1];
    const double share = static_cast<double>(at % kPerStop) / kPerStop;
    return number(static_cast<uint32_t>(std::lround(low * std::pow(high / low, share))));
}

int CountScale::nearestStop(int position) const {
    return std::clamp((position + kPerStop / 2) / kPerStop * kPerStop, 0, maximum());
}

AutoCount CountScale::neighbour(const AutoCount& value, int steps) const {
    const int at = position(value);
    // Between two stops the first step goes to the nearer end in that direction.
    int stop = steps > 0 ? at / kPerStop : (at + kPerStop - 1) / kPerStop;
    stop = std::clamp(stop + steps, 0, maximum() / kPerStop);
    return this->value(stop * kPerStop);
}

bool CountScale::contains(const AutoCount& value) const {
    switch (value.kind) {
        case AutoCount::Kind::automatic:
            return m_auto;
        case AutoCount::Kind::never:
            return m_never;
        case AutoCount::Kind::number:
            break;
    }
    return value.number >= least() && value.number <= most();
}

QString CountScale::text(const AutoCount& value) {
    switch (value.kind) {
        case AutoCount::Kind::automatic:
            return tr("auto");
        case AutoCount::Kind::never:
            return tr("never");
        case AutoCount::Kind::number:
            break;
    }
    // No setting is 0: it stands for what is not known.
    return value.number == 0 ? QStringLiteral("\u2013") : QLocale().toString(value.number);
}

std::optional<AutoCount> CountScale::parse(const QString& text) const {
    const QString word = text.trimmed().toLower();
    if (word.isEmpty()) return std::nullopt;
    const auto is = [&word](const QString& shown, QLatin1String identifier) {
        return word == shown.toLower() || word == identifier;
    };
    if (m_auto && is(tr("auto"), QLatin1String("auto")))
        return AutoCount{AutoCount::Kind::automatic, 0};
    if (m_never && is(tr("never"), QLatin1String("never")))
        return AutoCount{AutoCount::Kind::never, 0};
    QString digits;
    uint64_t factor = 1;
    for (qsizetype i = 0; i < word.size(); ++i) {
        const QChar c = word[i];
        if (c.isDigit())
            digits += QChar::fromLatin1(static_cast<char>('0' + c.digitValue()));
        else if (c == QLatin1Char('k') && i + 1 == word.size() && !digits.isEmpty())
            factor = 1024;
        else if (!c.isSpace() && c != QLatin1Char(',') && c != QLatin1Char('.') &&
                 c != QLatin1Char('\'') && c != QLatin1Char('_'))
            return std::nullopt;
    }
    bool ok = false;
    const qulonglong n = digits.toULongLong(&ok);
    if (!ok || n > UINT32_MAX / factor) return std::nullopt;
    return number(static_cast<uint32_t>(n * factor));
}

}  // namespace granary::gui
