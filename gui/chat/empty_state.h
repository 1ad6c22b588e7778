// SPDX-License-Identifier: GPL-3.0-or-later
// What stands in the middle while there is nothing to read: what this is, what to do next.
#pragma once

#include <QWidget>

class QAction;
class QLabel;
class QVBoxLayout;

namespace granary::gui {

class ThinProgress;

class EmptyState : public QWidget {
    Q_OBJECT

  public:
    explicit EmptyState(QWidget* parent = nullptr);

    // No model: the buttons of `first` (filled) and `second`, the models opened last, and what to
    // drop where.
    void showNoModel(QAction* first, QAction* second, const QStringList& recent);
    void showLoading(const QString& name, QAction* cancel);
    void setLoadProgress(quint64 done, quint64 total, double seconds);
    // A model is there, the chat is empty.
    void showReady(const QString& title, const QString& text);

  Q_SIGNALS:
    void modelChosen(const QString& path);

  private:
    void clear();

    QLabel* m_title;
    QLabel* m_text;
    ThinProgress* m_progress;
    QWidget* m_extra;
    QVBoxLayout* m_extraLayout;
};

}  // namespace granary::gui
