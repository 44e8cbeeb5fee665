package toolcall

import (
	"crypto/rand"
	"fmt"
	"slices"
	"strings"

	"github.com/heftai/heft/internal/chat"
)

// specs returns the table of families in the order in which Detect tries them. If a template has
// the markers of several families, Detect returns the first.
func specs() []*spec {
	return []*spec{
		&harmony, &deepseekDSML, &deepseekV3, &deepseekV31, &kimi, &solar, &gemma4, &lfm2, &olmo3, &apertus,
		&commandR7B, &commandR, &gigachat, &minimaxM2, &seedOSS, &minicpm, &glm, &qwenCoder, &functionary31,
		&functionary32, &mistral, &nemotron, &toolCallList, &granite, &hermes, &firefunction, &llamaPythonic, &llama,
		&plain,
	}
}

// A Family is a notation for reasoning and calls. It does not change and is safe for concurrent
// use.
type Family struct {
	spec    *spec
	thinks  []think
	drops   []string
	content *markers // with calls
	answer  *markers // without
	thought []*markers
	unread  bool // see Unread
}

// Detect returns the first family in the table whose markers occur in the source of a chat template
// or, if there is none, among the texts of the model's special tokens. If no family matches, it
// returns "plain", which has no calls. The family reads the reasoning whose markers the template
// mentions. Detect does not render the template; [Find] does.
func Detect(template string, specialTokens ...string) *Family {
	tokens := strings.Join(specialTokens, "\n")
	for _, source := range []string{template, tokens} {
		for _, s := range specs() {
			if s != &plain && s.in(source) {
				return newFamily(s, template+"\n"+tokens)
			}
		}
	}
	return newFamily(&plain, template+"\n"+tokens)
}

// ByName returns the family with that name or with that name in vLLM. The family reads all
// its reasoning markers. An unknown name is an error that lists the names.
func ByName(name string) (*Family, error) {
	own := canonical(name)
	for _, s := range specs() {
		if s.name == own {
			return newFamily(s, ""), nil
		}
	}
	return nil, fmt.Errorf("toolcall: unknown notation %.40q, want one of %s", name, strings.Join(Names(), ", "))
}

// Names lists the families in alphabetical order.
func Names() []string {
	var names []string
	for _, s := range specs() {
		names = append(names, s.name)
	}
	slices.Sort(names)
	return names
}

// Name is the family's name in the table, or "template" for a learned notation.
func (f *Family) Name() string { return f.spec.name }

// Calls reports whether the family has a notation for calls.
func (f *Family) Calls() bool { return len(f.spec.forms) > 0 }

// Active reports whether an answer of a model with these tools may contain anything but content.
func (f *Family) Active(tools chat.Value) bool {
	return len(f.thinks) > 0 || len(f.drops) > 0 || f.Calls() && len(newToolbox(tools)) > 0
}

// in reports whether source has the markers of the family.
func (s *spec) in(source string) bool {
	contains := func(text string) bool { return strings.Contains(source, text) }
	if slices.ContainsFunc(s.none, contains) {
		return false
	}
	return slices.ContainsFunc(s.all, func(list []string) bool {
		return !slices.ContainsFunc(list, func(text string) bool { return !contains(text) })
	})
}

// newFamily prepares s for parsing. If source is not "", it leaves out reasoning and frames whose
// markers source lacks.
func newFamily(s *spec, source string) *Family {
	f := &Family{spec: s}
	for _, t := range s.thinks {
		if source == "" || strings.Contains(source, t.open) || strings.Contains(source, t.close) {
			f.thinks = append(f.thinks, t)
		}
	}
	for _, text := range s.frames {
		if source == "" || strings.Contains(source, text) {
			f.drops = append(f.drops, text)
		}
	}
	f.drops = append(f.drops, s.drops...)
	f.prepare()
	return f
}

// WithReasoning returns f with the reasoning of another family. If of is nil, reasoning stays in
// the content as the model writes it.
func (f *Family) WithReasoning(of *Family) *Family {
	out := &Family{spec: f.spec, drops: f.drops, unread: f.unread}
	if of != nil {
		out.thinks = of.thinks
	}
	out.prepare()
	return out
}

// prepare builds the lists of markers for the parser.
func (f *Family) prepare() {
	var answer []marker
	for _, text := range f.drops {
		answer = append(answer, marker{text: text, act: actDrop})
	}
	for i, t := range f.thinks {
		answer = append(answer, marker{text: t.open, act: actThink, think: i}, marker{text: t.close, act: actStray})
		thought := []marker{{text: t.close, act: actThought}, {text: t.open, act: actStray}}
		for _, text := range t.implied {
			thought = append(thought, marker{text: text, act: actImplied})
		}
		f.thought = append(f.thought, newMarkers(thought))
	}
	f.answer = newMarkers(slices.Clone(answer))
	for i := range f.spec.forms {
		if form := &f.spec.forms[i]; form.open != "" {
			answer = append(answer, marker{text: form.open, act: actSection, form: form})
			if form.bare {
				answer = append(answer, marker{text: form.call, act: actBareCall, form: form})
			}
		}
	}
	f.content = newMarkers(answer)
}

// Markers lists the texts that the family's parser looks for. The parsed text must contain every
// special token that is a marker or a part of one.
func (f *Family) Markers() []string {
	list := slices.Concat(f.drops, f.spec.seeds)
	for _, t := range f.thinks {
		list = append(list, t.open, t.close)
	}
	for _, form := range f.spec.forms {
		list = append(list, form.open, form.close, form.call, form.sep, form.end, form.tail)
		for _, field := range form.head {
			list = append(list, field.until)
		}
		if t := form.tags; t != nil {
			list = append(list, t.open, t.key, t.close)
			list = append(list, t.value...)
		}
		list = append(list, form.quote)
	}
	slices.Sort(list)
	list = slices.Compact(list)
	return slices.DeleteFunc(list, func(s string) bool { return s == "" })
}

// Visible reports whether the parsed text must contain a special token.
func (f *Family) Visible(token string) bool {
	return token != "" && slices.ContainsFunc(f.Markers(), func(m string) bool { return strings.Contains(m, token) })
}

// NewCallID returns an id for a call to which the model gave none. index is the call's index in its
// message. The id has the form that the family's templates accept.
func (f *Family) NewCallID(name string, index int) string {
	text := rand.Text() // 26 letters and digits
	switch f.spec.ids {
	case mistralID:
		return text[:9]
	case kimiID:
		return fmt.Sprintf("functions.%s:%d", name, index)
	}
	return "call_" + strings.ToLower(text[:24])
}
