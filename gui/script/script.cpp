// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/script/script.h"

#include <QFile>
#include <iterator>
#include <optional>

#include "granary/state.h"

namespace granary::gui {

namespace {

constexpr qint64 kMostBytes = 1 << 20;

struct Command {
    const char* name;
    int least, most;  // arguments; most -1: any number
    const char* help;
};

constexpr Command kCommands[] = {
    {"open", 1, 1, "open FILE                     open a model"},
    {"drop", 1, -1, "drop FILE...                  drop files on the window"},
    {"type", 2, 2, "type OBJECT TEXT              write text into a field"},
    {"do", 1, 1, "do ACTION                     trigger an action"},
    {"click", 1, 1, "click OBJECT                  press a button"},
    {"key", 1, 1, "key SEQUENCE                  press keys, as Ctrl+F"},
    {"set", 2, 2, "set NAME VALUE                edit a setting; apply makes it so"},
    {"wait-state", 1, 2, "wait-state STATE [SECONDS=60] wait until the program is in a state"},
    {"shot", 1, 2, "shot NAME [OBJECT]            picture of the window or a part: DIR/NAME.png"},
    {"state", 1, 1, "state NAME                    what the window holds: DIR/NAME.json"},
    {"audit", 1, 2, "audit NAME [OBJECT]           faults of the layout: DIR/NAME.txt"},
    {"quit", 0, 0, "quit                          end"},
};

// Words of a line as a shell would cut it; nothing: a quote is open.
std::optional<QStringList> words(const QString& line) {
    QStringList result;
    QString word;
    bool inWord = false;
    QChar quote;
    for (qsizetype i = 0; i < line.size(); ++i) {
        const QChar c = line[i];
        if (!quote.isNull()) {
            if (c == quote) {
                quote = {};
            } else if (c == QLatin1Char('\\') && quote == QLatin1Char('"') && i + 1 < line.size() &&
                       (line[i + 1] == QLatin1Char('"') || line[i + 1] == QLatin1Char('\\'))) {
                word += line[++i];
            } else {
                word += c;
            }
        } else if (c == QLatin1Char('"') || c == QLatin1Char('\'')) {
            quote = c;
            inWord = true;
        } else if (c == QLatin1Char('\\') && i + 1 < line.size()) {
            word += line[++i];
            inWord = true;
        } else if (c.isSpace()) {
            if (inWord) result << word;
            word.clear();
            inWord = false;
        } else if (c == QLatin1Char('#') && !inWord) {
            break;
        } else {
            word += c;
            inWord = true;
        }
    }
    if (!quote.isNull()) return std::nullopt;
    if (inWord) result << word;
    return result;
}

}  // namespace

QString Script::help() {
    QString text = QStringLiteral("Commands of a script, one a line:\n");
    for (const Command& command : kCommands) {
        text += QStringLiteral("  ") + QLatin1String(command.help) + QLatin1Char('\n');
    }
    return text;
}

Result<Script> Script::load(const QString& path) {
    QFile file(path);
    if (!file.open(QIODevice::ReadOnly)) {
        return fail(ErrorKind::io, "The script cannot be read",
                    path.toStdString() + ": " + file.errorString().toStdString());
    }
    if (file.size() > kMostBytes) {
        return fail(ErrorKind::invalid_file, "The script is too long",
                    path.toStdString() + ": over " + std::to_string(kMostBytes) + " bytes");
    }
    return parse(QString::fromUtf8(file.readAll()), path);
}

Result<Script> Script::parse(const QString& text, const QString& name) {
    Script script;
    script.m_name = name;
    int number = 0;
    for (const QString& line : text.split(QLatin1Char('\n'))) {
        ++number;
        const auto wrong = [&](const QString& what) {
            return fail(ErrorKind::invalid_argument, what.toStdString(),
                        name.toStdString() + ":" + std::to_string(number));
        };
        const auto cut = words(line);
        if (!cut) return wrong(QStringLiteral("A quote is open"));
        if (cut->isEmpty()) continue;
        const Command* command = nullptr;
        for (const Command& known : kCommands) {
            if (cut->front() == QLatin1String(known.name)) command = &known;
        }
        if (!command) return wrong(QStringLiteral("No such command: ") + cut->front());
        ScriptStep step{number, cut->front(), cut->mid(1)};
        if (step.arguments.size() < command->least ||
            (command->most >= 0 && step.arguments.size() > command->most)) {
            return wrong(QStringLiteral("Wrong number of words: ") +
                         QLatin1String(command->help).trimmed());
        }
        if (step.command == QLatin1String("wait-state")) {
            if (!state_from_name(step.arguments[0].toStdString())) {
                return wrong(QStringLiteral("No such state: ") + step.arguments[0]);
            }
            bool ok = true;
            if (step.arguments.size() == 2) step.arguments[1].toDouble(&ok);
            if (!ok) return wrong(QStringLiteral("No number of seconds: ") + step.arguments[1]);
        }
        script.m_steps.push_back(step);
    }
    return script;
}

}  // namespace granary::gui
