// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/script/script_runner.h"

#include <QAbstractButton>
#include <QAbstractSpinBox>
#include <QAction>
#include <QApplication>
#include <QDir>
#include <QJsonDocument>
#include <QKeyEvent>
#include <QLineEdit>
#include <QPixmap>
#include <QPlainTextEdit>
#include <QSaveFile>

#include "gui/script/layout_audit.h"

namespace granary::gui {

namespace {

bool writeFile(const QString& path, const QByteArray& bytes) {
    QSaveFile file(path);
    return file.open(QIODevice::WriteOnly) && file.write(bytes) == bytes.size() && file.commit();
}

template <class T>
T* findIn(QWidget* window, const QString& name) {
    if (T* found = window->findChild<T*>(name)) return found;
    for (QWidget* top : QApplication::topLevelWidgets()) {
        if (T* found = top->findChild<T*>(name)) return found;
    }
    return nullptr;
}

}  // namespace

ScriptRunner::ScriptRunner(Script script, QString out, ScriptTarget& target, QObject* parent)
    : QObject(parent), m_script(std::move(script)), m_out(std::move(out)), m_target(target) {
    m_timer.setInterval(10);
    connect(&m_timer, &QTimer::timeout, this, &ScriptRunner::tick);
}

void ScriptRunner::start() {
    if (!QDir().mkpath(m_out)) {
        Q_EMIT done(1, tr("%1 cannot be made").arg(m_out));
        return;
    }
    m_timer.start();
}

void ScriptRunner::stateChanged(State state) {
    m_seen.insert(static_cast<int>(state));
}

void ScriptRunner::tick() {
    if (m_at >= m_script.steps().size()) {
        m_timer.stop();
        Q_EMIT done(0, {});
        return;
    }
    const ScriptStep& step = m_script.steps()[m_at];
    if (!m_began) m_stepClock.start();
    m_began = true;
    switch (run(step)) {
        case Outcome::wait:
            return;
        case Outcome::next:
            ++m_at;
            m_began = false;
            return;
        case Outcome::failed:
            m_timer.stop();
            Q_EMIT done(
                1, QStringLiteral("%1:%2: %3").arg(m_script.name()).arg(step.line).arg(m_failure));
            return;
    }
}

ScriptRunner::Outcome ScriptRunner::failWith(const QString& what) {
    m_failure = what;
    return Outcome::failed;
}

ScriptRunner::Outcome ScriptRunner::patience(const QString& what) {
    return m_stepClock.elapsed() < kPatienceMs ? Outcome::wait : failWith(what);
}

ScriptRunner::Outcome ScriptRunner::run(const ScriptStep& step) {
    const QString& command = step.command;
    const QString argument = step.arguments.value(0);
    QWidget* window = m_target.scriptWindow();
    const auto act = [this](auto&& what) {
        m_seen.clear();
        what();
        return Outcome::next;
    };
    if (command == QLatin1String("open")) return act([&] { m_target.scriptOpen(argument); });
    if (command == QLatin1String("drop")) {
        return act([&] { m_target.scriptDrop(step.arguments); });
    }
    if (command == QLatin1String("wait-state")) return runWait(step);
    if (command == QLatin1String("type")) return runType(step);
    if (command == QLatin1String("key")) return runKey(step);
    if (command == QLatin1String("do")) {
        auto* action = findIn<QAction>(window, argument);
        if (!action) return failWith(tr("there is no action %1").arg(argument));
        if (!action->isEnabled()) return patience(tr("the action %1 is off").arg(argument));
        return act([&] { action->trigger(); });
    }
    if (command == QLatin1String("click")) {
        auto* button = findIn<QAbstractButton>(window, argument);
        if (!button || !button->isVisible()) {
            return patience(tr("there is no button %1").arg(argument));
        }
        if (!button->isEnabled()) return patience(tr("the button %1 is off").arg(argument));
        return act([&] { button->click(); });
    }
    if (command == QLatin1String("set")) {
        const auto set = m_target.scriptSet(argument, step.arguments[1]);
        return set ? Outcome::next : failWith(QString::fromStdString(set.error().message()));
    }
    if (command == QLatin1String("quit")) {
        m_at = m_script.steps().size() - 1;
        return Outcome::next;
    }
    // A part may be a dialog of its own: "do settings", then "shot NAME settingsSheet".
    QWidget* subject = window;
    if (step.arguments.size() > 1) subject = findIn<QWidget>(window, step.arguments[1]);
    if (!subject || !subject->isVisible())
        return patience(tr("there is no %1").arg(step.arguments[1]));
    m_target.scriptMeasure(false);
    bool written = true;
    QString path = m_out + QLatin1Char('/') + argument;
    if (command == QLatin1String("shot")) {
        path += QStringLiteral(".png");
        written = subject->grab().save(path);
    } else if (command == QLatin1String("state")) {
        path += QStringLiteral(".json");
        written = writeFile(path, QJsonDocument(m_target.scriptReport()).toJson());
    } else if (command == QLatin1String("audit")) {
        path += QStringLiteral(".txt");
        written = writeFile(path, auditLayout(subject).join(QLatin1Char('\n')).toUtf8());
    }
    m_target.scriptMeasure(true);
    return written ? Outcome::next : failWith(tr("%1 cannot be written").arg(path));
}

ScriptRunner::Outcome ScriptRunner::runWait(const ScriptStep& step) {
    const QString name = step.arguments[0];
    const double seconds = step.arguments.size() > 1 ? step.arguments[1].toDouble() : 60;
    const auto named = [&](State state) {
        const std::string_view known = state_name(state);
        return name == QLatin1String(known.data(), static_cast<int>(known.size()));
    };
    // Idle is where everything ends: it counts when nothing is on its way. A state that passes
    // quickly counts when it was there.
    if (named(m_target.scriptState()) && (!named(State::idle) || !m_target.scriptPending())) {
        return Outcome::next;
    }
    if (!named(State::idle)) {
        for (const int seen : m_seen) {
            if (named(static_cast<State>(seen))) return Outcome::next;
        }
    }
    if (static_cast<double>(m_stepClock.elapsed()) < seconds * 1000) return Outcome::wait;
    const std::string_view now = state_name(m_target.scriptState());
    return failWith(tr("still %1 after %2 s, not %3")
                        .arg(QLatin1String(now.data(), static_cast<int>(now.size())))
                        .arg(seconds)
                        .arg(name));
}

ScriptRunner::Outcome ScriptRunner::runType(const ScriptStep& step) {
    QWidget* widget = findIn<QWidget>(m_target.scriptWindow(), step.arguments[0]);
    if (!widget || !widget->isVisible()) {
        return patience(tr("there is no field %1").arg(step.arguments[0]));
    }
    if (!widget->isEnabled()) return patience(tr("the field %1 is off").arg(step.arguments[0]));
    widget->setFocus();
    m_seen.clear();
    if (auto* edit = qobject_cast<QPlainTextEdit*>(widget)) {
        edit->insertPlainText(step.arguments[1]);
    } else if (auto* line = qobject_cast<QLineEdit*>(widget)) {
        line->setText(step.arguments[1]);
        Q_EMIT line->editingFinished();
    } else if (auto* spin = qobject_cast<QAbstractSpinBox*>(widget)) {
        auto* inner = spin->findChild<QLineEdit*>();
        inner->setText(step.arguments[1]);
        spin->interpretText();
        Q_EMIT spin->editingFinished();
    } else {
        return failWith(tr("%1 takes no text").arg(step.arguments[0]));
    }
    return Outcome::next;
}

ScriptRunner::Outcome ScriptRunner::runKey(const ScriptStep& step) {
    const QKeySequence keys(step.arguments[0], QKeySequence::PortableText);
    if (keys.isEmpty()) return failWith(tr("%1 is no key").arg(step.arguments[0]));
    m_seen.clear();
    QWidget* focus = QApplication::focusWidget();
    if (!focus) focus = m_target.scriptWindow();
    for (const QKeyCombination combination : {keys[0]}) {
        // The field with the focus may claim a key before it counts as a shortcut.
        QKeyEvent claim(QEvent::ShortcutOverride, combination.key(),
                        combination.keyboardModifiers());
        claim.ignore();
        QApplication::sendEvent(focus, &claim);
        if (!claim.isAccepted()) {
            for (QAction* action : m_target.scriptWindow()->findChildren<QAction*>()) {
                if (action->isEnabled() && action->shortcuts().contains(keys)) {
                    action->trigger();
                    return Outcome::next;
                }
            }
        }
        const bool printable =
            combination.keyboardModifiers() == Qt::NoModifier && combination.key() < 0x100;
        const QString text = printable ? QString(QChar(combination.key())).toLower() : QString();
        for (const QEvent::Type type : {QEvent::KeyPress, QEvent::KeyRelease}) {
            QKeyEvent event(type, combination.key(), combination.keyboardModifiers(), text);
            QApplication::sendEvent(focus, &event);
        }
    }
    return Outcome::next;
}

}  // namespace granary::gui
