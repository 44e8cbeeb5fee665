package jinja

import (
	"fmt"
	"strings"
	"time"
)

// strftime formats t as C's strftime in the C locale, with glibc's flags: `-` no
// padding, `_` spaces, `0` zeros, `^` upper case. Unknown directives stay.
func strftime(t time.Time, layout string) string {
	var b strings.Builder
	for layout != "" {
		i := strings.IndexByte(layout, '%')
		if i < 0 || i+1 == len(layout) {
			break
		}
		b.WriteString(layout[:i])
		rest := layout[i+1:]
		flags := len(rest) - len(strings.TrimLeft(rest, "-_0^"))
		if flags == len(rest) {
			break
		}
		out, ok := directive(t, rest[flags])
		if !ok {
			out = layout[i : i+2+flags]
		} else {
			out = reflag(out, rest[:flags])
		}
		b.WriteString(out)
		layout = rest[flags+1:]
	}
	return b.String() + layout
}

func reflag(s, flags string) string {
	for _, f := range flags {
		bare := strings.TrimLeft(s, "0 ")
		if bare == "" && s != "" {
			bare = s[len(s)-1:]
		}
		switch f {
		case '-':
			s = bare
		case '_':
			s = strings.Repeat(" ", len(s)-len(bare)) + bare
		case '0':
			s = strings.Repeat("0", len(s)-len(bare)) + bare
		case '^':
			s = strings.ToUpper(s)
		}
	}
	return s
}

// goLayouts are the directives that Go's own layouts express.
var goLayouts = map[byte]string{
	'a': "Mon", 'A': "Monday", 'b': "Jan", 'h': "Jan", 'B': "January", 'd': "02", 'e': "_2", 'm': "01", 'y': "06",
	'H': "15", 'I': "03", 'M': "04", 'S': "05", 'p': "PM", 'P': "pm", 'j': "002",
	'c': "Mon Jan _2 15:04:05 2006", 'x': "01/02/06", 'X': "15:04:05", 'D': "01/02/06", 'F': "2006-01-02",
	'T': "15:04:05", 'R': "15:04", 'r': "03:04:05 PM",
}

func directive(t time.Time, c byte) (string, bool) {
	if layout, ok := goLayouts[c]; ok {
		return t.Format(layout), true
	}
	isoYear, isoWeek := t.ISOWeek()
	weekday, yearDay := int(t.Weekday()), t.YearDay()
	hour12 := (t.Hour()+11)%12 + 1
	switch c {
	case 'Y':
		return fmt.Sprint(t.Year()), true
	case 'C':
		return fmt.Sprintf("%02d", t.Year()/100), true
	case 'G':
		return fmt.Sprint(isoYear), true
	case 'g':
		return fmt.Sprintf("%02d", isoYear%100), true
	case 'V':
		return fmt.Sprintf("%02d", isoWeek), true
	case 'U':
		return fmt.Sprintf("%02d", (yearDay+6-weekday)/7), true
	case 'W':
		return fmt.Sprintf("%02d", (yearDay+6-(weekday+6)%7)/7), true
	case 'w':
		return fmt.Sprint(weekday), true
	case 'u':
		return fmt.Sprint((weekday+6)%7 + 1), true
	case 'k':
		return fmt.Sprintf("%2d", t.Hour()), true
	case 'l':
		return fmt.Sprintf("%2d", hour12), true
	case 'f':
		return fmt.Sprintf("%06d", t.Nanosecond()/1000), true
	case 's':
		return fmt.Sprint(t.Unix()), true
	case 'z', 'Z': // the reference asks for the local time without a zone
		return "", true
	case 'n':
		return "\n", true
	case 't':
		return "\t", true
	case '%':
		return "%", true
	}
	return "", false
}
