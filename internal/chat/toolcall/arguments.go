package toolcall

import (
	"strings"
)

// ArgumentKind is a way to write arguments that are not a JSON object.
type ArgumentKind uint8

// The kinds.
const (
	// TagArguments stand between tags. Strings are text as it is, other values are JSON.
	TagArguments ArgumentKind = iota + 1
	// PythonArguments are keyword arguments: strings in quotes, True, False and None.
	PythonArguments
	// BareArguments are an object with bare keys and with strings between quotes of their own.
	BareArguments
	// ValueArguments are keys without quotes, each with a value in JSON.
	ValueArguments
)

// Arguments say how a model writes arguments that are not a JSON object:
//
//	First KEY Equals VALUE End { Next KEY Equals VALUE End }
//
// and Empty if there are none. Before a string stands EqualsText in place of Equals.
type Arguments struct {
	Kind               ArgumentKind
	First, Next, Empty string
	Equals, EqualsText string
	End                string
	// Stop ends the text of a value between tags: no value has it. End ends with it.
	Stop string
	// Quote stands around each string of BareArguments.
	Quote string
	// JSONText says that strings between tags are JSON, too.
	JSONText bool
	// CDATA says that a string between tags may stand in a CDATA section.
	CDATA bool
}

// argumentTexts are renderings of calls whose arguments are not JSON.
type argumentTexts struct {
	one, two, twoCalls, number, numbers, empty string
}

// render writes the calls from which Arguments are learned.
func (a *answers) argumentTexts() (t argumentTexts, ok bool) {
	call := func(arguments string) probeCall { return newProbeCall(0, arguments) }
	for _, r := range []struct {
		to    *string
		calls []probeCall
	}{
		{&t.one, []probeCall{call(`{"zqa": "zqvalue"}`)}},
		{&t.two, []probeCall{call(probeArguments)}},
		{&t.number, []probeCall{call(`{"zqn": 70}`)}},
		{&t.numbers, []probeCall{call(`{"zqn": 70, "zqt": true}`)}},
		{&t.empty, []probeCall{call(`{}`)}},
		{&t.twoCalls, []probeCall{call(`{"zqa": "zqvalue"}`), newProbeCall(1, `{"zqa": "zqvalue"}`)}},
	} {
		text, ok := a.answer("", "", r.calls...)
		if !ok && r.to != &t.twoCalls {
			return t, false
		}
		*r.to = text
	}
	return t, true
}

// cutAll cuts text at words in their order: n words make n+1 pieces.
func cutAll(text string, words ...string) (pieces []string, ok bool) {
	for _, w := range words {
		before, after, found := strings.Cut(text, w)
		if !found {
			return nil, false
		}
		pieces = append(pieces, before)
		text = after
	}
	return append(pieces, text), true
}

// argumentNotation learns a notation whose arguments are not JSON, in the first form of f that has
// such arguments. It returns nil if there is none, or if f does not read back what it says.
func (a *answers) argumentNotation(f *Family) *Notation {
	kind, form := f.argumentForm()
	if kind == 0 {
		return nil
	}
	t, ok := a.argumentTexts()
	if !ok {
		return nil
	}
	name := probeNames[0]
	one, ok1 := cutAll(t.one, name, "zqa", "zqvalue")
	two, ok2 := cutAll(t.two, name, "zqa", "zqvalue", "zqb")
	number, ok3 := cutAll(t.number, name, "zqn", "70")
	numbers, ok4 := cutAll(t.numbers, name, "zqn", "70", "zqt")
	empty, ok5 := cutAll(t.empty, name)
	if !(ok1 && ok2 && ok3 && ok4 && ok5) {
		return nil
	}
	args := &Arguments{Kind: kind, First: one[1], EqualsText: one[2], Equals: number[2], Quote: form.quote}
	after, next, ok := args.values(form, [4]string{one[3], two[3], number[3], numbers[3]})
	if !ok || two[1] != one[1] || number[1] != one[1] {
		return nil
	}
	args.Next = next
	if args.Empty, ok = strings.CutSuffix(empty[1], after); !ok {
		return nil
	}
	n := &Notation{Before: a.beforeCalls(f, one[0]), After: strings.TrimRight(after, " \t\r\n"), Arguments: args}
	if calls, ok := cutAll(t.twoCalls, name, "zqa", "zqvalue", probeNames[1], "zqa", "zqvalue"); ok {
		between, ok := strings.CutPrefix(calls[3], args.textEnd())
		if ok && calls[4] == one[1] && strings.TrimRight(calls[6], " \t\r\n") == strings.TrimRight(one[3], " \t\r\n") {
			n.Between = between
		}
	}
	if found := a.checked(f, n); found != nil || n.After == after {
		return found
	}
	n.After = after // white space ends the last call
	return a.checked(f, n)
}

// argumentForm returns the first form of f whose arguments are not JSON.
func (f *Family) argumentForm() (ArgumentKind, *form) {
	for i := range f.spec.forms {
		form := &f.spec.forms[i]
		switch {
		case form.pairs != nil && form.head == nil && form.tail == "":
			return ValueArguments, form
		case form.head == nil || form.tail != "" || form.last:
		case form.body == bodyTags && form.tags.json && form.tags.ended && !form.tags.named:
			return ValueArguments, form
		case form.body == bodyTags && !form.tags.named && !form.tags.ended && form.tags.plain == nil:
			return TagArguments, form
		case form.body == bodyPython:
			return PythonArguments, form
		case form.body == bodyBare:
			return BareArguments, form
		}
	}
	return 0, nil
}

// values splits what follows values: texts are that after a string at the end and before another
// key, and that after a number. It sets what depends on the kind and returns what ends a call and
// what stands before another key.
func (g *Arguments) values(form *form, texts [4]string) (after, next string, ok bool) {
	quote := form.quote
	if g.Kind == TagArguments {
		t := form.tags
		g.Stop, g.JSONText = t.close, t.json
		if g.Stop == "" || strings.IndexByte("{}[],:\"'+-. \t\r\n", g.Stop[0]) >= 0 || isTokenByte(g.Stop[0]) {
			return "", "", false // other values than strings may have it
		}
		i := strings.Index(texts[0], g.Stop)
		if i < 0 {
			return "", "", false
		}
		g.End = texts[0][:i+len(g.Stop)]
		if g.JSONText {
			g.End = strings.TrimPrefix(g.End, `"`)
		}
		g.CDATA = t.cdata && g.End == g.Stop
		if t.lines && !(strings.HasSuffix(g.EqualsText, "\n") && strings.HasPrefix(g.End, "\n")) {
			return "", "", false
		}
	}
	if g.quotesText() {
		quote = `"`
		if strings.HasSuffix(g.EqualsText, "'") {
			quote = "'"
		}
	}
	if g.EqualsText, ok = strings.CutSuffix(g.EqualsText, quote); !ok {
		return "", "", false
	}
	if g.Kind == ValueArguments { // the same text follows each value, whatever comes then
		first, second := strings.TrimPrefix(texts[0], quote), strings.TrimPrefix(texts[1], quote)
		g.End = commonPrefix(first, second)
	}
	for i := range texts {
		if i < 2 {
			if texts[i], ok = strings.CutPrefix(texts[i], quote); !ok {
				return "", "", false
			}
		}
		if texts[i], ok = strings.CutPrefix(texts[i], g.End); !ok {
			return "", "", false
		}
	}
	return texts[0], texts[1], texts[0] == texts[2] && texts[1] == texts[3]
}

// quotesText reports whether strings have quotes, as in JSON or Python.
func (g *Arguments) quotesText() bool {
	return g.Kind == PythonArguments || g.Kind == ValueArguments || g.JSONText
}

// textEnd is what follows a string of one of the probes.
func (g *Arguments) textEnd() string {
	switch {
	case g.Kind == BareArguments:
		return g.Quote
	case g.quotesText():
		return `"` + g.End
	}
	return g.End
}

// write is what the arguments {"zqa": "x", "zqn": 7} look like, or none.
func (g *Arguments) write(some bool) string {
	if !some {
		return g.Empty
	}
	text := "x"
	switch {
	case g.Kind == BareArguments:
		text = g.Quote + text + g.Quote
	case g.quotesText():
		text = `"` + text + `"`
	}
	return g.First + "zqa" + g.EqualsText + text + g.End + g.Next + "zqn" + g.Equals + "7" + g.End
}

// checked returns n, without Between if f does not read several calls, or nil if it reads none.
func (a *answers) checked(f *Family, n *Notation) *Notation {
	if a.reads(f, n) {
		return n
	}
	n.Between = ""
	if a.reads(f, n) {
		return n
	}
	return nil
}

// writtenNotation returns the notation that the table has for f, because its templates do not show
// calls, or show one call only.
func (f *Family) writtenNotation(p *prober) *Notation {
	if f.spec.written == nil {
		return nil
	}
	n := *f.spec.written
	return (&answers{prober: p}).checked(f, &n)
}

// beforeCalls is the text before the name of the first call, without an empty thought.
func (a *answers) beforeCalls(f *Family, before string) string {
	for _, t := range f.thinks { // an empty thought is not the call's
		if i := strings.LastIndex(before, t.close); i >= 0 {
			before = before[i+len(t.close):]
		}
	}
	if trimmed := strings.TrimLeft(before, " \t\r\n"); trimmed != "" {
		if strings.HasPrefix(before, " ") && strings.HasPrefix(trimmed, "to=") {
			return " " + trimmed // after a header
		}
		return trimmed
	}
	return before
}
