package toolcall

import (
	"slices"
	"strings"

	"github.com/heftai/heft/internal/chat"
)

// Find returns the family of a model, from its chat template for conversations with tools.
//
// Find renders a few dozen conversations, learns how the template writes calls and reasoning, and
// checks that the learned notation reads back what the template writes. If a family of the table
// reads back as much, Find returns that family, because the table also has forms that models write
// and templates do not show. If the template writes no calls or does not render, Find uses the
// table alone. templates may be nil. Find takes some milliseconds. It is safe for concurrent use.
func Find(templates *chat.Set, specialTokens ...string) *Family {
	if templates == nil {
		return Detect("", specialTokens...)
	}
	t, err := templates.Template(chat.NewList())
	if err != nil {
		return Detect("", specialTokens...)
	}
	return find(t, templates.SpecialTokens, Detect(t.Source(), specialTokens...))
}

// find chooses between the learned notation and named, the family of the template's markers.
func find(t *chat.Template, special map[string]string, named *Family) *Family {
	r := learn(t, special)
	if r.writes == nil {
		out := named.learnThoughts(t, special)
		out.unread = !out.Calls() && takesTools(t, special)
		return out
	}
	good := 0
	if named.Calls() {
		good, _ = r.writes.readBack(named)
	}
	switch {
	case good > 0 && good >= r.score:
		return named
	case r.spec != nil:
		return newFamily(r.spec, "")
	}
	out := *named
	out.unread = true
	return &out
}

// Unread reports whether the template shows tools or writes calls, and the family does not parse
// them. Calls are then part of the content.
func (f *Family) Unread() bool { return f.unread }

// takesTools reports whether the template shows tools to the model.
func takesTools(t *chat.Template, special map[string]string) bool {
	text, ok := newProber(t, special).render(true)
	return ok && strings.Contains(text, probeNames[0])
}

// learnThoughts returns f if f reads back the reasoning that the template writes. Otherwise it
// returns f with the learned reasoning.
func (f *Family) learnThoughts(t *chat.Template, special map[string]string) *Family {
	out := *f
	for _, s := range settings {
		p := newProber(t, special)
		p.setting = s
		a, ok := newAnswers(p)
		if !ok {
			continue
		}
		text, ok := a.answer(probeContent, probeThought)
		if !ok || !strings.Contains(text, probeThought) || !strings.Contains(text, probeContent) || a.readsThought(f, text) {
			continue
		}
		learned := &spec{name: learnedName}
		(&lesson{answers: a}).learnThoughts(learned)
		learned.tidy()
		with := &Family{spec: f.spec, unread: f.unread, thinks: learned.thinks, drops: slices.Concat(f.drops, learned.drops)}
		with.prepare()
		if a.readsThought(with, text) {
			return with
		}
	}
	return &out
}

// readsThought reports whether f parses the probe's reasoning and content in an answer.
func (a *answers) readsThought(f *Family, text string) bool {
	m := f.Parse(text, Options{Prompt: a.header})
	return strings.TrimSpace(m.Reasoning) == probeThought && strings.TrimSpace(m.Content) == probeContent
}
