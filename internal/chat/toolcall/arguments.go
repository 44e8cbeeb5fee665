package toolcall

import (
	"strings"

	"github.com/heftai/heft/internal/layout"
)

// Arguments describe a notation of arguments that are not a JSON object.
type Arguments struct{ layout.Object }

// argumentTexts are renderings of calls whose arguments are not JSON.
type argumentTexts struct {
	one, two, twoCalls, number, numbers, empty string
}

// argumentTexts renders the calls from which Arguments are learned.
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

// cutAll splits text at words in their order: n words give n+1 pieces.
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

// argumentNotation learns a notation whose arguments are not JSON, in the first form of f with such
// arguments. It returns nil if there is none, or if f does not read back the notation's calls.
func (a *answers) argumentNotation(f *Family) *Notation {
	kind, form := f.argumentForm()
	if kind == 0 {
		return nil
	}
	t, ok := a.argumentTexts()
	if !ok {
		return nil
	}
	if form.tags != nil && form.tags.flipped {
		return a.flippedNotation(f, kind, t)
	}
	name := probeNames[0]
	one, ok1 := cutAll(t.one, name, "zqa", "zqvalue")
	two, ok2 := cutAll(t.two, name, "zqa", "zqvalue", "zqb")
	number, ok3 := cutAll(t.number, name, "zqn", "70")
	numbers, ok4 := cutAll(t.numbers, name, "zqn", "70", "zqt")
	empty, ok5 := cutAll(t.empty, name)
	if again, found := cutAll(t.empty, name, name); found { // the name is repeated after the arguments
		empty = []string{again[0], again[1] + name + again[2]}
	}
	if !(ok1 && ok2 && ok3 && ok4 && ok5) {
		return nil
	}
	args := &Arguments{layout.Object{Kind: kind, First: one[1], EqualsText: one[2], Equals: number[2], Quote: form.quote}}
	after, next, ok := args.values(form, [4]string{one[3], two[3], number[3], numbers[3]})
	if !ok || two[1] != one[1] || number[1] != one[1] {
		return nil
	}
	if args.Next = next; args.Plain.Counted != "" {
		at := numberAtEnd.FindStringSubmatchIndex(next)
		if at == nil {
			return nil
		}
		args.Next = next[:at[2]] + layout.CountMark + next[at[3]:]
	}
	if args.Plain.Key != "" {
		args.Plain.Follow = []string{args.End + next, args.End + after}
	}
	n := &Notation{Before: a.beforeCalls(f, one[0]), Arguments: args}
	if args.Empty, ok = strings.CutSuffix(empty[1], after); !ok { // white space ends each value
		if args.Empty, ok = strings.CutSuffix(empty[1], strings.TrimLeft(after, spaces)); !ok {
			return nil
		}
	}
	n.Again, after = cutAgain(after, name)
	n.After = strings.TrimRight(after, " \t\r\n")
	n.Between = a.betweenArguments(n, t, one)
	if found := a.checked(f, n); found != nil || n.After == after {
		return found
	}
	n.After = after // white space ends the last call
	return a.checked(f, n)
}

// cutAgain splits the text after the arguments at the name of the call, if the name is repeated.
func cutAgain(text, name string) (again, after string) {
	if before, after, ok := strings.Cut(text, name); ok {
		return before, after
	}
	return "", text
}

// betweenArguments returns the text between two calls, or "" if the second is not written like the
// first. one has the pieces of a single call.
func (a *answers) betweenArguments(n *Notation, t argumentTexts, one []string) string {
	first, second := probeNames[0], probeNames[1]
	head, rest, ok1 := strings.Cut(t.twoCalls, "zqvalue")
	between, tail, ok2 := strings.Cut(rest, "zqa")
	before, equals, ok3 := strings.Cut(head, "zqa")
	if !(ok1 && ok2 && ok3) || before+equals != one[0]+first+one[1]+one[2] {
		return ""
	}
	between, ok := strings.CutPrefix(between, n.Arguments.textEnd("zqa"))
	if ok && n.Again != "" {
		between, ok = strings.CutPrefix(between, n.Again+first)
	}
	if !ok {
		return ""
	}
	between, ok = strings.CutSuffix(between, second+one[1])
	after := strings.ReplaceAll(one[3], first, second)
	if _, rest, found := strings.Cut(tail, "zqvalue"); !ok || !found || strings.TrimRight(rest, spaces) != strings.TrimRight(after, spaces) {
		return ""
	}
	return between
}

// argumentForm returns the first form of f whose arguments are not JSON.
func (f *Family) argumentForm() (layout.Kind, *form) {
	for i := range f.spec.forms {
		form := &f.spec.forms[i]
		switch {
		case form.pairs != nil && form.head == nil && !form.again:
			return layout.Values, form
		case form.head == nil || form.last:
		case form.body == bodyTags && form.tags.flipped && form.tags.json:
			return layout.Values, form
		case form.body == bodyTags && form.tags.json && form.tags.ended && !form.tags.named:
			return layout.Values, form
		case form.body == bodyTags && !form.tags.ended:
			return layout.Tags, form
		case form.body == bodyPython:
			return layout.Python, form
		case form.body == bodyBare:
			return layout.Bare, form
		}
	}
	return 0, nil
}

// values determines the texts after values. texts are those after a string at the end and before
// another key, and after a number. It sets the fields that depend on the kind. It returns the text
// that ends a call and the text before another key.
func (g *Arguments) values(form *form, texts [4]string) (after, next string, ok bool) {
	quote := form.quote
	if g.Kind == layout.Tags && !g.tagEnds(form, &texts) {
		return "", "", false
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
	if g.Kind == layout.Values { // the same text follows each value
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

// tagEnds sets the texts that end the values of tags. texts are those of values, in which the keys
// of elements become layout.KeyMark.
func (g *Arguments) tagEnds(form *form, texts *[4]string) bool {
	t := form.tags
	switch {
	case t.plain != nil:
		g.Plain, g.End = form.plainEnds(), t.close
		return true
	case t.named:
		for i, key := range []string{"zqa", "zqa", "zqn", "zqn"} {
			texts[i] = strings.Replace(texts[i], strings.ReplaceAll(t.close, layout.KeyMark, key), t.close, 1)
		}
	}
	g.Stop, g.JSONText = t.close, t.json
	if strings.Trim(g.Stop, "+-._0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") == "" {
		return false // other values may contain it
	}
	i := strings.Index(texts[0], g.Stop)
	if i < 0 {
		return false
	}
	g.End = texts[0][:i+len(g.Stop)]
	if g.JSONText {
		g.End = strings.TrimPrefix(g.End, `"`)
	}
	g.CDATA = t.cdata && g.End == g.Stop
	return !t.lines || strings.HasSuffix(g.EqualsText, "\n") && strings.HasPrefix(g.End, "\n")
}

// plainEnds says where the reader of f ends plain values.
func (f *form) plainEnds() layout.Plain {
	next := strings.TrimRight(f.tags.plain.next, " \t")
	if next == "" {
		next = f.tags.plain.next[:1]
	}
	ends := layout.Plain{Next: next, Key: f.tags.key, Close: f.tags.close, Lines: f.stops(), Counted: f.tags.counted}
	switch {
	case f.tags.endsByLine(f.end):
		ends.Lines = append(ends.Lines, f.end)
	case f.again:
		ends.Ends = []string{f.end + layout.NameMark + f.tail}
	case f.end != "":
		ends.Ends = []string{f.end}
	}
	return ends
}

// quotesText reports whether strings have quotes, as in JSON or Python.
func (g *Arguments) quotesText() bool {
	return g.Kind == layout.Python || g.Kind == layout.Values || g.JSONText
}

// textEnd returns the text after a string of one of the probes.
func (g *Arguments) textEnd(key string) string {
	switch {
	case g.Kind == layout.Bare:
		return g.Quote
	case g.quotesText():
		return `"` + g.End
	}
	return g.end(key)
}

// end returns the text that ends the value of a key.
func (g *Arguments) end(key string) string { return strings.ReplaceAll(g.End, layout.KeyMark, key) }

// write returns the arguments {"zqa": "x", "zqn": 7} in the notation, or empty arguments.
func (g *Arguments) write(some bool) string {
	switch {
	case g.Kind == layout.Text && some:
		return `{\"zqa\":\"x\",\"zqn\":7}`
	case g.Kind == layout.Text:
		return `{}`
	case !some:
		return g.Empty
	}
	text := "x"
	switch {
	case g.Kind == layout.Bare:
		text = g.Quote + text + g.Quote
	case g.quotesText():
		text = `"` + text + `"`
	}
	if g.Flipped {
		return g.First + text + g.Equals + "zqa" + g.End + g.Next + "7" + g.Equals + "zqn" + g.End
	}
	return g.First + "zqa" + g.EqualsText + text + g.end("zqa") + strings.ReplaceAll(g.Next, layout.CountMark, "2") + "zqn" + g.Equals + "7" + g.end("zqn")
}

// checked returns n if f reads its calls, without Between if f does not read several calls. It
// returns nil if f reads none.
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

// writtenNotation returns the table's notation of f. It is used if the templates show no calls or
// only one.
func (f *Family) writtenNotation(p *prober) *Notation {
	if f.spec.written == nil {
		return nil
	}
	n := *f.spec.written
	return (&answers{prober: p}).checked(f, &n)
}

// beforeCalls returns the text before the name of the first call, without empty reasoning.
func (a *answers) beforeCalls(f *Family, before string) string {
	for _, t := range f.thinks { // empty reasoning does not belong to the call
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
