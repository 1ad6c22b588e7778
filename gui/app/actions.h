// SPDX-License-Identifier: GPL-3.0-or-later
// Every command of the window as one named action, shared by menus, buttons and scripts.
#pragma once

#include <QAction>
#include <QObject>

namespace granary::gui {

class Actions : public QObject {
    Q_OBJECT

  public:
    explicit Actions(QWidget* window);

    QAction* openModel;
    QAction* openStarter;
    QAction* closeModel;
    QAction* attach;
    QAction* quit;
    QAction* newChat;
    QAction* send;
    QAction* stop;
    QAction* continueAnswer;  // "continue"
    QAction* regenerate;
    QAction* editLast;
    QAction* copyAnswer;
    QAction* find;
    QAction* chatOptions;
    QAction* nextPane;
    QAction* previousPane;
    QAction* resetLayout;
    QAction* toggleLibrary;
    QAction* toggleVram;
    QAction* toggleBottom;
    QAction* themeSystem;
    QAction* themeLight;
    QAction* themeDark;
    QAction* about;

  private:
    QAction* make(const char* name, const QString& text, const QString& tip,
                  const QList<QKeySequence>& keys = {});
    QWidget* m_window;
};

}  // namespace granary::gui
