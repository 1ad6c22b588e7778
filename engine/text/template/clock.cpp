// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/text/template/clock.h"

#include <array>
#include <chrono>
#include <cstdio>
#include <ctime>

#include "engine/text/template/failure.h"

namespace granary::jinja {

namespace {

struct Moment {
    std::chrono::year_month_day date;
    int hour = 0, minute = 0, second = 0, microsecond = 0;
    std::string offset;  // "+0200", or empty
};

Moment this_moment() {
    const auto now = std::chrono::system_clock::now();
    const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
    std::tm local{};
    localtime_r(&seconds, &local);
    Moment moment;
    moment.date = std::chrono::year(local.tm_year + 1900) /
                  (static_cast<unsigned>(local.tm_mon) + 1) / static_cast<unsigned>(local.tm_mday);
    moment.hour = local.tm_hour;
    moment.minute = local.tm_min;
    moment.second = local.tm_sec;
    const auto part = now.time_since_epoch() % std::chrono::seconds(1);
    moment.microsecond =
        static_cast<int>(std::chrono::duration_cast<std::chrono::microseconds>(part).count());
    return moment;
}

// Exactly `count` digits at the front of text, which loses them; -1 otherwise.
int take_digits(std::string_view& text, size_t count) {
    if (text.size() < count) return -1;
    int value = 0;
    for (const char c : text.substr(0, count)) {
        if (c < '0' || c > '9') return -1;
        value = value * 10 + (c - '0');
    }
    text.remove_prefix(count);
    return value;
}

bool take(std::string_view& text, char c) {
    if (!text.starts_with(c)) return false;
    text.remove_prefix(1);
    return true;
}

Moment parse(std::string_view text) {
    const auto refuse = [whole = std::string(text)]() {
        stop("the time '" + whole + "' is not of the form 2026-01-31T23:59:59");
    };
    Moment moment;
    const int year = take_digits(text, 4);
    const int month = take(text, '-') ? take_digits(text, 2) : -1;
    const int day = take(text, '-') ? take_digits(text, 2) : -1;
    if (year < 0 || month < 0 || day < 0) refuse();
    moment.date = std::chrono::year(year) / month / day;
    if (!moment.date.ok()) refuse();
    if (text.empty()) return moment;
    if (!take(text, 'T') && !take(text, ' ')) refuse();
    moment.hour = take_digits(text, 2);
    moment.minute = take(text, ':') ? take_digits(text, 2) : -1;
    moment.second = take(text, ':') ? take_digits(text, 2) : 0;
    if (moment.hour < 0 || moment.hour > 23 || moment.minute < 0 || moment.minute > 59 ||
        moment.second < 0 || moment.second > 59) {
        refuse();
    }
    if (take(text, '.')) {
        int scale = 100000;
        if (text.empty() || text[0] < '0' || text[0] > '9') refuse();
        for (; !text.empty() && text[0] >= '0' && text[0] <= '9'; text.remove_prefix(1)) {
            moment.microsecond += (text[0] - '0') * scale;
            scale /= 10;
        }
    }
    if (take(text, 'Z')) {
        moment.offset = "+0000";
    } else if (!text.empty()) {
        const char sign = text[0];
        if (sign != '+' && sign != '-') refuse();
        text.remove_prefix(1);
        const int hours = take_digits(text, 2);
        take(text, ':');
        const int minutes = text.empty() ? 0 : take_digits(text, 2);
        if (hours < 0 || minutes < 0) refuse();
        char buffer[16];
        std::snprintf(buffer, sizeof buffer, "%c%02d%02d", sign, hours % 100, minutes % 100);
        moment.offset = buffer;
    }
    if (!text.empty()) refuse();
    return moment;
}

constexpr std::array<const char*, 7> kDays = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                              "Thursday", "Friday", "Saturday"};
constexpr std::array<const char*, 12> kMonths = {"January",   "February", "March",    "April",
                                                 "May",       "June",     "July",     "August",
                                                 "September", "October",  "November", "December"};

// Number with a width, padded with zeros, with blanks ('_') or not at all ('-').
std::string padded(int value, size_t width, char flag, char fallback = '0') {
    std::string digits = std::to_string(value);
    const char fill = flag == '\0' ? fallback : flag == '_' ? ' ' : '0';
    if (flag != '-' && digits.size() < width) digits.insert(0, width - digits.size(), fill);
    return digits;
}

std::string field(const Moment& m, char directive, char flag) {
    using std::chrono::days;
    using std::chrono::sys_days;
    const int year = static_cast<int>(m.date.year());
    const int month = static_cast<int>(static_cast<unsigned>(m.date.month()));
    const int day = static_cast<int>(static_cast<unsigned>(m.date.day()));
    const sys_days date(m.date);
    const auto weekday = std::chrono::weekday(date).c_encoding();
    const auto monday_based = (weekday + 6) % 7;
    const sys_days new_year(m.date.year() / 1 / 1);
    const int day_of_year = static_cast<int>((date - new_year).count()) + 1;
    const int hour12 = m.hour % 12 == 0 ? 12 : m.hour % 12;
    const char* half = m.hour < 12 ? "AM" : "PM";
    const auto many = [&m](std::string_view parts) {
        std::string out;
        for (const char c : parts) out += c >= 'A' ? field(m, c, '\0') : std::string(1, c);
        return out;
    };
    switch (directive) {
        case 'Y':
            return padded(year, 4, flag);
        case 'y':
            return padded(year % 100, 2, flag);
        case 'C':
            return padded(year / 100, 2, flag);
        case 'm':
            return padded(month, 2, flag);
        case 'd':
            return padded(day, 2, flag);
        case 'e':
            return padded(day, 2, flag, ' ');
        case 'B':
            return kMonths[static_cast<size_t>(month) - 1];
        case 'b':
        case 'h':
            return std::string(kMonths[static_cast<size_t>(month) - 1]).substr(0, 3);
        case 'A':
            return kDays[weekday];
        case 'a':
            return std::string(kDays[weekday]).substr(0, 3);
        case 'w':
            return std::to_string(weekday);
        case 'u':
            return std::to_string(monday_based + 1);
        case 'j':
            return padded(day_of_year, 3, flag);
        case 'U':
            return padded((day_of_year + 6 - static_cast<int>(weekday)) / 7, 2, flag);
        case 'W':
            return padded((day_of_year + 6 - static_cast<int>(monday_based)) / 7, 2, flag);
        case 'H':
            return padded(m.hour, 2, flag);
        case 'I':
            return padded(hour12, 2, flag);
        case 'k':
            return padded(m.hour, 2, flag, ' ');
        case 'l':
            return padded(hour12, 2, flag, ' ');
        case 'M':
            return padded(m.minute, 2, flag);
        case 'S':
            return padded(m.second, 2, flag);
        case 'f':
            return padded(m.microsecond, 6, flag);
        case 'p':
            return half;
        case 'P':
            return m.hour < 12 ? "am" : "pm";
        case 'z':
            return m.offset;
        case 'Z':
            return m.offset.empty() ? "" : m.offset == "+0000" ? "UTC" : "UTC" + m.offset;
        case 'F':
            return many("Y-m-d");
        case 'T':
            return many("H:M:S");
        case 'R':
            return many("H:M");
        case 'D':
        case 'x':
            return many("m/d/y");
        case 'X':
            return many("H:M:S");
        case 'c':
            return many("a b e H:M:S Y");
        case 'r':
            return many("I:M:S p");
        case 'n':
            return "\n";
        case 't':
            return "\t";
        case '%':
            return "%";
        default:
            stop(std::string("strftime_now: the directive %") + directive + " is not supported",
                 ErrorKind::unsupported);
    }
}

}  // namespace

std::string format_time(std::string_view format, const std::optional<std::string>& now) {
    const Moment moment = now ? parse(*now) : this_moment();
    std::string out;
    for (size_t i = 0; i < format.size(); ++i) {
        if (format[i] != '%' || i + 1 == format.size()) {
            out += format[i];
            continue;
        }
        char flag = '\0';
        ++i;
        if ((format[i] == '-' || format[i] == '_' || format[i] == '0') && i + 1 < format.size()) {
            flag = format[i++];
        }
        out += field(moment, format[i], flag);
    }
    return out;
}

}  // namespace granary::jinja
