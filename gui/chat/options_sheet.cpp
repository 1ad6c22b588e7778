// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/chat/options_sheet.h"

#include <QDoubleSpinBox>
#include <QHBoxLayout>
#include <QKeyEvent>
#include <QLabel>
#include <QPainter>
#include <QPlainTextEdit>
#include <QSlider>
#include <QToolButton>

#include "gui/widgets/colors.h"
#include "gui/widgets/panel.h"

namespace granary::gui {

OptionsSheet::OptionsSheet(QWidget* parent) : QWidget(parent) {
    setObjectName(QStringLiteral("optionsSheet"));
    setAccessibleName(tr("Options of this chat"));
    setFixedWidth(kWidth);

    auto* title = new QLabel(tr("This chat"));
    QFont bold = title->font();
    bold.setWeight(QFont::DemiBold);
    title->setFont(bold);
    auto* close = iconButton(Glyph::close, tr("Close the options"));
    connect(close, &QToolButton::clicked, this, &OptionsSheet::closed);

    auto* systemLabel = new QLabel(tr("&System prompt"));
    m_system = new QPlainTextEdit;
    m_system->setObjectName(QStringLiteral("systemPrompt"));
    m_system->setAccessibleName(tr("System prompt"));
    m_system->setPlaceholderText(tr("What the model should keep in mind throughout"));
    m_system->setTabChangesFocus(true);
    m_system->setFrameShape(QFrame::NoFrame);
    m_system->viewport()->setAutoFillBackground(false);
    auto* field = new Panel;
    field->setEditor(m_system);
    auto* fieldLayout = new QVBoxLayout(field);
    fieldLayout->setContentsMargins(6, 6, 6, 6);
    fieldLayout->addWidget(m_system);
    field->setFixedHeight(8 * fontMetrics().lineSpacing() + 16);
    systemLabel->setBuddy(m_system);

    auto* temperatureLabel = new QLabel(tr("&Temperature"));
    m_temperature = new QDoubleSpinBox;
    m_temperature->setObjectName(QStringLiteral("temperature"));
    m_temperature->setAccessibleName(tr("Temperature"));
    m_temperature->setRange(0, 2);
    m_temperature->setSingleStep(0.05);
    m_temperature->setDecimals(2);
    temperatureLabel->setBuddy(m_temperature);
    m_slider = new QSlider(Qt::Horizontal);
    m_slider->setAccessibleName(tr("Temperature slider"));
    m_slider->setRange(0, 200);
    m_slider->setPageStep(10);
    auto* help =
        new QuietLabel(tr("0 always takes the most likely word: the same question gives "
                          "the same answer. Higher values vary more."));
    help->setWordWrap(true);
    auto* note =
        new QuietLabel(tr("A changed system prompt stands before everything else, so the "
                          "conversation is read again from its beginning."));
    note->setWordWrap(true);

    auto* head = new QHBoxLayout;
    head->addWidget(title, 1);
    head->addWidget(close);
    auto* values = new QHBoxLayout;
    values->addWidget(m_slider, 1);
    values->addWidget(m_temperature);
    auto* layout = new QVBoxLayout(this);
    layout->setContentsMargins(16, 12, 16, 16);
    layout->setSpacing(8);
    layout->addLayout(head);
    layout->addSpacing(4);
    layout->addWidget(systemLabel);
    layout->addWidget(field);
    layout->addWidget(note);
    layout->addSpacing(8);
    layout->addWidget(temperatureLabel);
    layout->addLayout(values);
    layout->addWidget(help);
    layout->addStretch(1);

    connect(m_slider, &QSlider::valueChanged, this,
            [this](int value) { m_temperature->setValue(value / 100.0); });
    connect(m_temperature, &QDoubleSpinBox::valueChanged, this, [this](double value) {
        const QSignalBlocker blocker(m_slider);
        m_slider->setValue(qRound(value * 100));
        Q_EMIT optionsChanged(options());
    });
    connect(m_system, &QPlainTextEdit::textChanged, this,
            [this] { Q_EMIT optionsChanged(options()); });
}

void OptionsSheet::setOptions(const ChatOptions& options) {
    const QSignalBlocker blocker(this);
    if (options.systemPrompt != m_system->toPlainText()) {
        m_system->setPlainText(options.systemPrompt);
    }
    m_temperature->setValue(options.temperature);
}

ChatOptions OptionsSheet::options() const {
    return {m_system->toPlainText(), m_temperature->value()};
}

void OptionsSheet::keyPressEvent(QKeyEvent* event) {
    if (event->key() == Qt::Key_Escape)
        Q_EMIT closed();
    else
        QWidget::keyPressEvent(event);
}

void OptionsSheet::paintEvent(QPaintEvent*) {
    QPainter painter(this);
    painter.fillRect(rect(), palette().color(QPalette::Window));
    painter.fillRect(QRect(0, 0, 1, height()), hairline(palette()));
}

}  // namespace granary::gui
