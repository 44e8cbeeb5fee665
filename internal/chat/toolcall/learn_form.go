package toolcall

import (
	"strings"

	"github.com/heftai/heft/internal/layout"
)

// head finds the fields between the marker of a call and its arguments, and the notation of the
// arguments.
func (l *lesson) head(text string, at span, one probeCall) bool {
	switch l.style {
	case objectStyle:
		return true
	case lastStyle:
		n, _ := decodeAt(text[at.body:])
		between := strings.TrimSpace(text[at.body+n : at.name])
		l.form.last, l.form.head = true, []field{{kind: emptyField, until: between}, {kind: nameField}}
		return between != ""
	case bareStyle:
		rest := text[at.body:]
		_, rest, _ = strings.Cut(rest, ":")
		quote, _, ok := strings.Cut(rest, "zqvalue")
		l.form.body, l.form.quote = bodyBare, quote
		return ok && quote != "" && l.fields(text, at, one, "{")
	case pythonStyle:
		l.form.body = bodyPython
		return l.fields(text, at, one, "(")
	case jsonStyle:
		l.form.body = bodyJSON
		sep := strings.TrimSpace(text[at.body-l.gap(text, at, one) : at.body])
		sep, l.fence = strings.CutSuffix(sep, "```json")
		if !l.fence {
			sep, l.fence = strings.CutSuffix(sep, "```")
		}
		sep = strings.TrimSpace(sep)
		if other, ok := l.secondGap(); ok && other != sep { // possibly a number
			before, after := commonPrefix(sep, other), commonSuffix(sep, other)
			return before != "" && after != "" && l.fields(text, at, one, strings.TrimSpace(before)) && l.addField(skipField, strings.TrimSpace(after))
		}
		return l.fields(text, at, one, sep)
	}
	if l.style == plainStyle || l.style == closedStyle {
		return l.learnPlain(text, at, one)
	}
	if l.style == flippedStyle {
		return l.learnFlipped(text, at, one)
	}
	return l.learnTags(text, at, one)
}

// gap returns the length of the text between the head and the body.
func (l *lesson) gap(text string, at span, one probeCall) int {
	end := at.name + len(one.name)
	if id := strings.Index(text[at.start:], l.id(one)); id >= 0 {
		end = max(end, at.start+id+len(l.id(one)))
	}
	return max(0, at.body-end)
}

// secondGap returns the text between the head and the body of the second of two calls.
func (l *lesson) secondGap() (string, bool) {
	one, two := newProbeCall(0, probeArguments), newProbeCall(1, probeArguments)
	text, ok := l.answer("", "", one, two)
	if !ok {
		return "", false
	}
	first, ok := l.find(text, one)
	if !ok {
		return "", false
	}
	text = text[first.end:]
	second, ok := l.find(text, two)
	if !ok {
		return "", false
	}
	gap := strings.TrimSpace(text[second.body-l.gap(text, second, two) : second.body])
	for _, fence := range []string{"```json", "```"} {
		gap = strings.TrimSpace(strings.TrimSuffix(gap, fence))
	}
	return gap, true
}

// fields sets the head: the name and possibly the id, in the order of the text. until ends the last
// field.
func (l *lesson) fields(text string, at span, one probeCall, until string) bool {
	id := strings.Index(text[at.start:at.body], l.id(one))
	kind := nameField
	if strings.HasPrefix(text[at.start:at.name], one.name) { // it is repeated
		if !l.addField(nameField, strings.TrimSpace(text[at.start+len(one.name):at.name])) {
			return false
		}
	}
	switch {
	case l.namedIDs && id >= 0:
		kind, l.ids = idNameField, kimiID
		return l.addField(kind, until)
	case id < 0 || at.start+id > at.body:
		return l.addField(kind, until)
	case at.start+id < at.name:
		between := text[at.start+id+len(l.id(one)) : at.name]
		return l.addField(idField, strings.TrimSpace(between)) && l.addField(nameField, until)
	}
	between := text[at.name+len(one.name) : at.start+id]
	return l.addField(nameField, strings.TrimSpace(between)) && l.addField(idField, until)
}

func (l *lesson) addField(kind fieldKind, until string) bool {
	f := field{kind: kind, until: until}
	if until == "" {
		f.stop = "{`\r\n\t "
		if l.tagged() {
			f.stop = "<[\r\n\t "
		}
	}
	l.form.head = append(l.form.head, f)
	return true
}

// frame finds the markers around calls. open precedes the first, between (if a template writes
// several calls) is the text between two, and after follows the last.
func (l *lesson) frame(open string, between *string, after string) bool {
	f := &l.form
	if l.tagged() {
		var ok bool
		if between, after, ok = l.afterValues(between, after); !ok {
			return false
		}
	}
	open, after = strings.TrimSpace(open), strings.TrimSpace(after)
	if l.style == objectStyle || l.style == pythonStyle {
		if o, ok := cutSuffixTrimmed(open, "["); ok && strings.HasPrefix(after, "]") {
			open, after, l.list = o, strings.TrimSpace(after[1:]), true
		}
		if o, ok := cutSuffixTrimmed(open, "```json"); ok && o != "" {
			open = o
		} else if o, ok := cutSuffixTrimmed(open, "```"); ok && o != "" {
			open = o
		}
	}
	join := ""
	if between != nil {
		join = strings.TrimSpace(*between)
		open, join = l.numbered(open, join)
		join, after = f.numberedClose(join, after)
	}
	if l.style == jsonStyle && l.fence {
		after = strings.TrimSpace(strings.TrimPrefix(after, "```"))
		join = strings.TrimSpace(strings.TrimPrefix(join, "```"))
	}
	if turn := strings.TrimSpace(l.answers.end); turn != "" {
		// The end of content before a call does not belong to the call. An answer is then several
		// messages.
		rest, ended := strings.CutPrefix(open, turn)
		if rest = strings.TrimSpace(rest); ended && rest != "" {
			open = rest
		} else if strings.Contains(join, turn) {
			join, between = "", nil // each call is a message: an answer has one
		}
	}
	switch {
	case l.apart:
		if !l.separated(open, join, after) {
			return false
		}
	case between == nil || join == "" || join == "," || join == ";":
		l.single(open, join, after, between != nil)
	default:
		if !l.several(open, join, after) {
			return false
		}
	}
	if f.open == "" {
		return l.unmarked()
	}
	l.stopName()
	return true
}

// stopName ends a name that has no other end before the call's end, or before the first parameter.
func (l *lesson) stopName() {
	f := &l.form
	if n := len(f.head); n > 0 && l.tagged() && f.head[n-1].until == "" {
		for _, next := range []string{f.end, f.tags.open} {
			if next != "" && isPunctuation(next[0]) {
				f.head[n-1].stop += next[:1]
			}
		}
	}
}

// numbered finds calls that have their number before the name, "1. NAME", or before their object,
// "<call 1>", and returns the text before the numbers.
func (l *lesson) numbered(open, join string) (string, string) {
	const digits = "0123456789"
	i, k := strings.LastIndexAny(open, digits), strings.LastIndexAny(join, digits)
	objects := l.style == objectStyle && !l.list
	if i < 0 || k < 0 || l.form.head == nil && !objects || open[i] == join[k] || open[i+1:] != join[k+1:] {
		return open, join
	}
	until := strings.TrimSpace(open[i+1:])
	before, again := strings.TrimSpace(open[:i]), strings.TrimSpace(join[:k])
	if until == "" || before == "" || again != "" && commonSuffix(before, again) == "" {
		return open, join
	}
	if objects {
		l.form.counted = until
		return before, again
	}
	l.form.head = append([]field{{kind: skipField, until: until}}, l.form.head...)
	return before, again
}

// numberedClose also finds the number of a call in its closing marker, "</call 1>". It returns the
// text after a call, alone and before another one, without that number.
func (f *form) numberedClose(join, after string) (string, string) {
	marker, ok := strings.CutSuffix(after, f.counted)
	number := strings.TrimRight(marker, "0123456789")
	rest, both := strings.CutPrefix(join, after)
	if f.counted == "" || !ok || !both || number == marker {
		return join, after
	}
	f.countedClose = true
	marker = strings.TrimSpace(number)
	return marker + rest, marker
}

// afterValues returns between and after without the text that closes the last parameter.
func (l *lesson) afterValues(between *string, after string) (*string, string, bool) {
	f := &l.form
	text := func(s string) string {
		if f.tags.json {
			s = strings.TrimPrefix(s, `"`)
		}
		if !strings.HasPrefix(f.tags.close, cdataClose) {
			s = strings.TrimPrefix(s, cdataClose)
		}
		return strings.TrimSpace(s)
	}
	closing := strings.ReplaceAll(strings.TrimSpace(f.tags.close), layout.KeyMark, "zqb")
	after, ok := strings.CutPrefix(text(after), closing)
	ok = ok || f.tags.ended
	if !ok || between == nil {
		return nil, after, ok
	}
	rest, ok := strings.CutPrefix(text(*between), closing)
	return &rest, after, ok || f.tags.ended
}

// single returns the frame of a section whose calls are only separated by commas, or of one call.
func (l *lesson) single(open, join, after string, several bool) {
	f := &l.form
	f.open, f.close = open, after
	if l.style == objectStyle || l.style == pythonStyle || several && join == "" && f.body != bodyTags {
		return
	}
	f.end, f.close = after, ""
}

// several returns the frame of calls with their own markers.
func (l *lesson) several(open, join, after string) bool {
	f := &l.form
	call := commonSuffix(open, join)
	if open == "" && l.seeded(join) { // the prompt ends with the marker of the first call
		call, open = join, join
	}
	if cut, ok := strings.CutPrefix(call, ">"); ok && strings.HasPrefix(cut, "<") {
		call = cut // the tags before it have the same end
	}
	if call == "" { // calls have an end and start with their names
		rest, ok := strings.CutPrefix(after, join)
		f.open, f.end, f.close = open, join, strings.TrimSpace(rest)
		return ok && f.open != "" && f.close != "" && f.head != nil && l.style != pythonStyle
	}
	end := strings.TrimSpace(join[:len(join)-len(call)])
	call = strings.TrimSpace(call)
	section, _ := cutSuffixTrimmed(open, call)
	rest, closed := strings.CutPrefix(after, end)
	if !closed {
		shared := commonPrefix(end, after)
		l.join = strings.TrimSpace(end[len(shared):])
		end, rest = strings.TrimSpace(shared), after[len(shared):]
	}
	rest = strings.TrimSpace(rest)
	if section == "" {
		f.open, f.end, f.close = call, end, ""
		if l.style == objectStyle || l.style == pythonStyle {
			f.end, f.close = "", end
		}
		l.turn = rest
		return true
	}
	f.open, f.call, f.end, f.close = section, call, end, rest
	f.bare = tag.MatchString(call)
	return true
}

// separated returns the frame of a section with a text between its calls.
func (l *lesson) separated(open, join, after string) bool {
	shared := commonPrefix(join, after)
	if i := strings.LastIndexAny(shared, "<["); i >= 0 && !strings.ContainsAny(shared[i:], ">]") {
		shared = shared[:i] // two tags have the same start
	}
	f := &l.form
	f.open, f.close = open, strings.TrimSpace(after[len(shared):])
	f.end, f.sep = strings.TrimSpace(shared), strings.TrimSpace(join[len(shared):])
	inJSON := l.style == jsonStyle || l.style == bareStyle
	return f.open != "" && f.close != "" && f.sep != "" && (f.end == "" || inJSON || l.tagged())
}

// unmarked learns calls that start an answer without a marker.
func (l *lesson) unmarked() bool {
	switch {
	case l.form.call != "":
		return false
	case l.list && (l.style == objectStyle || l.style == pythonStyle):
		l.form.peek = "["
	case l.style == objectStyle:
		l.form.peek = "{"
	default:
		return false
	}
	return true
}

// isPunctuation reports whether c ends a name that has no other end.
func isPunctuation(c byte) bool {
	return !isNameByte(c) || strings.IndexByte("|&?!$%^*~#@+", c) >= 0 || c >= 0x80
}

// cutLast cuts s around the last sep.
func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}
