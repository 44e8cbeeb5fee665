package toolcall

import (
	"strings"

	"github.com/heftai/heft/internal/chat"
)

// A style is a way of writing a call. It is found by rendering one.
type style uint8

const (
	objectStyle  style = iota // a JSON object holds the name and the arguments
	jsonStyle                 // a name, then a JSON object
	pythonStyle               // name(key="text")
	bareStyle                 // name{key:QUOTEtextQUOTE}
	lastStyle                 // a JSON object, then the name
	tagStyle                  // a name, then each key and its text between tags
	plainStyle                // a name, then each key and its text without quotes
	closedStyle               // as plainStyle, but the end of a text is not a part of the end of the call
	flippedStyle              // a name, then each text and its key between tags
)

// A lesson is the notation of one template while it is learned.
type lesson struct {
	*answers
	style style
	form  form
	list  bool // the calls are items of a list
	fence bool // inside a code fence
	ids   idStyle
	turn  string // ends a turn of calls
	join  string // text between calls, in addition to their markers
	apart bool   // text occurs between calls, but not before the first
}

// A finding is the result of learning from a template.
type finding struct {
	spec   *spec    // the best notation; nil if none reads back what the template writes
	score  int      // number of trials that it reads back
	all    bool     // it reads back all trials
	writes *answers // the first way in which the template writes calls, or nil
}

// learn finds the notation of calls that a template writes.
func learn(t *chat.Template, special map[string]string) (best finding) {
	for _, s := range settings {
		p := newProber(t, special)
		p.setting = s
		a, ok := newAnswers(p)
		if !ok {
			continue
		}
		text, ok := a.answer("", "", newProbeCall(0, probeArguments))
		if !ok || !strings.Contains(text, probeNames[0]) || !strings.Contains(text, "zqvalue") {
			continue
		}
		if best.writes == nil {
			best.writes = a
		}
		for _, apart := range []bool{false, true} {
			if best.all {
				return best
			}
			for _, style := range []style{objectStyle, jsonStyle, pythonStyle, bareStyle, tagStyle, plainStyle, closedStyle, lastStyle, flippedStyle} {
				best = best.or(&lesson{answers: a, style: style, apart: apart}, text)
			}
		}
	}
	return best
}

// or learns the lesson from the text of a call. It returns the result if it is better than best.
func (best finding) or(l *lesson, text string) finding {
	if !l.learnForm(text) {
		return best
	}
	out := &spec{name: learnedName, forms: []form{l.form}, ids: l.ids}
	l.learnFrame(out)
	l.learnThoughts(out)
	out.withoutEmptyThoughts()
	out.tidy()
	good, written := l.readBack(newFamily(out, ""))
	certain := l.style != plainStyle && l.style != closedStyle && !l.form.endless()
	if good > best.score && (certain || good == written) {
		return finding{out, good, good == written, best.writes}
	}
	return best
}

// learnedName is the name of learned notations.
const learnedName = "template"

// settings are tried in this order.
var settings = []setting{
	{}, {textArguments: true}, {noContent: true}, {noContent: true, textArguments: true},
	{namedIDs: true}, {noTools: true}, {thinking: true}, {thinking: false},
}

// probeArguments are the arguments of the call that is examined first.
const probeArguments = `{"zqa": "zqvalue", "zqb": "zqmore"}`

// learnForm finds the form of the call in text, if it has the lesson's style.
func (l *lesson) learnForm(text string) bool {
	one := newProbeCall(0, probeArguments)
	at, ok := l.find(text, one)
	if !ok {
		return false
	}
	open, ok := l.opening(text, at, one)
	if !ok {
		return false
	}
	between := l.between()
	if between != nil {
		named := strings.Replace(*between, one.name, againName, 1)
		between = &named
	}
	after := strings.Replace(text[at.end:], one.name, againName, 1)
	return l.head(text, at, one) && l.frame(open, between, after) && l.form.closeName() && l.form.ends() && l.form.endName()
}

// ends reports whether the end of the call is recognisable.
func (f *form) ends() bool {
	if f.tags != nil && f.tags.flipped {
		return f.end != ""
	}
	if f.tags != nil && f.tags.plain != nil {
		// Values often contain a bracket or a period, but seldom on a line of its own. Without an
		// end, each is on its own line.
		return len(f.tags.close+f.end) > 1 || f.tags.endsByLine(f.end) || f.end == "" && strings.Contains(f.tags.plain.next+f.tags.plain.last, "\n")
	}
	return true
}

// endName makes the end of a call the end of its name, if the name comes last.
func (f *form) endName() bool {
	if !f.last {
		return true
	}
	end := f.end
	f.head[len(f.head)-1].until, f.end = end, ""
	return end != "" && !f.again
}

// againName is a placeholder for the name of a call that is repeated after the arguments.
const againName = "\x00"

// closeName finds the name in the end of the call. It returns false if the name is elsewhere.
func (f *form) closeName() bool {
	if strings.Contains(f.open+f.call+f.close, againName) {
		return false
	}
	end, tail, again := strings.Cut(f.end, againName)
	f.end, f.tail, f.again = end, tail, again
	return !again || end != "" && f.head != nil && f.body != bodyPython
}

// A span is the position of a call in a text.
type span struct {
	start int // of the object, or of the first of id and name
	name  int
	body  int // after the name, where the arguments start
	end   int // after the arguments
}

// opening returns the text before a call that belongs to the call. That text occurs with and
// without content before the call.
func (l *lesson) opening(text string, at span, one probeCall) (string, bool) {
	alone := strings.TrimPrefix(text[:at.start], strings.TrimSpace(l.opened)) // as an empty thought
	if both, ok := l.answer(probeContent, "", one); ok {
		if _, after, ok := strings.Cut(both, probeContent); ok {
			if at, ok := l.find(after, one); ok {
				after = after[:at.start]
				open := commonSuffix(alone, after)
				if strings.TrimSpace(open) == "" && strings.TrimSpace(after) != "" {
					return after, l.seeded(after)
				}
				return open, true
			}
		}
	}
	// Tags that also occur before content do not belong to the call.
	shared := tag.FindAllStringIndex(commonPrefix(alone, l.answers.frame), -1)
	if n := len(shared); n > 0 {
		alone = alone[shared[n-1][1]:]
	}
	return alone, true
}

// seeded reports whether the prompt ends with marker.
func (l *lesson) seeded(marker string) bool {
	return strings.HasSuffix(strings.TrimSpace(l.header), strings.TrimSpace(marker))
}

// between returns the text between two calls, or nil if the template writes only one.
func (l *lesson) between() *string {
	one, two := newProbeCall(0, probeArguments), newProbeCall(1, probeArguments)
	text, ok := l.answer("", "", one, two)
	if !ok {
		return nil
	}
	first, ok := l.find(text, one)
	if !ok {
		return nil
	}
	rest := text[first.end:]
	second, ok := l.find(rest, two)
	if !ok {
		return nil
	}
	rest = rest[:second.start]
	return &rest
}
