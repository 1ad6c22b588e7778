// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/logs/log_model.h"

#include <QDateTime>
#include <QTimer>
#include <algorithm>

#include "gui/theme/units.h"

namespace granary::gui {

LogModel::LogModel(QObject* parent)
    : QAbstractListModel(parent),
      m_buffer(std::make_shared<LogBuffer>()),
      m_sink(makeLogSink(m_buffer)),
      m_timer(new QTimer(this)) {
    m_timer->setSingleShot(true);
    m_timer->setInterval(kDrainMs);
    connect(m_timer, &QTimer::timeout, this, &LogModel::drain);
    // The buffer's lock keeps this model alive while the call is posted: the destructor takes the
    // wake-up away under the same lock.
    m_buffer->setWake([this] {
        QMetaObject::invokeMethod(
            this, [this] { m_timer->start(); }, Qt::QueuedConnection);
    });
}

LogModel::~LogModel() {
    m_buffer->setWake(nullptr);
}

void LogModel::drain() {
    size_t dropped = 0;
    std::vector<LogLine> lines = m_buffer->take(dropped);
    if (dropped > 0)
        lines.push_back({QDateTime::currentMSecsSinceEpoch(), spdlog::level::warn,
                         tr("%1 came faster than they could be shown")
                             .arg(counted(dropped, tr("line"), tr("lines")))});
    if (lines.empty()) return;
    const int more = static_cast<int>(lines.size());
    const int excess = static_cast<int>(m_lines.size()) + more - kLines;
    if (excess > 0 && !m_lines.empty()) {
        const int gone = std::min(excess, static_cast<int>(m_lines.size()));
        beginRemoveRows({}, 0, gone - 1);
        m_lines.erase(m_lines.begin(), m_lines.begin() + gone);
        endRemoveRows();
    }
    const int first = static_cast<int>(m_lines.size());
    beginInsertRows({}, first, first + more - 1);
    m_lines.insert(m_lines.end(), std::make_move_iterator(lines.begin()),
                   std::make_move_iterator(lines.end()));
    endInsertRows();
}

void LogModel::clear() {
    drain();
    beginResetModel();
    m_lines.clear();
    endResetModel();
}

int LogModel::rowCount(const QModelIndex& parent) const {
    return parent.isValid() ? 0 : static_cast<int>(m_lines.size());
}

QString LogModel::levelName(spdlog::level::level_enum level) {
    switch (level) {
        case spdlog::level::trace:
        case spdlog::level::debug:
            return tr("detail");
        case spdlog::level::info:
            return tr("info");
        case spdlog::level::warn:
            return tr("warning");
        default:
            return tr("error");
    }
}

QString LogModel::lineText(int row) const {
    const LogLine& line = m_lines[static_cast<size_t>(row)];
    const QString time =
        QDateTime::fromMSecsSinceEpoch(line.milliseconds).toString(QStringLiteral("HH:mm:ss.zzz"));
    return time + QLatin1Char(' ') + levelName(line.level).leftJustified(8) + line.text;
}

QVariant LogModel::data(const QModelIndex& index, int role) const {
    if (!index.isValid() || index.row() >= rowCount()) return {};
    const LogLine& line = m_lines[static_cast<size_t>(index.row())];
    switch (role) {
        case Qt::DisplayRole:
        case Qt::AccessibleTextRole:
            return lineText(index.row());
        case Qt::ToolTipRole:
            return line.text.toHtmlEscaped();
        case LevelRole:
            return static_cast<int>(line.level);
        case TextRole:
            return line.text;
        default:
            return {};
    }
}

void LogFilter::setLevel(int level) {
    m_level = level;
    invalidateFilter();
}

void LogFilter::setText(const QString& text) {
    m_text = text;
    invalidateFilter();
}

bool LogFilter::filterAcceptsRow(int row, const QModelIndex& parent) const {
    const QModelIndex index = sourceModel()->index(row, 0, parent);
    return index.data(LogModel::LevelRole).toInt() >= m_level &&
           (m_text.isEmpty() ||
            index.data(LogModel::TextRole).toString().contains(m_text, Qt::CaseInsensitive));
}

}  // namespace granary::gui
