// SPDX-License-Identifier: GPL-3.0-or-later
// Which part of a document too long for the model shall be read: where it begins, how many
// tokens, and its first and last lines. Nothing is cut that a person did not choose.
#pragma once

#include <QDialog>
#include <memory>

#include "gui/chat/chat_types.h"
#include "gui/documents/token_counter.h"

class QLabel;
class QPlainTextEdit;
class QSlider;
class QSpinBox;

namespace granary::gui {

// Tokens [from, from + length) of the document, grown or cut to whole lines. Its own tokens are
// to be counted again.
Document partOf(const Document& document, const TokenIndex& index, qint64 from, qint64 length);

class PartDialog : public QDialog {
    Q_OBJECT

  public:
    // `most`: tokens that the model has room for.
    PartDialog(Document document, std::shared_ptr<const TokenIndex> index, qint64 most,
               QWidget* parent = nullptr);
    Document part() const;

  private:
    void refresh();

    Document m_document;
    std::shared_ptr<const TokenIndex> m_index;
    QSlider* m_from;
    QSpinBox* m_length;
    QLabel* m_range;
    QPlainTextEdit* m_preview;
};

}  // namespace granary::gui
