// SPDX-License-Identifier: GPL-3.0-or-later
// The log: follows its end unless the reader has scrolled away from it.
#pragma once

#include <QWidget>
#include <memory>

#include "gui/logs/log_model.h"

class QAction;
class QComboBox;
class QLabel;
class QLineEdit;
class QListView;

namespace granary::gui {

class LogView : public QWidget {
    Q_OBJECT
  public:
    explicit LogView(QWidget* parent = nullptr);

    // To be added to a logger's sinks.
    std::shared_ptr<spdlog::sinks::sink> sink() const { return m_model->sink(); }

    LogModel* model() const { return m_model; }
    QListView* list() const { return m_list; }
    QComboBox* levelBox() const { return m_level; }
    QLineEdit* searchEdit() const { return m_search; }
    bool follows() const;  // the end is in sight
    // The selected lines, or all that the filter lets through.
    QString text() const;

  protected:
    void changeEvent(QEvent* event) override;

  private:
    void copy();
    void showCount();

    LogModel* m_model;
    LogFilter* m_filter;
    QListView* m_list;
    QComboBox* m_level;
    QLineEdit* m_search;
    QLabel* m_count;
    QAction* m_copy;
    bool m_followed = true;
};

}  // namespace granary::gui
