// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/app/options.h"

#include <QCommandLineParser>

#include "granary/version.h"
#include "gui/script/script.h"

namespace granary::gui {

Result<Options> parseOptions(const QStringList& arguments) {
    QCommandLineParser parser;
    parser.setApplicationDescription(QStringLiteral(
        "Granary: Mixture-of-Experts language models on one computer, with a live memory map."));
    parser.addPositionalArgument(QStringLiteral("MODEL"), QStringLiteral("A GGUF file to open."),
                                 QStringLiteral("[MODEL]"));
    const auto add = [&parser](const char* name, const char* help, const char* value = "") {
        parser.addOption({QLatin1String(name), QLatin1String(help), QLatin1String(value)});
    };
    parser.addOption(
        {{QStringLiteral("h"), QStringLiteral("help")}, QStringLiteral("Print this and end.")});
    add("version", "Print the version and end.");
    add("document", "Put a document into the tray.", "FILE");
    add("first-question", "Ask the first question about the sample document at once.");
    add("theme", "system, light or dark.", "NAME");
    add("size", "Open the window in this size.", "WxH");
    add("profile", "Keep chats and preferences in this folder.", "DIR");
    add("script", "Drive the window by the commands of a file, then end.", "FILE");
    add("out", "Where the script's pictures and states go.", "DIR");
    for (const Settings::Entry& entry : Settings::entries()) {
        parser.addOption({QString::fromUtf8(entry.name.data(), static_cast<int>(entry.name.size())),
                          QString::fromUtf8(entry.help.data(), static_cast<int>(entry.help.size())),
                          QStringLiteral("VALUE")});
    }
    const auto refuse = [](const QString& what, const QString& advice = {}) {
        return fail(ErrorKind::invalid_argument, what.toStdString(), {},
                    advice.isEmpty() ? "granary --help lists what there is" : advice.toStdString());
    };
    if (!parser.parse(arguments)) return refuse(parser.errorText());
    Options options;
    if (parser.isSet(QStringLiteral("version"))) {
        options.helpText = QStringLiteral("granary %1\n").arg(QLatin1String(version()));
        return options;
    }
    if (parser.isSet(QStringLiteral("help"))) {
        options.helpText = parser.helpText() + QLatin1Char('\n') + Script::help();
        return options;
    }
    const QStringList positional = parser.positionalArguments();
    if (positional.size() > 1) return refuse(QStringLiteral("More than one model was given"));
    options.model = positional.value(0);
    options.document = parser.value(QStringLiteral("document"));
    options.firstQuestion = parser.isSet(QStringLiteral("first-question"));
    options.script = parser.value(QStringLiteral("script"));
    options.out = parser.value(QStringLiteral("out"));
    options.profile = parser.value(QStringLiteral("profile"));
    options.theme = parser.value(QStringLiteral("theme"));
    if (!options.theme.isEmpty() &&
        !QStringList{QStringLiteral("system"), QStringLiteral("light"), QStringLiteral("dark")}
             .contains(options.theme)) {
        return refuse(QStringLiteral("There is no theme \"%1\"").arg(options.theme),
                      QStringLiteral("Themes are system, light and dark"));
    }
    if (options.script.isEmpty() != options.out.isEmpty()) {
        return refuse(QStringLiteral("--script and --out belong together"));
    }
    if (const QString size = parser.value(QStringLiteral("size")); !size.isEmpty()) {
        const QStringList parts = size.split(QLatin1Char('x'));
        options.size = {parts.value(0).toInt(), parts.value(1).toInt()};
        if (parts.size() != 2 || options.size.isEmpty()) {
            return refuse(QStringLiteral("\"%1\" is no size").arg(size),
                          QStringLiteral("A size is written 1366x768"));
        }
    }
    for (const Settings::Entry& entry : Settings::entries()) {
        const QString name =
            QString::fromUtf8(entry.name.data(), static_cast<int>(entry.name.size()));
        if (!parser.isSet(name)) continue;
        const auto set = options.settings.set(entry.name, parser.value(name).toStdString());
        if (!set) return tl::unexpected(set.error());
        options.given << name;
    }
    return options;
}

}  // namespace granary::gui
