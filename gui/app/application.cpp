// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/app/application.h"

#include <QApplication>
#include <QTemporaryDir>
#include <QTimer>
#include <cstdio>

#include "granary/version.h"
#include "gui/app/main_window.h"
#include "gui/app/options.h"
#include "gui/app/profile.h"
#include "gui/script/script_runner.h"
#include "gui/theme/theme.h"

namespace granary::gui {

namespace {

int complain(const std::string& message) {
    std::fprintf(stderr, "granary: %s\n", message.c_str());
    return 1;
}

}  // namespace

int runApplication(int argc, char** argv) {
    QStringList arguments;
    for (int i = 0; i < argc; ++i) arguments << QString::fromLocal8Bit(argv[i]);
    const auto options = parseOptions(arguments);
    if (!options) {
        complain(options.error().message());
        return 2;
    }
    if (!options->helpText.isEmpty()) {
        std::fputs(options->helpText.toLocal8Bit().constData(), stdout);
        return 0;
    }
    std::optional<Script> script;
    if (!options->script.isEmpty()) {
        auto loaded = Script::load(options->script);
        if (!loaded) return complain(loaded.error().message());
        script = std::move(*loaded);
    }

    QCoreApplication::setOrganizationName(QStringLiteral("granary"));
    QCoreApplication::setApplicationName(QStringLiteral("granary"));
    QCoreApplication::setApplicationVersion(QLatin1String(version()));
    QGuiApplication::setDesktopFileName(QStringLiteral("granary"));
    QGuiApplication::setHighDpiScaleFactorRoundingPolicy(
        Qt::HighDpiScaleFactorRoundingPolicy::PassThrough);
    QApplication app(argc, argv);
    QGuiApplication::setApplicationDisplayName(QStringLiteral("Granary"));

    // A script begins as a new person does, unless it names a profile.
    std::optional<QTemporaryDir> fresh;
    QString folder = options->profile;
    if (script && folder.isEmpty()) {
        fresh.emplace();
        folder = fresh->path();
    }
    Profile profile(folder);
    Theme theme(app);
    theme.setMode(Theme::modeFromName(options->theme.isEmpty() ? profile.theme() : options->theme));
    MainWindow window(*options, profile, theme);
    std::optional<ScriptRunner> runner;
    if (script) {
        runner.emplace(*script, options->out, window);
        QObject::connect(&window, &MainWindow::stateChanged, &*runner, &ScriptRunner::stateChanged);
        QObject::connect(&window, &MainWindow::usable, &*runner, &ScriptRunner::start);
        QObject::connect(&*runner, &ScriptRunner::done, &app, [](int code, const QString& message) {
            if (code) complain(message.toStdString());
            QCoreApplication::exit(code);
        });
    }
    window.show();
    QTimer::singleShot(0, &window, &MainWindow::begin);
    return QApplication::exec();
}

}  // namespace granary::gui
