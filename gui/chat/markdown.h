// SPDX-License-Identifier: GPL-3.0-or-later
// Markdown of an answer: cut into text and code, and laid out without HTML and without loading
// anything.
#pragma once

#include <QFont>
#include <QPalette>
#include <QString>
#include <QTextDocument>
#include <memory>
#include <vector>

namespace granary::gui {

struct MarkdownPart {
    bool code = false;
    QString language;  // of code; may be empty
    QString text;      // without the fences
    bool operator==(const MarkdownPart&) const = default;
};

// Cuts at fences that start in the first three columns; an open fence reaches to the end. Text
// longer than `cut` characters is also cut at its blank lines, so that a part stays cheap to lay
// out again while it streams. Concatenation order is the order of the answer.
std::vector<MarkdownPart> splitMarkdown(const QString& markdown, int cut = 4000);

// A document that loads no resource: no image, no style sheet, no file.
class SafeDocument : public QTextDocument {
    Q_OBJECT

  public:
    using QTextDocument::QTextDocument;

  protected:
    QVariant loadResource(int, const QUrl&) override { return {}; }
};

// Built detached: setting Markdown on a document that is shown costs ten times as much.
std::unique_ptr<QTextDocument> renderMarkdown(const QString& markdown, const QFont& font,
                                              const QPalette& palette);
std::unique_ptr<QTextDocument> renderPlain(const QString& text, const QFont& font);

}  // namespace granary::gui
