// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/app/actions.h"

#include <QActionGroup>
#include <QWidget>

#include "gui/widgets/icons.h"

namespace granary::gui {

Actions::Actions(QWidget* window) : QObject(window), m_window(window) {
    openModel = make("openModel", tr("&Open a model\u2026"), tr("Choose a GGUF file"),
                     {QKeySequence::Open});
    openStarter = make("openStarter", tr("Open the &starter"),
                       tr("Opens the small model that comes with the program"));
    closeModel = make("closeModel", tr("&Close the model"), tr("Gives its memory back"));
    attach = make("attach", tr("&Add documents\u2026"),
                  tr("Add text, Markdown, source or PDF files to the next question"),
                  {QKeySequence(Qt::CTRL | Qt::SHIFT | Qt::Key_O)});
    attach->setIcon(icon(Glyph::attach));
    quit = make("quitProgram", tr("&Quit"), tr("Ends the program"), {QKeySequence::Quit});
    newChat =
        make("newChat", tr("&New chat"), tr("Begins an empty conversation"), {QKeySequence::New});
    newChat->setIcon(icon(Glyph::add));
    send = make("send", tr("Send"), tr("Sends the message (Enter)"),
                {QKeySequence(Qt::CTRL | Qt::Key_Return)});
    send->setIcon(icon(Glyph::send, true));
    stop = make("stop", tr("Stop"), tr("Stops reading, answering or loading (Escape)"),
                {QKeySequence(Qt::Key_Escape)});
    stop->setIcon(icon(Glyph::stop, true));
    continueAnswer =
        make("continue", tr("&Continue the answer"), tr("Goes on where the last answer ended"),
             {QKeySequence(Qt::CTRL | Qt::SHIFT | Qt::Key_C)});
    regenerate =
        make("regenerateAnswer", tr("Answer &again"), tr("Replaces the last answer with a new one"),
             {QKeySequence(Qt::CTRL | Qt::Key_R)});
    editLast = make("editLast", tr("&Edit the last question"),
                    tr("Puts the last question back into the input"),
                    {QKeySequence(Qt::CTRL | Qt::Key_Up)});
    copyAnswer =
        make("copyAnswer", tr("Copy the &last answer"), tr("Copies the last answer as Markdown"),
             {QKeySequence(Qt::CTRL | Qt::ALT | Qt::Key_C)});
    find = make("find", tr("&Find in this conversation"), tr("Searches the conversation"),
                {QKeySequence::Find});
    chatOptions =
        make("chatOptions", tr("&Options of this chat"), tr("System prompt and temperature"),
             {QKeySequence(Qt::CTRL | Qt::Key_Comma)});
    chatOptions->setIcon(icon(Glyph::sliders));
    chatOptions->setCheckable(true);
    nextPane = make("nextPane", tr("Next pane"), tr("Moves the focus to the next pane"),
                    {QKeySequence(Qt::Key_F6)});
    previousPane =
        make("previousPane", tr("Previous pane"), tr("Moves the focus to the previous pane"),
             {QKeySequence(Qt::SHIFT | Qt::Key_F6)});
    resetLayout = make("resetLayout", tr("&Reset layout"), tr("Puts the panes where they began"));
    toggleLibrary = make("toggleLibrary", tr("Chats"), tr("Shows or hides the chats"),
                         {QKeySequence(Qt::CTRL | Qt::Key_1)});
    toggleLibrary->setIcon(icon(Glyph::library));
    toggleVram = make("toggleVram", tr("Memory map"), tr("Shows or hides the memory map"),
                      {QKeySequence(Qt::CTRL | Qt::Key_2)});
    toggleVram->setIcon(icon(Glyph::map));
    toggleBottom = make("toggleBottom", tr("Time and log"), tr("Shows or hides plot and log"),
                        {QKeySequence(Qt::CTRL | Qt::Key_3)});
    for (QAction* toggle : {toggleLibrary, toggleVram, toggleBottom}) toggle->setCheckable(true);
    auto* themes = new QActionGroup(this);
    themeSystem = make("themeSystem", tr("As the system"), tr("Follows the system's colours"));
    themeLight = make("themeLight", tr("Light"), tr("Light colours"));
    themeDark = make("themeDark", tr("Dark"), tr("Dark colours"));
    for (QAction* theme : {themeSystem, themeLight, themeDark}) {
        theme->setCheckable(true);
        themes->addAction(theme);
    }
    about = make("about", tr("About Granary"), tr("Version and licence"));
}

QAction* Actions::make(const char* name, const QString& text, const QString& tip,
                       const QList<QKeySequence>& keys) {
    auto* action = new QAction(text, this);
    action->setObjectName(QLatin1String(name));
    action->setShortcuts(keys);
    const QString shortcut = action->shortcut().toString(QKeySequence::NativeText);
    action->setToolTip(shortcut.isEmpty() || tip.contains(QLatin1Char('('))
                           ? tip
                           : QStringLiteral("%1 (%2)").arg(tip, shortcut));
    action->setStatusTip(tip);
    m_window->addAction(action);
    return action;
}

}  // namespace granary::gui
