package toolcall

import (
	"crypto/rand"
	"fmt"
	"slices"
	"strings"

	"github.com/heftai/heft/internal/chat"
)

// specs is the table of families, in the order in which Detect asks: a template
// with the markers of several is the first's.
func specs() []*spec {
	return []*spec{
		&harmony, &deepseekDSML, &deepseekV3, &deepseekV31, &kimi, &solar, &gemma4, &lfm2, &olmo3, &apertus,
		&commandR7B, &commandR, &gigachat, &minimaxM2, &seedOSS, &minicpm, &glm, &qwenCoder, &functionary31,
		&functionary32, &mistral, &nemotron, &toolCallList, &granite, &hermes, &firefunction, &llamaPythonic, &llama,
		&plain,
	}
}

// A Family is a way of writing reasoning and calls. It is immutable and safe for
// concurrent use.
type Family struct {
	spec    *spec
	thinks  []think
	drops   []string
	content *markers // with calls
	answer  *markers // without
	thought []*markers
	unread  bool // see Unread
}

// Detect returns the first family in the table whose markers stand in the source of a chat
// template or, if there is none, among the texts of the model's special tokens. It returns
// the family "plain", which has no calls, if neither has markers. The family reads reasoning
// whose markers the template mentions. Detect does not render the template; [Find] does.
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

// ByName returns the family of that name, or of the name that vLLM has for it, with all
// its reasoning.
func ByName(name string) (*Family, error) {
	own := canonical(name)
	for _, s := range specs() {
		if s.name == own {
			return newFamily(s, ""), nil
		}
	}
	return nil, fmt.Errorf("toolcall: no family %.40q (there are %s)", name, strings.Join(Names(), ", "))
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

// Name of the family, as ByName takes it.
func (f *Family) Name() string { return f.spec.name }

// Calls tells whether the family has a notation for calls.
func (f *Family) Calls() bool { return len(f.spec.forms) > 0 }

// Active tells whether there is anything to look for in an answer of a model that was
// shown these tools; all of it is content if not.
func (f *Family) Active(tools chat.Value) bool {
	return len(f.thinks) > 0 || len(f.drops) > 0 || f.Calls() && len(newToolbox(tools)) > 0
}

// in tells whether source has the markers of the family.
func (s *spec) in(source string) bool {
	contains := func(text string) bool { return strings.Contains(source, text) }
	if slices.ContainsFunc(s.none, contains) {
		return false
	}
	return slices.ContainsFunc(s.all, func(list []string) bool {
		return !slices.ContainsFunc(list, func(text string) bool { return !contains(text) })
	})
}

// newFamily prepares s for parsing. Reasoning and frames whose markers source lacks
// are left out, if there is a source.
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

// WithReasoning is f with the reasoning of another family in place of its own; nil
// for none, which leaves thoughts in the content as the model writes them.
func (f *Family) WithReasoning(of *Family) *Family {
	out := &Family{spec: f.spec, drops: f.drops, unread: f.unread}
	if of != nil {
		out.thinks = of.thinks
	}
	out.prepare()
	return out
}

// prepare lists the markers that end a piece of text.
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

// Markers lists the texts by which the family's parser goes. A special token whose
// text is, or is part of, one of them must be visible in the text that is parsed; others
// need not be.
func (f *Family) Markers() []string {
	list := slices.Concat(f.drops, f.spec.seeds)
	for _, t := range f.thinks {
		list = append(list, t.open, t.close)
	}
	for _, form := range f.spec.forms {
		list = append(list, form.open, form.close, form.call, form.end)
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

// Visible tells whether the special token must be shown in the text that is parsed.
func (f *Family) Visible(token string) bool {
	return token != "" && slices.ContainsFunc(f.Markers(), func(m string) bool { return strings.Contains(m, token) })
}

// NewCallID makes an id for the call of that index in its message, in the shape
// that the family's templates accept, for calls to which the model gave none.
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
