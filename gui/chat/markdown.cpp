// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/chat/markdown.h"

#include <QRegularExpression>
#include <QTextBlock>
#include <QTextCursor>
#include <QTextLayout>
#include <QTextTable>

#include "gui/widgets/colors.h"

namespace granary::gui {

namespace {

struct Fence {
    QChar mark;
    qsizetype length = 0;
    QString info;
};

// A line of three or more backticks or tildes after at most three spaces.
bool parseFence(QStringView line, Fence& fence) {
    qsizetype at = 0;
    while (at < line.size() && line[at] == QLatin1Char(' ')) ++at;
    if (at > 3 || at == line.size()) return false;
    const QChar mark = line[at];
    if (mark != QLatin1Char('`') && mark != QLatin1Char('~')) return false;
    qsizetype end = at;
    while (end < line.size() && line[end] == mark) ++end;
    if (end - at < 3) return false;
    fence = {mark, end - at, line.mid(end).trimmed().toString()};
    // A backtick in the info string means inline code.
    return mark != QLatin1Char('`') || !fence.info.contains(QLatin1Char('`'));
}

// A newline inside a paragraph is a line break in a chat; Markdown would make it a space.
QString keepLineBreaks(const QString& text) {
    static const QRegularExpression inner(QStringLiteral("(?<=[^\\s\\\\])\\n(?=\\S)"));
    QString result = text;
    return result.replace(inner, QStringLiteral("  \n"));
}

void polish(QTextDocument& document, const QFont& font, const QPalette& palette) {
    QTextCursor cursor(&document);
    cursor.beginEditBlock();
    for (QTextBlock block = document.begin(); block.isValid(); block = block.next()) {
        cursor.setPosition(block.position());
        QTextBlockFormat format = block.blockFormat();
        format.setLineHeight(132, QTextBlockFormat::ProportionalHeight);
        const int level = format.headingLevel();
        if (level > 0) {
            format.setTopMargin(level == 1 ? 14 : 10);
            format.setBottomMargin(4);
            QTextCharFormat heading;
            heading.setFontPointSize(font.pointSizeF() * (level == 1   ? 1.35
                                                          : level == 2 ? 1.2
                                                                       : 1.05));
            heading.clearProperty(QTextFormat::FontSizeAdjustment);
            cursor.movePosition(QTextCursor::EndOfBlock, QTextCursor::KeepAnchor);
            QTextCharFormat merged = cursor.charFormat();
            merged.clearProperty(QTextFormat::FontSizeAdjustment);
            merged.merge(heading);
            cursor.setCharFormat(merged);
            cursor.setPosition(block.position());
        }
        cursor.setBlockFormat(format);
        for (auto part = block.begin(); !part.atEnd(); ++part) {
            const QTextFragment fragment = part.fragment();
            if (!fragment.isValid() || !fragment.charFormat().fontFixedPitch()) continue;
            QTextCursor inside(&document);
            inside.setPosition(fragment.position());
            inside.setPosition(fragment.position() + fragment.length(), QTextCursor::KeepAnchor);
            QTextCharFormat code;
            code.setBackground(raised(palette));
            inside.mergeCharFormat(code);
        }
    }
    cursor.endEditBlock();
    for (QTextFrame* frame : document.rootFrame()->childFrames()) {
        auto* table = qobject_cast<QTextTable*>(frame);
        if (!table) continue;
        QTextTableFormat format = table->format();
        format.setBorderCollapse(true);
        format.setBorder(1);
        format.setBorderStyle(QTextFrameFormat::BorderStyle_Solid);
        format.setBorderBrush(hairline(palette));
        format.setCellPadding(5);
        format.setCellSpacing(0);
        table->setFormat(format);
    }
}

}  // namespace

std::vector<MarkdownPart> splitMarkdown(const QString& markdown, int cut) {
    std::vector<MarkdownPart> parts;
    QString text;
    const auto flush = [&] {
        const QString trimmed = text.trimmed();
        // Leading spaces of the first line mean indented code: only newlines are cut off there.
        if (!trimmed.isEmpty()) {
            qsizetype from = 0;
            while (from < text.size() && text[from] == QLatin1Char('\n')) ++from;
            qsizetype to = text.size();
            while (to > from && text[to - 1].isSpace()) --to;
            parts.push_back({false, {}, text.mid(from, to - from)});
        }
        text.clear();
    };
    Fence open;
    bool inCode = false;
    qsizetype at = 0;
    while (at < markdown.size()) {
        qsizetype end = markdown.indexOf(QLatin1Char('\n'), at);
        const bool last = end < 0;
        if (last) end = markdown.size();
        const QStringView line = QStringView(markdown).mid(at, end - at);
        Fence fence;
        if (inCode) {
            if (parseFence(line, fence) && fence.mark == open.mark && fence.length >= open.length &&
                fence.info.isEmpty()) {
                inCode = false;
            } else {
                QString& code = parts.back().text;
                code += line;
                if (!last) code += QLatin1Char('\n');
            }
        } else if (parseFence(line, fence)) {
            flush();
            open = fence;
            inCode = true;
            parts.push_back({true, fence.info.section(QLatin1Char(' '), 0, 0), {}});
        } else {
            text += line;
            if (!last) text += QLatin1Char('\n');
            if (text.size() > cut && line.trimmed().isEmpty()) flush();
        }
        at = end + 1;
    }
    flush();
    for (MarkdownPart& part : parts) {
        if (part.code && part.text.endsWith(QLatin1Char('\n'))) part.text.chop(1);
    }
    return parts;
}

std::unique_ptr<QTextDocument> renderMarkdown(const QString& markdown, const QFont& font,
                                              const QPalette& palette) {
    auto document = std::make_unique<SafeDocument>();
    document->setDocumentMargin(0);
    document->setDefaultFont(font);
    document->setUndoRedoEnabled(false);
    document->setMarkdown(keepLineBreaks(markdown),
                          QTextDocument::MarkdownFeatures(QTextDocument::MarkdownDialectGitHub) |
                              QTextDocument::MarkdownNoHTML);
    polish(*document, font, palette);
    return document;
}

std::unique_ptr<QTextDocument> renderPlain(const QString& text, const QFont& font) {
    auto document = std::make_unique<SafeDocument>();
    document->setDocumentMargin(0);
    document->setDefaultFont(font);
    document->setUndoRedoEnabled(false);
    document->setPlainText(text);
    return document;
}

}  // namespace granary::gui
