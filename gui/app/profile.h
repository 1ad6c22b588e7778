// SPDX-License-Identifier: GPL-3.0-or-later
// What is remembered between runs, in one folder: preferences as INI, chats as SQLite.
#pragma once

#include <QByteArray>
#include <QSettings>
#include <QSize>
#include <QStringList>
#include <QThreadPool>

namespace granary::gui {

class Profile {
  public:
    // Empty: the places that the system keeps for this user.
    explicit Profile(const QString& folder = {});
    ~Profile();

    QString chatsPath() const { return m_chats; }

    QStringList recentModels() const;
    void addRecentModel(const QString& path);

    QString theme() const;  // "system", "light", "dark"
    void setTheme(const QString& theme);

    // Dock sizes and visibility for a screen of this size; empty: none kept.
    QByteArray layout(QSize screen) const;
    void setLayout(QSize screen, const QByteArray& state);
    QByteArray geometry(QSize screen) const;
    void setGeometry(QSize screen, const QByteArray& geometry);
    void forgetLayouts();

  private:
    void write(const QString& key, const QVariant& value);

    QString m_chats;
    QSettings m_settings;  // reads; what is written becomes visible here at once
    QThreadPool m_writer;  // waits for the disk in the window's place
};

}  // namespace granary::gui
