// SPDX-License-Identifier: GPL-3.0-or-later
// A laid-out piece of a message: as high as its text, selectable, never scrolling by itself.
#pragma once

#include <QTextBrowser>
#include <memory>

namespace granary::gui {

class TextBlock : public QTextBrowser {
    Q_OBJECT

  public:
    explicit TextBlock(QWidget* parent = nullptr);
    ~TextBlock() override;

    void setDocument(std::unique_ptr<QTextDocument> document);
    // The width that the text would take on one line, at most `limit`.
    int naturalWidth(int limit) const;

    QVariant loadResource(int, const QUrl&) override { return {}; }
    QSize sizeHint() const override;
    QSize minimumSizeHint() const override;
    bool hasHeightForWidth() const override { return true; }
    int heightForWidth(int width) const override;

  Q_SIGNALS:
    void linkActivated(const QUrl& link);
    void linkHovered(const QUrl& link);

  protected:
    void wheelEvent(QWheelEvent* event) override;
    void resizeEvent(QResizeEvent* event) override;
    void contextMenuEvent(QContextMenuEvent* event) override;

  private:
    void fit();

    std::unique_ptr<QTextDocument> m_document;
};

}  // namespace granary::gui
