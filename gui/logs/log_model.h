// SPDX-License-Identifier: GPL-3.0-or-later
// The last log lines as a list, and a filter by level and text.
#pragma once

#include <QAbstractListModel>
#include <QSortFilterProxyModel>
#include <deque>
#include <memory>

#include "gui/logs/log_buffer.h"

class QTimer;

namespace granary::gui {

class LogModel : public QAbstractListModel {
    Q_OBJECT
  public:
    static constexpr int kLines = 20000;  // the oldest go
    static constexpr int kDrainMs = 100;  // lines that come within it are shown together
    enum Role { LevelRole = Qt::UserRole, TextRole };

    explicit LogModel(QObject* parent = nullptr);
    ~LogModel() override;

    // To be added to a logger's sinks; may outlive this model.
    std::shared_ptr<spdlog::sinks::sink> sink() const { return m_sink; }
    void drain();  // what the timer calls
    void clear();

    int rowCount(const QModelIndex& parent = {}) const override;
    QVariant data(const QModelIndex& index, int role) const override;

    static QString levelName(spdlog::level::level_enum level);
    QString lineText(int row) const;  // "12:30:01.250 warning text"

  private:
    std::shared_ptr<LogBuffer> m_buffer;
    std::shared_ptr<spdlog::sinks::sink> m_sink;
    std::deque<LogLine> m_lines;
    QTimer* m_timer;
};

class LogFilter : public QSortFilterProxyModel {
    Q_OBJECT
  public:
    using QSortFilterProxyModel::QSortFilterProxyModel;
    void setLevel(int level);  // lines of at least this spdlog level
    void setText(const QString& text);

  protected:
    bool filterAcceptsRow(int row, const QModelIndex& parent) const override;

  private:
    int m_level = 0;
    QString m_text;
};

}  // namespace granary::gui
