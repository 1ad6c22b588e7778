// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/app/resources.h"

#include <QCoreApplication>
#include <QFile>
#include <QFileInfo>
#include <QJsonArray>
#include <QJsonDocument>
#include <QJsonObject>

namespace granary::gui {

QString resourcePath(const QString& relative) {
    const QStringList roots{
        QCoreApplication::applicationDirPath() + QStringLiteral("/../share/granary"),
        QStringLiteral(GRANARY_RESOURCES)};
    for (const QString& root : roots) {
        const QFileInfo file(root + QLatin1Char('/') + relative);
        if (file.exists()) return file.absoluteFilePath();
    }
    return {};
}

QString starterModelPath() {
    return resourcePath(QStringLiteral("starter/starter-q4_k_m.gguf"));
}

bool isStarterModel(const QString& path) {
    return QFileInfo(path).fileName() == QLatin1String("starter-q4_k_m.gguf");
}

std::optional<Welcome> loadWelcome() {
    QFile file(resourcePath(QStringLiteral("welcome/questions.json")));
    if (file.fileName().isEmpty() || !file.open(QIODevice::ReadOnly)) return std::nullopt;
    const QJsonObject root = QJsonDocument::fromJson(file.readAll()).object();
    Welcome welcome;
    welcome.documentPath = QFileInfo(file).absolutePath() + QLatin1Char('/') +
                           root[QStringLiteral("document")].toString();
    for (const QJsonValue entry : root[QStringLiteral("questions")].toArray()) {
        welcome.questions.push_back({entry[QStringLiteral("question")].toString(),
                                     entry[QStringLiteral("fact")].toString()});
    }
    if (!QFileInfo(welcome.documentPath).isFile() || welcome.questions.isEmpty()) {
        return std::nullopt;
    }
    return welcome;
}

}  // namespace granary::gui
