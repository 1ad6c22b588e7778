// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/theme/theme.h"

#include <QApplication>
#include <QPushButton>
#include <QSignalSpy>
#include <QTest>
#include <set>

#include "gui/theme/contrast.h"
#include "gui/theme/map_palette.h"
#include "gui/theme/units.h"

using namespace granary;
using namespace granary::gui;

class ThemeTest : public QObject {
    Q_OBJECT
  private Q_SLOTS:
    void contrastIsThatOfWcag() {
        QCOMPARE(contrastRatio(Qt::white, Qt::black), 21.0);
        QCOMPARE(contrastRatio(Qt::red, Qt::red), 1.0);
        QVERIFY(qAbs(contrastRatio(QColor(0x777777), Qt::white) - 4.48) < 0.01);
    }

    void textIsReadableEverywhere_data() {
        QTest::addColumn<bool>("dark");
        QTest::newRow("light") << false;
        QTest::newRow("dark") << true;
    }
    void textIsReadableEverywhere() {
        QFETCH(bool, dark);
        const QPalette p = Theme::palette(dark);
        const Tones& t = Theme::tones(dark);
        const auto readable = [](const QColor& text, const QColor& back, const char* what) {
            QVERIFY2(contrastRatio(text, back) >= 4.5,
                     qPrintable(QStringLiteral("%1: %2 on %3 is %4")
                                    .arg(QString::fromLatin1(what), text.name(), back.name())
                                    .arg(contrastRatio(text, back))));
        };
        for (const QPalette::ColorGroup group :
             {QPalette::Active, QPalette::Inactive, QPalette::Disabled}) {
            const auto c = [&](QPalette::ColorRole role) { return p.color(group, role); };
            readable(c(QPalette::WindowText), c(QPalette::Window), "window");
            readable(c(QPalette::WindowText), t.card, "card");
            readable(c(QPalette::Text), c(QPalette::Base), "base");
            readable(c(QPalette::Text), c(QPalette::AlternateBase), "alternate");
            readable(c(QPalette::PlaceholderText), c(QPalette::Base), "placeholder");
            readable(c(QPalette::ButtonText), c(QPalette::Button), "button");
            readable(c(QPalette::ButtonText), c(QPalette::Window), "disabled button");
            readable(c(QPalette::HighlightedText), c(QPalette::Highlight), "selection");
            readable(c(QPalette::ToolTipText), c(QPalette::ToolTipBase), "tooltip");
        }
        for (const QColor& back : {p.color(QPalette::Window), p.color(QPalette::Base), t.card}) {
            readable(p.color(QPalette::Link), back, "link");
            readable(p.color(QPalette::LinkVisited), back, "visited link");
            for (const QColor& text : {t.muted, t.accent, t.warning, t.danger, t.success})
                readable(text, back, "tone");
        }
        for (const QColor& back : {t.hover, t.infoBack, t.warningBack, t.dangerBack})
            readable(p.color(QPalette::WindowText), back, "bar");
        readable(t.muted, t.hover, "muted on hover");
        readable(MapPalette::of(dark).text, MapPalette::of(dark).canvas, "map label");
    }

    void classesStayApart_data() { textIsReadableEverywhere_data(); }
    void classesStayApart() {
        QFETCH(bool, dark);
        const MapPalette& map = MapPalette::of(dark);
        std::set<QRgb> fills;
        for (const ClassLook& look : map.classes) fills.insert(look.fill.rgb());
        QCOMPARE(fills.size(), size_t{kOwners});
        // The second channel.
        QVERIFY(map.look(Owner::loan).mark.isValid());
        QVERIFY(map.look(Owner::quarantined).mark.isValid());
        QVERIFY(contrastRatio(map.look(Owner::loan).mark, map.look(Owner::loan).fill) >= 2);
        QVERIFY(contrastRatio(map.look(Owner::quarantined).mark,
                              map.look(Owner::quarantined).fill) >= 4.5);
        // A fill that comes close to the canvas has a border that does not.
        for (const ClassLook& look : map.classes) {
            if (contrastRatio(look.fill, map.canvas) >= 3) continue;
            QVERIFY(look.border.isValid() || look.mark.isValid());
            if (look.border.isValid())
                QVERIFY(contrastRatio(look.border, map.canvas) >
                        contrastRatio(look.fill, map.canvas));
        }
        // Each step of recency is nearer to the last one in lightness than the one before.
        for (size_t step = 1; step < map.experts.size(); ++step)
            QVERIFY(contrastRatio(map.experts[step], map.experts.back()) <
                    contrastRatio(map.experts[step - 1], map.experts.back()));
        QCOMPARE(map.experts.back(), map.look(Owner::experts).fill);
    }

    void everyClassHasAMeaning() {
        std::set<QString> meanings;
        for (int i = 0; i < kOwners; ++i) meanings.insert(ownerMeaning(static_cast<Owner>(i)));
        QCOMPARE(meanings.size(), size_t{kOwners});
        QCOMPARE(ownerText(Owner::quarantined), QStringLiteral("quarantined"));
        QCOMPARE(ownerText(Owner::kv), QStringLiteral("kv"));
    }

    void themesSwitch() {
        Theme theme(*qApp);
        QSignalSpy changed(&theme, &Theme::changed);
        theme.setMode(ThemeMode::Dark);
        QVERIFY(Theme::isDark(QApplication::palette()));
        QVERIFY(theme.dark());
        theme.setMode(ThemeMode::Light);
        QVERIFY(!Theme::isDark(QApplication::palette()));
        QVERIFY(changed.count() >= 1);
        theme.setMode(ThemeMode::System);  // offscreen: light
        QVERIFY(!theme.dark());
        QVERIFY(!Theme::styleSheet(true).contains(QLatin1Char('%')));
        QVERIFY(!Theme::styleSheet(false).contains(QLatin1Char('%')));
        for (const ThemeMode mode : {ThemeMode::System, ThemeMode::Light, ThemeMode::Dark})
            QCOMPARE(Theme::modeFromName(Theme::name(mode)), mode);
        QCOMPARE(Theme::modeFromName(QStringLiteral("pink")), ThemeMode::System);
    }
};

QTEST_MAIN(ThemeTest)
#include "theme_test.moc"
