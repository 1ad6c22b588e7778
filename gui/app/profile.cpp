// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/app/profile.h"

#include <QFileInfo>
#include <QStandardPaths>

namespace granary::gui {

namespace {

constexpr int kRecent = 6;

QString place(const QString& folder, QStandardPaths::StandardLocation location,
              const QString& file) {
    const QString root = folder.isEmpty() ? QStandardPaths::writableLocation(location) : folder;
    return root + QLatin1Char('/') + file;
}

QString key(const char* what, QSize screen) {
    return QStringLiteral("%1/%2x%3")
        .arg(QLatin1String(what))
        .arg(screen.width())
        .arg(screen.height());
}

}  // namespace

Profile::Profile(const QString& folder)
    : m_chats(place(folder, QStandardPaths::AppDataLocation, QStringLiteral("chats.sqlite"))),
      m_settings(place(folder, QStandardPaths::AppConfigLocation, QStringLiteral("granary.ini")),
                 QSettings::IniFormat) {
    m_writer.setMaxThreadCount(1);  // in order
}

Profile::~Profile() {
    m_writer.waitForDone();
}

// Objects of one file share what they hold, so that only the wait for the disk moves elsewhere.
void Profile::write(const QString& key, const QVariant& value) {
    m_writer.start([file = m_settings.fileName(), key, value] {
        QSettings settings(file, QSettings::IniFormat);
        settings.setValue(key, value);
        settings.sync();
    });
}

QStringList Profile::recentModels() const {
    QStringList models = m_settings.value(QStringLiteral("models/recent")).toStringList();
    models.removeIf([](const QString& path) { return !QFileInfo::exists(path); });
    return models;
}

void Profile::addRecentModel(const QString& path) {
    QStringList models = m_settings.value(QStringLiteral("models/recent")).toStringList();
    models.removeAll(path);
    models.prepend(path);
    write(QStringLiteral("models/recent"), models.mid(0, kRecent));
}

QString Profile::theme() const {
    return m_settings.value(QStringLiteral("window/theme"), QStringLiteral("system")).toString();
}

void Profile::setTheme(const QString& theme) {
    write(QStringLiteral("window/theme"), theme);
}

QByteArray Profile::layout(QSize screen) const {
    return m_settings.value(key("layout", screen)).toByteArray();
}

void Profile::setLayout(QSize screen, const QByteArray& state) {
    write(key("layout", screen), state);
}

QByteArray Profile::geometry(QSize screen) const {
    return m_settings.value(key("geometry", screen)).toByteArray();
}

void Profile::setGeometry(QSize screen, const QByteArray& geometry) {
    write(key("geometry", screen), geometry);
}

void Profile::forgetLayouts() {
    m_settings.remove(QStringLiteral("layout"));
    m_settings.remove(QStringLiteral("geometry"));
}

}  // namespace granary::gui
